//! Storage that is in use does not simply go.

use mizzen_object::Status;
use mizzen_value::Value;

use super::Attributes;

/// What is held, and by which finalizer; a controller takes it off when the object may go.
const HELD: [(&str, &str, &str); 3] = [
    ("", "persistentvolumes", "kubernetes.io/pv-protection"),
    ("", "persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    (
        "storage.k8s.io",
        "volumeattributesclasses",
        "kubernetes.io/vac-protection",
    ),
];

/// Holds a new volume, claim or class of volumes.
pub(super) fn admit(attributes: &Attributes, object: &mut Value) -> Result<(), Status> {
    let held = HELD
        .iter()
        .find(|(group, plural, _)| attributes.is_main(group, plural));
    let Some((_, _, finalizer)) = held.filter(|_| attributes.is_create()) else {
        return Ok(());
    };
    let finalizers = object.entry("metadata").entry("finalizers").make_list();
    if !finalizers.iter().any(|known| known.str() == *finalizer) {
        finalizers.push((*finalizer).into());
    }
    Ok(())
}
