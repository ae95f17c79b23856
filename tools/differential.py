#!/usr/bin/env python3
"""Sends the same random requests to two Kubernetes API servers and reports where their answers differ.

  differential.py A.kubeconfig B.kubeconfig                     1,000 requests, seed 1
  differential.py A.kubeconfig B.kubeconfig --seconds 3600      for an hour
  differential.py A.kubeconfig B.kubeconfig --seed 7 --requests 50 --verbose
  differential.py A.kubeconfig B.kubeconfig --only patch,list   families of requests
  differential.py A.kubeconfig B.kubeconfig --kinds pods,jobs   resources, by plural name
  differential.py A.kubeconfig B.kubeconfig --without /newline  places that are not compared
  differential.py A.kubeconfig B.kubeconfig --old-etcd          server A has an etcd without progress notifications

Requests are made from what server A publishes (discovery and OpenAPI), from the objects in templates.json beside
this file, and from a pseudo-random sequence: objects of every kind with valid and invalid changes, every verb and
patch type, query options, option bodies, content negotiation, odd paths and methods, preconditions, field selectors,
continue tokens, patches that change what an object is, numbers as they are spelled, CEL expressions. A scenario of a
dozen requests shares a namespace, which is deleted afterwards. Answers are compared after uids, times, resource versions,
addresses and generated names have been replaced by placeholders, and without what no two servers have in common: how they were
built, who asks, descriptions, the values of metrics, and what Go leaves to the order of a map.

Differences are printed by class (family, where in the answer) with one example each; --out FILE has all of
them as JSON lines. The exit code is 1 if there were any. Both servers must be yours: everything is done as the user of
the kubeconfig, and objects are created and deleted. Needs Python 3.9 and kubectl (which reads the kubeconfig).
"""
import argparse
import base64
import copy
import http.client
import json
import os
import random
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

TEMPLATES = Path(__file__).with_name("templates.json")
GROUP = "differential.example.com"
PATCHES = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
HEADERS = ("content-type", "warning", "allow", "location", "retry-after")
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
ADDRESS = re.compile(r"\b(10\.0\.0|192\.168\.0)\.\d+\b(?!/)")
SUFFIX = re.compile(r"\bgen-[bcdfghjklmnpqrstvwxz2456789]{5}\b")
AGE = re.compile(r"^(\d+[dhms])+$|^<unknown>$")
GENERATED = "[bcdfghjklmnpqrstvwxz2456789]{5}"
PLACEHOLDER = re.compile("NAME$|^ADDRESS$")
# What depends on how a server was built, on its keys, or on the user of its kubeconfig: objects by a key that they have, and what is dropped.
OWN = [
    ("gitVersion", lambda key: key not in ("major", "minor")),
    ("jwks_uri", lambda key: True),
    ("kty", lambda key: True),
    ("signerName", lambda key: key == "uid"),
    ("serverAddressByClientCIDRs", lambda key: key == "serverAddressByClientCIDRs"),
]
# What a server says whose etcd does not notify the watch cache of progress.
OLD_ETCD = (b"Too large resource version", b"RequestWatchProgress is disabled")


class Server:
    """One API server, reached as the user of a kubeconfig."""

    def __init__(self, kubeconfig):
        command = ["kubectl", "--kubeconfig", kubeconfig, "config", "view", "--raw", "--minify", "--flatten", "-o", "json"]
        config = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.url = urlsplit(cluster["server"])
        self.token = user.get("token")
        self.tls = ssl.create_default_context()
        if "certificate-authority-data" in cluster:
            self.tls = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        if cluster.get("insecure-skip-tls-verify"):
            self.tls.check_hostname, self.tls.verify_mode = False, ssl.CERT_NONE
        if "client-certificate-data" in user:
            with tempfile.NamedTemporaryFile(suffix=".pem") as pem:
                pem.write(base64.b64decode(user["client-certificate-data"]) + b"\n" + base64.b64decode(user["client-key-data"]))
                pem.flush()
                self.tls.load_cert_chain(pem.name)
        self.connection = None

    def send(self, method, target, body=None, headers=None, stream=None):
        """An answer as (status, headers, body). `stream`: seconds to read a stream for."""
        for attempt in (1, 2):
            try:
                return self.send_once(method, target, body, headers or {}, stream)
            except (http.client.HTTPException, ConnectionError, ssl.SSLError, socket.timeout) as problem:
                self.close()
                if attempt == 2:
                    return 0, {}, f"{type(problem).__name__}".encode()

    def send_once(self, method, target, body, headers, stream):
        if self.connection is None or stream:
            self.close()
            self.connection = http.client.HTTPSConnection(self.url.hostname, self.url.port, context=self.tls, timeout=70)
        sent = {"Accept": "application/json", "User-Agent": "differential", **headers}
        if self.token:
            sent.setdefault("Authorization", f"Bearer {self.token}")
        self.connection.request(method, target, body, sent)
        response = self.connection.getresponse()
        content = self.read_stream(response, stream) if stream else response.read()
        if stream:
            self.close()
        return response.status, {k.lower(): v for k, v in merged(response.getheaders()).items()}, content

    def read_stream(self, response, seconds):
        content, until = b"", time.monotonic() + seconds
        while time.monotonic() < until:
            self.connection.sock and self.connection.sock.settimeout(max(0.05, until - time.monotonic()))
            try:
                line = response.readline()
            except (socket.timeout, TimeoutError, OSError):
                break
            if not line:
                break
            content += line
        return content

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def json(self, path, accept="application/json"):
        status, _, body = self.send("GET", path, headers={"Accept": accept})
        if status != 200:
            sys.exit(f"{self.url.netloc}{path}: {status} {body[:200]!r}")
        return json.loads(body)


def merged(pairs):
    """Headers by name; several of one name in one line, in their order."""
    found = defaultdict(list)
    for name, value in pairs:
        found[name].append(value)
    return {name: " | ".join(values) for name, values in found.items()}


class Resource:
    def __init__(self, group, version, row):
        self.group, self.version = group, version
        self.plural, self.kind = row["name"], row["kind"]
        self.namespaced, self.verbs = row["namespaced"], set(row["verbs"])
        self.subresources = []

    @property
    def api_version(self):
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def key(self):
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace, name="", subresource=""):
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        middle = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return root + middle + f"/{self.plural}" + (f"/{name}" if name else "") + (f"/{subresource}" if subresource else "")


