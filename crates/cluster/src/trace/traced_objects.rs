//! The traced object and its dependents, by controller references.

use std::collections::HashMap;

use mizzen_sdk::{Key, Object};

use super::KINDS;
use super::step::{ObjectChange, TraceStep, condition, existing, named};
use super::warning::TraceWarnings;

/// The traced object and its dependents.
pub(super) struct TracedObjects {
    root_kind: usize,
    root: Key,
    objects: HashMap<String, (usize, Object)>,
    /// Objects whose owner is not known yet.
    pending: Vec<(usize, Object)>,
    warnings: TraceWarnings,
    /// Whether the traced object has existed.
    has_existed: bool,
}

/// The end of --until-ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReadyOutcome {
    /// All pods are ready, or it is complete.
    Ready,
    /// It cannot become ready, for this reason.
    Never(String),
}

impl TracedObjects {
    /// No object is known yet.
    pub(super) fn new(root_kind: usize, root: Key) -> TracedObjects {
        TracedObjects {
            root_kind,
            root,
            objects: HashMap::new(),
            pending: Vec::new(),
            warnings: TraceWarnings::default(),
            has_existed: false,
        }
    }

    /// The steps of a watch event.
    pub(super) fn on_change(
        &mut self,
        kind: usize,
        object: Object,
        is_deleted: bool,
        initial: bool,
    ) -> Vec<TraceStep> {
        if !self.belongs(kind, &object) {
            self.pending
                .retain(|(_, pending)| pending.uid() != object.uid());
            if !is_deleted && object.controller().is_some() {
                self.pending.push((kind, object));
            }
            return Vec::new();
        }
        let old = self.objects.remove(object.uid());
        if is_deleted && old.is_none() {
            return Vec::new();
        }
        let steps = match initial {
            true => vec![existing(&KINDS[kind].kind, &object)],
            false => self.change(
                kind,
                old.as_ref().map(|(_, old)| old),
                (!is_deleted).then_some(&object),
            ),
        };
        let uid = object.uid().to_string();
        self.has_existed |= self.is_root(kind, &object);
        if !is_deleted {
            self.objects.insert(uid.clone(), (kind, object));
        }
        let warnings = self.warnings.take_pending(&uid);
        let adopted = self.adopt(&uid);
        steps.into_iter().chain(warnings).chain(adopted).collect()
    }

    /// The step of a Warning event.
    pub(super) fn on_event(&mut self, event: &Object) -> Option<TraceStep> {
        let TracedObjects {
            warnings, objects, ..
        } = self;
        warnings.on_event(event, |uid| objects.contains_key(uid))
    }

    /// The outcome of --until-ready, if it is known.
    pub(super) fn outcome(&self) -> Option<ReadyOutcome> {
        let mut objects = self.objects.values();
        let root = objects.find(|(kind, object)| self.is_root(*kind, object));
        let Some((_, root)) = root else {
            let was_deleted = self.has_existed;
            return was_deleted.then(|| ReadyOutcome::Never("it was deleted".into()));
        };
        let never = self.failure(root).or_else(|| self.impossible());
        never
            .map(ReadyOutcome::Never)
            .or_else(|| self.is_ready(root).then_some(ReadyOutcome::Ready))
    }

    /// A pod with an invalid simulation annotation, which no node can run.
    fn impossible(&self) -> Option<String> {
        let is_invalid = |one: &&Object| one["status"]["reason"].str() == "InvalidSimulation";
        let pod = self.objects.values().map(|(_, one)| one).find(is_invalid)?;
        Some(format!(
            "{}: {}",
            named("Pod", pod),
            pod["status"]["message"].str()
        ))
    }

    fn is_root(&self, kind: usize, object: &Object) -> bool {
        kind == self.root_kind && object.key() == self.root
    }

    /// Whether all pods of the traced object are ready, or it is complete.
    fn is_ready(&self, root: &Object) -> bool {
        let (spec, status) = (&root["spec"], &root["status"]);
        let is_current = status["observedGeneration"].int() >= root["metadata"]["generation"].int();
        let has = |name: &str| condition(root, name)["status"].str() == "True";
        match &*KINDS[self.root_kind].kind {
            "Job" => has("Complete"),
            "Pod" => has("Ready") || status["phase"].str() == "Succeeded",
            "CronJob" => false,
            "DaemonSet" => is_current && status["numberReady"] == status["desiredNumberScheduled"],
            _ => {
                let wanted = spec["replicas"].as_int().unwrap_or(1);
                let updated = status["updatedReplicas"].as_int().unwrap_or(wanted);
                is_current && status["readyReplicas"].int() == wanted && updated == wanted
            }
        }
    }

