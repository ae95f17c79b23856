//! Proportional scaling: several active ReplicaSets share a change of size, so that scaling does
//! not advance a rollout.

use std::cmp::Reverse;

use mizzen_sdk::Object;

use super::replica_sets::{ReplicaSets, Set, available, is_rolling, max_surge, replicas};
use super::revision::{DESIRED, MAX, replicas_annotation};
use super::rolling::ReplicaSetScale;

/// What to do when a deployment is scaled or paused.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scale {
    /// Write only sets whose size differs.
    Sizes(Vec<ReplicaSetScale>),
    /// Write sets whose size or annotations differ.
    Shares(Vec<ReplicaSetScale>),
}

/// Whether a deployment was scaled since its sets were last annotated with its size.
pub(super) fn is_scaling_event(deployment: &Object, sets: &ReplicaSets) -> bool {
    let annotated = |set: &Set| replicas_annotation(set, DESIRED);
    sets.active()
        .iter()
        .filter_map(annotated)
        .any(|desired| desired != replicas(deployment))
}

/// The sizes of all sets.
pub(super) fn scale(deployment: &Object, sets: &ReplicaSets) -> Scale {
    let n_wanted = replicas(deployment);
    let active_or_latest = match &sets.active()[..] {
        [] => sets.new.clone().or_else(|| sets.old.last().cloned()),
        [only] => Some(only.clone()),
        _ => None,
    };
    if let Some(set) = active_or_latest {
        return Scale::Sizes(vec![ReplicaSetScale { set, to: n_wanted }]);
    }
    let is_saturated = |new: &Set| {
        replicas_annotation(new, DESIRED) == Some(n_wanted)
            && replicas(new) == n_wanted
            && available(new) == n_wanted
    };
    if sets.new.as_ref().is_some_and(is_saturated) {
        let old = sets.active_old().into_iter();
        return Scale::Sizes(old.map(|set| ReplicaSetScale { set, to: 0 }).collect());
    }
    match is_rolling(deployment) {
        true => Scale::Shares(proportional_sizes(deployment, sets.active())),
        false => Scale::Sizes(Vec::new()),
    }
}

/// Each set's proportion, largest set first. The rounding error goes to the largest set.
fn proportional_sizes(deployment: &Object, mut active: Vec<Set>) -> Vec<ReplicaSetScale> {
    let n_wanted = replicas(deployment);
    let n_allowed = if n_wanted > 0 {
        n_wanted + max_surge(deployment)
    } else {
        0
    };
    let n_more = n_allowed - active.iter().map(|set| replicas(set)).sum::<i64>();
    let age = |set: &Set| (set.created(), set.name().to_string());
    match n_more > 0 {
        true => active.sort_by_key(|set| Reverse((replicas(set), age(set)))),
        false => active.sort_by_key(|set| (Reverse(replicas(set)), age(set))),
    }
    let mut n_shared = 0;
    let mut sizes: Vec<ReplicaSetScale> = Vec::with_capacity(active.len());
    for set in active {
        let (fraction, n_left) = (replica_set_fraction(deployment, &set), n_more - n_shared);
        let share = match n_more {
            0 => 0,
            1.. => fraction.min(n_left),
            _ => fraction.max(n_left),
        };
        n_shared += share;
        sizes.push(ReplicaSetScale {
            to: replicas(&set) + share,
            set,
        });
    }
    if let Some(largest) = sizes.first_mut() {
        largest.to = (largest.to + n_more - n_shared).max(0);
    }
    sizes
}

