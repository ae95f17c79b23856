"""The official client: watch, patch, conflicts, deletion, exec, logs."""

import pytest
from kubernetes import client, watch
from kubernetes.client.rest import ApiException
from kubernetes.stream import stream

WATCH_SECONDS = 60


def deployment(name, replicas):
    labels = {"app": name}
    container = client.V1Container(name="web", image="web:1", command=["sh", "-c", "echo started; sleep infinity"])
    template = client.V1PodTemplateSpec(
        metadata=client.V1ObjectMeta(labels=labels), spec=client.V1PodSpec(containers=[container])
    )
    spec = client.V1DeploymentSpec(
        replicas=replicas, selector=client.V1LabelSelector(match_labels=labels), template=template
    )
    return client.V1Deployment(metadata=client.V1ObjectMeta(name=name), spec=spec)


def wait_until(list_function, namespace, accept, **options):
    """The first object of a watch that is accepted, by type of event and object.

    The watch begins with the objects that exist. For a deletion, ``resource_version`` is one from before it.
    """
    options.update(timeout_seconds=WATCH_SECONDS)
    for event in watch.Watch().stream(list_function, namespace, **options):
        if accept(event["type"], event["object"]):
            return event["object"]
    raise AssertionError("the watch ended")


def test_a_deployment_runs_scales_and_is_deleted_with_its_pods(mizzen_client, mizzen_namespace):
    apps, core = client.AppsV1Api(mizzen_client), client.CoreV1Api(mizzen_client)
    apps.create_namespaced_deployment(mizzen_namespace, deployment("web", 2))
    ready = lambda n: lambda _, found: found.status.ready_replicas == n
    wait_until(apps.list_namespaced_deployment, mizzen_namespace, ready(2))

    apps.patch_namespaced_deployment("web", mizzen_namespace, {"spec": {"replicas": 3}})
    wait_until(apps.list_namespaced_deployment, mizzen_namespace, ready(3))
    pods = core.list_namespaced_pod(mizzen_namespace, label_selector="app=web").items
    assert len(pods) == 3 and all(pod.spec.node_name and pod.status.pod_ip for pod in pods)

    before = apps.list_namespaced_deployment(mizzen_namespace).metadata.resource_version
    apps.delete_namespaced_deployment("web", mizzen_namespace, propagation_policy="Foreground")
    deleted = lambda kind, _: kind == "DELETED"
    wait_until(apps.list_namespaced_deployment, mizzen_namespace, deleted, resource_version=before)
    assert core.list_namespaced_pod(mizzen_namespace).items == []


def test_pods_have_logs_and_run_commands(mizzen_client, mizzen_namespace):
    core = client.CoreV1Api(mizzen_client)
    container = client.V1Container(name="main", image="main:1", command=["sh", "-c", "echo hello; sleep infinity"])
    spec = client.V1PodSpec(containers=[container])
    core.create_namespaced_pod(mizzen_namespace, client.V1Pod(metadata={"name": "one"}, spec=spec))
    running = lambda _, pod: pod.status.phase == "Running"
    wait_until(core.list_namespaced_pod, mizzen_namespace, running)
    assert core.read_namespaced_pod_log("one", mizzen_namespace) == "hello\n"
    said = stream(
        core.connect_get_namespaced_pod_exec, "one", mizzen_namespace, command=["echo", "from exec"], stdout=True
    )
    assert said == "from exec\n"


def test_a_stale_update_conflicts(mizzen_client, mizzen_namespace):
    core = client.CoreV1Api(mizzen_client)
    created = core.create_namespaced_config_map(mizzen_namespace, {"metadata": {"name": "one"}, "data": {"a": "1"}})
    core.patch_namespaced_config_map("one", mizzen_namespace, {"data": {"a": "2"}})
    created.data = {"a": "3"}
    with pytest.raises(ApiException) as caught:
        core.replace_namespaced_config_map("one", mizzen_namespace, created)
    assert caught.value.status == 409
    assert core.read_namespaced_config_map("one", mizzen_namespace).data == {"a": "2"}


def test_a_quota_and_validation_reject(mizzen_client, mizzen_namespace):
    core = client.CoreV1Api(mizzen_client)
    with pytest.raises(ApiException) as caught:
        core.create_namespaced_config_map(mizzen_namespace, {"metadata": {"name": "Not_A_Name"}})
    assert caught.value.status == 422 and "RFC 1123" in caught.value.body
    core.create_namespaced_resource_quota(
        mizzen_namespace, {"metadata": {"name": "none"}, "spec": {"hard": {"count/secrets": "0"}}}
    )
    counted = lambda _, quota: (quota.status.used or {}).get("count/secrets") == "0"
    wait_until(core.list_namespaced_resource_quota, mizzen_namespace, counted)
    with pytest.raises(ApiException) as caught:
        core.create_namespaced_secret(mizzen_namespace, {"metadata": {"name": "one"}})
    assert caught.value.status == 403 and "exceeded quota" in caught.value.body
