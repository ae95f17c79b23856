"""The examples of docs/python.md, which shows these lines."""

import pathlib
import subprocess
import sys

import pykube
from kubernetes import client, watch
from lightkube import Client
from lightkube.config.kubeconfig import KubeConfig
from lightkube.resources.core_v1 import ServiceAccount

TESTS = pathlib.Path(__file__).parent


def run_python(*arguments):
    command = [sys.executable, *arguments]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert run.returncode == 0, run.stdout
    return run.stdout


def test_a_deployment_becomes_ready(mizzen_client, mizzen_namespace):
    apps = client.AppsV1Api(mizzen_client)
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    apps.create_namespaced_deployment(mizzen_namespace, {"metadata": {"name": "web"}, "spec": spec})
    for event in watch.Watch().stream(apps.list_namespaced_deployment, mizzen_namespace, timeout_seconds=30):
        if event["object"].status.ready_replicas == 2:
            return
    raise AssertionError("not ready")


def test_options_are_replaced_in_a_conftest():
    run_python("-m", "pytest", "-p", "no:cacheprovider", str(TESTS / "loops/loops_run.py"))


def test_a_program_starts_a_cluster():
    first, second = run_python(str(TESTS / "start.py")).splitlines()
    assert first.startswith("https://127.0.0.1:")
    assert second == "node-0"


def test_other_clients_read_the_kubeconfig(mizzen, mizzen_namespace):
    lightkube = Client(config=KubeConfig.from_file(mizzen.kubeconfig), namespace=mizzen_namespace)
    assert "default" in [account.metadata.name for account in lightkube.list(ServiceAccount, namespace="default")]

    api = pykube.HTTPClient(pykube.KubeConfig.from_file(mizzen.kubeconfig))
    assert [node.name for node in pykube.Node.objects(api)] == ["node-0"]
