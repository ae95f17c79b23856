"""The fixtures of pytest: which cluster, client and namespace does a test get?

A session has one cluster, and so has each worker of pytest-xdist, because a worker is a session of its own. A conftest
replaces ``mizzen_options`` to start another one.
"""

import importlib
import re
import sys
from typing import Any, Dict, Generator, Iterator

import pytest

from .cluster import ApiError, Cluster

_CLUSTER: "pytest.StashKey[Cluster]" = pytest.StashKey()


@pytest.fixture(scope="session")
def mizzen_options() -> Dict[str, Any]:
    """The options of the cluster: keyword arguments of ``mizzen.Cluster``. To be replaced in a conftest."""
    return {}


@pytest.fixture(scope="session")
def mizzen(mizzen_options: Dict[str, Any], pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A running ``mizzen.Cluster``, one per session and worker.

    ``KUBECONFIG`` names it until the end of the session, so that no client reaches another cluster by mistake.
    """
    with Cluster(**mizzen_options) as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", cluster.kubeconfig)
        # The official client reads the variable when it is imported, which may have been before.
        loaded = sys.modules.get("kubernetes.config.kube_config")
        if loaded is not None:
            patch.setattr(loaded, "KUBE_CONFIG_DEFAULT_LOCATION", cluster.kubeconfig)
        pytestconfig.stash[_CLUSTER] = cluster
        yield cluster
        del pytestconfig.stash[_CLUSTER]


@pytest.fixture(scope="session")
def mizzen_client(mizzen: Cluster) -> Iterator[Any]:
    """A ``kubernetes.client.ApiClient`` of an administrator; ``kubernetes`` must be installed."""
    try:
        config: Any = importlib.import_module("kubernetes.config")
    except ImportError as error:
        pytest.fail(f"the fixture mizzen_client needs the package kubernetes (pip install kubernetes): {error}")
    client = config.new_client_from_config(config_file=mizzen.kubeconfig)
    yield client
    client.close()


@pytest.fixture
def mizzen_namespace(mizzen: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a namespace for one test, which is deleted after it."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].strip("-")
    name = mizzen.create_namespace(words or "test")
    yield name
    try:
        mizzen.delete_namespace(name)
    except ApiError as error:
        # The test may have deleted it.
        if error.status != 404:
            raise


# The old form of a wrapper, which pytest 7 has, too.
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Adds the end of the cluster's log to the report of a failed test."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()
    cluster = item.config.stash.get(_CLUSTER, None)
    if report.failed and cluster is not None and "mizzen" in getattr(item, "fixturenames", ()):
        tail = cluster.log_tail()
        if tail:
            report.sections.append(("mizzen log", tail))
