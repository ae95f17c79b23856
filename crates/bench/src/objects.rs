//! The objects of the load: ConfigMaps of 1 KiB, typical pods, pods with ten containers, Deployments, custom resources,
//! events as kubelets record them.
//!
//! Object number `n` always has the same bytes, the name `item-NNNNNNN`, and a label whose values each select one in a
//! hundred. Each has a `turn` of eight digits that an update overwrites in place, without parsing.
//!
//! Invariant: nothing else in an object is named `item-…`, so a scan for names counts items.

use std::ops::Range;

use serde_json::json;

use super::bodies::{TURN_DIGITS, config_map, crowded_pod, deployment, event, pod};
use super::client::ApiCall;
use super::definition::{self, widget};

/// The number of label values.
pub(crate) const N_GROUPS: u64 = 100;
const TURN_KEY: &[u8] = b"\"turn\":\"";
/// The most objects of a kind of which only changes are measured.
const MAX_CHANGED: u64 = 1000;

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ObjectKind {
    Configmaps,
    Pods,
    /// Pods with ten containers, changed by strategic merge patches.
    CrowdedPods,
    /// Deployments, changed by server-side apply.
    Deployments,
    /// Custom resources with validation rules.
    Widgets,
    /// Events, the most frequent objects of a busy cluster.
    Events,
}

/// All objects of a kind in one namespace.
#[derive(Clone, Debug)]
pub(crate) struct Collection {
    pub kind: ObjectKind,
    pub namespace: String,
    /// `/api/v1/namespaces/…/configmaps`
    pub path: String,
}

impl Collection {
    pub(super) fn new(kind: ObjectKind, namespace: &str) -> Self {
        let path = format!(
            "{}/namespaces/{namespace}/{}",
            kind.version(namespace),
            kind.resource()
        );
        Self {
            kind,
            namespace: namespace.to_owned(),
            path,
        }
    }

    /// The path of object number `n`.
    pub(super) fn item(&self, n: u64) -> String {
        format!("{}/{}", self.path, name(n))
    }

    /// Object number `n` as JSON.
    pub(super) fn body(&self, n: u64) -> Vec<u8> {
        let mut object = match self.kind {
            ObjectKind::Configmaps => config_map(n),
            ObjectKind::Pods => pod(),
            ObjectKind::CrowdedPods => crowded_pod(),
            ObjectKind::Deployments => deployment(),
            ObjectKind::Widgets => widget(&self.namespace),
            ObjectKind::Events => event(n, &self.namespace),
        };
        object["metadata"]["name"] = json!(name(n));
        object["metadata"]["labels"]["bench"] = json!(self.namespace);
        object["metadata"]["labels"]["group"] = json!(group(n));
        serde_json::to_vec(&object).expect("a value is JSON")
    }

    /// The request that creates object number `n`.
    pub(super) fn create(&self, n: u64) -> ApiCall {
        match self.kind {
            ObjectKind::Deployments => self.apply(n, 0),
            _ => ApiCall::post(&self.path, self.body(n)),
        }
    }

    /// A merge patch that sets the turn.
    pub(super) fn merge_patch(&self, n: u64, turn: u64) -> ApiCall {
        let patch = match self.kind {
            ObjectKind::Configmaps => format!(r#"{{"data":{{"turn":"{turn:08}"}}}}"#),
            _ => format!(r#"{{"metadata":{{"annotations":{{"turn":"{turn:08}"}}}}}}"#),
        };
        ApiCall::merge_patch(self.item(n), patch)
    }

    /// A strategic merge patch that sets the turn and the image of one container.
    pub(super) fn strategic_patch(&self, n: u64, turn: u64) -> ApiCall {
        let patch = json!({
            "metadata": {"annotations": {"turn": format!("{turn:08}")}},
            "spec": {"containers": [{"name": "sidecar-7", "image": format!("registry.example/exporter:v{turn}")}]},
        });
        ApiCall::strategic_patch(self.item(n), patch.to_string())
    }

    /// A server-side apply of the whole object number `n`, always by the same field manager.
    pub(super) fn apply(&self, n: u64, turn: u64) -> ApiCall {
        let mut object = self.body(n);
        set_turn(&mut object, turn).expect("an object has a turn");
        ApiCall::apply(format!("{}?fieldManager=bench", self.item(n)), object)
    }
}

impl ObjectKind {
    pub(super) const ALL: [Self; 6] = [
        Self::Configmaps,
        Self::Pods,
        Self::CrowdedPods,
        Self::Deployments,
        Self::Widgets,
        Self::Events,
    ];

    /// The name in reports and arguments.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CrowdedPods => "crowded-pods",
            _ => self.resource(),
        }
    }

