//! The objects that are written to bind and unbind claims and volumes.
//!
//! Each function returns the object to write, or none if it did not change.

use mizzen_sdk::Object;
use mizzen_sdk::resource::PERSISTENT_VOLUME_CLAIMS;
use mizzen_value::quantity::Quantity;
use mizzen_workloads::common::template::object_reference;

use super::names::{
    BIND_COMPLETED, BOUND_BY_CONTROLLER, OLD_PROVISIONER, PROVISIONER, annotate, annotation,
    has_annotation, is_for,
};

/// The annotation of an expanded volume with the size of its file system.
const BEFORE_RESIZE: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

/// The volume bound to the claim.
pub(super) fn bind_volume_to_claim(volume: &Object, claim: &Object) -> Option<Object> {
    let mut bound = volume.clone();
    let reference = &volume["spec"]["claimRef"];
    let names_it = is_for(volume, claim);
    if !names_it || reference["uid"].str() != claim.uid() {
        let reference = object_reference(claim, &PERSISTENT_VOLUME_CLAIMS);
        bound.entry("spec").set("claimRef", reference);
    }
    if !names_it && !has_annotation(volume, BOUND_BY_CONTROLLER) {
        annotate(&mut bound, BOUND_BY_CONTROLLER, "yes");
    }
    changed(bound, volume)
}

/// The claim bound to the volume.
pub(super) fn bind_claim_to_volume(claim: &Object, volume: &Object) -> Option<Object> {
    let mut bound = claim.clone();
    if claim["spec"]["volumeName"].str() != volume.name() {
        bound.entry("spec").set("volumeName", volume.name());
        if !has_annotation(claim, BOUND_BY_CONTROLLER) {
            annotate(&mut bound, BOUND_BY_CONTROLLER, "yes");
        }
    }
    if !has_annotation(claim, BIND_COMPLETED) {
        annotate(&mut bound, BIND_COMPLETED, "yes");
    }
    changed(bound, claim)
}

pub(super) fn volume_phase(volume: &Object, phase: &str, message: &str) -> Option<Object> {
    if volume["status"]["phase"].str() == phase {
        return None;
    }
    let mut after = volume.clone();
    let status = after.entry("status");
    status.set("phase", phase);
    status.remove("message");
    if !message.is_empty() {
        status.set("message", message);
    }
    Some(after)
}

/// The claim's status after binding.
///
/// Kubernetes: the capacity is copied only while the claim becomes bound: later differences are
/// intended, a file system may be smaller than its device (pv_controller.go).
pub(super) fn claim_bound(claim: &Object, volume: &Object) -> Option<Object> {
    let mut after = claim.clone();
    let was_bound = claim["status"]["phase"].str() == "Bound";
    let status = after.entry("status");
    status.set("phase", "Bound");
    status.set("accessModes", volume["spec"]["accessModes"].clone());
    if !was_bound {
        let before_resize =
            annotation(volume, BEFORE_RESIZE).filter(|text| Quantity::parse(text).is_ok());
        match before_resize {
            Some(size) => status.entry("capacity").set("storage", size),
            None => status.set("capacity", volume["spec"]["capacity"].clone()),
        }
        if let Some(class) = volume["spec"].get("volumeAttributesClassName") {
            status.set("currentVolumeAttributesClassName", class.clone());
        }
    }
    changed(after, claim)
}

/// The claim's status without a volume.
pub(super) fn claim_phase(claim: &Object, phase: &str) -> Option<Object> {
    let mut after = claim.clone();
    let status = after.entry("status");
    status.set("phase", phase);
    for field in [
        "accessModes",
        "capacity",
        "currentVolumeAttributesClassName",
    ] {
        status.remove(field);
    }
    changed(after, claim)
}

/// The volume without its claim: as before the controller bound it, or still pre-bound if a user
/// did.
pub(super) fn unbind_volume(volume: &Object) -> Object {
    let mut after = volume.clone();
    if !has_annotation(volume, BOUND_BY_CONTROLLER) {
        after.entry("spec").entry("claimRef").remove("uid");
        return after;
    }
    after.entry("spec").remove("claimRef");
    let annotations = after.entry("metadata").entry("annotations");
    annotations.remove(BOUND_BY_CONTROLLER);
    if annotations.is_empty() {
        after.entry("metadata").remove("annotations");
    }
    after
}

