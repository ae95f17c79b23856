//! What the provisioner does with a claim or a volume.
//!
//! Invariant: pure.

use std::path::{Path, PathBuf};

use mizzen_sdk::Object;
use mizzen_value::quantity::Quantity;
use mizzen_value::{Value, value};

use super::PROVISIONER;

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const WANTED: [&str; 2] = [
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
];
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Kubernetes: while a volume has it, its data is not removed (sig-storage-lib-external-provisioner).
pub(super) const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
const HOST_NAME: &str = "kubernetes.io/hostname";
const MODES: [&str; 2] = ["ReadWriteOnce", "ReadWriteOncePod"];

/// A node, and where its volumes are.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub node: String,
    pub directory: PathBuf,
}

impl Place {
    /// The directory of a volume.
    pub(super) fn path(&self, volume: &str) -> PathBuf {
        self.directory.join(volume)
    }
}

/// The name of the class of a claim.
pub(super) fn class_name(claim: &Object) -> &str {
    let old = claim.annotation("volume.beta.kubernetes.io/storage-class");
    old.unwrap_or_else(|| claim["spec"]["storageClassName"].str())
}

/// Whether a claim waits for a volume of this provisioner.
pub(super) fn is_wanted(claim: &Object) -> bool {
    let provisioner = WANTED.iter().find_map(|name| claim.annotation(name));
    provisioner == Some(PROVISIONER)
        && claim["spec"]["volumeName"].is_empty()
        && !claim.is_terminating()
}

/// Whether this node makes the volume of a claim that waits. Without a selected node, the first
/// node does that creates the object.
pub(super) fn is_of_node(claim: &Object, class: &Value, node: &str) -> bool {
    let is_ours = class["provisioner"].str() == PROVISIONER;
    let is_delayed = class["volumeBindingMode"].str() == "WaitForFirstConsumer";
    let is_selected = match claim.annotation(SELECTED_NODE) {
        Some(selected) => selected == node,
        None => !is_delayed,
    };
    is_ours && is_selected
}

/// Why a directory cannot be what a claim asks for.
pub(super) fn refusal(claim: &Value) -> Option<&'static str> {
    let spec = &claim["spec"];
    let mut modes = spec["accessModes"].list().iter();
    if spec["volumeMode"].str() == "Block" {
        return Some("volumeMode Block is not supported");
    }
    if modes.any(|mode| !MODES.contains(&mode.str())) {
        return Some("only the access modes ReadWriteOnce and ReadWriteOncePod are supported");
    }
    if !spec["selector"].is_null() {
        return Some("claim Selector is not supported");
    }
    let has_source = !spec["dataSource"].is_null() || !spec["dataSourceRef"].is_null();
    has_source.then_some("a data source is not supported")
}

/// The name of the volume for a claim.
pub(super) fn volume_name(claim: &Object) -> String {
    format!("pvc-{}", claim.uid())
}

/// The volume for a claim.
pub(super) fn volume(claim: &Object, class: &Object, place: &Place) -> Value {
    let name = volume_name(claim);
    let policy = match class["reclaimPolicy"].str() {
        "" => "Delete",
        policy => policy,
    };
    let finalizers = match policy {
        "Delete" => vec![Value::from(FINALIZER)],
        _ => Vec::new(),
    };
    let path = place.path(&name).display().to_string();
    let only_here =
        value!({ "key": HOST_NAME, "operator": "In", "values": [(place.node.as_str())] });
    let mut annotations = Value::object();
    annotations.set(PROVISIONED_BY, PROVISIONER);
    value!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": { "name": name, "annotations": annotations, "finalizers": finalizers },
        "spec": {
            "accessModes": (claim["spec"]["accessModes"].clone()),
            "capacity": { "storage": (claim["spec"]["resources"]["requests"]["storage"].clone()) },
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": (claim.namespace()),
                "name": (claim.name()),
                "uid": (claim.uid()),
                "resourceVersion": (claim.version()),
            },
            "local": { "path": path },
            "nodeAffinity": {
                "required": { "nodeSelectorTerms": [{ "matchExpressions": [only_here] }] },
            },
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": (class.name()),
            "volumeMode": "Filesystem",
        },
    })
}

