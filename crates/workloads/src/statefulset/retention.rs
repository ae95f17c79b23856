//! The owners of a pod's claims, by `persistentVolumeClaimRetentionPolicy`.
//!
//! With whenDeleted the set owns the claims; with whenScaled the pod does once it is condemned.
//! Otherwise they have no owner.

use mizzen_sdk::resource::{PODS, ResourceType, STATEFUL_SETS};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use super::identity;
use crate::common::template::controller_reference;

/// The wanted owner of a pod's claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaimOwner {
    Nobody,
    Set,
    Pod,
}

fn wanted_owner(set: &Object, pod: &Object) -> ClaimOwner {
    let goes =
        |when: &str| set["spec"]["persistentVolumeClaimRetentionPolicy"][when].str() == "Delete";
    match (goes("whenScaled"), goes("whenDeleted")) {
        (true, _) if !identity::is_in_ordinal_range(set, pod) => ClaimOwner::Pod,
        (_, true) => ClaimOwner::Set,
        _ => ClaimOwner::Nobody,
    }
}

/// Whether a claim has the right owners. A claim with an earlier set or pod of the same name as
/// owner, or with another controller, is left alone.
pub(super) fn claim_owner_matches_set_and_pod(claim: &Object, set: &Object, pod: &Object) -> bool {
    if names_a_predecessor(claim, &STATEFUL_SETS, set) || names_a_predecessor(claim, &PODS, pod) {
        return true;
    }
    let (by_set, by_pod) = (is_owned_by(claim, set), is_owned_by(claim, pod));
    if has_other_controller(claim, set, pod) {
        return !by_set && !by_pod;
    }
    let wanted = wanted_owner(set, pod);
    let owned = by_set == (wanted == ClaimOwner::Set) && by_pod == (wanted == ClaimOwner::Pod);
    let is_ours = |owner: &Value| [set.uid(), pod.uid()].contains(&owner["uid"].str());
    let mut ours = claim.owners().iter().filter(|owner| is_ours(owner));
    owned && ours.all(|owner| owner["controller"].bool())
}

/// The wanted owner references: the existing ones without set and pod, and the wanted owner.
pub(super) fn claim_owner_references(claim: &Object, set: &Object, pod: &Object) -> Vec<Value> {
    let is_ours =
        |owner: &&Value| is_named(owner, &STATEFUL_SETS, set) || is_named(owner, &PODS, pod);
    let mut owners: Vec<Value> = claim
        .owners()
        .iter()
        .filter(|owner| !is_ours(owner))
        .cloned()
        .collect();
    match wanted_owner(set, pod) {
        _ if has_other_controller(claim, set, pod) => {}
        ClaimOwner::Nobody => {}
        ClaimOwner::Set => owners.push(controller_reference(set, &STATEFUL_SETS)),
        ClaimOwner::Pod => owners.push(controller_reference(pod, &PODS)),
    }
    owners
}

/// Whether another controller owns a claim that the policy would delete.
pub(super) fn has_other_controller(claim: &Object, set: &Object, pod: &Object) -> bool {
    let is_other = |owner: &Value| match () {
        () if is_named(owner, &STATEFUL_SETS, set) => owner["uid"].str() != set.uid(),
        () if is_named(owner, &PODS, pod) => owner["uid"].str() != pod.uid(),
        () => owner["controller"].bool(),
    };
    let policy = &set["spec"]["persistentVolumeClaimRetentionPolicy"];
    let deletes = |when: &str| policy[when].str() == "Delete";
    (deletes("whenScaled") || deletes("whenDeleted")) && claim.owners().iter().any(is_other)
}

/// Whether a claim will be deleted with an earlier pod of the same name: a new pod must wait for
/// that.
pub(super) fn is_stale(claim: &Object, set: &Object, pod: &Object) -> bool {
    let goes = set
        .at("spec.persistentVolumeClaimRetentionPolicy.whenScaled")
        .str()
        == "Delete";
    goes && names_a_predecessor(claim, &PODS, pod)
}

/// The sets whose new pods may wait for a claim to be deleted.
pub(super) fn sets_waiting_for(claim: &Object) -> Vec<Key> {
    let set = |owner: &Value| match owner["kind"].str() {
        "StatefulSet" => Some(Key::new(claim.namespace(), owner["name"].str())),
        "Pod" => {
            identity::set_name(owner["name"].str()).map(|set| Key::new(claim.namespace(), set))
        }
        _ => None,
    };
    claim.owners().iter().filter_map(set).collect()
}

/// Whether an owner reference names this object, with any uid.
fn is_named(owner: &Value, kind: &ResourceType, object: &Object) -> bool {
    let is_of_kind =
        owner["kind"].str() == kind.kind && owner["apiVersion"].str() == kind.api_version();
    is_of_kind && owner["name"].str() == object.name()
}

fn is_owned_by(claim: &Object, owner: &Object) -> bool {
    claim
        .owners()
        .iter()
        .any(|reference| reference["uid"].str() == owner.uid())
}

