"""With the conftest.py of docs/python.md. test_documentation.py runs it, in a session of its own."""


def test_only_the_loops_of_the_fixture_run(mizzen, mizzen_namespace):
    assert mizzen.request("GET", "/api/v1/nodes")["items"] == []
    assert mizzen.request("GET", f"/api/v1/namespaces/{mizzen_namespace}")["status"]["phase"] == "Active"
    assert "/api/v1/nodes" in mizzen.log()