    fn belongs(&self, kind: usize, object: &Object) -> bool {
        self.is_root(kind, object)
            || self.objects.contains_key(object.uid())
            || object
                .controller()
                .is_some_and(|owner| self.objects.contains_key(owner["uid"].str()))
    }

    /// The steps of pending objects of an owner.
    fn adopt(&mut self, uid: &str) -> Vec<TraceStep> {
        let pending = std::mem::take(&mut self.pending);
        let (own, rest) = pending
            .into_iter()
            .partition(|(_, object)| object.is_controlled_by(uid));
        self.pending = rest;
        let own: Vec<(usize, Object)> = own;
        own.into_iter()
            .flat_map(|(kind, object)| self.on_change(kind, object, false, true))
            .collect()
    }

    fn change(&self, kind: usize, old: Option<&Object>, new: Option<&Object>) -> Vec<TraceStep> {
        let Some(object) = new.or(old) else {
            return Vec::new();
        };
        let owner_uid = object
            .controller()
            .map(|owner| owner["uid"].str())
            .unwrap_or_default();
        let owner = self
            .objects
            .get(owner_uid)
            .map(|(kind, owner)| (&*KINDS[*kind].kind, owner));
        let is_sibling = |one: &Object| one.is_controlled_by(owner_uid) && !one.is_terminating();
        let siblings = self
            .objects
            .values()
            .filter(|(_, one)| is_sibling(one) && one.uid() != object.uid());
        let n_siblings = siblings.count();
        ObjectChange {
            kind: &KINDS[kind].kind,
            old,
            new,
            owner,
            n_siblings,
        }
        .steps()
    }

