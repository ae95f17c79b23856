//! Decides the steps for a set. Pure.
//!
//! Replicas come first, lowest ordinal first; then condemned pods, highest ordinal first; then the
//! update, once all of that is done. With OrderedReady each pod waits for the one before to be
//! available; with Parallel it does not, but the update still replaces one pod at a time.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use mizzen_sdk::Object;

use super::pod::{self, SetRevision};
use super::{identity, retention, storage};
use crate::common::pod as any;

/// The input of a plan.
pub(super) struct StatefulSetView<'a, C> {
    pub set: &'a Object,
    pub current: &'a SetRevision,
    pub update: &'a SetRevision,
    /// The pods that the set controls.
    pub pods: &'a [Arc<Object>],
    /// Returns a claim by name.
    pub claims: C,
    /// The wall clock.
    pub now: Timestamp,
}

/// One step for a pod.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PodStep {
    /// Create the pod's claims and the pod.
    Create(Arc<Object>),
    /// Create missing claims of a pending pod, and set their owners.
    EnsureClaims(Arc<Object>),
    /// Correct the pod's identity, storage and the owners of its claims.
    Update(Arc<Object>),
    /// Set the owners of a condemned pod's claims.
    UpdateClaimOwners(Arc<Object>),
    Delete(Arc<Object>),
    /// Delete a pod, so that it is created again from the update revision.
    Replace(Arc<Object>),
}

/// The steps, and the pods that the status counts.
pub(super) struct StatefulSetPlan {
    /// A phase starts when all steps of the one before have succeeded.
    pub phases: Vec<Vec<PodStep>>,
    /// Whether the steps of a phase run one after the other.
    pub in_order: bool,
    /// The counted pods, including those to be created.
    pub pods: Vec<Arc<Object>>,
}

pub(super) fn plan<C: Fn(&str) -> Option<Arc<Object>>>(
    view: &StatefulSetView<C>,
) -> StatefulSetPlan {
    let mut plan = StatefulSetPlan {
        phases: Vec::new(),
        in_order: view.is_in_order(),
        pods: view.pods.to_vec(),
    };
    if view.set.is_terminating() {
        return plan;
    }
    let (replicas, condemned) = (view.replicas(), view.condemned());
    let is_through = plan.phase(&replicas, |pod| view.process_replica(pod))
        && plan.phase(&condemned, |pod| view.fix_condemned_claims(pod))
        && plan.phase(&condemned, |pod| {
            view.process_condemned(pod, &replicas, &condemned)
        });
    if is_through {
        plan.phases
            .push(view.next_update(&replicas).into_iter().collect());
    }
    plan.pods = replicas.into_iter().chain(condemned).collect();
    plan
}

/// The step for a pod, and whether the following pods wait with OrderedReady.
type ReplicaStep = (Option<PodStep>, bool);

impl StatefulSetPlan {
    /// Plans each pod; whether the next phase may start.
    fn phase(
        &mut self,
        pods: &[Arc<Object>],
        decide: impl Fn(&Arc<Object>) -> ReplicaStep,
    ) -> bool {
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

impl<C: Fn(&str) -> Option<Arc<Object>>> StatefulSetView<'_, C> {
    fn is_in_order(&self) -> bool {
        self.set.at("spec.podManagementPolicy").str() != "Parallel"
    }

    /// The replicas by ordinal; a missing pod is as it will be created.
    fn replicas(&self) -> Vec<Arc<Object>> {
        let there: HashMap<_, _> = self
            .pods
            .iter()
            .map(|pod| (identity::ordinal(pod), pod))
            .collect();
        let made = |ordinal| {
            Arc::new(pod::new_versioned_pod(
                self.set,
                self.current,
                self.update,
                ordinal,
            ))
        };
        let replica = |ordinal| {
            there
                .get(&Some(ordinal))
                .map_or_else(|| made(ordinal), |pod| (*pod).clone())
        };
        identity::ordinals(self.set).map(replica).collect()
    }

    /// The condemned pods, highest ordinal first.
    fn condemned(&self) -> Vec<Arc<Object>> {
        let is_condemned = |pod: &&Arc<Object>| {
            identity::ordinal(pod).is_some() && !identity::is_in_ordinal_range(self.set, pod)
        };
        let mut condemned: Vec<Arc<Object>> =
            self.pods.iter().filter(is_condemned).cloned().collect();
        condemned.sort_by_key(|pod| std::cmp::Reverse(identity::ordinal(pod)));
        condemned
    }

    /// The step for a replica.
    fn process_replica(&self, pod: &Arc<Object>) -> ReplicaStep {
        if pod::is_finished(pod) {
            return (
                (!pod.is_terminating()).then(|| PodStep::Delete(pod.clone())),
                true,
            );
        }
        if !pod::is_made(pod) {
            let is_stale = self
                .claims(pod)
                .flatten()
                .any(|claim| retention::is_stale(&claim, self.set, pod));
            return ((!is_stale).then(|| PodStep::Create(pod.clone())), true);
        }
        let is_supplied = !pod::is_pending(pod) || self.has_claims(pod);
        let supply = (!is_supplied).then(|| PodStep::EnsureClaims(pod.clone()));
        if self.is_in_order() && !(pod::is_ready(pod) && self.is_available(pod)) {
            return (supply, true);
        }
        let repair = (!self.is_right(pod)).then(|| PodStep::Update(pod.clone()));
        (repair.or(supply), false)
    }

    /// Whether a pod's identity, storage and claims are right. The claims of a pending pod are
    /// corrected when they are created.
    fn is_right(&self, pod: &Object) -> bool {
        let claims_are_right = || pod::is_pending(pod) || self.claims_are_right(pod);
        identity::identity_matches(self.set, pod)
            && storage::storage_matches(self.set, pod)
            && claims_are_right()
    }

    /// The claims of a pod; none for one that does not exist.
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
            .all(|claim| retention::claim_owner_matches_set_and_pod(&claim, self.set, pod))
    }

