//! Decides how a volume is synced.

use mizzen_sdk::Object;

use super::names::{PROVISIONED_BY, has_annotation, volume_mode};

/// What to do with a volume.
#[derive(Debug, PartialEq)]
pub(super) enum VolumePlan {
    /// Set the phase.
    Phase(&'static str),
    /// Set it Released, then apply the reclaim policy.
    Release,
    EnqueueClaim,
    /// Volume and claim do not match; an event is recorded for both.
    Mismatch {
        of_volume: String,
        of_claim: String,
    },
    /// Its claim is bound to another volume.
    Unbind,
}

/// Plans a volume, given the claim of its claimRef if that exists with the same uid.
pub(super) fn plan_volume(volume: &Object, claim: Option<&Object>) -> VolumePlan {
    if volume["spec"]["claimRef"]["uid"].str().is_empty() {
        return VolumePlan::Phase("Available");
    }
    let Some(claim) = claim else {
        return VolumePlan::Release;
    };
    match claim["spec"]["volumeName"].str() {
        "" if volume_mode(claim) != volume_mode(volume) => VolumePlan::Mismatch {
            of_volume: format!(
                "Cannot bind PersistentVolume to requested PersistentVolumeClaim {:?} due to incompatible volumeMode.",
                claim.name()
            ),
            of_claim: format!(
                "Cannot bind PersistentVolume {:?} to requested PersistentVolumeClaim due to incompatible volumeMode.",
                volume.name()
            ),
        },
        "" => VolumePlan::EnqueueClaim,
        name if name == volume.name() => VolumePlan::Phase("Bound"),
        // It was provisioned for this claim, so no other claim will use it.
        _ if has_annotation(volume, PROVISIONED_BY)
            && volume["spec"]["persistentVolumeReclaimPolicy"].str() == "Delete" =>
        {
            VolumePlan::Release
        }
        _ => VolumePlan::Unbind,
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::{Value, value};

    use super::*;
    use crate::volume_binder::names::annotate;

    fn volume(holder: Value, policy: &str) -> Object {
        let mut volume = Object(
            value!({"metadata": {"name": "v"}, "spec": {"persistentVolumeReclaimPolicy": policy}}),
        );
        volume.entry("spec").set("claimRef", holder);
        volume
    }

    fn claim(spec: Value) -> Object {
        Object(value!({"metadata": {"name": "c"}, "spec": spec}))
    }

    fn held() -> Object {
        volume(value!({"name": "c", "uid": "u"}), "Delete")
    }

    #[test]
    fn a_volume_is_available_until_a_claim_has_it() {
        assert_eq!(
            plan_volume(&volume(Value::Null, "Retain"), None),
            VolumePlan::Phase("Available")
        );
        assert_eq!(
            plan_volume(&volume(value!({"name": "c"}), "Retain"), None),
            VolumePlan::Phase("Available")
        );
        assert_eq!(
            plan_volume(&held(), Some(&claim(value!({})))),
            VolumePlan::EnqueueClaim
        );
        assert_eq!(
            plan_volume(&held(), Some(&claim(value!({"volumeName": "v"})))),
            VolumePlan::Phase("Bound")
        );
    }

    #[test]
    fn a_volume_whose_claim_is_gone_is_released() {
        assert_eq!(plan_volume(&held(), None), VolumePlan::Release);
    }

    #[test]
    fn a_volume_whose_claim_is_bound_elsewhere_is_unbound_or_deleted_if_provisioned() {
        let elsewhere = claim(value!({"volumeName": "w"}));
        assert_eq!(plan_volume(&held(), Some(&elsewhere)), VolumePlan::Unbind);
        let mut made = held();
        annotate(&mut made, PROVISIONED_BY, "example.com/p");
        assert_eq!(plan_volume(&made, Some(&elsewhere)), VolumePlan::Release);
    }

    #[test]
    fn volume_modes_must_match() {
        let plan = plan_volume(&held(), Some(&claim(value!({"volumeMode": "Block"}))));
        assert!(matches!(plan, VolumePlan::Mismatch { .. }), "{plan:?}");
    }
}
