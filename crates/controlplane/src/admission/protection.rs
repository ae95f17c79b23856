//! StorageObjectInUseProtection: finalizers of volumes, claims and VolumeAttributesClasses.

use mizzen_object::Status;
use mizzen_object::schema::CanonicalObject;

use super::Attributes;

/// The protected resources and their finalizers, which a controller removes.
const HELD: [(&str, &str, &str); 3] = [
    ("", "persistentvolumes", "kubernetes.io/pv-protection"),
    ("", "persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    (
        "storage.k8s.io",
        "volumeattributesclasses",
        "kubernetes.io/vac-protection",
    ),
];

/// Adds the finalizer to a new object.
pub(super) fn admit(attributes: &Attributes, object: &mut CanonicalObject) -> Result<(), Status> {
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