    /// Whether every claim exists, is not being deleted, and has the right owners.
    fn has_claims(&self, pod: &Object) -> bool {
        let stays = |claim: Option<Arc<Object>>| claim.is_some_and(|claim| !claim.is_terminating());
        self.claims(pod).all(stays) && self.claims_are_right(pod)
    }

    fn is_available(&self, pod: &Object) -> bool {
        let min_ready = self.set["spec"]["minReadySeconds"].int();
        any::is_available(pod, min_ready, self.now) && !pod.is_terminating()
    }

    fn fix_condemned_claims(&self, pod: &Arc<Object>) -> ReplicaStep {
        (
            (!self.claims_are_right(pod)).then(|| PodStep::UpdateClaimOwners(pod.clone())),
            false,
        )
    }

    /// The step for a condemned pod. With OrderedReady none is deleted while a lower one is not
    /// available, except that one itself.
    fn process_condemned(
        &self,
        pod: &Arc<Object>,
        replicas: &[Arc<Object>],
        condemned: &[Arc<Object>],
    ) -> ReplicaStep {
        let is_first_unavailable = || {
            let mut upwards = replicas.iter().chain(condemned.iter().rev());
            upwards
                .find(|pod| !self.is_available(pod))
                .is_some_and(|first| first.name() == pod.name())
        };
        let is_fine = || pod::is_ready(pod) && self.is_available(pod);
        let may_go = !self.is_in_order() || is_fine() || is_first_unavailable();
        (
            (may_go && !pod.is_terminating()).then(|| PodStep::Delete(pod.clone())),
            true,
        )
    }

    /// The next pod to update: the highest one above the partition that is not of the update
    /// revision, if all above it are available.
    fn next_update(&self, replicas: &[Arc<Object>]) -> Option<PodStep> {
        let strategy = &self.set["spec"]["updateStrategy"];
        if strategy["type"].str() == "OnDelete" {
            return None;
        }
        let partition =
            usize::try_from(strategy.at("rollingUpdate.partition").int()).unwrap_or_default();
        let is_old = |pod: &Object| pod::revision(pod) != self.update.name && !pod.is_terminating();
        let next = replicas
            .iter()
            .skip(partition)
            .rev()
            .find(|pod| is_old(pod) || !self.is_available(pod))?;
        is_old(next).then(|| PodStep::Replace(next.clone()))
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::{Value, time, value};

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1000).expect("a time")
    }

    /// A set `web` with two more members of its spec.
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

    /// Pods as `ordinal:words`: a phase, `ready` or `ready-990` (since when), `going`, `old`,
    /// `unnamed`.
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

    fn revision(name: &str) -> SetRevision {
        SetRevision {
            name: name.into(),
            template: value!({"metadata": {"labels": {"app": "a"}}, "spec": {}}),
        }
    }

    fn words(step: &PodStep) -> String {
        let (verb, pod) = match step {
            PodStep::Create(pod) => ("create", pod),
            PodStep::EnsureClaims(pod) => ("supply", pod),
            PodStep::Update(pod) => ("repair", pod),
            PodStep::UpdateClaimOwners(pod) => ("bequeath", pod),
            PodStep::Delete(pod) => ("delete", pod),
            PodStep::Replace(pod) => ("replace", pod),
        };
        format!("{verb} {}", pod.name())
    }

    #[track_caller]
    fn check_with(set: &Object, pods: &str, claims: &[Arc<Object>], expect: &str) {
        let find = |name: &str| claims.iter().find(|claim| claim.name() == name).cloned();
        let (current, update, pods) = (revision("old"), revision("new"), self::pods(pods));
        let view = StatefulSetView {
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
    fn condemned_pods_are_deleted_from_the_highest_down() {
        check(1, plain(), "0 1 2", "delete web-2");
        check(1, plain(), "0 1 2:Running,ready,going", "");
        check(1, parallel(), "0 1 2", "delete web-2, delete web-1");
        check(1, parallel(), "0 1 2:Running,ready,going", "delete web-1");
    }

    #[test]
    fn no_pod_is_deleted_while_a_lower_one_is_not_available() {
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
    fn a_parallel_update_replaces_an_old_pod_that_is_not_available() {
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
    fn a_set_in_deletion_has_no_steps() {
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
    fn pods_without_an_ordinal_are_ignored() {
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
        let set = set(replicas, claiming(policy));
        let current = revision("old");
        let update = revision("new");
        let find = |name: &str| claims.iter().find(|claim| claim.name() == name).cloned();
        let view = StatefulSetView {
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
