//! What does the set's status say? On how many nodes its pods are, and how they are doing.

use mizzen_sdk::Object;
use mizzen_value::{Value, value};

use super::placement::Placement;
use super::plan::View;
use super::pod;
use crate::common::pod as any;

/// How many nodes there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// That are to have a pod.
    pub desired: i64,
    /// Of those: that have one.
    pub current: i64,
    /// That have a pod and are not to have one.
    pub misplaced: i64,
    /// Whose pod is ready.
    pub ready: i64,
    /// Whose pod is of the latest revision.
    pub updated: i64,
    /// Whose pod has been ready for long enough.
    pub available: i64,
}

/// Counts nodes. Where there are several pods, the oldest counts.
pub(super) fn count(view: &View) -> Counts {
    let placement = Placement::of(view.set);
    let mut counts = Counts::default();
    for node in view.nodes {
        let pods = view.pods.get(node.name()).into_iter().flatten();
        let pod = pods.min_by_key(|pod| age(view, pod));
        match placement.judge(node).should_run {
            true => counts.add(view, pod.map(|pod| &**pod)),
            false => counts.misplaced += i64::from(pod.is_some()),
        }
    }
    counts
}

/// What orders pods by their age. Of two that were made in the same second, that of an older revision was first.
fn age(view: &View, pod: &Object) -> (bool, i64, bool, String) {
    let (is_unbound, made, name) = pod::seniority(pod);
    (
        is_unbound,
        made,
        pod::is_updated(view.set, pod, view.hash),
        name,
    )
}

impl Counts {
    fn add(&mut self, view: &View, pod: Option<&Object>) {
        self.desired += 1;
        let Some(pod) = pod else { return };
        self.current += 1;
        self.ready += i64::from(any::is_ready(pod));
        self.available += i64::from(any::is_available(pod, pod::min_ready(view.set), view.now));
        self.updated += i64::from(pod::is_updated(view.set, pod, view.hash));
    }
}

/// The status of the set, to be written; none if it says so already.
pub(super) fn status(set: &Object, counts: Counts) -> Option<Value> {
    let (old, generation) = (&set["status"], set.at("metadata.generation").int());
    let told = value!({
        "desiredNumberScheduled": (counts.desired),
        "currentNumberScheduled": (counts.current),
        "numberMisscheduled": (counts.misplaced),
        "numberReady": (counts.ready),
        "updatedNumberScheduled": (counts.updated),
        "numberAvailable": (counts.available),
        "numberUnavailable": (counts.desired - counts.available),
    });
    let is_same = told
        .entries()
        .all(|(field, number)| number.int() == old[field].int());
    if is_same && old["observedGeneration"].int() >= generation {
        return None;
    }
    let mut status = old.clone();
    told.entries()
        .for_each(|(field, number)| status.set(field, number.clone()));
    status.set("observedGeneration", generation);
    Some(status)
}

#[cfg(test)]
mod tests {
    use super::super::plan::tests::{nodes, now, pods, set};
    use super::*;

    #[track_caller]
    fn check(nodes: &str, pods: &str, expect: Counts) {
        let (set, nodes, pods) = (set(Value::object()), self::nodes(nodes), self::pods(pods));
        assert_eq!(
            count(&View {
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
        let expect = Counts {
            desired: 2,
            current: 1,
            updated: 1,
            ..Counts::default()
        };
        check(
            "n1 n2 n3:no",
            "a@n1:Running,since-1 b@n1:Running,ready,since-2",
            expect,
        );
    }

    #[test]
    fn a_pod_is_available_after_it_was_ready_for_a_while() {
        let ready = Counts {
            desired: 1,
            current: 1,
            updated: 1,
            ready: 1,
            ..Counts::default()
        };
        check("n1", "a@n1:Running,ready-995", ready);
        check(
            "n1",
            "a@n1:Running,ready-990",
            Counts {
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
            Counts {
                desired: 1,
                current: 1,
                ..Counts::default()
            },
        );
    }

    #[test]
    fn an_old_pod_counts_while_a_new_one_of_the_same_second_is_beside_it() {
        let expect = Counts {
            desired: 1,
            current: 1,
            ..Counts::default()
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
            Counts {
                misplaced: 2,
                ..Counts::default()
            },
        );
    }

    fn with_status(status: Value) -> Object {
        Object(value!({"metadata": {"generation": 2i64}, "status": status}))
    }

    #[test]
    fn a_status_that_says_the_same_is_not_written() {
        let counts = Counts {
            desired: 1,
            ..Counts::default()
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
            status(&old, Counts::default()).expect("news")["observedGeneration"].int(),
            2
        );
        assert_eq!(
            status(
                &with_status(value!({"observedGeneration": 2i64})),
                Counts::default()
            ),
            None
        );
    }
}
