//! Where do claims and volumes say what they are? Annotations, classes, and who refers to whom.

use mizzen_value::Value;

/// On a claim: it was bound once.
pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a claim or volume: it was us who bound it, not a person.
pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a claim: the scheduler chose this node, a volume may be made for it.
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a claim: who should make its volume.
pub(super) const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The same under its old name.
pub(super) const OLD_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// On a volume: who made it.
pub(super) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On both: the driver that replaced a plug-in of old.
pub(super) const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// The class under its old name.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// An annotation, if it is there.
pub(super) fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object["metadata"]["annotations"].get(name).map(Value::str)
}

/// Whether an annotation is there, whatever it says.
pub(super) fn has_annotation(object: &Value, name: &str) -> bool {
    annotation(object, name).is_some()
}

/// Sets an annotation.
pub(super) fn annotate(object: &mut Value, name: &str, text: &str) {
    object
        .entry("metadata")
        .entry("annotations")
        .set(name, text);
}

/// The class of a claim or volume, `""` if it has none.
pub(super) fn class(object: &Value) -> &str {
    annotation(object, OLD_CLASS).unwrap_or_else(|| object["spec"]["storageClassName"].str())
}

/// Whether a claim asks for a class; that of no name is one, too.
pub(super) fn has_class(claim: &Value) -> bool {
    has_annotation(claim, OLD_CLASS) || !claim["spec"]["storageClassName"].is_null()
}

/// The name of the claim that a volume is for, as `namespace/name`.
pub(super) fn claim_key(volume: &Value) -> Option<String> {
    let claim = &volume["spec"]["claimRef"];
    (!claim.is_null()).then(|| format!("{}/{}", claim["namespace"].str(), claim["name"].str()))
}

/// Whether a volume is for this claim: it names it, and its uid if it says one.
pub(super) fn is_for(volume: &Value, claim: &Value) -> bool {
    let (reference, meta) = (&volume["spec"]["claimRef"], &claim["metadata"]);
    let same = |field: &str| reference[field].str() == meta[field].str();
    !reference.is_null()
        && same("name")
        && same("namespace")
        && (reference["uid"].str().is_empty() || same("uid"))
}

/// How a claim or volume is to be used; a file system unless it says otherwise.
pub(super) fn volume_mode(object: &Value) -> &str {
    object["spec"]["volumeMode"]
        .as_str()
        .unwrap_or("Filesystem")
}
