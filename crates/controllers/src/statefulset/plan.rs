//! What is to be done for a set? Pure: from what is there to the steps that follow, in their order.
//!
//! Replicas come first, from the lowest ordinal up; then those that are to go, from the highest down; then, once all of
//! that is done, the update. A set that goes in order waits at each pod that is not available; one that goes in parallel
//! waits for nobody, and still updates one pod at a time.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use mizzen_sdk::Object;

use super::pod::{self, Revision};
use super::{identity, retention, storage};
use crate::common::pod as any;

/// What a plan is made of.
pub(super) struct View<'a, C> {
    /// The set.
    pub set: &'a Object,
    /// The revision that its pods had before the update.
    pub current: &'a Revision,
    /// The revision that they are to have.
    pub update: &'a Revision,
    /// The pods that it controls.
    pub pods: &'a [Arc<Object>],
    /// The claim of a name, if there is one.
    pub claims: C,
    /// The time of day.
    pub now: Timestamp,
}

/// One thing to be done.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Make a pod's claims and the pod.
    Create(Arc<Object>),
    /// Make claims that a waiting pod lacks, and give them their owner.
    Supply(Arc<Object>),
    /// Give a pod its name, labels, volumes and its claims their owner.
    Repair(Arc<Object>),
    /// Give the claims of a pod that is to go their owner.
    Bequeath(Arc<Object>),
    /// Delete a pod.
    Delete(Arc<Object>),
    /// Delete a pod so that it comes back as of the update revision.
    Replace(Arc<Object>),
}

/// Everything that is to be done now, and the pods by which the status is told.
pub(super) struct Plan {
    /// What is to be done, phase by phase. A phase begins when the one before it is done.
    pub phases: Vec<Vec<Step>>,
    /// Whether the steps of a phase follow each other, too.
    pub in_order: bool,
    /// The pods that count, those that are to be made included.
    pub pods: Vec<Arc<Object>>,
}

/// Decides what is to be done for a set.
pub(super) fn plan<C: Fn(&str) -> Option<Arc<Object>>>(view: &View<C>) -> Plan {
    let mut plan = Plan {
        phases: Vec::new(),
        in_order: view.is_in_order(),
        pods: view.pods.to_vec(),
    };
    if view.set.is_going() {
        return plan;
    }
    let (replicas, condemned) = (view.replicas(), view.condemned());
    let is_through = plan.phase(&replicas, |pod| view.tend(pod))
        && plan.phase(&condemned, |pod| view.bequeath(pod))
        && plan.phase(&condemned, |pod| view.dismiss(pod, &replicas, &condemned));
    if is_through {
        plan.phases
            .push(view.replace(&replicas).into_iter().collect());
    }
    plan.pods = replicas.into_iter().chain(condemned).collect();
    plan
}

/// What a pod needs, and whether those after it have to wait where pods come in order.
type Verdict = (Option<Step>, bool);

impl Plan {
    /// Decides for each pod; whether the next phase may begin.
    fn phase(&mut self, pods: &[Arc<Object>], decide: impl Fn(&Arc<Object>) -> Verdict) -> bool {
        let mut steps = Vec::new();
        let blocks = pods.iter().any(|pod| {
            let (step, blocks) = decide(pod);
            steps.extend(step);
            blocks && self.in_order
        });
        self.phases.push(steps);
        !blocks
    }
}

