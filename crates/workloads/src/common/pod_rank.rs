//! The order in which surplus pods are deleted.
//!
//! Kubernetes: ActivePods and ActivePodsWithRanks of controller_utils.go.

use std::cmp::Ordering;

use k8s_openapi::jiff::Timestamp;
use mizzen_component_helpers::pod_state::is_sidecar;
use mizzen_value::{Value, time};

use super::pod;

/// What decides when a surplus pod is deleted.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PodRank {
    pub uid: String,
    /// Whether it has a node.
    pub is_assigned: bool,
    /// Pending 0, Unknown 1, Running 2.
    pub phase: u8,
    pub is_ready: bool,
    /// Since when it is ready, in seconds since 1970.
    pub ready_since: Option<i64>,
    /// The pod deletion cost.
    pub cost: i64,
    /// Container restarts: the maximum of containers, then of restartable init containers.
    pub restarts: (i64, i64),
    /// The creation time.
    pub created: Option<i64>,
}

/// The pod deletion cost annotation.
pub(crate) const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

impl PodRank {
    /// The rank of a pod.
    pub(crate) fn from_pod(pod: &Value) -> PodRank {
        PodRank {
            uid: pod["metadata"]["uid"].str().into(),
            is_assigned: !pod["spec"]["nodeName"].str().is_empty(),
            phase: phase(pod),
            is_ready: pod::is_ready(pod),
            ready_since: pod::ready_since(pod),
            cost: cost(pod["metadata"]["annotations"][DELETION_COST].str()),
            restarts: restarts(pod),
            created: time::to_unix(pod["metadata"]["creationTimestamp"].str()),
        }
    }

    /// Compares without deletion costs and related pods: the lesser is deleted first.
    pub(crate) fn compare(&self, other: &PodRank) -> Ordering {
        self.compare_state(other)
            .then_with(|| self.compare_readiness(other, by_time))
            .then_with(|| other.restarts.cmp(&self.restarts))
            .then_with(|| by_time(self.created, other.created))
    }

    /// Compares with deletion costs; the lesser is deleted first. `related` is the number of
    /// related pods on each node. Ages are compared by order of magnitude, so equal ones are
    /// decided by the uid.
    pub(crate) fn compare_with_nodes(
        &self,
        other: &PodRank,
        related: (usize, usize),
        now: Timestamp,
    ) -> Ordering {
        let by_age = |one, another| match magnitude(one, now).cmp(&magnitude(another, now)) {
            _ if one == another => Ordering::Equal,
            _ if one.is_none() || another.is_none() => by_time(one, another),
            Ordering::Equal => self.uid.cmp(&other.uid),
            ordering => ordering,
        };
        self.compare_state(other)
            .then(self.cost.cmp(&other.cost))
            .then(related.1.cmp(&related.0))
            .then_with(|| self.compare_readiness(other, by_age))
            .then_with(|| other.restarts.cmp(&self.restarts))
            .then_with(|| by_age(self.created, other.created))
    }

    fn compare_state(&self, other: &PodRank) -> Ordering {
        let state = |rank: &PodRank| (rank.is_assigned, rank.phase, rank.is_ready);
        state(self).cmp(&state(other))
    }

    fn compare_readiness(
        &self,
        other: &PodRank,
        by: impl Fn(Option<i64>, Option<i64>) -> Ordering,
    ) -> Ordering {
        match self.is_ready && other.is_ready {
            true => by(self.ready_since, other.ready_since),
            false => Ordering::Equal,
        }
    }
}

/// Sorts; the pod to be deleted first is in front.
///
/// Kubernetes: the comparison is not transitive (three ages can form a circle), so std's sort must
/// not be used; each item is inserted by binary search.
pub(crate) fn sort_by_insertion<T>(items: Vec<T>, compare: impl Fn(&T, &T) -> Ordering) -> Vec<T> {
    let mut sorted: Vec<T> = Vec::with_capacity(items.len());
    for item in items {
        let place = sorted.partition_point(|other| compare(other, &item) != Ordering::Greater);
        sorted.insert(place, item);
    }
    sorted
}

