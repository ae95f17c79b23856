//! Decides which pods are created and deleted on each node. Pure.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use mizzen_sdk::Object;

use super::placement::{NodeEligibility, Placement};
use super::pod::{self, PodsByNode};
use crate::common::pod as any;

/// The input of a plan.
pub(super) struct DaemonSetView<'a> {
    pub set: &'a Object,
    /// The hash of the current revision.
    pub hash: &'a str,
    /// All nodes, sorted by name.
    pub nodes: &'a [Arc<Object>],
    /// The set's pods by node.
    pub pods: &'a PodsByNode,
    /// The wall clock.
    pub now: Timestamp,
}

/// The pods to create and delete.
#[derive(Debug, Default)]
pub(super) struct DaemonSetPlan {
    /// Nodes that get a pod.
    pub create: Vec<String>,
    pub delete: Vec<Arc<Object>>,
    /// The deleted pods that had finished, with their nodes: events are recorded for them.
    pub ended: Vec<(String, Arc<Object>)>,
    /// How long until a failed pod in back-off may be deleted.
    pub requeue_after: Option<Duration>,
}

/// Plans each node. `patience` is the remaining back-off of a failed pod on a node: a kubelet that
/// rejects a pod would reject the next one just as fast.
pub(super) fn plan(
    view: &DaemonSetView,
    patience: impl Fn(&str) -> Option<Duration>,
) -> DaemonSetPlan {
    let placement = Placement::from_set(view.set);
    let mut plan = DaemonSetPlan::default();
    for node in view.nodes {
        let eligibility = placement.check_node(node);
        match view.pods.get(node.name()) {
            None if eligibility.should_run => plan.create.push(node.name().into()),
            None => {}
            Some(pods) if eligibility.should_continue_running => {
                let node = NodePods {
                    name: node.name(),
                    should_run: eligibility.should_run,
                    pods,
                };
                plan.keep_on_node(view, node, &patience)
            }
            Some(pods) => plan
                .delete
                .extend(pods.iter().filter(|pod| !pod.is_terminating()).cloned()),
        }
    }
    // Pods that are bound to a missing node are left to the pod garbage collector.
    let nodes: HashSet<&str> = view.nodes.iter().map(|node| node.name()).collect();
    let of_missing_nodes = view
        .pods
        .iter()
        .filter(|(node, _)| !nodes.contains(node.as_str()));
    let pending = of_missing_nodes
        .flat_map(|(_, pods)| pods)
        .filter(|pod| pod["spec"]["nodeName"].str().is_empty());
    plan.delete.extend(pending.cloned());
    plan
}

/// A node whose pods continue to run.
struct NodePods<'a> {
    name: &'a str,
    should_run: bool,
    pods: &'a [Arc<Object>],
}

impl DaemonSetPlan {
    /// Plans a node whose pods continue to run.
    fn keep_on_node(
        &mut self,
        view: &DaemonSetView,
        node: NodePods,
        patience: impl Fn(&str) -> Option<Duration>,
    ) {
        let staying = node.pods.iter().filter(|pod| !pod.is_terminating());
        let (ended, mut running): (Vec<_>, Vec<_>) =
            staying.cloned().partition(|pod| any::is_terminal(pod));
        for pod in ended {
            self.clear_ended(node.name, pod, &patience);
        }
        running.sort_by_key(|pod| pod::seniority(pod));
        if pod::rolling_update_value(view.set, "maxSurge", 1) > 0 {
            if running.is_empty() && node.should_run {
                self.create.push(node.name.into());
            }
            self.delete.extend(view.surplus_of_surge(running));
        } else {
            self.delete.extend(running.into_iter().skip(1));
        }
    }

    /// Deletes a finished pod, or keeps it until its back-off ends.
    fn clear_ended(
        &mut self,
        node: &str,
        pod: Arc<Object>,
        patience: impl Fn(&str) -> Option<Duration>,
    ) {
        let has_failed = pod["status"]["phase"].str() == "Failed";
        if let Some(wait) = patience(node).filter(|_| has_failed) {
            self.requeue_after = Some(self.requeue_after.map_or(wait, |again| again.min(wait)));
            return;
        }
        self.delete.push(pod.clone());
        self.ended.push((node.into(), pod));
    }
}

