//! PersistentVolumeClaimResize: a claim may grow only if it is bound and its class allows expansion.

use mizzen_component_helpers::quota::storage_class;
use mizzen_object::Status;
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::Attributes;

/// Rejects a claim that may not grow.
pub(super) fn check(attributes: &Attributes, claim: &Value) -> Result<(), Status> {
    if !attributes.is_main("", "persistentvolumeclaims") {
        return Ok(());
    }
    let Some(old) = attributes.old.filter(|old| size(old) < size(claim)) else {
        return Ok(());
    };
    if old["status"]["phase"].str() != "Bound" {
        return Err(
            attributes.forbidden(claim, "Only bound persistent volume claims can be expanded")
        );
    }
    let class = storage_class(claim);
    let is_same = !class.is_empty() && class == storage_class(old);
    let found = is_same
        .then(|| attributes.find("storage.k8s.io", "storageclasses", "", class))
        .flatten();
    if found.is_some_and(|class| class["allowVolumeExpansion"].bool()) {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc \
               must support resize";
    Err(attributes.forbidden(claim, why))
}

fn size(claim: &Value) -> Quantity {
    match claim["spec"]["resources"]["requests"]["storage"].str() {
        "" => Quantity::default(),
        text => Quantity::parse_or_zero(text),
    }
}