/// Kubernetes: an unknown or missing phase counts as pending (controller_utils.go).
fn phase(pod: &Value) -> u8 {
    match pod["status"]["phase"].str() {
        "Unknown" => 1,
        "Running" => 2,
        _ => 0,
    }
}

/// Kubernetes: a plus sign or leading zeros make a cost invalid, and an invalid cost is zero.
fn cost(text: &str) -> i64 {
    let is_valid =
        text == "0" || text.starts_with(['-', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
    text.parse::<i32>()
        .ok()
        .filter(|_| is_valid)
        .unwrap_or_default()
        .into()
}

fn restarts(pod: &Value) -> (i64, i64) {
    let most = |statuses: &str, counts: &dyn Fn(&str) -> bool| {
        let statuses = pod["status"][statuses].list().iter();
        let counted = statuses.filter(|status| counts(status["name"].str()));
        counted
            .map(|status| status["restartCount"].int())
            .max()
            .unwrap_or_default()
    };
    let runs_beside = |name: &str| {
        let containers = pod["spec"]["initContainers"].list();
        containers
            .iter()
            .any(|it| it["name"].str() == name && is_sidecar(it))
    };
    (
        most("containerStatuses", &|_| true),
        most("initContainerStatuses", &runs_beside),
    )
}

/// The younger first; no time is the youngest.
fn by_time(one: Option<i64>, another: Option<i64>) -> Ordering {
    let key = |time: Option<i64>| time.map_or(i64::MAX, |time| time);
    key(another).cmp(&key(one))
}

/// The order of magnitude of an age: log2 of its nanoseconds; -1 if not in the past.
fn magnitude(time: Option<i64>, now: Timestamp) -> i64 {
    let age = now.as_nanosecond() - i128::from(time.unwrap_or_default()) * 1_000_000_000;
    if age > 0 {
        (age as f64).log2() as i64
    } else {
        -1
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    const NOW: i64 = 1_000_000;

    fn rank(uid: &str) -> PodRank {
        let (is_assigned, phase, is_ready, ready_since) = (true, 2, true, Some(NOW - 100));
        PodRank {
            uid: uid.into(),
            is_assigned,
            phase,
            is_ready,
            ready_since,
            created: Some(NOW - 200),
            ..Default::default()
        }
    }

    fn check(first: PodRank, second: PodRank) {
        check_with(first, second, (1, 1));
    }

    fn check_with(first: PodRank, second: PodRank, related: (usize, usize)) {
        let now = Timestamp::from_second(NOW).expect("a time");
        let turned = (related.1, related.0);
        assert_eq!(
            first.compare_with_nodes(&second, related, now),
            Ordering::Less
        );
        assert_eq!(
            second.compare_with_nodes(&first, turned, now),
            Ordering::Greater
        );
    }

    #[test]
    fn pods_without_a_node_go_first_whatever_they_cost() {
        check(
            PodRank {
                is_assigned: false,
                cost: 100,
                ..rank("b")
            },
            rank("a"),
        );
    }

    #[test]
    fn pending_pods_go_before_unknown_ones_and_those_before_running_ones() {
        check(
            PodRank {
                phase: 0,
                ..rank("b")
            },
            PodRank {
                phase: 1,
                ..rank("a")
            },
        );
        check(
            PodRank {
                phase: 1,
                ..rank("b")
            },
            rank("a"),
        );
    }

    #[test]
    fn pods_that_cannot_serve_go_before_those_that_can() {
        check(
            PodRank {
                is_ready: false,
                ready_since: None,
                cost: 5,
                ..rank("b")
            },
            rank("a"),
        );
    }

    #[test]
    fn a_lower_deletion_cost_is_deleted_before_more_related_pods() {
        check_with(
            PodRank {
                cost: -1,
                ..rank("b")
            },
            rank("a"),
            (1, 5),
        );
    }

    #[test]
    fn pods_on_nodes_with_more_related_pods_are_deleted_first() {
        check_with(
            PodRank {
                ready_since: Some(1),
                ..rank("b")
            },
            rank("a"),
            (3, 2),
        );
    }

    #[test]
    fn pods_that_serve_for_less_time_go_first() {
        check(
            PodRank {
                ready_since: Some(NOW - 10),
                ..rank("b")
            },
            rank("a"),
        );
        check(
            PodRank {
                ready_since: None,
                ..rank("b")
            },
            rank("a"),
        );
    }

    #[test]
    fn ages_of_one_magnitude_are_decided_by_uid() {
        check(
            PodRank {
                ready_since: Some(NOW - 101),
                ..rank("a")
            },
            rank("b"),
        );
        check(
            PodRank {
                ready_since: Some(NOW - 99),
                ..rank("a")
            },
            rank("b"),
        );
    }

    #[test]
    fn pods_that_restart_more_go_first() {
        check(
            PodRank {
                restarts: (3, 0),
                ..rank("b")
            },
            rank("a"),
        );
        check(
            PodRank {
                restarts: (3, 2),
                ..rank("b")
            },
            PodRank {
                restarts: (3, 1),
                ..rank("a")
            },
        );
    }

    #[test]
    fn younger_pods_go_first() {
        check(
            PodRank {
                created: Some(NOW - 5),
                ..rank("b")
            },
            rank("a"),
        );
        check(
            PodRank {
                created: None,
                ..rank("b")
            },
            rank("a"),
        );
    }

    #[test]
    fn the_simple_comparison_ignores_costs_and_compares_times_exactly() {
        let dear = PodRank {
            cost: 7,
            ready_since: Some(NOW - 99),
            ..rank("b")
        };
        assert_eq!(dear.compare(&rank("a")), Ordering::Less);
        assert_eq!(rank("b").compare(&rank("a")), Ordering::Equal);
    }

    #[test]
    fn an_order_with_a_cycle_still_ends() {
        let beats = |one: &u32, another: &u32| match (3 + one - another) % 3 {
            0 => Ordering::Equal,
            1 => Ordering::Less,
            _ => Ordering::Greater,
        };
        let mut sorted = sort_by_insertion((0..1000).map(|at| at % 3).collect(), beats);
        sorted.sort_unstable();
        assert_eq!(sorted.len(), 1000);
    }

    #[test]
    fn costs_are_canonical_integers() {
        let cases = [
            ("", 0),
            ("5", 5),
            ("-5", -5),
            ("+5", 0),
            ("05", 0),
            ("0", 0),
            ("x", 0),
            ("99999999999", 0),
        ];
        for (text, expect) in cases {
            assert_eq!(cost(text), expect, "{text}");
        }
    }

    #[test]
    fn the_rank_of_a_pod_is_read_from_it() {
        let pod = value!({
            "metadata": {"uid": "u", "creationTimestamp": "1970-01-01T00:00:05Z", "annotations": {"controller.kubernetes.io/pod-deletion-cost": "7"}},
            "spec": {"nodeName": "n", "initContainers": [{"name": "side", "restartPolicy": "Always"}, {"name": "once"}]},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:09Z"}],
                "containerStatuses": [{"name": "a", "restartCount": 1}, {"name": "b", "restartCount": 3}],
                "initContainerStatuses": [{"name": "side", "restartCount": 2}, {"name": "once", "restartCount": 9}]
            }
        });
        let expect = PodRank {
            uid: "u".into(),
            is_assigned: true,
            phase: 2,
            is_ready: true,
            ready_since: Some(9),
            cost: 7,
            restarts: (3, 2),
            created: Some(5),
        };
        assert_eq!(PodRank::from_pod(&pod), expect);
    }
}