/// Whether the first reference that names the object has another uid.
fn names_a_predecessor(claim: &Object, kind: &ResourceType, object: &Object) -> bool {
    let named = claim
        .owners()
        .iter()
        .find(|owner| is_named(owner, kind, object));
    named.is_some_and(|owner| owner["uid"].str() != object.uid())
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    fn set(scaled: &str, deleted: &str) -> Object {
        Object(value!({
            "metadata": {"name": "web", "uid": "set"},
            "spec": {
                "replicas": 2,
                "persistentVolumeClaimRetentionPolicy": {"whenScaled": scaled, "whenDeleted": deleted},
            },
        }))
    }

    fn pod(ordinal: i64) -> Object {
        Object(value!({"metadata": {"name": (format!("web-{ordinal}")), "uid": "pod"}}))
    }

    /// References as `Kind/name/uid`, `!` before one that is not the controller.
    fn claim(owners: &str) -> Object {
        let reference = |text: &str| {
            let controls = !text.starts_with('!');
            let mut parts = text.trim_start_matches('!').split('/');
            let mut part = || parts.next().unwrap_or_default().to_string();
            let (kind, name, uid) = (part(), part(), part());
            let version = if kind == "StatefulSet" {
                "apps/v1"
            } else {
                "v1"
            };
            let mut reference =
                value!({"apiVersion": version, "kind": kind, "name": name, "uid": uid});
            if controls {
                reference.set("controller", true);
                reference.set("blockOwnerDeletion", true);
            }
            reference
        };
        let owners: Vec<Value> = owners.split_whitespace().map(reference).collect();
        Object(value!({"metadata": {"name": "c", "ownerReferences": owners}}))
    }

    /// The owners of a claim: `before` for policy (scaled, deleted) and the pod with this ordinal.
    #[track_caller]
    fn check(policy: (&str, &str), ordinal: i64, before: &str, expect: &str) {
        let (set, pod, before) = (set(policy.0, policy.1), pod(ordinal), claim(before));
        let after = match claim_owner_matches_set_and_pod(&before, &set, &pod) {
            true => before.at("metadata.ownerReferences").list().to_vec(),
            false => claim_owner_references(&before, &set, &pod),
        };
        assert_eq!(
            Value::from(after),
            *claim(expect).at("metadata.ownerReferences")
        );
    }

    const KEEP: (&str, &str) = ("Retain", "Retain");
    const WHEN_DELETED: (&str, &str) = ("Retain", "Delete");
    const WHEN_SCALED: (&str, &str) = ("Delete", "Retain");
    const ALWAYS: (&str, &str) = ("Delete", "Delete");
    const SET: &str = "StatefulSet/web/set";

    #[test]
    fn a_claim_that_is_kept_has_no_owner() {
        check(KEEP, 0, "", "");
        check(KEEP, 0, SET, "");
        check(KEEP, 5, "Pod/web-5/pod", "");
    }

    #[test]
    fn with_when_deleted_the_set_owns_the_claim() {
        check(WHEN_DELETED, 0, "", SET);
        check(WHEN_DELETED, 5, "", SET);
        check(ALWAYS, 0, "", SET);
    }

    #[test]
    fn with_when_scaled_a_condemned_pod_owns_its_claim() {
        check(WHEN_SCALED, 0, "", "");
        check(WHEN_SCALED, 1, "Pod/web-1/pod", "");
        check(WHEN_SCALED, 2, "", "Pod/web-2/pod");
        check(ALWAYS, 2, SET, "Pod/web-2/pod");
        check(ALWAYS, 1, "Pod/web-1/pod", SET);
    }

    #[test]
    fn other_owners_stay() {
        check(
            WHEN_DELETED,
            0,
            "!ConfigMap/x/y",
            &format!("!ConfigMap/x/y {SET}"),
        );
    }

    #[test]
    fn the_claim_of_a_predecessor_is_left_alone() {
        check(
            KEEP,
            0,
            "StatefulSet/web/earlier",
            "StatefulSet/web/earlier",
        );
        check(ALWAYS, 0, "Pod/web-0/earlier", "Pod/web-0/earlier");
    }

    #[test]
    fn a_claim_that_another_controls_gets_no_second_controller() {
        check(WHEN_DELETED, 0, "ConfigMap/x/y", "ConfigMap/x/y");
        check(
            WHEN_DELETED,
            0,
            &format!("ConfigMap/x/y {SET}"),
            "ConfigMap/x/y",
        );
        check(KEEP, 0, &format!("ConfigMap/x/y {SET}"), "ConfigMap/x/y");
    }

    #[test]
    fn an_owner_of_ours_that_does_not_control_is_made_to() {
        check(WHEN_DELETED, 0, &format!("!{SET}"), SET);
    }

    #[test]
    fn a_policy_that_is_unknown_keeps() {
        check(("Perhaps", ""), 0, SET, "");
    }

    #[test]
    fn a_deleted_claim_enqueues_the_set_of_its_owner() {
        let waiting = |owners: &str| {
            sets_waiting_for(&claim(owners))
                .iter()
                .map(Key::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            waiting("Pod/web-1/x StatefulSet/db/y ConfigMap/c/z"),
            "web db"
        );
        assert_eq!(waiting("Pod/web/x"), "");
    }

    #[test]
    fn a_new_pod_waits_for_the_claim_of_its_predecessor_to_go() {
        let stale = |policy: (&str, &str), owners: &str| {
            is_stale(&claim(owners), &set(policy.0, policy.1), &pod(1))
        };
        assert!(stale(WHEN_SCALED, "Pod/web-1/earlier"));
        assert!(!stale(WHEN_SCALED, "Pod/web-1/pod") && !stale(WHEN_DELETED, "Pod/web-1/earlier"));
    }
}
