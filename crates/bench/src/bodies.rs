//! The bodies of objects, without names.

use std::fmt::Write;

use serde_json::{Value, json};

use super::objects::scramble;

/// The size of a ConfigMap's data.
const DATA_BYTES: usize = 1024;
/// The length of the `turn` in every object.
pub(super) const TURN_DIGITS: usize = 8;
/// The containers of a crowded pod.
const N_CONTAINERS: usize = 10;

pub(super) fn config_map(n: u64) -> Value {
    let payload = properties(n, DATA_BYTES - TURN_DIGITS);
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {},
        "data": {"application.properties": payload, "turn": "00000000"},
    })
}

/// Settings, different in each object, that compress about as well as real ones.
fn properties(seed: u64, length: usize) -> String {
    const WORDS: [&str; 16] = [
        "cache", "timeout", "server", "pool", "retry", "limit", "enabled", "region", "queue",
        "database", "user", "metrics", "level", "interval", "host", "buffer",
    ];
    let mut text = String::with_capacity(length + 64);
    let mut state = seed;
    while text.len() < length {
        state = scramble(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        let word = |shift: u32| WORDS[(state >> shift) as usize % WORDS.len()];
        writeln!(
            text,
            "{}.{}.{}={:x}",
            word(0),
            word(4),
            word(8),
            state >> 40
        )
        .expect("writing to a string does not fail");
    }
    text.truncate(length);
    text
}

/// A pod that no controller touches: no scheduler has its `schedulerName`, no token is mounted.
pub(super) fn pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "labels": {"app.kubernetes.io/name": "web", "app.kubernetes.io/part-of": "shop"},
            "annotations": {"turn": "00000000", "prometheus.io/scrape": "true", "prometheus.io/port": "9102"},
        },
        "spec": {
            "automountServiceAccountToken": false,
            "schedulerName": "mizzen-bench",
            "terminationGracePeriodSeconds": 30,
            "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "fsGroup": 1000},
            "containers": [web_container(), exporter_container()],
            "volumes": [
                {"name": "config", "configMap": {"name": "web-config", "defaultMode": 420}},
                {"name": "scratch", "emptyDir": {"sizeLimit": "128Mi"}},
                {"name": "tls", "secret": {"secretName": "web-tls"}},
            ],
        },
    })
}

/// The main container.
fn web_container() -> Value {
    json!({
        "name": "web",
        "image": "registry.example/shop/web:v2.14.3",
        "args": ["--listen=:8080", "--config=/etc/web/web.yaml"],
        "ports": [{"name": "http", "containerPort": 8080}, {"name": "grpc", "containerPort": 9090}],
        "env": [
            {"name": "LOG_LEVEL", "value": "info"},
            {"name": "DATABASE_URL", "value": "postgres://shop@db.shop.svc:5432/shop"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "API_KEY", "valueFrom": {"secretKeyRef": {"name": "web-secrets", "key": "api-key"}}},
        ],
        "resources": {
            "requests": {"cpu": "250m", "memory": "256Mi"},
            "limits": {"cpu": "1", "memory": "512Mi"},
        },
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
        "livenessProbe": {
            "httpGet": {"path": "/live", "port": "http"},
            "initialDelaySeconds": 15,
            "failureThreshold": 5,
        },
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/web", "readOnly": true},
            {"name": "scratch", "mountPath": "/tmp"},
            {"name": "tls", "mountPath": "/etc/tls", "readOnly": true},
        ],
    })
}

fn exporter_container() -> Value {
    json!({
        "name": "exporter",
        "image": "registry.example/exporter:v0.9.1",
        "ports": [{"name": "metrics", "containerPort": 9102}],
        "env": [{"name": "TARGET", "value": "http://127.0.0.1:8080/stats"}],
        "resources": {
            "requests": {"cpu": "20m", "memory": "32Mi"},
            "limits": {"memory": "64Mi"},
        },
        "readinessProbe": {"tcpSocket": {"port": "metrics"}},
    })
}

/// The same pod with eight more exporters.
pub(super) fn crowded_pod() -> Value {
    let mut pod = pod();
    let containers = pod["spec"]["containers"]
        .as_array_mut()
        .expect("a pod has containers");
    for n in containers.len()..N_CONTAINERS {
        let mut sidecar = exporter_container();
        sidecar["name"] = json!(format!("sidecar-{n}"));
        sidecar["ports"] = json!([{"name": format!("metrics-{n}"), "containerPort": 9200 + n}]);
        sidecar["readinessProbe"]["tcpSocket"]["port"] = json!(9200 + n);
        containers.push(sidecar);
    }
    pod
}

/// An event about one of many pods, as a kubelet records it.
pub(super) fn event(n: u64, namespace: &str) -> Value {
    let pod = format!(
        "web-{:08x}-{:05x}",
        scramble(n / 8) as u32,
        scramble(n) & 0xf_ffff
    );
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"annotations": {"turn": "00000000"}},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": namespace,
            "uid": format!("{:08x}-0000-4000-8000-{:012x}", scramble(n) as u32, n),
            "resourceVersion": format!("{}", 1000 + n), "fieldPath": "spec.containers{web}",
        },
        "reason": "Pulled",
        "message": "Container image \"registry.example/web:v1\" already present on machine and can be accessed by the pod",
        "source": {"component": "kubelet", "host": format!("node-{:03}", n % 200)},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
        "type": "Normal",
        "reportingComponent": "kubelet",
        "reportingInstance": format!("node-{:03}", n % 200),
    })
}

/// A Deployment of such pods; a new turn changes its pod template.
pub(super) fn deployment() -> Value {
    let mut template = pod();
    template
        .as_object_mut()
        .expect("a pod is an object")
        .retain(|key, _| key == "metadata" || key == "spec");
    let labels = template["metadata"]["labels"].clone();
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"labels": labels},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": template,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_map_holds_one_kibibyte_and_differs_from_the_next() {
        let data = |n| config_map(n)["data"].clone();
        let size: usize = data(7)
            .as_object()
            .unwrap()
            .values()
            .map(|text| text.as_str().unwrap().len())
            .sum();
        assert_eq!(size, DATA_BYTES);
        assert_ne!(data(7), data(8));
    }

    #[test]
    fn a_crowded_pod_has_ten_containers_of_different_names() {
        let pod = crowded_pod();
        let containers = pod["spec"]["containers"].as_array().unwrap();
        let names: std::collections::BTreeSet<_> = containers
            .iter()
            .map(|container| container["name"].as_str().unwrap())
            .collect();
        assert_eq!(names.len(), N_CONTAINERS);
        assert!(names.contains("sidecar-7"));
    }
}
