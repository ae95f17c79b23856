"""controller-runtime's envtest and setup-envtest, compiled into the Python package kubernetes_lite."""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import yaml
from kubernetes import client, config, watch
from kubernetes_lite.envtest import EnvTest
from kubernetes_lite.setup_envtest import internal_run_setup_envtest_command as setup_envtest

N_STARTS = 5


def started(auto_setup=False):
    """A control plane, and a client of its administrator."""
    environment = EnvTest()
    kubeconfig = yaml.safe_load(environment.start(auto_setup=auto_setup).read())
    return environment, config.new_client_from_config_dict(kubeconfig)


def definition(plural, kind):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    return {
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    }


def test_setup_envtest_lists_the_installed_version():
    listed = setup_envtest("list", "-i")
    assert listed.error is None and "(installed)  v1.36.4" in listed.stdout, listed


def test_setup_envtest_uses_the_installed_version():
    used = setup_envtest("use", "-i", "-p", "path", "1.36.x")
    assert used.error is None and "/k8s/1.36.4-" in used.stdout, used


def test_a_suite_starts_uses_and_stops_it():
    starts, stops = [], []
    for _ in range(N_STARTS):
        began = time.monotonic()
        environment, api = started()
        starts.append(time.monotonic() - began)
        namespaces = client.CoreV1Api(api).list_namespace().items
        assert "default" in [namespace.metadata.name for namespace in namespaces]
        began = time.monotonic()
        environment.stop()
        stops.append(time.monotonic() - began)
    start, stop = (1000 * statistics.median(times) for times in (starts, stops))
    print(f"envtest: start {start:.0f} ms, stop {stop:.0f} ms, medians of {N_STARTS}")


def test_definitions_are_served_and_watched():
    environment, api = started()
    definitions = client.ApiextensionsV1Api(api)
    definitions.create_custom_resource_definition(definition("ovens", "Oven"))
    for event in watch.Watch().stream(definitions.list_custom_resource_definition, timeout_seconds=30):
        conditions = event["object"].status.conditions or []
        if any(one.type == "Established" and one.status == "True" for one in conditions):
            break
    custom = client.CustomObjectsApi(api)
    oven = {"apiVersion": "example.com/v1", "kind": "Oven", "metadata": {"name": "one"}}
    custom.create_namespaced_custom_object("example.com", "v1", "default", "ovens", oven)
    found = custom.list_namespaced_custom_object("example.com", "v1", "default", "ovens")
    assert [one["metadata"]["name"] for one in found["items"]] == ["one"]
    environment.stop()


def test_suites_side_by_side_have_objects_of_their_own():
    with ThreadPoolExecutor() as pool:
        suites = list(pool.map(lambda _: started(), range(3)))
    for i, (_, api) in enumerate(suites):
        client.CoreV1Api(api).create_namespace({"metadata": {"name": f"of-{i}"}})
    for i, (environment, api) in enumerate(suites):
        names = [namespace.metadata.name for namespace in client.CoreV1Api(api).list_namespace().items]
        assert [name for name in names if name.startswith("of-")] == [f"of-{i}"]
        environment.stop()
