"""The fixtures: a cluster per session and worker, a namespace per test, logs of failures."""

import os
import subprocess
import sys

import mizzen as package
from kubernetes import config


def run_pytest(directory, source, *arguments):
    (directory / "test_inner.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, str(directory)]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return run.returncode, run.stdout


def test_every_worker_has_its_own_cluster(tmp_path):
    source = f"""
import os
from pathlib import Path

def test_one(mizzen, mizzen_namespace):
    Path({str(tmp_path)!r}, os.environ["PYTEST_XDIST_WORKER"]).write_text(mizzen.url)
    assert os.environ["KUBECONFIG"] == mizzen.kubeconfig
"""
    code, output = run_pytest(tmp_path, source, "--dist=each", "--tx=2*popen")
    assert code == 0, output
    assert len({(tmp_path / worker).read_text() for worker in ["gw0", "gw1"]}) == 2


def test_a_failed_test_shows_the_log_and_options_can_be_replaced(tmp_path):
    source = """
import pytest

@pytest.fixture(scope="session")
def mizzen_options():
    return {"loops": [], "env": {"MIZZEN_LOG": "debug"}}

def test_one(mizzen):
    assert mizzen.request("GET", "/api/v1/nodes")["items"] != []
"""
    code, output = run_pytest(tmp_path, source)
    assert code == 1, output
    assert "mizzen log" in output and "/api/v1/nodes" in output.split("mizzen log", 1)[1], output


def test_a_missing_client_library_is_named(tmp_path):
    source = """
import sys

sys.modules["kubernetes"] = None

def test_one(mizzen_client):
    pass
"""
    code, output = run_pytest(tmp_path, source)
    assert code == 1, output
    assert "pip install kubernetes" in output, output


def test_a_namespace_is_deleted_after_its_test(mizzen, mizzen_namespace):
    assert os.environ["KUBECONFIG"] == mizzen.kubeconfig
    assert mizzen_namespace.startswith("test-a-namespace-is-deleted-after-its-te")
    found = mizzen.request("GET", f"/api/v1/namespaces/{mizzen_namespace}")
    assert found["status"]["phase"] == "Active"
    mizzen.delete_namespace(mizzen_namespace)


def test_the_official_client_finds_the_cluster_by_default(mizzen):
    # It is imported before the fixture, and reads KUBECONFIG when it is imported.
    with config.new_client_from_config() as api:
        assert api.configuration.host == mizzen.url


def test_the_package_is_installed_and_typed():
    assert package.__file__.startswith(sys.prefix)
    assert os.path.exists(os.path.join(os.path.dirname(package.__file__), "py.typed"))
