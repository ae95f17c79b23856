"""An operator for kopf: a Greeting owns a ConfigMap with its text, and is registered outside until it is deleted."""

import os
import pathlib

import kopf
from kubernetes import client

CRD = {
    "metadata": {"name": "greetings.example.dev"},
    "spec": {
        "group": "example.dev",
        "scope": "Namespaced",
        "names": {"plural": "greetings", "singular": "greeting", "kind": "Greeting"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["text"],
                                "properties": {"text": {"type": "string", "minLength": 1}},
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}


def registration(uid):
    """Where a Greeting is registered: what only a finalizer can clean up."""
    return pathlib.Path(os.environ["GREETINGS_REGISTRY"], uid)


@kopf.on.create("example.dev", "v1", "greetings")
def create(body, spec, name, namespace, uid, **_):
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": spec["text"]}}
    kopf.adopt(config_map, owner=body)
    client.CoreV1Api().create_namespaced_config_map(namespace, config_map)
    registration(uid).touch()
    kopf.info(body, reason="Greeted", message="said " + spec["text"])
    return {"configMap": name}


@kopf.on.update("example.dev", "v1", "greetings", field="spec.text")
def update(new, name, namespace, patch, **_):
    client.CoreV1Api().patch_namespaced_config_map(name, namespace, {"data": {"text": new}})
    patch.status["text"] = new


@kopf.on.delete("example.dev", "v1", "greetings")
def delete(uid, retry, **_):
    if retry == 0:
        raise kopf.TemporaryError("the registry is busy", delay=0.1)
    registration(uid).unlink()