def discover(server):
    """All resources that the server lists, its subresources attached."""
    found, tails = {}, []
    pages = [("", "v1", "/api/v1")]
    for group in server.json("/apis")["groups"]:
        pages += [(group["name"], v["version"], f"/apis/{v['groupVersion']}") for v in group["versions"]]
    for group, version, page in pages:
        for row in server.json(page)["resources"]:
            if "/" in row["name"]:
                tails.append((group, version, row))
            else:
                found[group, version, row["name"]] = Resource(group, version, row)
    for group, version, row in tails:
        plural, _, subresource = row["name"].partition("/")
        if (group, version, plural) in found:
            found[group, version, plural].subresources.append((subresource, row["verbs"]))
    return list(found.values())


# What is put where something else belongs.
ODD = [None, "", 0, -1, 1, 2 ** 31, 2 ** 63, 1.5, True, False, [], {}, [None], [""], {"a": None}, "a", "A_B", "x" * 300,
       "1", "-5m", "10Gi", "1e3", "é", "a/b", "a b", "0.1.2.3", "::1", "2020-01-01T00:00:00Z", "*", "$(X)", "a\nb", ".", ".."]
WORDS = ["a", "b", "web", "app", "x-1", "example.com/a", "Always", "Never", "TCP", "UDP", "In", "Exists", "Equal", "NoSchedule",
         "10", "5%", "100m", "1Gi", "80", "http", "app=web", "0 * * * *", "10.0.0.9", "fd00::1", "Delete", "Retain", "RuntimeDefault"]


