"""lightkube: waits for conditions, watches, server-side apply, logs, generic resources."""

import pytest
from lightkube import ApiError, Client
from lightkube.codecs import load_all_yaml
from lightkube.config.kubeconfig import KubeConfig
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Pod
from lightkube.types import PatchType

WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: "web:1", command: [sh, -c, "echo ready; sleep infinity"]}]
"""


@pytest.fixture
def lightkube(mizzen, mizzen_namespace):
    config = KubeConfig.from_file(mizzen.kubeconfig)
    return Client(config=config, namespace=mizzen_namespace, field_manager="tests")


def test_a_deployment_becomes_available_and_is_scaled(lightkube):
    for manifest in load_all_yaml(WEB):
        lightkube.create(manifest)
    ready = lightkube.wait(Deployment, "web", for_conditions=["Available"])
    assert ready.spec.replicas == 2
    lightkube.patch(Deployment, "web", {"spec": {"replicas": 1}}, patch_type=PatchType.MERGE)
    pods = lambda: [pod for pod in lightkube.list(Pod, labels={"app": "web"}) if not pod.metadata.deletionTimestamp]
    for event, found in lightkube.watch(Deployment, fields={"metadata.name": "web"}, server_timeout=60):
        if found.status and found.status.replicas == 1:
            break
    assert len(pods()) == 1
    assert list(lightkube.log(pods()[0].metadata.name)) == ["ready\n"]


def test_managers_of_server_side_apply_conflict(lightkube):
    config_map = lambda value: ConfigMap(
        apiVersion="v1", kind="ConfigMap", metadata=ObjectMeta(name="one"), data={"key": value}
    )
    lightkube.apply(config_map("1"), field_manager="first")
    with pytest.raises(ApiError, match='conflict with "first"') as caught:
        lightkube.apply(config_map("2"), field_manager="second")
    assert caught.value.status.code == 409
    applied = lightkube.apply(config_map("2"), field_manager="second", force=True)
    assert applied.data == {"key": "2"}
    managers = {entry.manager for entry in applied.metadata.managedFields}
    assert managers == {"first", "second"} or managers == {"second"}


def test_a_deleted_object_is_gone(lightkube):
    lightkube.create(ConfigMap(metadata=ObjectMeta(name="one")))
    lightkube.delete(ConfigMap, "one")
    with pytest.raises(ApiError) as caught:
        lightkube.get(ConfigMap, "one")
    assert caught.value.status.code == 404