impl DaemonSetView<'_> {
    /// The surplus pods with maxSurge: all but the oldest of each revision, and the old one once it is
    /// not ready or the new one is available. `running` is sorted by seniority.
    fn surplus_of_surge(&self, running: Vec<Arc<Object>>) -> Vec<Arc<Object>> {
        if running.len() <= 1 {
            return Vec::new();
        }
        let (new, old): (Vec<_>, Vec<_>) = running
            .into_iter()
            .partition(|pod| pod::has_hash(pod, self.hash));
        let (mut new, mut old) = (new.into_iter(), old.into_iter());
        let (newest, oldest) = (new.next(), old.next());
        let mut surplus: Vec<Arc<Object>> = new.chain(old).collect();
        if let (Some(new), Some(old)) = (newest, oldest) {
            let is_replaced = any::is_available(&new, pod::min_ready(self.set), self.now);
            if !any::is_ready(&old) || is_replaced {
                surplus.push(old);
            }
        }
        surplus
    }
}

/// Whether an update of a node affects the set, given whether a pod of the set is bound to it.
/// Kubernetes: a pod that continues to run where no new one would is not affected
/// (daemon_controller.go, syncNodeUpdate).
pub(super) fn is_affected_by_node(set: &Object, node: &Object, has_pod: bool) -> bool {
    let NodeEligibility {
        should_run,
        should_continue_running: may_stay,
    } = Placement::from_set(set).check_node(node);
    let is_miscounted = set.at("status.numberMisscheduled").int() > 0;
    if has_pod {
        !may_stay || is_miscounted
    } else {
        should_run
    }
}

#[cfg(test)]
pub(super) mod tests {
    use mizzen_value::{Value, time, value};

    use super::*;

    pub(crate) fn now() -> Timestamp {
        Timestamp::from_second(1000).expect("a time")
    }

    /// A set whose `rollingUpdate` has these members.
    pub(crate) fn set(rolling: Value) -> Object {
        Object(value!({
            "metadata": {"name": "d", "namespace": "n", "uid": "u"},
            "spec": {
                "minReadySeconds": 10i64,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
                "template": {"spec": {"nodeSelector": {"daemon": "yes"}}},
            },
        }))
    }

    /// Nodes as `name:words`: `no` for one that is not eligible, `tainted` for one where pods
    /// continue to run.
    pub(crate) fn nodes(text: &str) -> Vec<Arc<Object>> {
        let node = |text: &str| {
            let (name, word) = text.split_once(':').unwrap_or((text, ""));
            let label = if word == "no" { "no" } else { "yes" };
            let effect = if word == "tainted" { "NoSchedule" } else { "" };
            Arc::new(Object(value!({
                "metadata": {"name": name, "labels": {"daemon": label}},
                "spec": {"taints": [{"key": "k", "effect": effect}]},
            })))
        };
        text.split_whitespace().map(node).collect()
    }

    /// Pods as `name@node:words`: a phase, `ready` or `ready-990` (since when), `going`, `old`,
    /// `bound`, `since-5`.
    pub(crate) fn pods(text: &str) -> PodsByNode {
        let mut nodes = PodsByNode::new();
        for text in text.split_whitespace() {
            let (name, rest) = text.split_once('@').expect("a name and a node");
            let (node, words) = rest
                .split_once(':')
                .unwrap_or((rest, "Running,ready,bound"));
            nodes
                .entry(node.into())
                .or_default()
                .push(Arc::new(pod(name, node, words)));
        }
        nodes
    }

    fn pod(name: &str, node: &str, words: &str) -> Object {
        let mut pod = Object(
            value!({"metadata": {"name": name, "labels": {"controller-revision-hash": "new"}}}),
        );
        for word in words.split(',') {
            let (word, number) = word.split_once('-').unwrap_or((word, "1"));
            let moment = time::from_unix(number.parse().expect("a number"));
            match word {
                "ready" => {
                    let ready =
                        value!({"type": "Ready", "status": "True", "lastTransitionTime": moment});
                    pod.entry("status").set("conditions", vec![ready]);
                }
                "going" => pod.entry("metadata").set("deletionTimestamp", moment),
                "since" => pod.entry("metadata").set("creationTimestamp", moment),
                "old" => pod
                    .entry("metadata")
                    .entry("labels")
                    .set("controller-revision-hash", "old"),
                "bound" => pod.entry("spec").set("nodeName", node),
                phase => pod.entry("status").set("phase", phase),
            }
        }
        pod
    }

