//! Which pods are replaced next? Pure.
//!
//! Without a surge an old pod goes and the plan of its node makes a new one, as long as not too many are unavailable. With a
//! surge a new pod comes beside the old one, which goes once the new one is available.

use std::collections::HashMap;
use std::sync::Arc;

use mizzen_sdk::Object;

use super::placement::Placement;
use super::plan::View;
use super::pod::{self, ByNode};
use crate::common::pod as any;

/// What is to be done.
#[derive(Debug, Default)]
pub(super) struct Rollout {
    /// The nodes that get another pod.
    pub create: Vec<String>,
    /// The pods that go.
    pub delete: Vec<Arc<Object>>,
}

/// Decides for the whole set.
pub(super) fn rollout(view: &View) -> Rollout {
    let wanted = wanted(view);
    let n_wanted = wanted.values().filter(|should_run| **should_run).count() as i64;
    let surge = pod::scaled(view.set, "maxSurge", n_wanted);
    let mut unavailable = pod::scaled(view.set, "maxUnavailable", n_wanted);
    if n_wanted > 0 && surge == 0 && unavailable == 0 {
        unavailable = 1;
    }
    if surge == 0 {
        let delete = in_place(view, &wanted, unavailable);
        return Rollout {
            create: Vec::new(),
            delete,
        };
    }
    Surge::default().plan(view, &wanted, surge, n_wanted)
}

/// Every node, and whether it is to have a pod.
fn wanted<'a>(view: &View<'a>) -> HashMap<&'a str, bool> {
    let placement = Placement::of(view.set);
    view.nodes
        .iter()
        .map(|node| (node.name(), placement.judge(node).should_run))
        .collect()
}

/// The pods of one node: a new and an old one.
type Pair<'a> = (Option<&'a Arc<Object>>, Option<&'a Arc<Object>>);

/// The new and the old pod of a node; none if there are several of one, who are not to be touched before the plan of
/// the node has sorted them out.
fn pair<'a>(view: &View, pods: &'a [Arc<Object>]) -> Option<Pair<'a>> {
    let staying = pods.iter().filter(|pod| !pod.is_going());
    let (new, old): (Vec<_>, Vec<_>) =
        staying.partition(|pod| pod::is_updated(view.set, pod, view.hash));
    (new.len() <= 1 && old.len() <= 1).then(|| (new.first().copied(), old.first().copied()))
}

fn is_available(view: &View, pod: &Object) -> bool {
    any::is_available(pod, pod::min_ready(view.set), view.now)
}

/// The old pods that go: those that are not available, and as many others as may be unavailable.
fn in_place(view: &View, wanted: &HashMap<&str, bool>, max_unavailable: i64) -> Vec<Arc<Object>> {
    let (mut broken, mut candidates) = (Vec::new(), Vec::new());
    let mut n_unavailable = n_missing(view.pods, wanted);
    for pods in view.pods.values() {
        match pair(view, pods) {
            Some((Some(new), None)) => n_unavailable += i64::from(!is_available(view, new)),
            Some((None, Some(old))) if is_available(view, old) => candidates.push(old.clone()),
            Some((None, Some(old))) => {
                broken.push(old.clone());
                n_unavailable += 1;
            }
            _ => n_unavailable += 1,
        }
    }
    let n_more = usize::try_from(max_unavailable - n_unavailable).unwrap_or_default();
    broken.extend(candidates.into_iter().take(n_more));
    broken
}

/// How many nodes are to have a pod and have none.
fn n_missing(pods: &ByNode, wanted: &HashMap<&str, bool>) -> i64 {
    wanted
        .iter()
        .filter(|(node, should_run)| **should_run && !pods.contains_key(**node))
        .count() as i64
}

/// What a surge is made of.
#[derive(Default)]
struct Surge {
    rollout: Rollout,
    /// Nodes that may get a new pod beside the one that they have.
    candidates: Vec<String>,
    /// Available pods on nodes that are not to have one any more.
    leaving: Vec<Arc<Object>>,
    n_surging: i64,
    n_available: i64,
}

impl Surge {
    fn plan(
        mut self,
        view: &View,
        wanted: &HashMap<&str, bool>,
        max_surge: i64,
        n_wanted: i64,
    ) -> Rollout {
        for (node, pods) in view.pods {
            match pair(view, pods) {
                Some(pair) => self.look_at(view, node, pair, wanted.get(node.as_str()).copied()),
                None => self.n_surging += 1,
            }
        }
        // Where the set moves from node to node, a pod only goes when another is available in its stead.
        let n_leaving = usize::try_from(self.n_available - n_wanted).unwrap_or_default();
        self.rollout
            .delete
            .extend(self.leaving.into_iter().take(n_leaving));
        let n_more = usize::try_from(max_surge - self.n_surging).unwrap_or_default();
        self.rollout
            .create
            .extend(self.candidates.into_iter().take(n_more));
        self.rollout
    }