impl<C: Fn(&str) -> Option<Arc<Object>>> View<'_, C> {
    fn is_in_order(&self) -> bool {
        self.set.at("spec.podManagementPolicy").str() != "Parallel"
    }

    /// The pods that are wanted, by their ordinals; who is not there is as it is to be made.
    fn replicas(&self) -> Vec<Arc<Object>> {
        let there: HashMap<_, _> = self
            .pods
            .iter()
            .map(|pod| (identity::ordinal(pod), pod))
            .collect();
        let made = |ordinal| Arc::new(pod::new(self.set, self.current, self.update, ordinal));
        let replica = |ordinal| {
            there
                .get(&Some(ordinal))
                .map_or_else(|| made(ordinal), |pod| (*pod).clone())
        };
        identity::ordinals(self.set).map(replica).collect()
    }

    /// The pods that are not wanted any more, highest ordinal first.
    fn condemned(&self) -> Vec<Arc<Object>> {
        let is_condemned = |pod: &&Arc<Object>| {
            identity::ordinal(pod).is_some() && !identity::is_wanted(self.set, pod)
        };
        let mut condemned: Vec<Arc<Object>> =
            self.pods.iter().filter(is_condemned).cloned().collect();
        condemned.sort_by_key(|pod| std::cmp::Reverse(identity::ordinal(pod)));
        condemned
    }

    /// What a wanted pod needs.
    fn tend(&self, pod: &Arc<Object>) -> Verdict {
        if pod::is_finished(pod) {
            return ((!pod.is_going()).then(|| Step::Delete(pod.clone())), true);
        }
        if !pod::is_made(pod) {
            let is_stale = self
                .claims(pod)
                .flatten()
                .any(|claim| retention::is_stale(&claim, self.set, pod));
            return ((!is_stale).then(|| Step::Create(pod.clone())), true);
        }
        let is_supplied = !pod::is_pending(pod) || self.has_claims(pod);
        let supply = (!is_supplied).then(|| Step::Supply(pod.clone()));
        if self.is_in_order() && !(pod::is_ready(pod) && self.is_available(pod)) {
            return (supply, true);
        }
        let repair = (!self.is_right(pod)).then(|| Step::Repair(pod.clone()));
        (repair.or(supply), false)
    }

    /// Whether a pod is who it should be. The claims of a pod that waits are put right as they are made.
    fn is_right(&self, pod: &Object) -> bool {
        let claims_are_right = || pod::is_pending(pod) || self.claims_are_right(pod);
        identity::is_right(self.set, pod) && storage::is_right(self.set, pod) && claims_are_right()
    }

    /// The claims of a pod, none where there is none.
    fn claims(&self, pod: &Object) -> impl Iterator<Item = Option<Arc<Object>>> {
        let ordinal = identity::ordinal(pod);
        let names = ordinal
            .into_iter()
            .flat_map(|ordinal| storage::claim_names(self.set, ordinal));
        names.map(|name| (self.claims)(&name))
    }

    fn claims_are_right(&self, pod: &Object) -> bool {
        self.claims(pod)
            .flatten()
            .all(|claim| retention::is_right(&claim, self.set, pod))
    }

    /// Whether every claim is there to stay, and owned by whom it should be.
    fn has_claims(&self, pod: &Object) -> bool {
        let stays = |claim: Option<Arc<Object>>| claim.is_some_and(|claim| !claim.is_going());
        self.claims(pod).all(stays) && self.claims_are_right(pod)
    }

    fn is_available(&self, pod: &Object) -> bool {
        let min_ready = self.set["spec"]["minReadySeconds"].int();
        any::is_available(pod, min_ready, self.now) && !pod.is_going()
    }

    fn bequeath(&self, pod: &Arc<Object>) -> Verdict {
        (
            (!self.claims_are_right(pod)).then(|| Step::Bequeath(pod.clone())),
            false,
        )
    }

    /// Whether a pod that is not wanted may go now. In order, nobody goes while one below it is not available, except
    /// that one itself.
    fn dismiss(
        &self,
        pod: &Arc<Object>,
        replicas: &[Arc<Object>],
        condemned: &[Arc<Object>],
    ) -> Verdict {
        let is_first_unavailable = || {
            let mut upwards = replicas.iter().chain(condemned.iter().rev());
            upwards
                .find(|pod| !self.is_available(pod))
                .is_some_and(|first| first.name() == pod.name())
        };
        let is_fine = || pod::is_ready(pod) && self.is_available(pod);
        let may_go = !self.is_in_order() || is_fine() || is_first_unavailable();
        (
            (may_go && !pod.is_going()).then(|| Step::Delete(pod.clone())),
            true,
        )
    }

    /// The pod that is replaced next: the highest above the partition that is not of the update revision, if all above
    /// it are available.
    fn replace(&self, replicas: &[Arc<Object>]) -> Option<Step> {
        let strategy = &self.set["spec"]["updateStrategy"];
        if strategy["type"].str() == "OnDelete" {
            return None;
        }
        let partition =
            usize::try_from(strategy.at("rollingUpdate.partition").int()).unwrap_or_default();
        let is_old = |pod: &Object| pod::revision(pod) != self.update.name && !pod.is_going();
        let next = replicas
            .iter()
            .skip(partition)
            .rev()
            .find(|pod| is_old(pod) || !self.is_available(pod))?;
        is_old(next).then(|| Step::Replace(next.clone()))
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::{Value, time, value};

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1000).expect("a time")
    }

    /// A set of `web` with two more members of its spec.
    fn set(replicas: i64, more: Value) -> Object {
        let mut spec = value!({
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "a"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        });
        for (key, member) in more.entries() {
            spec.set(key, member.clone());
        }
        Object(value!({"metadata": {"name": "web", "namespace": "n", "uid": "u"}, "spec": spec}))
    }

    /// Pods as `ordinal:words`, the words being a phase, `ready` or `ready-990` (since when), `going`, `old`, `unnamed`.
    fn pods(text: &str) -> Vec<Arc<Object>> {
        text.split_whitespace().map(pod).collect()
    }

    fn pod(text: &str) -> Arc<Object> {
        let (ordinal, words) = text.split_once(':').unwrap_or((text, "Running,ready"));
        let name = format!("web-{ordinal}");
        let mut pod = Object(value!({
            "metadata": {
                "name": (&name), "namespace": "n", "uid": (&name),
                "labels": {"statefulset.kubernetes.io/pod-name": (&name), "controller-revision-hash": "new"},
            },
        }));
        for word in words.split(',') {
            match word
                .split_once('-')
                .map_or((word, "0"), |(word, since)| (word, since))
            {
                ("ready", since) => {
                    let since = time::from_unix(since.parse().expect("a number"));
                    let ready =
                        value!({"type": "Ready", "status": "True", "lastTransitionTime": since});
                    pod.entry("status").set("conditions", vec![ready]);
                }
                ("going", _) => pod
                    .entry("metadata")
                    .set("deletionTimestamp", "2024-01-01T00:00:00Z"),
                ("old", _) => pod
                    .entry("metadata")
                    .entry("labels")
                    .set("controller-revision-hash", "old"),
                ("unnamed", _) => drop(pod.entry("metadata").remove("labels")),
                (phase, _) => pod.entry("status").set("phase", phase),
            }
        }
        Arc::new(pod)
    }

    fn claim(name: &str, owner: Option<(&str, &str)>) -> Arc<Object> {
        let mut claim = value!({"metadata": {"name": name, "namespace": "n"}});
        if let Some((pod, uid)) = owner {
            let owner = value!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid, "controller": true});
            claim.entry("metadata").set("ownerReferences", vec![owner]);
        }
        Arc::new(Object(claim))
    }

    fn revision(name: &str) -> Revision {
        Revision {
            name: name.into(),
            template: value!({"metadata": {"labels": {"app": "a"}}, "spec": {}}),
        }
    }

    fn words(step: &Step) -> String {
        let (verb, pod) = match step {
            Step::Create(pod) => ("create", pod),
            Step::Supply(pod) => ("supply", pod),
            Step::Repair(pod) => ("repair", pod),
            Step::Bequeath(pod) => ("bequeath", pod),
            Step::Delete(pod) => ("delete", pod),
            Step::Replace(pod) => ("replace", pod),
        };
        format!("{verb} {}", pod.name())
    }

    #[track_caller]
    fn check_with(set: &Object, pods: &str, claims: &[Arc<Object>], expect: &str) {
        let find = |name: &str| claims.iter().find(|claim| claim.name() == name).cloned();
        let (current, update, pods) = (revision("old"), revision("new"), self::pods(pods));
        let view = View {
            set,
            current: &current,
            update: &update,
            pods: &pods,
            claims: find,
            now: now(),
        };
        let steps: Vec<String> = plan(&view).phases.iter().flatten().map(words).collect();
        assert_eq!(steps.join(", "), expect);
    }

    #[track_caller]
    fn check(replicas: i64, more: Value, pods: &str, expect: &str) {
        check_with(&set(replicas, more), pods, &[], expect);
    }

    fn plain() -> Value {
        Value::object()
    }

    fn parallel() -> Value {
        value!({"podManagementPolicy": "Parallel"})
    }

    fn partition(partition: i64) -> Value {
        value!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}})
    }

    #[test]
    fn pods_are_made_one_after_the_other() {
        check(3, plain(), "", "create web-0");
        check(3, plain(), "0", "create web-1");
        check(3, plain(), "0 1 2", "");
    }

    #[test]
    fn a_pod_waits_until_those_below_it_are_available() {
        check(3, plain(), "0:Pending", "");
        check(3, plain(), "0:Running", "");
        check(3, plain(), "0:Running,ready,going", "");
        check(3, plain(), "0 1:Running", "");
        check(
            3,
            value!({"minReadySeconds": 10}),
            "0:Running,ready-991",
            "",
        );
        check(
            3,
            value!({"minReadySeconds": 10}),
            "0:Running,ready-990",
            "create web-1",
        );
    }

    #[test]
    fn a_gap_is_filled_before_anything_else() {
        check(3, plain(), "0 2", "create web-1");
        check(2, plain(), "1 2 3", "create web-0");
    }

    #[test]
    fn parallel_pods_are_made_at_once() {
        check(3, parallel(), "1:Pending", "create web-0, create web-2");
    }

    #[test]
    fn ordinals_begin_where_the_set_says() {
        check(
            2,
            value!({"ordinals": {"start": 5}}),
            "5 4 7",
            "create web-6",
        );
        check(
            2,
            value!({"ordinals": {"start": 5}}),
            "5 6 4 7",
            "delete web-7",
        );
    }

    #[test]
    fn a_pod_that_ended_is_deleted_whichever_way() {
        check(2, plain(), "0:Failed 1", "delete web-0");
        check(2, plain(), "0 1:Succeeded", "delete web-1");
        check(2, plain(), "0:Failed,going 1", "");
        check(3, parallel(), "0:Failed 1", "delete web-0, create web-2");
    }

    #[test]
    fn pods_that_are_not_wanted_go_from_the_highest_down() {
        check(1, plain(), "0 1 2", "delete web-2");
        check(1, plain(), "0 1 2:Running,ready,going", "");
        check(1, parallel(), "0 1 2", "delete web-2, delete web-1");
        check(1, parallel(), "0 1 2:Running,ready,going", "delete web-1");
    }

    #[test]
    fn nobody_goes_while_one_below_is_not_available() {
        check(1, plain(), "0:Running 1 2", "");
        check(1, plain(), "0 1:Running 2", "delete web-2");
        check(1, plain(), "0 1:Running 2:Running", "");
        check(1, plain(), "0 1 2:Running", "delete web-2");
    }

    #[test]
    fn an_update_replaces_the_highest_old_pod_first() {
        let old = "Running,ready,old";
        check(
            3,
            plain(),
            &format!("0:{old} 1:{old} 2:{old}"),
            "replace web-2",
        );
        check(3, plain(), &format!("0:{old} 1:{old} 2"), "replace web-1");
    }

    #[test]
    fn an_update_waits_for_what_it_replaced() {
        let old = "Running,ready,old";
        check(3, plain(), &format!("0:{old} 1:{old} 2:Running"), "");
        check(3, parallel(), &format!("0:{old} 1:{old} 2:Running"), "");
        check(3, parallel(), &format!("0:{old} 1:{old} 2:{old},going"), "");
    }

    #[test]
    fn an_update_replaces_an_old_pod_that_is_not_available_where_nobody_waits_for_it() {
        check(
            2,
            parallel(),
            "0:Running,ready,old 1:Running,old",
            "replace web-1",
        );
        check(2, plain(), "0:Running,ready,old 1:Running,old", "");
    }

    #[test]
    fn an_update_leaves_those_below_the_partition_alone() {
        let old = "Running,ready,old";
        check(
            3,
            partition(2),
            &format!("0:{old} 1:{old} 2:{old}"),
            "replace web-2",
        );
        check(3, partition(2), &format!("0:{old} 1:{old} 2"), "");
        check(3, partition(9), &format!("0:{old} 1:{old} 2:{old}"), "");
    }

    #[test]
    fn scaling_comes_before_updating() {
        check(
            1,
            plain(),
            "0:Running,ready,old 1:Running,ready,old",
            "delete web-1",
        );
        check(
            1,
            parallel(),
            "0:Running,ready,old 1:Running,ready,old",
            "delete web-1, replace web-0",
        );
    }

    #[test]
    fn on_delete_nothing_is_replaced() {
        check(
            1,
            value!({"updateStrategy": {"type": "OnDelete"}}),
            "0:Running,ready,old",
            "",
        );
    }

    #[test]
    fn a_set_that_is_going_is_left_to_go() {
        let mut set = set(3, plain());
        set.entry("metadata")
            .set("deletionTimestamp", "2024-01-01T00:00:00Z");
        check_with(&set, "0:Failed", &[], "");
    }

    #[test]
    fn a_pod_without_its_labels_gets_them() {
        check(
            1,
            value!({"updateStrategy": {"type": "OnDelete"}}),
            "0:Running,ready,unnamed",
            "repair web-0",
        );
    }

    #[test]
    fn pods_whose_names_say_no_ordinal_are_ignored() {
        check(1, plain(), "0 99999999999", "");
    }

    fn claiming(policy: &str) -> Value {
        value!({
            "podManagementPolicy": "Parallel",
            "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
            "persistentVolumeClaimRetentionPolicy": {"whenScaled": policy, "whenDeleted": "Retain"},
            "updateStrategy": {"type": "OnDelete"},
        })
    }

    fn with_volume(ordinal: i64, phase: &str) -> Arc<Object> {
        let mut pod = (*pod(&format!("{ordinal}:{phase}"))).clone();
        let volume = value!({"name": "data", "persistentVolumeClaim": {"claimName": (format!("data-web-{ordinal}"))}});
        pod.entry("spec").set("volumes", vec![volume]);
        Arc::new(pod)
    }

    #[track_caller]
    fn check_claims(
        policy: &str,
        replicas: i64,
        pod: Arc<Object>,
        claims: &[Arc<Object>],
        expect: &str,
    ) {
        let (set, current, update) = (
            set(replicas, claiming(policy)),
            revision("old"),
            revision("new"),
        );
        let find = |name: &str| claims.iter().find(|claim| claim.name() == name).cloned();
        let view = View {
            set: &set,
            current: &current,
            update: &update,
            pods: &[pod],
            claims: find,
            now: now(),
        };
        let steps: Vec<String> = plan(&view).phases.iter().flatten().map(words).collect();
        assert_eq!(steps.join(", "), expect);
    }

    #[test]
    fn a_pod_that_waits_gets_the_claims_that_it_lacks() {
        check_claims("Retain", 1, with_volume(0, "Pending"), &[], "supply web-0");
        check_claims(
            "Retain",
            1,
            with_volume(0, "Pending"),
            &[claim("data-web-0", None)],
            "",
        );
        check_claims("Retain", 1, with_volume(0, "Running"), &[], "");
    }

    #[test]
    fn the_claims_of_a_pod_that_is_to_go_are_its_own_before_it_goes() {
        let pod = with_volume(0, "Running");
        check_claims(
            "Delete",
            0,
            pod.clone(),
            &[claim("data-web-0", None)],
            "bequeath web-0, delete web-0",
        );
        check_claims(
            "Delete",
            0,
            pod,
            &[claim("data-web-0", Some(("web-0", "web-0")))],
            "delete web-0",
        );
    }

    #[test]
    fn a_pod_that_is_wanted_again_gives_its_claims_back() {
        let claim = claim("data-web-0", Some(("web-0", "web-0")));
        check_claims(
            "Delete",
            1,
            with_volume(0, "Running"),
            &[claim],
            "repair web-0",
        );
    }

    #[test]
    fn a_new_pod_waits_for_the_claims_of_its_predecessor_to_go() {
        let claims = [
            claim("data-web-1", Some(("web-1", "earlier"))),
            claim("data-web-0", None),
        ];
        check_claims("Delete", 2, with_volume(0, "Running"), &claims, "");
        check_claims(
            "Retain",
            2,
            with_volume(0, "Running"),
            &claims[1..],
            "create web-1",
        );
    }
}
