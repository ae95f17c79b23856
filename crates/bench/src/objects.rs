//! What the load is made of: ConfigMaps of 1 KiB, pods as people write them, pods with ten containers, Deployments,
//! objects of a custom kind, events as kubelets write them.
//!
//! Object number `n` is always the same bytes, named `item-NNNNNNN` and labelled so that one label value selects one in
//! a hundred. Each carries a `turn` of eight digits that an update overwrites in place, without parsing.
//!
//! Invariant: nothing else in an object is named `item-…`, so items can be counted by a scan for names.

use std::ops::Range;

use serde_json::json;

use super::bodies::{TURN_DIGITS, config_map, crowded_pod, deployment, event, pod};
use super::client::Call;
use super::definition::{self, widget};

/// How many label values there are.
pub(crate) const N_GROUPS: u64 = 100;
const TURN_KEY: &[u8] = b"\"turn\":\"";
/// As many objects as are needed to measure how one is changed.
const FEW: u64 = 1000;

/// A resource that load is put on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Configmaps,
    Pods,
    /// Pods with ten containers, which strategic merge patches change.
    CrowdedPods,
    /// Deployments that are applied.
    Deployments,
    /// Objects of a custom kind with rules.
    Widgets,
    /// Events, of which a busy cluster has more than of anything else.
    Events,
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
    pub(super) fn new(kind: Kind, namespace: &str) -> Self {
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

    /// Where object number `n` is.
    pub(super) fn item(&self, n: u64) -> String {
        format!("{}/{}", self.path, name(n))
    }

    /// Object number `n`, as a client would send it.
    pub(super) fn body(&self, n: u64) -> Vec<u8> {
        let mut object = match self.kind {
            Kind::Configmaps => config_map(n),
            Kind::Pods => pod(),
            Kind::CrowdedPods => crowded_pod(),
            Kind::Deployments => deployment(),
            Kind::Widgets => widget(&self.namespace),
            Kind::Events => event(n, &self.namespace),
        };
        object["metadata"]["name"] = json!(name(n));
        object["metadata"]["labels"]["bench"] = json!(self.namespace);
        object["metadata"]["labels"]["group"] = json!(group(n));
        serde_json::to_vec(&object).expect("a value is JSON")
    }

    /// How object number `n` is made.
    pub(super) fn creation(&self, n: u64) -> Call {
        match self.kind {
            Kind::Deployments => self.application(n, 0),
            _ => Call::post(&self.path, self.body(n)),
        }
    }

    /// A merge patch that changes an object.
    pub(super) fn patch(&self, turn: u64) -> Vec<u8> {
        match self.kind {
            Kind::Configmaps => format!(r#"{{"data":{{"turn":"{turn:08}"}}}}"#),
            _ => format!(r#"{{"metadata":{{"annotations":{{"turn":"{turn:08}"}}}}}}"#),
        }
        .into_bytes()
    }

    /// A strategic merge patch that gives one of many containers another image, and notes when.
    pub(super) fn strategic_patch(&self, n: u64, turn: u64) -> Call {
        let patch = json!({
            "metadata": {"annotations": {"turn": format!("{turn:08}")}},
            "spec": {"containers": [{"name": "sidecar-7", "image": format!("registry.example/exporter:v{turn}")}]},
        });
        Call::strategic_patch(self.item(n), patch.to_string())
    }

    /// Object number `n` as a whole, applied by the one who always does.
    pub(super) fn application(&self, n: u64, turn: u64) -> Call {
        let mut object = self.body(n);
        set_turn(&mut object, turn).expect("an object has a turn");
        Call::apply(format!("{}?fieldManager=bench", self.item(n)), object)
    }
}

impl Kind {
    pub(super) const ALL: [Self; 6] = [
        Self::Configmaps,
        Self::Pods,
        Self::CrowdedPods,
        Self::Deployments,
        Self::Widgets,
        Self::Events,
    ];

    /// The name in reports and on the command line.
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

    /// Whether its objects are read, listed and watched, too.
    pub(super) fn is_read(self) -> bool {
        matches!(self, Self::Configmaps | Self::Pods)
    }

    /// How many objects a collection has when `asked` are asked for.
    pub(super) fn n_objects(self, asked: u64) -> u64 {
        if self.is_read() || matches!(self, Self::Widgets | Self::Events) {
            asked
        } else {
            asked.min(FEW)
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
    body.windows(needle.len())
        .filter(|window| *window == needle)
        .count() as u64
}

fn value_of(json: &[u8], key: &[u8]) -> Option<Range<usize>> {
    let start = json.windows(key.len()).position(|window| window == key)? + key.len();
    let length = json[start..].iter().position(|&byte| byte == b'"')?;
    Some(start..start + length)
}

/// SplitMix64's mixer: neighbours come out unrelated.
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
        for kind in Kind::ALL {
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
    fn an_item_is_found_in_protobuf_by_the_length_of_its_name() {
        assert_eq!(
            count_protobuf(b"k8s\0..\x0a\x0citem-0000001\x1a\x07bench-1 \x0a\x0citem-0000002"),
            2
        );
    }

    #[test]
    fn one_group_is_a_hundredth() {
        assert_eq!(
            (n_in_group(10_000, 7), n_in_group(8, 7), n_in_group(7, 7)),
            (100, 1, 0)
        );
        assert_eq!(group(107), "g07");
    }
}
