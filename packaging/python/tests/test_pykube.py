"""pykube-ng: objects, queries, watches, scale, logs."""

import pykube
import pytest


@pytest.fixture
def api(mizzen):
    return pykube.HTTPClient(pykube.KubeConfig.from_file(mizzen.kubeconfig))


def deployment(namespace):
    labels = {"app": "web"}
    container = {"name": "web", "image": "web:1", "command": ["sh", "-c", "echo ready; sleep infinity"]}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


def test_a_deployment_is_watched_until_it_is_ready(api, mizzen_namespace):
    web = pykube.Deployment(api, deployment(mizzen_namespace))
    web.create()
    ready = lambda found, n: found.obj["status"].get("readyReplicas") == n
    watch = lambda: pykube.Deployment.objects(api).filter(namespace=mizzen_namespace).watch()
    assert any(ready(event.object, 1) for event in watch())
    web.reload()
    assert web.ready
    [pod] = pykube.Pod.objects(api).filter(namespace=mizzen_namespace, selector={"app": "web"})
    assert pod.ready and pod.logs() == "ready\n"

    web.scale(2)
    assert any(ready(event.object, 2) for event in watch())
    web.delete(propagation_policy="Background")
    assert not web.exists()


def test_updates_send_patches_and_labels_select(api, mizzen_namespace):
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": mizzen_namespace}}
    config_map = pykube.ConfigMap(api, {**obj, "data": {"a": "1"}})
    config_map.create()
    config_map.labels["tier"] = "front"
    config_map.obj["data"]["a"] = "2"
    config_map.update()
    selected = pykube.ConfigMap.objects(api).filter(namespace=mizzen_namespace, selector="tier=front")
    assert [found.obj["data"] for found in selected] == [{"a": "2"}]
    with pytest.raises(pykube.exceptions.HTTPError) as caught:
        pykube.ConfigMap(api, obj).create()
    assert caught.value.code == 409