/// Whether this node has made a volume. Its path must be the one that follows from its name: no
/// object makes the agent remove another directory.
pub(super) fn is_own(volume: &Object, place: &Place) -> bool {
    let terms = &volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
    let expression = &terms[0]["matchExpressions"][0];
    let is_here = expression["key"].str() == HOST_NAME
        && expression["values"][0].str() == place.node
        && terms.list().len() == 1;
    volume.annotation(PROVISIONED_BY) == Some(PROVISIONER)
        && is_here
        && Path::new(volume["spec"]["local"]["path"].str()) == place.path(volume.name())
}

/// Whether the data of a volume is to be removed.
pub(super) fn is_reclaimed(volume: &Object) -> bool {
    let spec = &volume["spec"];
    volume["status"]["phase"].str() == "Released"
        && spec["persistentVolumeReclaimPolicy"].str() == "Delete"
        && (!volume.is_terminating() || volume.has_finalizer(FINALIZER))
}

/// The size to which a bound claim grows; null if it has what it requests.
pub(super) fn growth<'a>(claim: &'a Value, volume: &Value) -> &'a Value {
    static NONE: Value = Value::Null;
    let (wanted, status) = (
        &claim["spec"]["resources"]["requests"]["storage"],
        &claim["status"],
    );
    let amount = |value: &Value| Quantity::parse_or_zero(value.str());
    let is_bound = status["phase"].str() == "Bound"
        && volume["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"];
    let has_grown = amount(&status["capacity"]["storage"]) >= amount(wanted)
        && amount(&volume["spec"]["capacity"]["storage"]) >= amount(wanted);
    match is_bound && !has_grown {
        true => wanted,
        false => &NONE,
    }
}

/// The status of a claim while its volume grows.
pub(super) fn growing(claim: &Object, size: &Value, now: &str) -> Value {
    let mut conditions = other_conditions(claim);
    conditions.push(value!({ "type": "Resizing", "status": "True", "lastTransitionTime": now }));
    value!({ "metadata": { "resourceVersion": (claim.version()) }, "status": {
        "allocatedResources": { "storage": (size.clone()) },
        "allocatedResourceStatuses": { "storage": "ControllerResizeInProgress" },
        "conditions": conditions,
    } })
}

/// The status of a claim whose volume has grown.
pub(super) fn grown(claim: &Object, size: &Value) -> Value {
    let conditions = match other_conditions(claim) {
        none if none.is_empty() => Value::Null,
        conditions => conditions.into(),
    };
    value!({ "metadata": { "resourceVersion": (claim.version()) }, "status": {
        "allocatedResourceStatuses": (Value::Null),
        "capacity": { "storage": (size.clone()) },
        "conditions": conditions,
    } })
}

fn other_conditions(claim: &Value) -> Vec<Value> {
    let conditions = claim["status"]["conditions"].list().iter();
    let others = conditions.filter(|condition| condition["type"].str() != "Resizing");
    others.cloned().collect()
}

#[cfg(test)]
mod tests {
    use mizzen_value::yaml;

    use super::*;

    fn read(text: &str) -> Object {
        Object(yaml::read(text.as_bytes()).unwrap().value)
    }

    fn place() -> Place {
        Place {
            node: "n1".into(),
            directory: "/data/volumes".into(),
        }
    }

    fn claim(annotations: &str, spec: &str) -> Object {
        read(&format!(
            "{{metadata: {{namespace: ns, name: c, uid: u, annotations: {{{annotations}}}}}, \
             spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}, {spec}}}}}"
        ))
    }

    const OURS: &str = "volume.kubernetes.io/storage-provisioner: mizzen.dev/directory";

