import pytest

@pytest.fixture(scope="session")
def mizzen_options():
    return {"loops": ["gc", "namespace"], "env": {"MIZZEN_LOG": "debug"}}
