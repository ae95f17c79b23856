//! Decides which pods a rolling update replaces next. Pure.
//!
//! Without a surge an old pod is deleted and the node's plan creates a new one, within
//! maxUnavailable. With a surge a new pod is created beside the old one, which is deleted once the
//! new one is available.

use std::collections::HashMap;
use std::sync::Arc;

use mizzen_sdk::Object;

use super::placement::Placement;
use super::plan::DaemonSetView;
use super::pod;
use crate::common::pod as any;

/// The pods to create and delete.
#[derive(Debug, Default)]
pub(super) struct RollingUpdate {
    /// Nodes that get an additional pod.
    pub create: Vec<String>,
    pub delete: Vec<Arc<Object>>,
}

/// Plans the whole set.
pub(super) fn rolling_update(view: &DaemonSetView) -> RollingUpdate {
    let placement = Placement::from_set(view.set);
    let nodes = view.nodes.iter();
    let wanted: HashMap<&str, bool> = nodes
        .map(|node| (node.name(), placement.check_node(node).should_run))
        .collect();
    let n_wanted = wanted.values().filter(|should_run| **should_run).count() as i64;
    let surge = pod::rolling_update_value(view.set, "maxSurge", n_wanted);
    let mut unavailable = pod::rolling_update_value(view.set, "maxUnavailable", n_wanted);
    if n_wanted > 0 && surge == 0 && unavailable == 0 {
        unavailable = 1;
    }
    if surge == 0 {
        let delete = view.without_surge(&wanted, unavailable);
        return RollingUpdate {
            create: Vec::new(),
            delete,
        };
    }
    Surge::default().plan(view, &wanted, surge, n_wanted)
}

/// The new and the old pod of a node.
type Pair<'a> = (Option<&'a Arc<Object>>, Option<&'a Arc<Object>>);

/// The new and the old pod of a node; none if there are several of one revision, which the node's
/// plan removes first.
fn pair<'a>(view: &DaemonSetView, pods: &'a [Arc<Object>]) -> Option<Pair<'a>> {
    let staying = pods.iter().filter(|pod| !pod.is_terminating());
    let (new, old): (Vec<_>, Vec<_>) =
        staying.partition(|pod| pod::is_updated(view.set, pod, view.hash));
    (new.len() <= 1 && old.len() <= 1).then(|| (new.first().copied(), old.first().copied()))
}

fn is_available(view: &DaemonSetView, pod: &Object) -> bool {
    any::is_available(pod, pod::min_ready(view.set), view.now)
}

impl DaemonSetView<'_> {
    /// The old pods to delete: unavailable ones, and as many available ones as maxUnavailable allows.
    fn without_surge(
        &self,
        wanted: &HashMap<&str, bool>,
        max_unavailable: i64,
    ) -> Vec<Arc<Object>> {
        let (mut broken, mut candidates) = (Vec::new(), Vec::new());
        let is_missing =
            |(node, should_run): &(&&str, &bool)| **should_run && !self.pods.contains_key(**node);
        let mut n_unavailable = wanted.iter().filter(is_missing).count() as i64;
        for pods in self.pods.values() {
            match pair(self, pods) {
                Some((Some(new), None)) => n_unavailable += i64::from(!is_available(self, new)),
                Some((None, Some(old))) if is_available(self, old) => candidates.push(old.clone()),
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
}

/// The input of a surge.
#[derive(Default)]
struct Surge {
    rollout: RollingUpdate,
    /// Nodes that may get a new pod beside the old one.
    candidates: Vec<String>,
    /// Available pods on nodes that are not eligible any more.
    leaving: Vec<Arc<Object>>,
    n_surging: i64,
    n_available: i64,
}

impl Surge {
    fn plan(
        mut self,
        view: &DaemonSetView,
        wanted: &HashMap<&str, bool>,
        max_surge: i64,
        n_wanted: i64,
    ) -> RollingUpdate {
        for (node, pods) in view.pods {
            match pair(view, pods) {
                Some(pair) => self.add_node(view, node, pair, wanted.get(node.as_str()).copied()),
                None => self.n_surging += 1,
            }
        }
        // If the set moves to other nodes, a pod is deleted only when another one is available
        // instead.
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

    /// Adds one node. `should_run` is none for a node that does not exist; its pods are not
    /// replaced.
    fn add_node(
        &mut self,
        view: &DaemonSetView,
        node: &str,
        (new, old): Pair,
        should_run: Option<bool>,
    ) {
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
        let set = set(rolling);
        let nodes = self::nodes(nodes);
        let pods = self::pods(&pods.replace("OLD", OLD));
        let view = DaemonSetView {
            set: &set,
            hash: "new",
            nodes: &nodes,
            pods: &pods,
            now: now(),
        };
        let rollout = rolling_update(&view);
        assert_eq!(words(&rollout.create, &rollout.delete), expect);
    }

    fn unavailable(n: i64) -> Value {
        value!({"maxUnavailable": n, "maxSurge": 0i64})
    }

    fn surge(n: i64) -> Value {
        value!({"maxUnavailable": 0i64, "maxSurge": n})
    }

    #[test]
    fn old_pods_are_deleted_within_max_unavailable() {
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
    fn nodes_with_a_missing_or_terminating_pod_count() {
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
    fn unavailable_old_pods_are_deleted_whatever_the_limit() {
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
    fn a_set_that_allows_nothing_still_proceeds() {
        check(unavailable(0), "n1 n2", "a@n1:OLD b@n2:OLD", "-a");
    }

    #[test]
    fn a_percentage_is_of_the_eligible_nodes() {
        check(
            value!({"maxUnavailable": "50%"}),
            "n1 n2 n3 n4:no",
            "a@n1:OLD b@n2:OLD c@n3:OLD",
            "-a -b",
        );
    }

    #[test]
    fn new_pods_are_created_beside_old_ones_within_max_surge() {
        check(surge(1), "n1 n2", "a@n1:OLD b@n2:OLD", "+n1");
        check(surge(1), "n1 n2", "a@n1:OLD x@n1:Running b@n2:OLD", "");
        check(surge(2), "n1 n2", "a@n1:OLD x@n1:Running b@n2:OLD", "+n2");
    }

    #[test]
    fn an_old_pod_is_deleted_once_the_new_one_is_available() {
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
