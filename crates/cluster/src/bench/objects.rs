//! What the load is made of: ConfigMaps of 1 KiB and pods as people write them.
//!
//! Object number `n` is always the same bytes, named `item-NNNNNNN` and labelled so that one label value selects one in
//! a hundred. Each carries a `turn` of eight digits that an update overwrites in place, without parsing.
//!
//! Invariant: nothing else in an object is named `item-…`, so items can be counted by a scan for names.

use std::fmt::Write;
use std::ops::Range;

use serde_json::{Value, json};

/// How many label values there are.
pub(crate) const N_GROUPS: u64 = 100;
/// The size of a ConfigMap's data.
const DATA_BYTES: usize = 1024;
const TURN_KEY: &[u8] = b"\"turn\":\"";
const TURN_DIGITS: usize = 8;

/// A resource that load is put on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Configmaps,
    Pods,
}

/// All objects of a kind in one namespace.
#[derive(Clone, Debug)]
pub(crate) struct Collection {
    pub kind: Kind,
    pub namespace: String,
    /// `/api/v1/namespaces/…/configmaps`
    pub path: String,
}

impl Collection {
    pub fn new(kind: Kind, namespace: &str) -> Self {
        let path = format!("/api/v1/namespaces/{namespace}/{}", kind.resource());
        Self { kind, namespace: namespace.to_owned(), path }
    }

    /// Where object number `n` is.
    pub fn item(&self, n: u64) -> String {
        format!("{}/{}", self.path, name(n))
    }

    /// Object number `n`, as a client would send it.
    pub fn body(&self, n: u64) -> Vec<u8> {
        let mut object = match self.kind {
            Kind::Configmaps => config_map(n),
            Kind::Pods => pod(),
        };
        object["metadata"]["name"] = json!(name(n));
        object["metadata"]["labels"]["bench"] = json!(self.namespace);
        object["metadata"]["labels"]["group"] = json!(group(n));
        serde_json::to_vec(&object).expect("a value is JSON")
    }

    /// A merge patch that changes an object.
    pub fn patch(&self, turn: u64) -> Vec<u8> {
        match self.kind {
            Kind::Configmaps => format!(r#"{{"data":{{"turn":"{turn:08}"}}}}"#),
            Kind::Pods => format!(r#"{{"metadata":{{"annotations":{{"turn":"{turn:08}"}}}}}}"#),
        }
        .into_bytes()
    }
}

impl Kind {
    pub fn resource(self) -> &'static str {
        match self {
            Self::Configmaps => "configmaps",
            Self::Pods => "pods",
        }
    }
}

/// The label value of object number `n`.
pub(crate) fn group(n: u64) -> String {
    format!("g{:02}", n % N_GROUPS)
}

/// How many of the first `n_objects` carry the label value of group `group`.
pub(crate) fn n_in_group(n_objects: u64, group: u64) -> u64 {
    (n_objects + N_GROUPS - 1 - group) / N_GROUPS
}

fn name(n: u64) -> String {
    format!("item-{n:07}")
}

/// Overwrites the turn in an object's bytes. `None` if there is none.
pub(crate) fn set_turn(object: &mut [u8], turn: u64) -> Option<()> {
    let digits = value_of(object, TURN_KEY)?;
    let digits = object.get_mut(digits.start..digits.start + TURN_DIGITS)?;
    digits.copy_from_slice(format!("{:08}", turn % 100_000_000).as_bytes());
    Some(())
}

/// Takes the resourceVersion out of an object's bytes, so that a PUT of it is unconditional.
pub(crate) fn drop_resource_version(object: &mut Vec<u8>) -> Option<()> {
    const KEY: &[u8] = b"\"resourceVersion\":\"";
    let value = value_of(object, KEY)?;
    let comma = usize::from(object.get(value.end + 1) == Some(&b','));
    object.drain(value.start - KEY.len()..value.end + 1 + comma);
    Some(())
}

/// A string of a list's or an object's metadata, by a scan of its first bytes.
pub(crate) fn scan_string<'a>(json: &'a [u8], field: &str) -> Option<&'a str> {
    let value = value_of(json, format!("\"{field}\":\"").as_bytes())?;
    std::str::from_utf8(&json[value]).ok()
}