/// The claim with the provisioner annotation.
pub(super) fn for_provisioner(claim: &Object, provisioner: &str) -> Option<Object> {
    if annotation(claim, PROVISIONER) == Some(provisioner) {
        return None;
    }
    let mut after = claim.clone();
    annotate(&mut after, OLD_PROVISIONER, provisioner);
    annotate(&mut after, PROVISIONER, provisioner);
    Some(after)
}

pub(super) fn with_class(claim: &Object, class: &str) -> Object {
    let mut after = claim.clone();
    after.entry("spec").set("storageClassName", class);
    after
}

fn changed(after: Object, before: &Object) -> Option<Object> {
    (*after != **before).then_some(after)
}

#[cfg(test)]
mod tests {
    use mizzen_value::{Value, value};

    use super::*;

    fn a_claim(spec: Value) -> Object {
        Object(
            value!({"metadata": {"namespace": "ns", "name": "c", "uid": "u", "resourceVersion": "7"}, "spec": spec}),
        )
    }

    fn a_volume(spec: Value) -> Object {
        Object(value!({"metadata": {"name": "v"}, "spec": spec}))
    }

    #[test]
    fn an_unclaimed_volume_is_annotated_as_bound_by_the_controller() {
        let bound = bind_volume_to_claim(&a_volume(value!({})), &a_claim(value!({}))).unwrap();
        assert_eq!(annotation(&bound, BOUND_BY_CONTROLLER), Some("yes"));
        assert_eq!(bound["spec"]["claimRef"]["resourceVersion"].str(), "7");
        assert!(bind_volume_to_claim(&bound, &a_claim(value!({}))).is_none());
    }

    #[test]
    fn a_pre_bound_volume_only_gets_the_claims_uid() {
        let kept = a_volume(value!({"claimRef": {"namespace": "ns", "name": "c"}}));
        let bound = bind_volume_to_claim(&kept, &a_claim(value!({}))).unwrap();
        assert_eq!(
            (
                bound["spec"]["claimRef"]["uid"].str(),
                annotation(&bound, BOUND_BY_CONTROLLER)
            ),
            ("u", None)
        );
        assert_eq!(unbind_volume(&bound)["spec"]["claimRef"]["name"].str(), "c");
    }

    #[test]
    fn unbinding_removes_what_the_controller_set() {
        let free = a_volume(value!({}));
        let bound = bind_volume_to_claim(&free, &a_claim(value!({}))).unwrap();
        assert_eq!(*unbind_volume(&bound), *free);
    }

    #[test]
    fn a_claim_with_a_volume_name_is_not_bound_by_the_controller() {
        let v = a_volume(value!({}));
        let bound = bind_claim_to_volume(&a_claim(value!({"volumeName": "v"})), &v).unwrap();
        assert_eq!(
            (
                annotation(&bound, BOUND_BY_CONTROLLER),
                annotation(&bound, BIND_COMPLETED)
            ),
            (None, Some("yes"))
        );
        let bound = bind_claim_to_volume(&a_claim(value!({})), &v).unwrap();
        assert_eq!(
            (
                annotation(&bound, BOUND_BY_CONTROLLER),
                bound["spec"]["volumeName"].str()
            ),
            (Some("yes"), "v")
        );
    }

    #[test]
    fn capacity_is_copied_while_the_claim_becomes_bound_and_not_later() {
        let v = |size: &str| {
            a_volume(value!({"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"]}))
        };
        let bound = claim_bound(&a_claim(value!({})), &v("5Gi")).unwrap();
        assert_eq!(bound["status"]["capacity"]["storage"].str(), "5Gi");
        assert!(claim_bound(&bound, &v("6Gi")).is_none());
        let mut resized = v("6Gi");
        annotate(&mut resized, BEFORE_RESIZE, "5Gi");
        let bound = claim_bound(&a_claim(value!({})), &resized).unwrap();
        assert_eq!(bound["status"]["capacity"]["storage"].str(), "5Gi");
    }

    #[test]
    fn a_lost_claim_has_no_capacity() {
        let bound = claim_bound(
            &a_claim(value!({})),
            &a_volume(value!({"capacity": {"storage": "5Gi"}})),
        )
        .unwrap();
        let lost = claim_phase(&bound, "Lost").unwrap();
        assert_eq!(lost["status"], value!({"phase": "Lost"}));
        assert!(claim_phase(&lost, "Lost").is_none());
    }
}