    #[test]
    fn the_selected_node_makes_the_volume() {
        let class = |mode: &str| {
            read(&format!(
                "{{provisioner: mizzen.dev/directory, volumeBindingMode: {mode}}}"
            ))
        };
        let selected = |node: &str| claim(&format!("{SELECTED_NODE}: {node}"), "");
        let delayed = class("WaitForFirstConsumer");
        assert!(is_of_node(&selected("n1"), &delayed, "n1"));
        assert!(!is_of_node(&selected("n2"), &delayed, "n1"));
        assert!(!is_of_node(&claim("", ""), &delayed, "n1"));
        assert!(is_of_node(&claim("", ""), &class("Immediate"), "n1"));
        assert!(!is_of_node(
            &selected("n1"),
            &value!({ "provisioner": "other" }),
            "n1"
        ));
        assert!(is_wanted(&claim(OURS, "")));
        assert!(!is_wanted(&claim(OURS, "volumeName: v")));
        assert!(!is_wanted(&claim("", "")));
    }

    #[test]
    fn a_claim_that_a_directory_cannot_serve_is_refused() {
        let check = |spec: &str| refusal(&claim("", spec));
        assert_eq!(check(""), None);
        assert_eq!(
            check("volumeMode: Block"),
            Some("volumeMode Block is not supported")
        );
        assert_eq!(
            check("selector: {}"),
            Some("claim Selector is not supported")
        );
        assert_eq!(
            check("dataSource: {}"),
            Some("a data source is not supported")
        );
        let mut shared = claim("", "");
        shared
            .entry("spec")
            .set("accessModes", vec![Value::from("ReadWriteMany")]);
        let why = "only the access modes ReadWriteOnce and ReadWriteOncePod are supported";
        assert_eq!(refusal(&shared), Some(why));
    }

    #[test]
    fn only_a_volume_that_this_node_made_is_removed() {
        let class = read("{metadata: {name: standard}, reclaimPolicy: Delete}");
        let made = Object(volume(&claim("", ""), &class, &place()));
        assert_eq!(made["spec"]["local"]["path"].str(), "/data/volumes/pvc-u");
        assert!(is_own(&made, &place()) && made.has_finalizer(FINALIZER));
        let mut elsewhere = made.clone();
        let local = elsewhere.entry("spec").entry("local");
        local.set("path", "/etc");
        assert!(!is_own(&elsewhere, &place()));
        let other = Place {
            node: "n2".into(),
            ..place()
        };
        assert!(!is_own(&made, &other));

        let phase = |phase: &str, policy: &str| {
            let mut volume = made.clone();
            volume.entry("status").set("phase", phase);
            volume
                .entry("spec")
                .set("persistentVolumeReclaimPolicy", policy);
            is_reclaimed(&volume)
        };
        assert!(phase("Released", "Delete"));
        assert!(!phase("Released", "Retain"));
        assert!(!phase("Bound", "Delete"));
    }

    #[test]
    fn a_claim_grows_until_it_has_what_it_requests() {
        let claim = |capacity: &str| {
            read(&format!(
                "{{metadata: {{uid: u}}, spec: {{resources: {{requests: {{storage: 2Gi}}}}}}, \
                 status: {{phase: Bound, capacity: {{storage: {capacity}}}}}}}"
            ))
        };
        let volume = |size: &str| {
            read(&format!(
                "{{spec: {{claimRef: {{uid: u}}, capacity: {{storage: {size}}}}}}}"
            ))
        };
        assert_eq!(growth(&claim("1Gi"), &volume("1Gi")).str(), "2Gi");
        assert_eq!(growth(&claim("1Gi"), &volume("2Gi")).str(), "2Gi");
        assert!(growth(&claim("2Gi"), &volume("2Gi")).is_null());
        let status = growing(&claim("1Gi"), &"2Gi".into(), "now");
        assert_eq!(status["status"]["conditions"][0]["type"].str(), "Resizing");
    }
}