/// How many of our objects are in a JSON list or Table.
pub(crate) fn count_json(body: &[u8]) -> u64 {
    count(body, b"\"name\":\"item-")
}

/// How many of our objects are in a protobuf list: `ObjectMeta.name` is field 1, twelve bytes long.
pub(crate) fn count_protobuf(body: &[u8]) -> u64 {
    count(body, b"\x0a\x0citem-")
}

fn count(body: &[u8], needle: &[u8]) -> u64 {
    body.windows(needle.len()).filter(|window| *window == needle).count() as u64
}

fn value_of(json: &[u8], key: &[u8]) -> Option<Range<usize>> {
    let start = json.windows(key.len()).position(|window| window == key)? + key.len();
    let length = json[start..].iter().position(|&byte| byte == b'"')?;
    Some(start..start + length)
}

fn config_map(n: u64) -> Value {
    let payload = text(n, DATA_BYTES - TURN_DIGITS);
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {},
        "data": {"application.properties": payload, "turn": "00000000"},
    })
}

/// Settings, different in each object, that compress about as well as real ones.
fn text(seed: u64, length: usize) -> String {
    const WORDS: [&str; 16] = [
        "cache", "timeout", "server", "pool", "retry", "limit", "enabled", "region", "queue", "database",
        "user", "metrics", "level", "interval", "host", "buffer",
    ];
    let mut text = String::with_capacity(length + 64);
    let mut state = seed;
    while text.len() < length {
        state = scramble(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        let word = |shift: u32| WORDS[(state >> shift) as usize % WORDS.len()];
        writeln!(text, "{}.{}.{}={:x}", word(0), word(4), word(8), state >> 40).expect("a string takes all");
    }
    text.truncate(length);
    text
}

/// SplitMix64's mixer: neighbours come out unrelated.
pub(crate) fn scramble(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A pod that no controller touches: no scheduler answers to its `schedulerName`, no token is mounted.
fn pod() -> Value {
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
            "containers": [web(), exporter()],
            "volumes": [
                {"name": "config", "configMap": {"name": "web-config", "defaultMode": 420}},
                {"name": "scratch", "emptyDir": {"sizeLimit": "128Mi"}},
                {"name": "tls", "secret": {"secretName": "web-tls"}},
            ],
        },
    })
}

fn web() -> Value {
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

fn exporter() -> Value {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_map_holds_one_kibibyte_and_differs_from_the_next() {
        let data = |n| config_map(n)["data"].clone();
        let size: usize =
            data(7).as_object().unwrap().values().map(|text| text.as_str().unwrap().len()).sum();
        assert_eq!(size, DATA_BYTES);
        assert_ne!(data(7), data(8));
    }

    #[test]
    fn an_object_is_counted_once_and_its_turn_is_overwritten_in_place() {
        for kind in [Kind::Configmaps, Kind::Pods] {
            let mut body = Collection::new(kind, "bench-1").body(42);
            assert_eq!(count_json(&body), 1);
            set_turn(&mut body, 7).unwrap();
            assert_eq!(scan_string(&body, "turn"), Some("00000007"));
        }
    }

    #[test]
    fn a_resource_version_is_cut_out_with_its_comma() {
        let check = |before: &str, after: &str| {
            let mut object = before.as_bytes().to_vec();
            drop_resource_version(&mut object).unwrap();
            assert_eq!(String::from_utf8(object).unwrap(), after);
        };
        check(r#"{"uid":"u","resourceVersion":"12","labels":{}}"#, r#"{"uid":"u","labels":{}}"#);
        check(r#"{"resourceVersion":"12"}"#, "{}");
    }

    #[test]
    fn an_item_is_found_in_protobuf_by_the_length_of_its_name() {
        assert_eq!(count_protobuf(b"k8s\0..\x0a\x0citem-0000001\x1a\x07bench-1 \x0a\x0citem-0000002"), 2);
    }

    #[test]
    fn one_group_is_a_hundredth() {
        assert_eq!((n_in_group(10_000, 7), n_in_group(8, 7), n_in_group(7, 7)), (100, 1, 0));
        assert_eq!(group(107), "g07");
    }
}
