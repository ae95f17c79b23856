"""An operator of kopf: handlers, status, finalizers, retries; its children are garbage-collected."""

import greetings
import pytest
from kopf.testing import KopfRunner
from kubernetes import client, watch

FINALIZER = "kopf.zalando.org/KopfFinalizerMarker"
WATCH_SECONDS = 60


@pytest.fixture(scope="module")
def definition(mizzen_client):
    api = client.ApiextensionsV1Api(mizzen_client)
    api.create_custom_resource_definition(greetings.CRD)
    events = watch.Watch().stream(api.list_custom_resource_definition, timeout_seconds=WATCH_SECONDS)
    for event in events:
        conditions = event["object"].status.conditions or []
        if any(condition.type == "Established" and condition.status == "True" for condition in conditions):
            break
    yield
    api.delete_custom_resource_definition("greetings.example.dev")


def test_an_operator_handles_the_life_of_an_object(
    mizzen_client, mizzen_namespace, definition, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("GREETINGS_REGISTRY", str(tmp_path))
    # kopf, and with it the client of the handlers, finds the cluster as it finds any other: by KUBECONFIG.
    custom, core = client.CustomObjectsApi(mizzen_client), client.CoreV1Api(mizzen_client)
    kind = {"group": "example.dev", "version": "v1", "namespace": mizzen_namespace, "plural": "greetings"}

    def wait_until(accept, **options):
        options.update(kind, timeout_seconds=WATCH_SECONDS)
        for event in watch.Watch().stream(custom.list_namespaced_custom_object, **options):
            if accept(event["type"], event["object"]):
                return event["object"]
        raise AssertionError("the watch ended")

    operator = ["run", "--standalone", "--namespace", mizzen_namespace, greetings.__file__]
    with KopfRunner(operator, timeout=WATCH_SECONDS) as runner:
        greeting = {"apiVersion": "example.dev/v1", "kind": "Greeting", "metadata": {"name": "one"}}
        created = custom.create_namespaced_custom_object(body={**greeting, "spec": {"text": "hello"}}, **kind)
        handled = wait_until(lambda _, found: "create" in found.get("status", {}))
        assert handled["status"]["create"] == {"configMap": "one"}
        assert handled["metadata"]["finalizers"] == [FINALIZER]
        child = core.read_namespaced_config_map("one", mizzen_namespace)
        assert child.data == {"text": "hello"}
        assert child.metadata.owner_references[0].uid == created["metadata"]["uid"]
        assert [path.name for path in tmp_path.iterdir()] == [created["metadata"]["uid"]]

        custom.patch_namespaced_custom_object(name="one", body={"spec": {"text": "bye"}}, **kind)
        wait_until(lambda _, found: found["status"].get("text") == "bye")
        assert core.read_namespaced_config_map("one", mizzen_namespace).data == {"text": "bye"}

        # A watch from before the deletion sees it, however fast it is.
        before = core.list_namespaced_config_map(mizzen_namespace).metadata.resource_version
        custom.delete_namespaced_custom_object(name="one", **kind)
        wait_until(lambda type, _: type == "DELETED", resource_version=before)
        assert list(tmp_path.iterdir()) == []
        since = {"resource_version": before, "timeout_seconds": WATCH_SECONDS}
        events = watch.Watch().stream(core.list_namespaced_config_map, mizzen_namespace, **since)
        assert any(event["type"] == "DELETED" and event["object"].metadata.name == "one" for event in events)
    assert runner.exception is None and runner.exit_code == 0, caplog.text
    assert "the registry is busy" in caplog.text
    assert "Cannot authenticate" not in caplog.text
    recorded = [(event.reason, event.message) for event in core.list_namespaced_event(mizzen_namespace).items]
    assert ("Greeted", "said hello") in recorded


def test_an_invalid_object_never_reaches_the_operator(mizzen_client, mizzen_namespace, definition):
    custom = client.CustomObjectsApi(mizzen_client)
    greeting = {"apiVersion": "example.dev/v1", "kind": "Greeting", "metadata": {"name": "empty"}, "spec": {"text": ""}}
    with pytest.raises(client.ApiException) as caught:
        custom.create_namespaced_custom_object("example.dev", "v1", mizzen_namespace, "greetings", greeting)
    assert caught.value.status == 422 and "spec.text" in caught.value.body