    fn resource(self) -> &'static str {
        match self {
            Self::Configmaps => "configmaps",
            Self::Pods | Self::CrowdedPods => "pods",
            Self::Deployments => "deployments",
            Self::Widgets => "widgets",
            Self::Events => "events",
        }
    }

    fn version(self, namespace: &str) -> String {
        match self {
            Self::Deployments => "/apis/apps/v1".to_owned(),
            Self::Widgets => format!("/apis/{}/v1", definition::group(namespace)),
            _ => "/api/v1".to_owned(),
        }
    }

    /// Whether its objects are also read, listed and watched.
    pub(super) fn is_read(self) -> bool {
        matches!(self, Self::Configmaps | Self::Pods)
    }

    /// The size of a collection when `requested` objects are requested.
    pub(super) fn n_objects(self, requested: u64) -> u64 {
        if self.is_read() || matches!(self, Self::Widgets | Self::Events) {
            requested
        } else {
            requested.min(MAX_CHANGED)
        }
    }
}

/// The label value of object number `n`.
pub(crate) fn group(n: u64) -> String {
    format!("g{:02}", n % N_GROUPS)
}

/// How many of the first `n_objects` have the label value of `group`.
pub(crate) fn n_in_group(n_objects: u64, group: u64) -> u64 {
    (n_objects + N_GROUPS - 1 - group) / N_GROUPS
}

fn name(n: u64) -> String {
    format!("item-{n:07}")
}

/// Overwrites the turn in an object's bytes. `None` if there is none.
pub(crate) fn set_turn(object: &mut [u8], turn: u64) -> Option<()> {
    let digits = string_range(object, TURN_KEY)?;
    let digits = object.get_mut(digits.start..digits.start + TURN_DIGITS)?;
    digits.copy_from_slice(format!("{:08}", turn % 100_000_000).as_bytes());
    Some(())
}

/// Removes the resourceVersion from the bytes of an object, so that a PUT of it is unconditional.
pub(crate) fn drop_resource_version(object: &mut Vec<u8>) -> Option<()> {
    const KEY: &[u8] = b"\"resourceVersion\":\"";
    let value = string_range(object, KEY)?;
    let comma = usize::from(object.get(value.end + 1) == Some(&b','));
    object.drain(value.start - KEY.len()..value.end + 1 + comma);
    Some(())
}

/// A string in the metadata of a list or object, found by a scan.
pub(crate) fn scan_string<'a>(json: &'a [u8], field: &str) -> Option<&'a str> {
    let value = string_range(json, format!("\"{field}\":\"").as_bytes())?;
    std::str::from_utf8(&json[value]).ok()
}

/// The number of items in a JSON list or Table.
pub(crate) fn count_json(body: &[u8]) -> u64 {
    count(body, b"\"name\":\"item-")
}

/// The number of items in a protobuf list: `ObjectMeta.name` is field 1, twelve bytes long.
pub(crate) fn count_protobuf(body: &[u8]) -> u64 {
    count(body, b"\x0a\x0citem-")
}

fn count(body: &[u8], needle: &[u8]) -> u64 {
    body.windows(needle.len())
        .filter(|window| *window == needle)
        .count() as u64
}

fn string_range(json: &[u8], key: &[u8]) -> Option<Range<usize>> {
    let start = json.windows(key.len()).position(|window| window == key)? + key.len();
    let length = json[start..].iter().position(|&byte| byte == b'"')?;
    Some(start..start + length)
}

/// The mixer of SplitMix64: consecutive numbers give unrelated results.
pub(crate) fn scramble(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_counted_once_and_its_turn_is_overwritten_in_place() {
        for kind in ObjectKind::ALL {
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
        check(
            r#"{"uid":"u","resourceVersion":"12","labels":{}}"#,
            r#"{"uid":"u","labels":{}}"#,
        );
        check(r#"{"resourceVersion":"12"}"#, "{}");
    }

    #[test]
    fn protobuf_items_are_counted_by_their_names() {
        assert_eq!(
            count_protobuf(b"k8s\0..\x0a\x0citem-0000001\x1a\x07bench-1 \x0a\x0citem-0000002"),
            2
        );
    }

    #[test]
    fn a_label_value_selects_one_in_a_hundred() {
        assert_eq!(
            (n_in_group(10_000, 7), n_in_group(8, 7), n_in_group(7, 7)),
            (100, 1, 0)
        );
        assert_eq!(group(107), "g07");
    }
}