class Generator:
    """Makes requests from a pseudo-random sequence."""

    def __init__(self, rng, resources, definitions, templates):
        self.rng, self.definitions, self.templates = rng, definitions, templates
        self.resources = [r for r in resources if r.key in templates]
        self.everything = resources
        self.by_kind = {}
        for name, schema in definitions.items():
            for gvk in schema.get("x-kubernetes-group-version-kind", []):
                self.by_kind[gvk["group"], gvk["version"], gvk["kind"]] = name

    # Objects

    def object(self, resource, name, changes):
        body = copy.deepcopy(self.rng.choice(self.templates[resource.key]))
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        body.setdefault("metadata", {}).setdefault("name", name)
        if self.rng.random() < 0.3:
            body["metadata"]["labels"] = {"app": self.rng.choice(["a", "b"])}
        schema = {"$ref": "#/definitions/" + self.by_kind.get((resource.group, resource.version, resource.kind), "")}
        for _ in range(changes):
            self.change(body, schema)
        return body

    def change(self, body, schema):
        """Changes one place in an object, with or against its schema."""
        places = list(walk(body, schema, self.definitions))
        holder, key, place = self.rng.choice(places)
        way = self.rng.random()
        if way < 0.25:
            holder[key] = copy.deepcopy(self.rng.choice(ODD))
        elif way < 0.4 and not (key == "metadata" or key == "name"):
            del holder[key]
        elif way < 0.5 and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        elif isinstance(holder[key], dict):
            known = resolve(place, self.definitions).get("properties", {})
            field = self.rng.choice(sorted(known)) if known and self.rng.random() < 0.92 else "unknownField"
            holder[key][field] = self.value(known.get(field, {}), 0)
        elif isinstance(holder[key], list):
            holder[key].append(self.value(resolve(place, self.definitions).get("items", {}), 0))
        else:
            holder[key] = self.value(place, 0)

    def value(self, schema, depth):
        """A value of a schema; sometimes another."""
        rng = self.rng
        if rng.random() < 0.06:
            return copy.deepcopy(rng.choice(ODD))
        schema = resolve(schema, self.definitions)
        if "enum" in schema and rng.random() < 0.8:
            return rng.choice(schema["enum"])
        kind = schema.get("type")
        if kind == "object" or "properties" in schema:
            if "additionalProperties" in schema:
                keys = rng.sample(["zz", "a", "cpu", "memory", "k8s.io/x", "A b"], rng.choice([1, 1, 2, 3]))
                return {key: self.value(schema["additionalProperties"], depth + 1) for key in keys}
            fields = sorted(schema.get("properties", {}))
            wanted = [f for f in fields if f in schema.get("required", []) and rng.random() < 0.9]
            wanted += [f for f in fields if f not in wanted and rng.random() < (0.35 if depth < 2 else 0.05)][:3]
            return {f: self.value(schema["properties"][f], depth + 1) for f in wanted}
        if kind == "array":
            return [self.value(schema.get("items", {}), depth + 1) for _ in range(rng.choice([0, 1, 1, 1, 2]))]
        if kind == "integer":
            return rng.choice([0, 1, 2, 5, 80, 443, 8080, 65536, -1, 3600, 2 ** 31])
        if kind == "number":
            return rng.choice([0, 1.5, -2])
        if kind == "boolean":
            return rng.random() < 0.5
        if schema.get("format") == "int-or-string":
            return rng.choice([0, 1, 80, "http", "50%", "150%", -1, "x y"])
        if schema.get("format") == "date-time":
            return rng.choice(["2020-01-01T00:00:00Z", "2020-01-01T00:00:00.123456Z", "yesterday"])
        if schema.get("format") == "byte":
            return rng.choice(["YQ==", "", "not base64!"])
        return rng.choice(WORDS)

    # Requests: each family yields (family, resource key, method, target, body, headers, stream)

    def scenario(self, namespace):
        """A dozen requests about one resource in one namespace."""
        rng = self.rng
        resource = rng.choice(self.resources)
        names = [f"{namespace}-{i}" if not resource.namespaced else f"x{i}" for i in range(3)]
        yield self.create(resource, namespace, names[0], 0)
        for _ in range(rng.randint(6, 14)):
            family = rng.choice(["create", "create", "create", "update", "update", "patch", "patch", "patch", "get", "list", "list",
                                 "watch", "delete", "collection", "subresource", "negotiate", "path", "options", "body", "page",
                                 "identity", "fields", "token", "become", "become", "numbers", "cel", "precondition"])
            yield getattr(self, family)(resource, namespace, rng.choice(names), rng.randint(0, 3))
        yield "cleanup", resource, "DELETE", resource.path(namespace, names[0]), None, {}, None

    def query(self, options, odd=0.08):
        rng, chosen = self.rng, {}
        for key, values in options.items():
            if rng.random() < 0.25:
                chosen[key] = rng.choice(values)
            if rng.random() < odd:
                chosen[key] = rng.choice(["", "x", "-1", "true", "false", "0", "1", "All", "é", "a=b", "99999999999999999999"])
        return ("?" + urlencode(chosen)) if chosen else ""

    WRITE = {"dryRun": ["All"], "fieldManager": ["m1", "m2", "x" * 130, "a\tb"], "fieldValidation": ["Strict", "Warn", "Ignore"], "pretty": ["true"]}
    SELECT = {"labelSelector": ["app=a", "app!=a", "app in (a,b)", "!app", "app", "a b", "app=a,"],
              "fieldSelector": ["metadata.name=x0", "metadata.name!=x0", "metadata.namespace=default", "status.phase=Running", "spec.x=1", "metadata.name"],
              "limit": ["1", "2", "0", "500"], "resourceVersion": ["0", "1", "abc"],
              "resourceVersionMatch": ["Exact", "NotOlderThan", "x"], "continue": ["x", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJ4In0"],
              "timeoutSeconds": ["1"], "allowWatchBookmarks": ["true"], "pretty": ["true"]}

    def create(self, resource, namespace, name, changes):
        body = self.object(resource, name, changes)
        if self.rng.random() < 0.05 and isinstance(body.get("metadata"), dict):
            body["metadata"].pop("name", None)
            body["metadata"]["generateName"] = "gen-"
        return "create", resource, "POST", resource.path(namespace) + self.query(self.WRITE), encode(body), JSON, None

    def update(self, resource, namespace, name, changes):
        body = self.object(resource, name, changes)
        if self.rng.random() < 0.2 and isinstance(body.get("metadata"), dict):
            body["metadata"]["resourceVersion"] = self.rng.choice(["1", "0", "abc", ""])
        return "update", resource, "PUT", resource.path(namespace, name) + self.query(self.WRITE), encode(body), JSON, None

    def patch(self, resource, namespace, name, changes):
        rng = self.rng
        kind = rng.choice(list(PATCHES))
        whole = self.object(resource, name, changes)
        options = {**self.WRITE, "force": ["true"]} if kind == "apply" or rng.random() < 0.05 else self.WRITE
        query = self.query(options)
        if kind == "apply":
            if "fieldManager" not in query and rng.random() < 0.95:
                query += ("&" if query else "?") + "fieldManager=" + rng.choice(["m1", "m2"])
            if rng.random() < 0.3:
                whole.pop("status", None)
            body = whole
        elif kind == "json":
            body = [self.operation(whole) for _ in range(rng.choice([1, 1, 2]))]
        else:
            body = {k: v for k, v in whole.items() if k not in ("apiVersion", "kind") or rng.random() < 0.1}
            body.get("metadata", {}).pop("name", None) if isinstance(body.get("metadata"), dict) else None
            if kind == "strategic" and rng.random() < 0.2:
                body["$patch"] = rng.choice(["delete", "replace", "merge", "x"])
        headers = {"Content-Type": PATCHES[kind]}
        return f"patch-{kind}", resource, "PATCH", resource.path(namespace, name) + query, encode(body), headers, None

    def operation(self, whole):
        rng = self.rng
        places = [pointer for pointer in pointers(whole)] + ["/metadata/labels/x", "/metadata/annotations", "/spec/none/deep", "/-", ""]
        step = {"op": rng.choice(["add", "replace", "remove", "test", "copy", "move", "x"]), "path": rng.choice(places)}
        if step["op"] in ("add", "replace", "test") or rng.random() < 0.1:
            step["value"] = self.value({}, 0) if rng.random() < 0.6 else copy.deepcopy(rng.choice(ODD))
        if step["op"] in ("copy", "move"):
            step["from"] = rng.choice(places)
        return step

    def get(self, resource, namespace, name, _):
        query = self.query({"pretty": ["true"], "resourceVersion": ["0", "1", "abc"]})
        return "get", resource, "GET", resource.path(namespace, name) + query, None, {}, None

    def list(self, resource, namespace, name, _):
        where = namespace if self.rng.random() < 0.8 else ("" if self.rng.random() < 0.3 else "none")
        return "list", resource, "GET", resource.path(where) + self.query(self.SELECT), None, {}, None

    def watch(self, resource, namespace, name, _):
        query = self.query({**self.SELECT, "sendInitialEvents": ["true", "false"]})
        query += ("&" if query else "?") + "watch=" + self.rng.choice(["true", "1", "x"])
        return "watch", resource, "GET", resource.path(namespace) + query, None, {}, 0.3

    def delete(self, resource, namespace, name, _):
        body = self.rng.choice([None, None, self.delete_options(resource)])
        query = self.query({"gracePeriodSeconds": ["0", "1", "30"], "propagationPolicy": ["Foreground", "Background", "Orphan", "X"],
                            "orphanDependents": ["true"], "dryRun": ["All"]})
        return "delete", resource, "DELETE", resource.path(namespace, name) + query, encode(body), JSON if body else {}, None

    def delete_options(self, resource):
        rng = self.rng
        body = {}
        if rng.random() < 0.8:
            body["kind"] = rng.choice(["DeleteOptions"] * 6 + ["Pod", "deleteoptions", "Status", ""])
        if rng.random() < 0.8:
            body["apiVersion"] = rng.choice(["v1", "meta.k8s.io/v1", resource.api_version, "apps/v1", "none.example.com/v1", "a/b/c", "v9"])
        for key, values in {"gracePeriodSeconds": [0, 5, -1, "x", 1.5], "propagationPolicy": ["Foreground", "Orphan", "X", 3],
                            "orphanDependents": [True, "x"], "dryRun": [["All"], ["x"], "All"], "unknown": [1],
                            "preconditions": [{"uid": "none"}, {"resourceVersion": "1"}, {"uid": 5}, []]}.items():
            if rng.random() < 0.2:
                body[key] = rng.choice(values)
        return body

    def collection(self, resource, namespace, name, _):
        body = self.rng.choice([None, self.delete_options(resource)])
        select = {k: v for k, v in self.SELECT.items() if k in ("labelSelector", "fieldSelector", "limit", "resourceVersion")}
        query = self.query({**select, "dryRun": ["All"], "propagationPolicy": ["X", "Background"]})
        if not resource.namespaced:
            query = "?" + urlencode({"labelSelector": "differential=none"}) + query.replace("?", "&")
        return "deletecollection", resource, "DELETE", resource.path(namespace) + query, encode(body), JSON if body else {}, None

    def subresource(self, resource, namespace, name, changes):
        rng = self.rng
        known = [s for s, _ in resource.subresources if s not in ("exec", "attach", "portforward", "proxy", "log", "token")]
        tail = rng.choice(known + ["status", "scale", "none"]) if rng.random() < 0.9 else "status/more"
        method = rng.choice(["GET", "PUT", "PATCH", "POST", "DELETE"])
        body, headers = None, {}
        if method in ("PUT", "POST"):
            body, headers = self.object(resource, name, changes), JSON
            if tail == "scale":
                body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": {"replicas": rng.choice([0, 2, -1, "x"])}}
            if tail in ("eviction", "binding"):
                body = {"apiVersion": rng.choice(["policy/v1", "v1", "policy/v1beta1", "x/v1"]), "kind": rng.choice([tail.title(), "Pod"]),
                        "metadata": {"name": rng.choice([name, "", "other"])}, "target": {"kind": "Node", "name": "n"}}
        elif method == "PATCH":
            kind = rng.choice(list(PATCHES))
            body, headers = {"status": {"x": 1}, "spec": {"replicas": 2}}, {"Content-Type": PATCHES[kind]}
            if kind == "json":
                body = [{"op": "add", "path": "/status", "value": {}}]
            if kind == "apply":
                body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "status": {}}
        query = self.query(self.WRITE) if method != "GET" else ""
        if headers.get("Content-Type") == PATCHES["apply"]:
            query += ("&" if query else "?") + "fieldManager=m1"
        return f"subresource-{tail.split('/')[0]}", resource, method, resource.path(namespace, name, tail) + query, encode(body), headers, None

    ACCEPTS = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "*/*", "text/html", "application/*", "text/plain",
               "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v1beta1;g=meta.k8s.io", "application/json;as=Table;v=v2;g=meta.k8s.io",
               "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
               "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "APPLICATION/JSON", "application/json;q=0", "application/xml,application/json;q=0.5",
               "application/json;stream=watch", "application/cbor", "application/json;pretty=1", "application/yaml;as=Table;v=v1;g=meta.k8s.io", "", ";", "a/b/c",
               "application/json; as=Table; v=v1; g=meta.k8s.io", "application/json;profile=x", "application/vnd.kubernetes.protobuf;stream=watch"]

    def negotiate(self, resource, namespace, name, _):
        rng = self.rng
        headers = {"Accept": rng.choice(self.ACCEPTS)}
        pages = ["/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version", "/healthz", "/livez", "/readyz", "/openapi/v2", "/openapi/v3", "/none", "/apis/none.example.com", "/",
                 "/.well-known/openid-configuration", "/openid/v1/jwks", "/metrics/slis", f"/apis/{GROUP}", f"/apis/{GROUP}/v1"]
        target = rng.choice([resource.path(namespace), resource.path(namespace, name), resource.path(namespace) + "?watch=1", rng.choice(pages)])
        if rng.random() < 0.2 and "?" not in target:
            target += "?includeObject=" + rng.choice(["None", "Metadata", "Object", "x", ""])
        return "negotiate", resource, rng.choice(["GET", "GET", "GET", "GET", "DELETE"]) if "namespaces" in target and name in target else "GET", target, None, headers, \
            0.3 if "watch=1" in target else None

    def path(self, resource, namespace, name, _):
        rng = self.rng
        good = resource.path(namespace, name if rng.random() < 0.6 else "")
        target = rng.choice([
            good + "/", good.replace("/v1", "/v9", 1), good.replace(resource.plural, "nones"), good.replace("/namespaces/", "//namespaces/"), good + "//", "/" + good,
            good.replace(namespace, "no%20ne"), good.replace("/", "%2F", 3), good + "/%2e%2e/x", good + "/status/x/y", good.upper(), good.replace("/apis/", "/api/"),
            good.replace("/namespaces/" + namespace, ""), good.replace("/namespaces/" + namespace, "/namespaces"), good + "%00", good + "/é", good + "?%zz", good + ";x",
            good.replace("/v1/", "/v1/watch/", 1), good.replace("/v1/", "/v1/proxy/", 1), good + "/finalize", f"/apis/{resource.group}", "/apis//v1/pods", "/api/v1/namespaces/" + namespace])
        method = rng.choice(["GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "FOO"])
        if namespace in target and target.endswith(namespace) and method in ("DELETE", "PUT", "PATCH"):
            method = "GET"
        target = "".join(c if ord(c) < 128 else quote(c) for c in target)
        body = encode({"apiVersion": "v1", "kind": "Status"}) if method in ("POST", "PUT", "PATCH") else None
        return "path", resource, method, target, body, JSON if body else {}, 0.3 if "/watch/" in target and method == "GET" else None

    def options(self, resource, namespace, name, changes):
        """Several faults in the query at once."""
        rng = self.rng
        keys = list(self.WRITE) + list(self.SELECT) + ["gracePeriodSeconds", "propagationPolicy", "orphanDependents", "force", "timeout", "sendInitialEvents"]
        values = ["", "x", "-1", "true", "All", "0", "1", "Strict", "é", "a,b", "1s", "2", "99999999999999999999", "NotOlderThan", "Exact"]
        pairs = [(rng.choice(keys), rng.choice(values)) for _ in range(rng.randint(1, 5))]
        method = rng.choice(["GET", "POST", "PUT", "DELETE", "LIST", "COLLECTION", "PATCH"])
        whole = encode(self.object(resource, name, 0))
        named, all_ = resource.path(namespace, name), resource.path(namespace)
        pairs = [(k, v) for k, v in pairs if not (method == "COLLECTION" and not resource.namespaced)]
        target, body, headers = {"GET": (named, None, {}), "POST": (all_, whole, JSON), "PUT": (named, whole, JSON), "DELETE": (named, None, {}), "LIST": (all_, None, {}),
                                 "COLLECTION": (all_, None, {}), "PATCH": (named, encode({"metadata": {"labels": {"p": "1"}}}), {"Content-Type": PATCHES["merge"]})}[method]
        if method == "COLLECTION" and not resource.namespaced:
            method = "LIST"
        method = {"LIST": "GET", "COLLECTION": "DELETE"}.get(method, method)
        return "options", resource, method, target + "?" + urlencode(pairs), body, headers, None

    def body(self, resource, namespace, name, changes):
        """Bodies that are not what they should be."""
        rng = self.rng
        whole = encode(self.object(resource, name, changes)).decode()
        ways = ["", "null", "[]", "{}", '"x"', "1", whole[:-1], whole + "x", whole + whole, "{" + whole, whole.replace('"metadata"', '"metadata":{},"metadata"', 1),
                whole.replace('"kind"', '"Kind"', 1), whole.replace(resource.kind, "Nothing", 1), whole.replace(resource.api_version, "none/v1", 1),
                whole.replace(f'"apiVersion": "{resource.api_version}", ', "", 1), whole.replace('"kind"', '"kinds"', 1), whole.replace(name, "Other_Name", 1),
                whole.replace('"metadata": {', '"metadata": {"namespace": "elsewhere", ', 1), whole.replace('"metadata": {', '"metadata": {"uid": "u", ', 1), "a: b", "\x00", "---\n" + whole]
        text = rng.choice(ways)
        kind = rng.choice(["application/json"] * 4 + ["application/yaml", "text/plain", "", "application/vnd.kubernetes.protobuf", "application/json; charset=utf-8", "application/JSON", "x"])
        method, target = rng.choice([("POST", resource.path(namespace)), ("PUT", resource.path(namespace, name)), ("PATCH", resource.path(namespace, name))])
        if method == "PATCH":
            kind = rng.choice(list(PATCHES.values()) + [kind])
            target += "?fieldManager=m1" if "apply" in kind else ""
        return "body", resource, method, target + ("" if "?" in target else self.query({"fieldValidation": ["Strict", "Warn", "Ignore"]}, 0)), text.encode(), {"Content-Type": kind} if kind else {}, None

    def identity(self, resource, namespace, name, changes):
        """Updates that say which object and which version they mean; `$uid` and `$rv` are those of the server."""
        rng = self.rng
        body = self.object(resource, name, rng.choice([0, 0, changes]))
        if isinstance(body.get("metadata"), dict):
            body["metadata"].update({k: v for k, v in {"uid": rng.choice(["$uid", "$uid", "other", ""]),
                                                       "resourceVersion": rng.choice(["$rv", "$rv", "1", "0", ""])}.items() if rng.random() < 0.7})
        tail = rng.choice(["", "", "status"])
        return "identity", resource, "PUT", resource.path(namespace, name, tail) + self.query(self.WRITE), encode(body), JSON, None

    def precondition(self, resource, namespace, name, _):
        rng = self.rng
        given = {k: v for k, v in {"uid": rng.choice(["$uid", "other", ""]), "resourceVersion": rng.choice(["$rv", "1", "0", "abc", ""])}.items()
                 if rng.random() < 0.7}
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": given}
        if rng.random() < 0.3:
            body.update(self.delete_options(resource))
        target = rng.choice([resource.path(namespace, name), resource.path(namespace, "none"), "/api/v1/namespaces/none"])
        return "precondition", resource, "DELETE", target + self.query({"dryRun": ["All"], "gracePeriodSeconds": ["0"]}), encode(body), JSON, None

    LABELS = ["metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "status.phase", "spec.nodeName", "spec.host", "spec.unschedulable", "type",
              "involvedObject.kind", "regarding.kind", "reason", "source", "reportingComponent", "reportingController", "status.replicas", "status.successful",
              "spec.signerName", "spec.driver", "spec.clusterIP", "spec.type", "spec.restartPolicy", "status.podIP", "spec", "name", ""]

    def fields(self, resource, namespace, name, _):
        rng = self.rng
        terms = [rng.choice(self.LABELS) + rng.choice(["=", "=", "==", "!=", "", " = ", "=="]) + rng.choice(["x0", "", "Running", "true", "a b", "x=y", "x\\,y", "x,y"])
                 for _ in range(rng.choice([1, 1, 2, 3]))]
        chosen = {"fieldSelector": ",".join(terms)}
        if rng.random() < 0.3:
            chosen["labelSelector"] = rng.choice(self.SELECT["labelSelector"])
        method = rng.choice(["GET", "GET", "GET", "DELETE"]) if resource.namespaced else "GET"
        if rng.random() < 0.2 and method == "GET":
            chosen["watch"] = "1"
        target = rng.choice([resource.path(namespace), resource.path(namespace), resource.path(namespace, name) if "watch" in chosen else resource.path("none")])
        return "fields", resource, method, target + "?" + urlencode(chosen), None, {}, 0.3 if "watch" in chosen else None

    def token(self, resource, namespace, name, _):
        """Continue tokens, and what else is asked for with them."""
        rng = self.rng
        token = {"v": rng.choice(["meta.k8s.io/v1"] * 5 + ["v2", 1]), "rv": rng.choice([-1, -1, -1, 1, 0, "x", 2 ** 40, -2]),
                 "start": rng.choice(["x0\0", "x0", name, name + "\0", "zzz", "", "../x", "/x0", "a/b", 5])}
        for key in list(token):
            if rng.random() < 0.08:
                del token[key]
        text = base64.urlsafe_b64encode(json.dumps(token).encode()).decode().rstrip("=") if rng.random() < 0.9 else rng.choice(["%%", "a", "e30", "bnVsbA", "W10"])
        chosen = {"continue": text}
        for key, values in {"limit": ["1", "0", "500"], "resourceVersion": ["0", "1", "x", ""], "resourceVersionMatch": ["Exact", "NotOlderThan", "x"],
                            "labelSelector": ["app=a", "!app"], "fieldSelector": ["metadata.name=x0"], "watch": ["1"], "sendInitialEvents": ["true"]}.items():
            if rng.random() < 0.25:
                chosen[key] = rng.choice(values)
        method = rng.choice(["GET", "GET", "GET", "DELETE"]) if resource.namespaced else "GET"
        return "token", resource, method, resource.path(namespace) + "?" + urlencode(chosen), None, {}, 0.3 if "watch" in chosen and method == "GET" else None

    def become(self, resource, namespace, name, _):
        """Patches that make something else of an object."""
        rng = self.rng
        kind = rng.choice(list(PATCHES))
        places = ["/kind", "/apiVersion", "/metadata", "/metadata/name", "/metadata/namespace", "/metadata/uid", "/metadata/resourceVersion", "/metadata/managedFields",
                  "/metadata/creationTimestamp", "/spec", "/status", ""]
        values = [None, "", "Pod", "v1", "v9", "a/b/c", "none.example.com/v1", "other", 5, [], {}, resource.kind, resource.api_version, name, namespace]
        if kind == "json":
            body = [{"op": rng.choice(["add", "replace", "remove", "move", "copy", "test"]), "path": rng.choice(places), "from": rng.choice(places), "value": rng.choice(values)}
                    for _ in range(rng.choice([1, 1, 2]))]
        else:
            body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}} if kind == "apply" else {}
            for place in rng.sample(places[:-1], rng.choice([1, 1, 2])):
                keys = place.split("/")[1:]
                holder = body if len(keys) == 1 else body.setdefault(keys[0], {})
                if isinstance(holder, dict):
                    holder[keys[-1]] = rng.choice(values)
        tail = rng.choice(["", "", "", "status", "scale"])
        query = self.query({"fieldValidation": ["Strict", "Warn", "Ignore"], "dryRun": ["All"]}, 0.02)
        if kind == "apply":
            query += ("&" if query else "?") + "fieldManager=m1"
        return f"become-{kind}", resource, "PATCH", resource.path(namespace, name, tail) + query, encode(body), {"Content-Type": PATCHES[kind]}, None

    NUMBERS = ["0", "-0", "0.0", "-0.0", "1", "1.0", "1.50", "1e0", "10e-1", "1e3", "1E3", "1000", "1e21", "1e400", "-1e400", "1e-400", "0.1", "0.30000000000000004", "9007199254740993",
               "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "18446744073709551615", "1e18", "100000000000000000000", "2147483648", "01", "1.", ".5", "+1", "NaN", "1e"]

    def numbers(self, resource, namespace, name, _):
        """Numbers as they are spelled, where a custom resource or a built-in kind has them."""
        rng = self.rng
        kinds = [r for r in self.resources if r.key in ("things.differential.example.com", "globals.differential.example.com", "deployments.apps", "configmaps")]
        resource = rng.choice(kinds) if kinds else resource
        if not resource.namespaced:
            name = f"{namespace}-n"
        number = rng.choice(self.NUMBERS)
        spec = rng.choice(['"spec":{"anything":%s}', '"spec":{"anything":{"a":[%s]}}', '"spec":{"n":%s}', '"spec":{"replicas":%s}', '"metadata2":%s', '"data":{"a":%s}']) % number
        whole = '{"apiVersion":"%s","kind":"%s","metadata":{"name":"%s"},%s}' % (resource.api_version, resource.kind, name, spec)
        method, body, kind = rng.choice([("POST", whole, "application/json"), ("PUT", whole, "application/json"), ("PATCH", "{%s}" % spec, PATCHES["merge"]),
                                         ("PATCH", "{%s}" % spec, PATCHES["strategic"]), ("PATCH", whole, PATCHES["apply"]),
                                         ("PATCH", '[{"op":"%s","path":"/spec/anything","value":%s}]' % (rng.choice(["add", "replace", "test"]), number), PATCHES["json"])])
        query = self.query({"fieldValidation": ["Strict", "Warn", "Ignore"]}, 0)
        if kind == PATCHES["apply"]:
            query += ("&" if query else "?") + "fieldManager=m1&force=true"
        return "numbers", resource, method, (resource.path(namespace) if method == "POST" else resource.path(namespace, name)) + query, body.encode(), {"Content-Type": kind}, None

    EXPRESSIONS = ["device.driver == 'a'", "device.attributes['d.example.com'].x", "device.attributes['d.example.com'].x == 1", "device.capacity['d.example.com'].m.compareTo(quantity('1Gi')) > 0",
                   "cel.bind(a, device.attributes['d.example.com'], a.x && a.y)", "device.attributes.exists(x, x == 'a')", "has(device.attributes['a'].b)", "semver('1.0.0').isLessThan(semver('2.0.0'))",
                   "device.allowMultipleAllocations", "true", "1", "'a'", "null", "[true]", "{'a': true}", "device", "device.foo", "foo(1)", "device.driver.startsWith('a')", "1 +", "", " ", "(", "a b",
                   "device.driver.matches('[')", "device.driver == 1", "size(device.driver) > 1", "object.x", "variables.x", "duration('1s') > duration('x')", "timestamp('x') == timestamp('y')"]

    def cel(self, resource, namespace, name, _):
        rng = self.rng
        expression = rng.choice(self.EXPRESSIONS)
        if rng.random() < 0.4 and expression:
            at = rng.randrange(len(expression))
            expression = rng.choice([expression[:at], expression[:at] + rng.choice(["(", ")", "'", ".", " ", "!", "\\", "é", "\n", "0"]) + expression[at:], expression + " && " + rng.choice(self.EXPRESSIONS),
                                     "!(" + expression + ")", expression + " ? true : " + rng.choice(self.EXPRESSIONS)])
        kind, path, body = rng.choice([
            ("DeviceClass", "deviceclasses", {"spec": {"selectors": [{"cel": {"expression": expression}}]}}),
            ("ResourceClaim", f"namespaces/{namespace}/resourceclaims", {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c", "selectors": [{"cel": {"expression": expression}}]}}]}}}),
            ("ResourceClaimTemplate", f"namespaces/{namespace}/resourceclaimtemplates",
             {"spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c", "selectors": [{"cel": {"expression": expression}}, {}]}}]}}}})])
        body = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **body}
        return "cel", resource, "POST", f"/apis/resource.k8s.io/v1/{path}?dryRun=All", encode(body), JSON, None

    def page(self, resource, namespace, name, _):
        rng = self.rng
        pages = ["/", "/api", "/api/", "/apis", "/apis/", "/api/v1", "/apis/apps", "/apis/apps/v1", f"/apis/{resource.group}", f"/apis/{resource.api_version}", "/version", "/version/",
                 "/healthz", "/livez/ping", "/readyz/none", "/openapi", "/openapi/v3/api/v1/x", "/.well-known/openid-configuration/x", "/logs", "/metrics/x", "/debug", "/swagger.json", "/ui", "/api/v2"]
        method = rng.choice(["GET", "GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
        return "page", resource, method, rng.choice(pages), None, {}, None


JSON = {"Content-Type": "application/json"}


def encode(value):
    return None if value is None else json.dumps(value).encode()


def resolve(schema, definitions):
    for _ in range(5):
        name = schema.get("$ref", "").rpartition("/")[2]
        if not name:
            break
        schema = definitions.get(name, {})
    return schema


def walk(value, schema, definitions, depth=0):
    """Every (holder, key, schema of what is there) in a value."""
    schema = resolve(schema, definitions)
    if isinstance(value, dict):
        for key, inner in value.items():
            place = schema.get("properties", {}).get(key) or schema.get("additionalProperties") or {}
            yield value, key, place
            yield from walk(inner, place, definitions, depth + 1)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield value, at, schema.get("items", {})
            yield from walk(inner, schema.get("items", {}), definitions, depth + 1)


def pointers(value, prefix=""):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        at = f"{prefix}/{str(key).replace('~', '~0').replace('/', '~1')}"
        yield at
        yield from pointers(inner, at)


# Comparing


class Normaliser:
    """Replaces what differs between any two servers: identities, times, versions, generated names."""

    def __init__(self, prefix=""):
        # The generateName of the request.
        self.generated = re.compile(re.escape(prefix[:58]) + GENERATED) if prefix else None

    def text(self, text):
        text = self.generated.sub("gen-NAME", text) if self.generated else text
        text = UUID.sub("UID", TIME.sub("TIME", text))
        text = ADDRESS.sub("ADDRESS", SUFFIX.sub("gen-NAME", text))
        text = re.sub(r'(resource ?[vV]ersion:? )"?\d+"?', r"\1RV", text)
        text = re.sub(r"(current|than|version): \d+", r"\1: RV", text)
        text = re.sub(r"X509SHA256=[0-9a-f]{64}", "CREDENTIAL", text)
        # An administrator has a uid on some servers.
        text = re.sub(r'\\*"uid\\*":\\*"admin\\*",', "", text)
        text = re.sub(r"(in record) \(\d+\)", r"\1 (RV)", text)
        text = re.sub(r'(resourceVersion\\*":\\*")\d+', r"\1RV", text)
        # The name of a scheme depends on how the server was built (-trimpath).
        text = re.sub(r"k8s\.io/[a-z-]+/(pkg/[\w/.]+\.go:)", r"\1", text)
        # Go goes through the fields of an object in any order (structured-merge-diff, typed/validate.go).
        head, separator, errors = text.partition("errors:\n")
        if separator and errors.startswith("  ."):
            text = head + separator + "\n".join(sorted(errors.split("\n")))
        return re.sub(r"\b(30|31|32)\d{3}\b", "PORT", text)

    def value(self, value, key=""):
        if isinstance(value, dict):
            dropped = next((drops for mark, drops in OWN if mark in value), lambda key: False)
            described = key == "columnDefinitions"
            return {self.text(k): self.value(v, k) for k, v in value.items() if not dropped(k) and not (described and k == "description")}
        if isinstance(value, list):
            if key == "managedFields":
                value = sorted(value, key=lambda e: json.dumps({k: v for k, v in e.items() if k != "time"}, sort_keys=True) if isinstance(e, dict) else str(e))
            if key == "resources" and all(isinstance(e, dict) and "singularName" in e for e in value):
                # Definitions are discovered in the order of a map.
                value = sorted(value, key=lambda e: e.get("name", ""))
            return settled([self.value(v, key) for v in value])
        if key in ("resourceVersion", "continue") and isinstance(value, str) and value:
            return "RV" if value.isdigit() or key == "continue" else value
        if key in ("nodePort", "healthCheckNodePort") and isinstance(value, int) and value >= 30000:
            return "PORT"
        if key == "cells" and isinstance(value, str) and AGE.match(value):
            return "AGE"
        return self.text(value) if isinstance(value, str) else value


def settled(entries):
    """A list in which objects that have got random names are in an order that does not depend on these."""
    def is_random(entry):
        # An object, a row with one, an event with one, or an event with a Table of one row.
        for _ in range(3):
            entry = entry if isinstance(entry, dict) else {}
            rows = entry.get("rows")
            entry = rows[0] if isinstance(rows, list) and rows else entry.get("object", entry)
        metadata = entry.get("metadata") if isinstance(entry, dict) else None
        return isinstance(metadata, dict) and bool(PLACEHOLDER.search(str(metadata.get("name", ""))))

    places = [at for at, entry in enumerate(entries) if is_random(entry)]
    for at, entry in zip(places, sorted((entries[at] for at in places), key=lambda entry: json.dumps(entry, sort_keys=True))):
        entries[at] = entry
    return entries


def generate_name(body):
    """The generateName that a request has."""
    try:
        prefix = json.loads(body or b"null")["metadata"]["generateName"]
    except (ValueError, TypeError, KeyError):
        return ""
    return prefix if isinstance(prefix, str) else ""


def readable(status, headers, body, prefix=""):
    """An answer as a value that can be compared."""
    normal = Normaliser(prefix)
    kind = headers.get("content-type", "")
    content = body.decode("utf-8", "replace")
    if "json" in kind:
        try:
            lines = settled([normal.value(json.loads(line)) for line in content.splitlines() if line]) if "stream" in kind or content.count('\n{"type"') else normal.value(json.loads(content))
        except ValueError:
            lines = normal.text(content)
        content = lines
    elif "protobuf" in kind:
        content = f"protobuf: {len(body) > 0}"
    elif content.startswith("# HELP"):
        content = sorted(line for line in content.splitlines() if line.startswith("# TYPE"))
    elif "yaml" in kind:
        # The description of a column, which may have several lines, and the server's own address.
        content = re.sub(r"\n(- | {2})description: .*(\n( {4}.*)?)*?(?=\n(- | {2})\w)", "", content)
        content = re.sub(r"\n  - (\d+[dhms])+(?=\n)", "\n  - AGE", content)
        content = normal.text(re.sub(r"serverAddress: .*", "serverAddress: ADDRESS", content))
    else:
        content = normal.text(content)
    shown = {name: normal.text(headers[name]) for name in HEADERS if name in headers}
    newline = body.endswith(b"\n")
    return {"status": status, "headers": shown, "newline": newline, "body": content}


def differences(a, b, at=""):
    """Every place where two values differ."""
    if type(a) is not type(b):
        yield at, a, b
    elif isinstance(a, dict):
        for key in sorted(set(a) | set(b)):
            if key not in a or key not in b:
                yield f"{at}/{key}", a.get(key, "(absent)"), b.get(key, "(absent)")
            else:
                yield from differences(a[key], b[key], f"{at}/{key}")
    elif isinstance(a, list):
        if len(a) != len(b):
            yield f"{at}/(length)", a, b
        else:
            for i, (x, y) in enumerate(zip(a, b)):
                yield from differences(x, y, f"{at}/{i}")
    elif a != b:
        yield at, a, b


def classify(family, found):
    """The class of a difference: the family of the request, and the first place that differs, without indexes."""
    place = re.sub(r"/\d+", "/*", found[0][0])
    if place == "/status":
        return f"{family} {found[0][1]} != {found[0][2]}"
    return f"{family} {place}"


def remember(objects, body):
    """Keeps uid and version of an object that a server has sent, by name."""
    found = re.search(rb'"metadata":\{"name":"([^"]*)".*?"uid":"([^"]*)"(?:,"resourceVersion":"([^"]*)")?', body)
    if found:
        objects[found[1].decode("utf-8", "replace")] = (found[2].decode(), (found[3] or b"").decode())


def filled(body, objects, target):
    """A body with the namespace of the path, and the uid and version that this server has given to its object."""
    if not body or b"$" not in body:
        return body
    path = urlsplit(target).path
    uid, version = objects.get(path.removesuffix("/status").rsplit("/", 1)[-1], ("", ""))
    namespace = re.search(r"/namespaces/([^/]+)/", path)
    body = body.replace(b"$ns", namespace[1].encode()) if namespace else body
    return body.replace(b"$uid", uid.encode()).replace(b"$rv", version.encode())


def prepare(servers, seed):
    """Definitions of custom kinds, on both servers."""
    for definition in json.loads(TEMPLATES.read_text())["definitions"]:
        name = definition["metadata"]["name"]
        for server in servers:
            server.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", encode(definition), JSON)
            for _ in range(100):
                _, _, body = server.send("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
                if '"type":"Established","status":"True"' in re.sub(r"\s|\"(lastTransitionTime|reason|message|observedGeneration)\":[^,}]*,?", "", body.decode()) or b"Established" in body:
                    break
                time.sleep(0.1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", help="kubeconfig of the reference server")
    parser.add_argument("b", help="kubeconfig of the server under test")
    parser.add_argument("--seed", type=int, default=1, help="first seed; a scenario has one (default 1)")
    parser.add_argument("--requests", type=int, default=1000, help="end after about that many requests (default 1000)")
    parser.add_argument("--seconds", type=float, help="end after that many seconds instead")
    parser.add_argument("--only", default="", help="compare only these families, by prefix, comma separated")
    parser.add_argument("--kinds", default="", help="only these resources, by plural name, comma separated")
    parser.add_argument("--out", help="file for all differences, a JSON object per line")
    parser.add_argument("--without", default="", help="do not compare these places, e.g. /newline,/headers/warning")
    parser.add_argument("--old-etcd", action="store_true", help="skip answers of server A that only an etcd without progress notifications gives")
    parser.add_argument("--verbose", action="store_true", help="print every request")
    args = parser.parse_args()

    a, b = Server(args.a), Server(args.b)
    prepare((a, b), args.seed)
    resources = discover(a)
    templates = json.loads(TEMPLATES.read_text())["objects"]
    if args.kinds:
        templates = {k: v for k, v in templates.items() if k.split(".")[0] in args.kinds.split(",")}
    definitions = a.json("/openapi/v2")["definitions"]
    out = open(args.out, "w") if args.out else None
    classes, families, sent, n_old, seed = defaultdict(list), defaultdict(int), 0, 0, args.seed
    until = time.monotonic() + args.seconds if args.seconds else None
    while (time.monotonic() < until) if until else (sent < args.requests):
        namespace = f"diff-{seed}"
        body = encode({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        for server in (a, b):
            server.send("POST", "/api/v1/namespaces", body, JSON)
        history, known = [], [{}, {}]
        for family, resource, method, target, body, headers, stream in Generator(random.Random(seed), resources, definitions, templates).scenario(namespace):
            answers, is_old = [], False
            for server, objects in zip((a, b), known):
                answer = server.send(method, target, filled(body, objects, target), headers, stream)
                remember(objects, answer[2])
                is_old |= server is a and any(words in answer[2] for words in OLD_ETCD)
                answers.append(readable(*answer, generate_name(body)))
            sent += 1
            families[family] += 1
            found = [f for f in differences(*answers) if f[0] not in args.without.split(",")]
            if args.old_etcd and is_old:
                found, n_old = [], n_old + bool(found)
            if args.verbose:
                print(seed, method, target, answers[0]["status"], answers[1]["status"], "DIFFERENT" if found else "")
            if found and family != "cleanup" and (not args.only or family.startswith(tuple(args.only.split(",")))):
                # A status that differs explains everything else.
                found.sort(key=lambda f: f[0] != "/status")
                case = {"class": classify(family, found), "seed": seed, "method": method, "target": target, "headers": headers,
                        "body": body.decode("utf-8", "replace") if body else None, "differences": found[:6], "before": history[-3:],
                        "answers": [answers[0]["body"], answers[1]["body"]]}
                classes[case["class"]].append(case)
                if out:
                    out.write(json.dumps(case) + "\n")
                    out.flush()
            history.append(f"{method} {target} {answers[0]['status']}")
        for server in (a, b):
            server.send("DELETE", f"/api/v1/namespaces/{namespace}")
        seed += 1
    report(classes, families, sent, seed - args.seed)
    if n_old:
        print(f"{n_old} answers were skipped because of server A's etcd")
    sys.exit(1 if classes else 0)


def report(classes, families, sent, scenarios):
    for name, cases in sorted(classes.items(), key=lambda item: -len(item[1])):
        case = cases[0]
        print(f"{len(cases):5}  {name}   (seed {case['seed']})")
        print(f"       {case['method']} {case['target']}" + (f"  {case['body'][:300]}" if case["body"] else ""))
        for place, a, b in case["differences"][:2]:
            print(f"         {place}: {json.dumps(a)[:300]}  |  {json.dumps(b)[:300]}")
    different = sum(map(len, classes.values()))
    print(f"\n{sent} requests in {scenarios} scenarios ({', '.join(f'{k} {v}' for k, v in sorted(families.items()))})")
    print(f"{different} answers differ, in {len(classes)} classes")


if __name__ == "__main__":
    main()