    /// Why the traced object cannot become ready or complete.
    fn failure(&self, object: &Object) -> Option<String> {
        let (kind, status) = (&*KINDS[self.root_kind].kind, &object["status"]);
        let (failed, progress) = (
            condition(object, "Failed"),
            condition(object, "Progressing"),
        );
        let cause = match kind {
            "Job" if failed["status"].str() == "True" => failed,
            "Pod" if status["phase"].str() == "Failed" => status,
            "Deployment" if progress["reason"].str() == "ProgressDeadlineExceeded" => progress,
            _ => return None,
        };
        let why = [cause["reason"].str(), cause["message"].str()]
            .into_iter()
            .filter(|text| !text.is_empty());
        let why: Vec<&str> = std::iter::once("failed").chain(why).collect();
        Some(format!("{} {}", named(kind, object), why.join(": ")))
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::yaml;

    use super::*;

    const DEPLOYMENT: usize = 1;
    const REPLICA_SET: usize = 2;
    const JOB: usize = 5;
    const POD: usize = 7;

    fn object(text: &str) -> Object {
        Object(yaml::read(text.as_bytes()).unwrap().value)
    }

    fn objects() -> TracedObjects {
        TracedObjects::new(DEPLOYMENT, Key::new("a", "web"))
    }

    const WEB: &str = "{metadata: {name: web, namespace: a, uid: d}, spec: {replicas: 1}}";
    const SET: &str = "{metadata: {name: s, namespace: a, uid: s, ownerReferences: [{uid: d, controller: true}]}, spec: {replicas: 1}}";
    const ITS_POD: &str = "{metadata: {name: p, namespace: a, uid: p, ownerReferences: [{uid: s, controller: true}]}}";

    fn lines(steps: Vec<TraceStep>) -> Vec<String> {
        steps
            .iter()
            .map(|step| format!("{} {}", step.object, step.what))
            .collect()
    }

    #[test]
    fn only_the_object_and_its_dependents_are_printed() {
        let mut objects = objects();
        assert_eq!(
            lines(objects.on_change(DEPLOYMENT, object(WEB), false, false)),
            ["deployment/web created, replicas 1"]
        );
        assert_eq!(
            lines(objects.on_change(REPLICA_SET, object(SET), false, false)),
            ["replicaset/s created, replicas 1"]
        );
        assert_eq!(
            lines(objects.on_change(POD, object(ITS_POD), false, false)),
            ["pod/p created"]
        );
        assert!(
            objects
                .on_change(
                    POD,
                    object("{metadata: {name: q, uid: q, namespace: a}}"),
                    false,
                    false
                )
                .is_empty()
        );
        assert_eq!(
            lines(objects.on_change(POD, object(ITS_POD), true, false)),
            ["pod/p deleted"]
        );
    }

    #[test]
    fn an_object_that_comes_before_its_owner_is_printed_after_it() {
        let mut objects = objects();
        assert!(
            objects
                .on_change(POD, object(ITS_POD), false, true)
                .is_empty()
        );
        assert!(
            objects
                .on_change(REPLICA_SET, object(SET), false, true)
                .is_empty()
        );
        let all = lines(objects.on_change(DEPLOYMENT, object(WEB), false, true));
        assert_eq!(
            all,
            [
                "deployment/web exists",
                "replicaset/s exists",
                "pod/p exists"
            ]
        );
    }

    #[test]
    fn a_deployment_is_ready_when_all_pods_are_updated_and_ready() {
        let mut objects = objects();
        let check = |objects: &mut TracedObjects, status: &str, ready: bool| {
            let text = format!(
                "{{metadata: {{name: web, namespace: a, uid: d, generation: 2}}, spec: {{replicas: 2}}, status: {{{status}}}}}"
            );
            objects.on_change(DEPLOYMENT, object(&text), false, false);
            assert_eq!(objects.outcome().is_some(), ready, "{status}");
        };
        check(
            &mut objects,
            "observedGeneration: 1, readyReplicas: 2, updatedReplicas: 2",
            false,
        );
        check(
            &mut objects,
            "observedGeneration: 2, readyReplicas: 1, updatedReplicas: 2",
            false,
        );
        check(
            &mut objects,
            "observedGeneration: 2, readyReplicas: 2, updatedReplicas: 1",
            false,
        );
        check(
            &mut objects,
            "observedGeneration: 2, readyReplicas: 2, updatedReplicas: 2",
            true,
        );
    }

    #[test]
    fn an_object_that_cannot_become_ready_has_a_reason() {
        let check = |kind: usize, text: &str, expected: Option<ReadyOutcome>| {
            let mut objects = TracedObjects::new(kind, Key::new("a", "web"));
            objects.on_change(
                kind,
                object(&format!(
                    "{{metadata: {{name: web, namespace: a, uid: d}}, {text}}}"
                )),
                false,
                false,
            );
            assert_eq!(objects.outcome(), expected, "{text}");
        };
        let never = |why: &str| Some(ReadyOutcome::Never(why.into()));
        let failed = "status: {conditions: [{type: Failed, status: 'True', reason: BackoffLimitExceeded, message: too often}]}";
        check(
            JOB,
            failed,
            never("job/web failed: BackoffLimitExceeded: too often"),
        );
        check(
            JOB,
            "status: {conditions: [{type: Complete, status: 'True'}]}",
            Some(ReadyOutcome::Ready),
        );
        check(
            POD,
            "status: {phase: Failed, reason: InvalidSimulation, message: nope}",
            never("pod/web failed: InvalidSimulation: nope"),
        );
        check(POD, "status: {phase: Succeeded}", Some(ReadyOutcome::Ready));
        check(POD, "status: {phase: Pending}", None);
        let late = "status: {conditions: [{type: Progressing, status: 'False', reason: ProgressDeadlineExceeded, message: late}]}";
        check(
            DEPLOYMENT,
            late,
            never("deployment/web failed: ProgressDeadlineExceeded: late"),
        );
    }

    #[test]
    fn a_deleted_object_cannot_become_ready() {
        let mut objects = objects();
        assert_eq!(objects.outcome(), None);
        objects.on_change(DEPLOYMENT, object(WEB), false, false);
        assert_eq!(objects.outcome(), None);
        objects.on_change(DEPLOYMENT, object(WEB), true, false);
        assert_eq!(
            objects.outcome(),
            Some(ReadyOutcome::Never("it was deleted".into()))
        );
    }

    #[test]
    fn warnings_are_printed_after_their_object() {
        let mut objects = objects();
        let event = object(
            "{type: Warning, reason: FailedCreate, message: nope, involvedObject: {kind: Deployment, name: web, uid: d}}",
        );
        assert_eq!(objects.on_event(&event), None);
        let printed = lines(objects.on_change(DEPLOYMENT, object(WEB), false, false));
        assert_eq!(
            printed,
            [
                "deployment/web created, replicas 1",
                "deployment/web warning FailedCreate: nope"
            ]
        );
    }
}