fn replica_set_fraction(deployment: &Object, set: &Set) -> i64 {
    let (n_wanted, size) = (replicas(deployment), replicas(set));
    if n_wanted == 0 {
        return -size;
    }
    let annotated = replicas_annotation(set, MAX).filter(|max| *max != 0);
    match annotated.unwrap_or_else(|| deployment["status"]["replicas"].int()) {
        0 => 0,
        // Halves are rounded up.
        n_before => {
            let scaled = size * (n_wanted + max_surge(deployment));
            (2 * scaled + n_before) / (2 * n_before) - size
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mizzen_value::value;

    use super::super::replica_sets::tests::{deployment, set};
    use super::*;

    fn annotated(name: &str, created: i64, replicas: i64, desired: i64, max: i64) -> Set {
        let mut set = Object::clone(&set(name, created, replicas, replicas));
        let (desired, max) = (desired.to_string(), max.to_string());
        let annotations = value!({
            "deployment.kubernetes.io/desired-replicas": desired,
            "deployment.kubernetes.io/max-replicas": max
        });
        set.entry("metadata").set("annotations", annotations);
        Arc::new(set)
    }

    #[track_caller]
    fn check(n_wanted: i64, surge: &str, old: &[Set], new: Option<Set>, expect: &[(&str, i64)]) {
        let sets = ReplicaSets {
            new,
            old: old.to_vec(),
        };
        let (Scale::Sizes(steps) | Scale::Shares(steps)) =
            scale(&deployment(n_wanted, surge, "0"), &sets);
        let mut steps: Vec<(&str, i64)> = steps
            .iter()
            .map(|step| (step.set.name(), step.to))
            .collect();
        steps.sort_unstable();
        assert_eq!(steps, expect);
    }

    #[test]
    fn the_only_set_with_pods_gets_the_whole_size() {
        check(
            5,
            "0",
            &[],
            Some(annotated("new", 1, 3, 3, 3)),
            &[("new", 5)],
        );
        check(
            5,
            "0",
            &[annotated("old", 1, 3, 3, 3)],
            Some(annotated("new", 2, 0, 3, 3)),
            &[("old", 5)],
        );
    }

    #[test]
    fn if_no_set_has_pods_the_newest_gets_them() {
        check(
            5,
            "0",
            &[annotated("a", 1, 0, 3, 3), annotated("b", 2, 0, 3, 3)],
            None,
            &[("b", 5)],
        );
        check(
            5,
            "0",
            &[annotated("a", 1, 0, 3, 3)],
            Some(annotated("new", 2, 0, 3, 3)),
            &[("new", 5)],
        );
    }

    #[test]
    fn old_sets_are_scaled_to_zero_once_the_new_one_is_saturated() {
        check(
            5,
            "0",
            &[annotated("old", 1, 2, 5, 5)],
            Some(annotated("new", 2, 5, 5, 5)),
            &[("old", 0)],
        );
    }

    #[test]
    fn sets_grow_and_shrink_in_proportion() {
        let old = annotated("old", 1, 10, 10, 10);
        let new = annotated("new", 2, 5, 10, 10);
        check(
            15,
            "0",
            &[annotated("old", 1, 5, 10, 10)],
            Some(annotated("new", 2, 5, 10, 10)),
            &[("new", 8), ("old", 7)],
        );
        check(
            5,
            "0",
            &[annotated("old", 1, 5, 10, 10)],
            Some(annotated("new", 2, 5, 10, 10)),
            &[("new", 3), ("old", 2)],
        );
        check(0, "0", &[old], Some(new), &[("new", 0), ("old", 0)]);
    }

    #[test]
    fn room_for_a_surge_is_shared_too() {
        check(
            20,
            "4",
            &[annotated("old", 1, 8, 10, 12)],
            Some(annotated("new", 2, 4, 10, 12)),
            &[("new", 8), ("old", 16)],
        );
    }

    #[test]
    fn a_set_without_the_annotation_is_scaled_by_the_deployments_replicas() {
        let mut deployment = deployment(20, "0", "0");
        deployment.set("status", value!({"replicas": 10}));
        let sets = ReplicaSets {
            new: Some(set("new", 2, 5, 5)),
            old: vec![set("old", 1, 5, 5)],
        };
        let Scale::Shares(steps) = scale(&deployment, &sets) else {
            panic!("there are two sets")
        };
        assert_eq!(
            steps.iter().map(|step| step.to).collect::<Vec<_>>(),
            [10, 10]
        );
    }

    #[test]
    fn a_scaling_event_is_a_different_size_annotation() {
        let sets = |desired| ReplicaSets {
            new: Some(annotated("new", 1, 3, desired, 4)),
            old: vec![],
        };
        assert!(is_scaling_event(&deployment(5, "1", "0"), &sets(3)));
        assert!(!is_scaling_event(&deployment(3, "1", "0"), &sets(3)));
    }
}
