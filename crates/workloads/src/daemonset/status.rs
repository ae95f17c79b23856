//! The status of a DaemonSet: counts of nodes.

use mizzen_sdk::Object;
use mizzen_value::{Value, value};

use super::placement::Placement;
use super::plan::DaemonSetView;
use super::pod;
use crate::common::pod as any;

/// Counts of nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DaemonSetCounts {
    /// Eligible nodes.
    pub desired: i64,
    /// Eligible nodes with a pod.
    pub current: i64,
    /// Nodes with a pod that are not eligible.
    pub misplaced: i64,
    /// Nodes whose pod is ready.
    pub ready: i64,
    /// Nodes whose pod is of the current revision.
    pub updated: i64,
    /// Nodes whose pod is available.
    pub available: i64,
}

/// Counts nodes. Of several pods on a node, the oldest counts.
pub(super) fn count(view: &DaemonSetView) -> DaemonSetCounts {
    let placement = Placement::from_set(view.set);
    let mut counts = DaemonSetCounts::default();
    for node in view.nodes {
        let pods = view.pods.get(node.name()).into_iter().flatten();
        // Of two pods of the same second, the one of the old revision is first.
        let pod = pods.min_by_key(|pod| {
            let (is_unbound, created, name) = pod::seniority(pod);
            let is_updated = pod::is_updated(view.set, pod, view.hash);
            (is_unbound, created, is_updated, name)
        });
        match placement.check_node(node).should_run {
            true => counts.add(view, pod.map(|pod| &**pod)),
            false => counts.misplaced += i64::from(pod.is_some()),
        }
    }
    counts
}

impl DaemonSetCounts {
    fn add(&mut self, view: &DaemonSetView, pod: Option<&Object>) {
        self.desired += 1;
        let Some(pod) = pod else { return };
        self.current += 1;
        self.ready += i64::from(any::is_ready(pod));
        self.available += i64::from(any::is_available(pod, pod::min_ready(view.set), view.now));
        self.updated += i64::from(pod::is_updated(view.set, pod, view.hash));
    }
}

/// The status to write; none if it did not change.
pub(super) fn status(set: &Object, counts: DaemonSetCounts) -> Option<Value> {
    let (old, generation) = (&set["status"], set.at("metadata.generation").int());
    let new_status = value!({
        "desiredNumberScheduled": (counts.desired),
        "currentNumberScheduled": (counts.current),
        "numberMisscheduled": (counts.misplaced),
        "numberReady": (counts.ready),
        "updatedNumberScheduled": (counts.updated),
        "numberAvailable": (counts.available),
        "numberUnavailable": (counts.desired - counts.available),
    });
    let is_same = new_status
        .entries()
        .all(|(field, number)| number.int() == old[field].int());
    if is_same && old["observedGeneration"].int() >= generation {
        return None;
    }
    let mut status = old.clone();
    new_status
        .entries()
        .for_each(|(field, number)| status.set(field, number.clone()));
    status.set("observedGeneration", generation);
    Some(status)
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::{nodes, now, pods, set};
    use super::*;

    #[track_caller]
    fn check(nodes: &str, pods: &str, expect: DaemonSetCounts) {
        let (set, nodes, pods) = (set(Value::object()), self::nodes(nodes), self::pods(pods));
        assert_eq!(
            count(&DaemonSetView {
                set: &set,
                hash: "new",
                nodes: &nodes,
                pods: &pods,
                now: now()
            }),
            expect
        );
    }

    #[test]
    fn nodes_are_counted_and_not_pods() {
        let expect = DaemonSetCounts {
            desired: 2,
            current: 1,
            updated: 1,
            ..DaemonSetCounts::default()
        };
        check(
            "n1 n2 n3:no",
            "a@n1:Running,since-1 b@n1:Running,ready,since-2",
            expect,
        );
    }

    #[test]
    fn a_pod_is_available_after_it_was_ready_for_a_while() {
        let ready = DaemonSetCounts {
            desired: 1,
            current: 1,
            updated: 1,
            ready: 1,
            ..DaemonSetCounts::default()
        };
        check("n1", "a@n1:Running,ready-995", ready);
        check(
            "n1",
            "a@n1:Running,ready-990",
            DaemonSetCounts {
                available: 1,
                ..ready
            },
        );
    }

    #[test]
    fn an_old_pod_is_not_updated() {
        check(
            "n1",
            "a@n1:Running,old",
            DaemonSetCounts {
                desired: 1,
                current: 1,
                ..DaemonSetCounts::default()
            },
        );
    }

    #[test]
    fn an_old_pod_counts_while_a_new_one_of_the_same_second_is_beside_it() {
        let expect = DaemonSetCounts {
            desired: 1,
            current: 1,
            ..DaemonSetCounts::default()
        };
        check(
            "n1",
            "a@n1:Running,since-1 b@n1:Running,old,since-1",
            expect,
        );
    }

    #[test]
    fn a_pod_where_none_should_be_is_misplaced() {
        check(
            "n1:no n2:tainted",
            "a@n1 b@n2",
            DaemonSetCounts {
                misplaced: 2,
                ..DaemonSetCounts::default()
            },
        );
    }

    fn with_status(status: Value) -> Object {
        Object(value!({"metadata": {"generation": 2i64}, "status": status}))
    }

    #[test]
    fn an_unchanged_status_is_not_written() {
        let counts = DaemonSetCounts {
            desired: 1,
            ..DaemonSetCounts::default()
        };
        let written = status(&with_status(value!({"collisionCount": 1i64})), counts).expect("news");
        assert_eq!(
            (
                written["numberUnavailable"].int(),
                written["collisionCount"].int()
            ),
            (1, 1)
        );
        assert_eq!(status(&with_status(written), counts), None);
    }

    #[test]
    fn a_generation_is_observed_once() {
        let old = with_status(value!({"observedGeneration": 1i64}));
        assert_eq!(
            status(&old, DaemonSetCounts::default()).expect("news")["observedGeneration"].int(),
            2
        );
        assert_eq!(
            status(
                &with_status(value!({"observedGeneration": 2i64})),
                DaemonSetCounts::default()
            ),
            None
        );
    }
}
