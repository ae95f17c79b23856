//! The next step of a rolling update: scale up the new set within maxSurge, then scale down old
//! sets within maxUnavailable.

use super::replica_sets::{ReplicaSets, Set, available, max_surge, max_unavailable, replicas};
use mizzen_sdk::Object;

/// A set and its new size.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReplicaSetScale {
    pub set: Set,
    pub to: i64,
}

/// The size of the new set, given the replicas of all sets. `n_new` is 0 for a set that is still to
/// be created.
pub(super) fn new_set_replicas(deployment: &Object, n_all: i64, n_new: i64) -> i64 {
    let n_wanted = replicas(deployment);
    if !super::replica_sets::is_rolling(deployment) || n_new > n_wanted {
        return n_wanted;
    }
    let room = n_wanted + max_surge(deployment) - n_all;
    n_new + room.min(n_wanted - n_new).max(0)
}

/// The old sets to scale down: unavailable pods first, then what maxUnavailable allows.
pub(super) fn reconcile_old_replica_sets(
    deployment: &Object,
    sets: &ReplicaSets,
) -> Vec<ReplicaSetScale> {
    let Some(new) = &sets.new else {
        return Vec::new();
    };
    let old = sets.active_old();
    let min_available = replicas(deployment) - max_unavailable(deployment);
    let new_unavailable = replicas(new) - available(new);
    let n_spare = sets.n_replicas() - min_available - new_unavailable;
    if old.is_empty() || n_spare <= 0 {
        return Vec::new();
    }
    let mut sizes: Vec<i64> = old.iter().map(|set| replicas(set)).collect();
    let (mut steps, is_known) = cleanup_unhealthy_replicas(&old, &mut sizes, n_spare);
    if is_known {
        let n_available: i64 = old.iter().chain([new]).map(|set| available(set)).sum();
        steps.extend(scale_down(
            &old,
            &mut sizes,
            n_available - min_available,
            |_, size| size,
        ));
    }
    steps
}

/// Returns also whether all these sets have observed their size. A set that reports more available
/// pods than it shall have would count pods that are being deleted.
fn cleanup_unhealthy_replicas(
    old: &[Set],
    sizes: &mut [i64],
    n_spare: i64,
) -> (Vec<ReplicaSetScale>, bool) {
    let n_known = old
        .iter()
        .take_while(|set| replicas(set) >= available(set))
        .count();
    let unavailable = |set: &Set, size| size - available(set);
    let steps = scale_down(&old[..n_known], sizes, n_spare, unavailable);
    let n_dropped: i64 = old[..n_known]
        .iter()
        .zip(sizes)
        .map(|(set, size)| replicas(set) - *size)
        .sum();
    (steps, n_known == old.len() || n_dropped >= n_spare)
}

/// Removes `n` replicas, oldest set first, of each at most `most`.
fn scale_down(
    old: &[Set],
    sizes: &mut [i64],
    mut n: i64,
    most: impl Fn(&Set, i64) -> i64,
) -> Vec<ReplicaSetScale> {
    let mut steps = Vec::new();
    for (set, size) in old.iter().zip(sizes) {
        let n_less = most(set, *size).min(n);
        if n_less > 0 {
            n -= n_less;
            *size -= n_less;
            steps.push(ReplicaSetScale {
                set: set.clone(),
                to: *size,
            });
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::super::replica_sets::tests::{deployment, set};
    use super::*;

    #[track_caller]
    fn check_new(n_wanted: i64, surge: &str, n_all: i64, n_new: i64, expect: i64) {
        assert_eq!(
            new_set_replicas(&deployment(n_wanted, surge, "1"), n_all, n_new),
            expect
        );
    }

    #[test]
    fn the_new_set_grows_as_far_as_the_surge_allows() {
        check_new(10, "3", 10, 0, 3);
        check_new(10, "3", 13, 3, 3);
        check_new(10, "3", 11, 5, 7);
        check_new(10, "3", 0, 0, 10);
        check_new(10, "3", 6, 6, 10);
        check_new(10, "0", 10, 0, 0);
        check_new(10, "3", 20, 4, 4);
    }

    #[test]
    fn a_new_set_that_is_too_large_shrinks() {
        check_new(10, "3", 12, 12, 10);
    }

    #[track_caller]
    fn check(unavailable: &str, old: &[Set], new: Set, expect: &[(&str, i64)]) {
        let sets = ReplicaSets {
            new: Some(new),
            old: old.to_vec(),
        };
        let steps = reconcile_old_replica_sets(&deployment(10, "1", unavailable), &sets);
        let steps: Vec<(&str, i64)> = steps
            .iter()
            .map(|step| (step.set.name(), step.to))
            .collect();
        assert_eq!(steps, expect);
    }

    #[test]
    fn old_sets_shrink_as_new_pods_become_available() {
        check("2", &[set("old", 1, 8, 8)], set("new", 2, 5, 0), &[]);
        check(
            "2",
            &[set("old", 1, 8, 8)],
            set("new", 2, 5, 5),
            &[("old", 3)],
        );
        check(
            "0",
            &[set("old", 1, 10, 10)],
            set("new", 2, 3, 3),
            &[("old", 7)],
        );
        check("0", &[set("old", 1, 10, 10)], set("new", 2, 0, 0), &[]);
    }

    #[test]
    fn unavailable_pods_are_removed_first() {
        check(
            "2",
            &[set("old", 1, 10, 8)],
            set("new", 2, 0, 0),
            &[("old", 8)],
        );
        check(
            "4",
            &[set("old", 1, 10, 9)],
            set("new", 2, 0, 0),
            &[("old", 9), ("old", 6)],
        );
    }

    #[test]
    fn a_set_with_a_stale_status_is_not_scaled_down() {
        check("7", &[set("old", 1, 5, 8)], set("new", 2, 3, 0), &[]);
        check(
            "7",
            &[set("a", 1, 4, 2), set("b", 2, 5, 8)],
            set("new", 3, 3, 0),
            &[("a", 2)],
        );
        check(
            "0",
            &[set("a", 1, 3, 2), set("b", 2, 5, 8)],
            set("new", 3, 3, 3),
            &[("a", 2), ("a", 0), ("b", 4)],
        );
    }

    #[test]
    fn the_oldest_set_shrinks_first() {
        check(
            "0",
            &[set("a", 1, 4, 4), set("b", 2, 4, 4)],
            set("new", 3, 8, 8),
            &[("a", 0), ("b", 2)],
        );
    }

    #[test]
    fn unavailable_new_pods_protect_old_ones() {
        check("2", &[set("old", 1, 8, 7)], set("new", 2, 5, 0), &[]);
    }
}