    /// Looks at one node. `should_run` is none for a node that is not there; its pods are not replaced.
    fn look_at(&mut self, view: &View, node: &str, (new, old): Pair, should_run: Option<bool>) {
        let is_available = |pod: &Arc<Object>| is_available(view, pod);
        self.n_available += i64::from(old.or(new).is_some_and(is_available));
        let Some(old) = old else { return };
        match (new, should_run) {
            (Some(new), _) if is_available(new) => self.rollout.delete.push(old.clone()),
            (Some(_), _) => self.n_surging += 1,
            (None, Some(true)) if is_available(old) => self.candidates.push(node.into()),
            (None, Some(true)) => self.rollout.create.push(node.into()),
            (None, Some(false)) if is_available(old) => self.leaving.push(old.clone()),
            (None, Some(false)) => self.rollout.delete.push(old.clone()),
            (None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::{Value, value};

    use super::super::plan::tests::{nodes, now, pods, set, words};
    use super::*;

    const OLD: &str = "Running,ready,bound,old";

    #[track_caller]
    fn check(rolling: Value, nodes: &str, pods: &str, expect: &str) {
        let (set, nodes, pods) = (
            set(rolling),
            self::nodes(nodes),
            self::pods(&pods.replace("OLD", OLD)),
        );
        let view = View {
            set: &set,
            hash: "new",
            nodes: &nodes,
            pods: &pods,
            now: now(),
        };
        let rollout = rollout(&view);
        assert_eq!(words(&rollout.create, &rollout.delete), expect);
    }

    fn unavailable(n: i64) -> Value {
        value!({"maxUnavailable": n, "maxSurge": 0i64})
    }

    fn surge(n: i64) -> Value {
        value!({"maxUnavailable": 0i64, "maxSurge": n})
    }

    #[test]
    fn as_many_old_pods_go_as_may_be_unavailable() {
        check(
            unavailable(1),
            "n1 n2 n3",
            "a@n1:OLD b@n2:OLD c@n3:OLD",
            "-a",
        );
        check(
            unavailable(2),
            "n1 n2 n3",
            "a@n1:OLD b@n2:OLD c@n3:OLD",
            "-a -b",
        );
    }

    #[test]
    fn pods_that_are_new_and_not_available_count() {
        check(unavailable(1), "n1 n2", "a@n1:Running,bound b@n2:OLD", "");
        check(
            unavailable(1),
            "n1 n2",
            "a@n1:Running,bound,ready-995 b@n2:OLD",
            "",
        );
        check(
            unavailable(1),
            "n1 n2",
            "a@n1:Running,bound,ready-990 b@n2:OLD",
            "-b",
        );
    }

    #[test]
    fn nodes_without_a_pod_and_with_one_that_goes_count() {
        check(unavailable(1), "n1 n2", "b@n2:OLD", "");
        check(
            unavailable(1),
            "n1 n2",
            "a@n1:Running,ready,going b@n2:OLD",
            "",
        );
        check(unavailable(1), "n1:no n2", "b@n2:OLD", "-b");
    }

    #[test]
    fn old_pods_that_are_not_available_go_whatever_the_limit() {
        check(
            unavailable(1),
            "n1 n2 n3",
            "a@n1:Running,old b@n2:Running,old c@n3:OLD",
            "-a -b",
        );
    }

    #[test]
    fn a_node_with_several_old_pods_is_left_to_its_plan() {
        check(unavailable(1), "n1 n2", "a@n1:OLD b@n1:OLD c@n2:OLD", "");
    }

    #[test]
    fn a_set_that_allows_nothing_still_goes_on() {
        check(unavailable(0), "n1 n2", "a@n1:OLD b@n2:OLD", "-a");
    }

    #[test]
    fn a_percentage_is_of_the_nodes_that_are_asked_for() {
        check(
            value!({"maxUnavailable": "50%"}),
            "n1 n2 n3 n4:no",
            "a@n1:OLD b@n2:OLD c@n3:OLD",
            "-a -b",
        );
    }

    #[test]
    fn new_pods_come_beside_old_ones_as_far_as_the_surge_allows() {
        check(surge(1), "n1 n2", "a@n1:OLD b@n2:OLD", "+n1");
        check(surge(1), "n1 n2", "a@n1:OLD x@n1:Running b@n2:OLD", "");
        check(surge(2), "n1 n2", "a@n1:OLD x@n1:Running b@n2:OLD", "+n2");
    }

    #[test]
    fn an_old_pod_goes_once_the_new_one_is_available() {
        check(
            surge(1),
            "n1 n2",
            "a@n1:OLD x@n1:Running,ready-990 b@n2:OLD",
            "+n2 -a",
        );
    }

    #[test]
    fn an_old_pod_that_is_not_available_gets_a_new_one_whatever_the_limit() {
        check(
            surge(1),
            "n1 n2 n3",
            "a@n1:Running,old b@n2:Running,old c@n3:OLD",
            "+n1 +n2 +n3",
        );
    }

    #[test]
    fn a_pod_leaves_a_node_for_another_only_when_that_one_is_available() {
        check(surge(1), "n1:tainted n2", "a@n1:OLD x@n2:Running", "");
        check(
            surge(1),
            "n1:tainted n2",
            "a@n1:OLD x@n2:Running,ready-990",
            "-a",
        );
        check(
            surge(1),
            "n1:tainted n2",
            "a@n1:Running,old x@n2:Running",
            "-a",
        );
    }

    #[test]
    fn old_pods_of_nodes_that_are_gone_are_left_alone() {
        check(surge(1), "n2", "a@n1:OLD x@n2:Running,ready-990", "");
    }
}