    pub(crate) fn words(create: &[String], delete: &[Arc<Object>]) -> String {
        let created = create.iter().map(|node| format!("+{node}"));
        let deleted = delete.iter().map(|pod| format!("-{}", pod.name()));
        created.chain(deleted).collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn check_in(set: &Object, nodes: &str, pods: &str, expect: &str) {
        let (nodes, pods) = (self::nodes(nodes), self::pods(pods));
        let view = DaemonSetView {
            set,
            hash: "new",
            nodes: &nodes,
            pods: &pods,
            now: now(),
        };
        let plan = plan(&view, |_| None);
        assert_eq!(words(&plan.create, &plan.delete), expect);
    }

    #[track_caller]
    fn check(nodes: &str, pods: &str, expect: &str) {
        check_in(&set(value!({"maxUnavailable": 1i64})), nodes, pods, expect);
    }

    #[track_caller]
    fn check_surge(nodes: &str, pods: &str, expect: &str) {
        check_in(&set(value!({"maxSurge": 1i64})), nodes, pods, expect);
    }

    #[test]
    fn every_eligible_node_gets_one_pod() {
        check("n1 n2:no n3", "a@n3", "+n1");
    }

    #[test]
    fn a_node_that_is_no_longer_eligible_loses_its_pods() {
        check("n1:no", "a@n1 b@n1:Running,going", "-a");
    }

    #[test]
    fn a_taint_keeps_new_pods_away_only() {
        check("n1:tainted n2:tainted", "a@n1", "");
    }

    #[test]
    fn the_oldest_of_several_stays() {
        check(
            "n1",
            "a@n1:Running,bound,since-9 b@n1:Running,bound,since-5 c@n1:Pending,since-1",
            "-a -c",
        );
    }

    #[test]
    fn a_terminating_pod_is_waited_for() {
        check("n1", "a@n1:Running,going", "");
        check_surge("n1", "a@n1:Running,going", "+n1");
        check_surge("n1:tainted", "a@n1:Running,going", "");
    }

    #[test]
    fn a_pod_that_ended_is_deleted_first() {
        check("n1", "a@n1:Failed b@n1:Succeeded", "-a -b");
        check_surge("n1", "a@n1:Failed", "+n1 -a");
    }

    #[test]
    fn a_pending_pod_for_a_missing_node_is_deleted() {
        check("n1", "a@n1 b@n2:Pending c@n3:Running,bound", "-b");
    }

    #[test]
    fn an_old_pod_stays_beside_a_new_one_until_that_is_available() {
        let old = "a@n1:Running,ready,bound,old,since-1";
        check_surge("n1", &format!("{old} b@n1:Running,bound,since-2"), "");
        check_surge(
            "n1",
            &format!("{old} b@n1:Running,ready-995,bound,since-2"),
            "",
        );
        check_surge(
            "n1",
            &format!("{old} b@n1:Running,ready-990,bound,since-2"),
            "-a",
        );
    }

    #[test]
    fn an_old_pod_that_is_not_ready_is_deleted() {
        check_surge(
            "n1",
            "a@n1:Running,bound,old,since-1 b@n1:Running,bound,since-2",
            "-a",
        );
    }

    #[test]
    fn more_than_one_old_and_one_new_pod_are_too_many() {
        let old = "Running,ready,bound,old";
        check_surge(
            "n1",
            &format!("a@n1:{old},since-1 b@n1:{old},since-2"),
            "-b",
        );
        check_surge(
            "n1",
            "a@n1:Running,bound,since-1 b@n1:Running,bound,since-2",
            "-b",
        );
    }

    #[test]
    fn a_failed_pod_is_kept_during_the_back_off() {
        let (set, nodes) = (set(Value::object()), nodes("n1 n2 n3"));
        let pods = pods("a@n1:Failed b@n2:Failed c@n3:Succeeded");
        let view = DaemonSetView {
            set: &set,
            hash: "new",
            nodes: &nodes,
            pods: &pods,
            now: now(),
        };
        let waits = |node: &str| (node != "n2").then_some(Duration::from_secs(4));
        let plan = plan(&view, waits);
        assert_eq!(
            (words(&plan.create, &plan.delete), plan.requeue_after),
            ("-b -c".into(), Some(Duration::from_secs(4)))
        );
        assert_eq!(plan.ended.len(), 2);
    }

    #[test]
    fn a_node_update_affects_a_set_if_a_pod_is_created_or_deleted() {
        let concerned = |node: &str, has_pod| {
            is_affected_by_node(&set(Value::object()), &nodes(node)[0], has_pod)
        };
        assert!(
            concerned("n1", false) && !concerned("n1:no", false) && !concerned("n1:tainted", false)
        );
        assert!(
            !concerned("n1", true) && concerned("n1:no", true) && !concerned("n1:tainted", true)
        );
    }
}
