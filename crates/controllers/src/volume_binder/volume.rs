//! What does a volume need next?

use mizzen_sdk::Object;

use super::names::{PROVISIONED_BY, has_annotation, volume_mode};

/// What to do about a volume.
#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    /// It is in this phase.
    Phase(&'static str),
    /// Its claim is gone: say so, then do with it as its policy says.
    Release,
    /// Its claim does not know of it yet.
    WakeClaim,
    /// It and its claim cannot come together; said of both.
    Mismatch {
        /// What is told of the volume.
        of_volume: String,
        /// What is told of the claim.
        of_claim: String,
    },
    /// Its claim has another volume.
    Unbind,
}

/// Decides what a volume needs next, given the claim that it names, if that is there and the same as it ever was.
pub(super) fn plan(volume: &Object, claim: Option<&Object>) -> Plan {
    if volume["spec"]["claimRef"]["uid"].str().is_empty() {
        return Plan::Phase("Available");
    }
    let Some(claim) = claim else {
        return Plan::Release;
    };
    match claim["spec"]["volumeName"].str() {
        "" if volume_mode(claim) != volume_mode(volume) => mismatch(volume, claim),
        "" => Plan::WakeClaim,
        name if name == volume.name() => Plan::Phase("Bound"),
        _ if is_surplus(volume) => Plan::Release,
        _ => Plan::Unbind,
    }
}

/// Whether a volume was made for a claim that found another: nobody else will want it.
fn is_surplus(volume: &Object) -> bool {
    has_annotation(volume, PROVISIONED_BY)
        && volume["spec"]["persistentVolumeReclaimPolicy"].str() == "Delete"
}

fn mismatch(volume: &Object, claim: &Object) -> Plan {
    let of_volume = format!(
        "Cannot bind PersistentVolume to requested PersistentVolumeClaim {:?} due to incompatible volumeMode.",
        claim.name()
    );
    let of_claim = format!(
        "Cannot bind PersistentVolume {:?} to requested PersistentVolumeClaim due to incompatible volumeMode.",
        volume.name()
    );
    Plan::Mismatch {
        of_volume,
        of_claim,
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
            plan(&volume(Value::Null, "Retain"), None),
            Plan::Phase("Available")
        );
        assert_eq!(
            plan(&volume(value!({"name": "c"}), "Retain"), None),
            Plan::Phase("Available")
        );
        assert_eq!(plan(&held(), Some(&claim(value!({})))), Plan::WakeClaim);
        assert_eq!(
            plan(&held(), Some(&claim(value!({"volumeName": "v"})))),
            Plan::Phase("Bound")
        );
    }

    #[test]
    fn a_volume_whose_claim_is_gone_is_released() {
        assert_eq!(plan(&held(), None), Plan::Release);
    }

    #[test]
    fn a_volume_whose_claim_has_another_is_let_go_or_deleted_if_it_was_made_for_it() {
        let elsewhere = claim(value!({"volumeName": "w"}));
        assert_eq!(plan(&held(), Some(&elsewhere)), Plan::Unbind);
        let mut made = held();
        annotate(&mut made, PROVISIONED_BY, "example.com/p");
        assert_eq!(plan(&made, Some(&elsewhere)), Plan::Release);
    }

    #[test]
    fn modes_must_agree() {
        let plan = plan(&held(), Some(&claim(value!({"volumeMode": "Block"}))));
        assert!(matches!(plan, Plan::Mismatch { .. }), "{plan:?}");
    }
}
