//! Annotations, classes and references of claims and volumes.

use mizzen_value::Value;

/// On a claim: it was bound.
pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a claim or volume: the controller bound it, not a user.
pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a claim: the node that the scheduler selected.
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a claim: its external provisioner.
pub(super) const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The beta name of it.
pub(super) const OLD_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// On a volume: its provisioner.
pub(super) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On both: the CSI driver that replaced an in-tree plug-in.
pub(super) const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// The beta name of the class.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"].get(name).map(Value::str)
}

pub(super) fn has_annotation(object: &Value, name: &str) -> bool {
    annotation(object, name).is_some()
}

pub(super) fn annotate(object: &mut Value, name: &str, text: &str) {
    object
        .entry("metadata")
        .entry("annotations")
        .set(name, text);
}

/// The class of a claim or volume; `""` if it has none.
pub(super) fn class(object: &Value) -> &str {
    annotation(object, OLD_CLASS).unwrap_or_else(|| object["spec"]["storageClassName"].str())
}

/// Whether a claim has a class; an empty one counts.
pub(super) fn has_class(claim: &Value) -> bool {
    has_annotation(claim, OLD_CLASS) || !claim["spec"]["storageClassName"].is_null()
}

/// The claimRef of a volume as `namespace/name`.
pub(super) fn claim_key(volume: &Value) -> Option<String> {
    let claim = &volume["spec"]["claimRef"];
    (!claim.is_null()).then(|| format!("{}/{}", claim["namespace"].str(), claim["name"].str()))
}

/// Whether the claimRef of a volume matches a claim, with its uid if it has one.
pub(super) fn is_for(volume: &Value, claim: &Value) -> bool {
    let (reference, meta) = (&volume["spec"]["claimRef"], &claim["metadata"]);
    let same = |field: &str| reference[field].str() == meta[field].str();
    !reference.is_null()
        && same("name")
        && same("namespace")
        && (reference["uid"].str().is_empty() || same("uid"))
}

/// The volume mode; Filesystem by default.
pub(super) fn volume_mode(object: &Value) -> &str {
    object["spec"]["volumeMode"]
        .as_str()
        .unwrap_or("Filesystem")
}
