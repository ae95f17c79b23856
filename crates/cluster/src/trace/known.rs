//! What belongs to the traced object: it, what it controls, and what that controls in turn.

use std::collections::HashMap;

use mizzen_sdk::{Key, Object};

use super::KINDS;
use super::step::{Change, Step, condition, named, there};
use super::warning::Warnings;

/// All objects that belong to the traced one.
pub(super) struct Known {
    root_kind: usize,
    root: Key,
    objects: HashMap<String, (usize, Object)>,
    /// Objects whose owner has not been seen yet.
    strangers: Vec<(usize, Object)>,
    warnings: Warnings,
    /// Whether the traced object was there once.
    was_there: bool,
}

/// How it ends for somebody who waits until all is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All of it is ready, or complete.
    Ready,
    /// It will not be, and why.
    Never(String),
}

impl Known {
    /// Nothing is known of `root` yet.
    pub(super) fn new(root_kind: usize, root: Key) -> Known {
        let (objects, strangers, warnings) = (HashMap::new(), Vec::new(), Warnings::default());
        Known {
            root_kind,
            root,
            objects,
            strangers,
            warnings,
            was_there: false,
        }
    }

    /// The steps that led to an object being as it is now, or gone.
    pub(super) fn see(
        &mut self,
        kind: usize,
        object: Object,
        is_gone: bool,
        initial: bool,
    ) -> Vec<Step> {
        if !self.belongs(kind, &object) {
            self.remember_stranger(kind, object, is_gone);
            return Vec::new();
        }
        let old = self.objects.remove(object.uid());
        if is_gone && old.is_none() {
            return Vec::new();
        }
        let steps = match initial {
            true => vec![there(&KINDS[kind].kind, &object)],
            false => self.change(
                kind,
                old.as_ref().map(|(_, old)| old),
                (!is_gone).then_some(&object),
            ),
        };
        let uid = object.uid().to_string();
        self.was_there |= self.is_root(kind, &object);
        if !is_gone {
            self.objects.insert(uid.clone(), (kind, object));
        }
        let warnings = self.warnings.about(&uid);
        let adopted = self.adopt(&uid);
        steps.into_iter().chain(warnings).chain(adopted).collect()
    }

    /// The step that an event tells, if it is one.
    pub(super) fn hear(&mut self, event: &Object) -> Option<Step> {
        let Known {
            warnings, objects, ..
        } = self;
        warnings.hear(event, |uid| objects.contains_key(uid))
    }

    /// What becomes of the traced object, if that is settled.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        let Some((kind, root)) = self
            .objects
            .values()
            .find(|(kind, one)| self.is_root(*kind, one))
        else {
            return self.was_there.then(|| Outcome::Never("it is gone".into()));
        };
        let kind: &str = &KINDS[*kind].kind;
        let never = failure(kind, root).or_else(|| self.impossible());
        never
            .map(Outcome::Never)
            .or_else(|| self.is_ready(root).then_some(Outcome::Ready))
    }

    /// A pod that no node will ever run as it is.
    fn impossible(&self) -> Option<String> {
        let is_so = |one: &&Object| one["status"]["reason"].str() == "InvalidSimulation";
        let pod = self.objects.values().map(|(_, one)| one).find(is_so)?;
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

    fn remember_stranger(&mut self, kind: usize, object: Object, is_gone: bool) {
        self.strangers
            .retain(|(_, known)| known.uid() != object.uid());
        if !is_gone && object.controller().is_some() {
            self.strangers.push((kind, object));
        }
    }

    /// What came before its owner did.
    fn adopt(&mut self, uid: &str) -> Vec<Step> {
        let strangers = std::mem::take(&mut self.strangers);
        let (own, others) = strangers
            .into_iter()
            .partition(|(_, object)| object.is_controlled_by(uid));
        self.strangers = others;
        let own: Vec<(usize, Object)> = own;
        own.into_iter()
            .flat_map(|(kind, object)| self.see(kind, object, false, true))
            .collect()
    }

    fn change(&self, kind: usize, old: Option<&Object>, new: Option<&Object>) -> Vec<Step> {
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
        let is_sibling = |one: &Object| one.is_controlled_by(owner_uid) && !one.is_going();
        let siblings = self
            .objects
            .values()
            .filter(|(_, one)| is_sibling(one) && one.uid() != object.uid());
        let n_siblings = siblings.count();
        Change {
            kind: &KINDS[kind].kind,
            old,
            new,
            owner,
            n_siblings,
        }
        .steps()
    }
}

/// Why an object will not be ready or complete.
fn failure(kind: &str, object: &Object) -> Option<String> {
    let status = &object["status"];
    let (failed, progress) = (
        condition(object, "Failed"),
        condition(object, "Progressing"),
    );
    let said = match kind {
        "Job" if failed["status"].str() == "True" => failed,
        "Pod" if status["phase"].str() == "Failed" => status,
        "Deployment" if progress["reason"].str() == "ProgressDeadlineExceeded" => progress,
        _ => return None,
    };
    let why = [said["reason"].str(), said["message"].str()]
        .into_iter()
        .filter(|text| !text.is_empty());
    let why: Vec<&str> = std::iter::once("failed").chain(why).collect();
    Some(format!("{} {}", named(kind, object), why.join(": ")))
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

    fn known() -> Known {
        Known::new(DEPLOYMENT, Key::new("a", "web"))
    }

    const WEB: &str = "{metadata: {name: web, namespace: a, uid: d}, spec: {replicas: 1}}";
    const SET: &str = "{metadata: {name: s, namespace: a, uid: s, ownerReferences: [{uid: d, controller: true}]}, spec: {replicas: 1}}";
    const ITS_POD: &str = "{metadata: {name: p, namespace: a, uid: p, ownerReferences: [{uid: s, controller: true}]}}";

    fn said(steps: Vec<Step>) -> Vec<String> {
        steps
            .iter()
            .map(|step| format!("{} {}", step.object, step.what))
            .collect()
    }

    #[test]
    fn what_belongs_to_the_object_is_told_and_nothing_else() {
        let mut known = known();
        assert_eq!(
            said(known.see(DEPLOYMENT, object(WEB), false, false)),
            ["deployment/web created, wants 1 pod"]
        );
        assert_eq!(
            said(known.see(REPLICA_SET, object(SET), false, false)),
            ["replicaset/s created, wants 1 pod"]
        );
        assert_eq!(
            said(known.see(POD, object(ITS_POD), false, false)),
            ["pod/p created"]
        );
        assert!(
            known
                .see(
                    POD,
                    object("{metadata: {name: q, uid: q, namespace: a}}"),
                    false,
                    false
                )
                .is_empty()
        );
        assert_eq!(
            said(known.see(POD, object(ITS_POD), true, false)),
            ["pod/p gone"]
        );
    }

    #[test]
    fn what_comes_before_its_owner_is_told_after_it() {
        let mut known = known();
        assert!(known.see(POD, object(ITS_POD), false, true).is_empty());
        assert!(known.see(REPLICA_SET, object(SET), false, true).is_empty());
        let all = said(known.see(DEPLOYMENT, object(WEB), false, true));
        assert_eq!(
            all,
            [
                "deployment/web is there",
                "replicaset/s is there",
                "pod/p is there"
            ]
        );
    }

    #[test]
    fn a_deployment_is_ready_when_all_its_pods_are_and_new() {
        let mut known = known();
        let check = |known: &mut Known, status: &str, ready: bool| {
            let text = format!(
                "{{metadata: {{name: web, namespace: a, uid: d, generation: 2}}, spec: {{replicas: 2}}, status: {{{status}}}}}"
            );
            known.see(DEPLOYMENT, object(&text), false, false);
            assert_eq!(known.outcome().is_some(), ready, "{status}");
        };
        check(
            &mut known,
            "observedGeneration: 1, readyReplicas: 2, updatedReplicas: 2",
            false,
        );
        check(
            &mut known,
            "observedGeneration: 2, readyReplicas: 1, updatedReplicas: 2",
            false,
        );
        check(
            &mut known,
            "observedGeneration: 2, readyReplicas: 2, updatedReplicas: 1",
            false,
        );
        check(
            &mut known,
            "observedGeneration: 2, readyReplicas: 2, updatedReplicas: 2",
            true,
        );
    }

    #[test]
    fn what_can_never_be_ready_is_told() {
        let check = |kind: usize, text: &str, expected: Option<Outcome>| {
            let mut known = Known::new(kind, Key::new("a", "web"));
            known.see(
                kind,
                object(&format!(
                    "{{metadata: {{name: web, namespace: a, uid: d}}, {text}}}"
                )),
                false,
                false,
            );
            assert_eq!(known.outcome(), expected, "{text}");
        };
        let never = |why: &str| Some(Outcome::Never(why.into()));
        let failed = "status: {conditions: [{type: Failed, status: 'True', reason: BackoffLimitExceeded, message: too often}]}";
        check(
            JOB,
            failed,
            never("job/web failed: BackoffLimitExceeded: too often"),
        );
        check(
            JOB,
            "status: {conditions: [{type: Complete, status: 'True'}]}",
            Some(Outcome::Ready),
        );
        check(
            POD,
            "status: {phase: Failed, reason: InvalidSimulation, message: nope}",
            never("pod/web failed: InvalidSimulation: nope"),
        );
        check(POD, "status: {phase: Succeeded}", Some(Outcome::Ready));
        check(POD, "status: {phase: Pending}", None);
        let late = "status: {conditions: [{type: Progressing, status: 'False', reason: ProgressDeadlineExceeded, message: late}]}";
        check(
            DEPLOYMENT,
            late,
            never("deployment/web failed: ProgressDeadlineExceeded: late"),
        );
    }

    #[test]
    fn who_waits_for_what_went_waits_in_vain() {
        let mut known = known();
        assert_eq!(known.outcome(), None);
        known.see(DEPLOYMENT, object(WEB), false, false);
        assert_eq!(known.outcome(), None);
        known.see(DEPLOYMENT, object(WEB), true, false);
        assert_eq!(known.outcome(), Some(Outcome::Never("it is gone".into())));
    }

    #[test]
    fn warnings_are_told_after_what_they_are_about() {
        let mut known = known();
        let event = object(
            "{type: Warning, reason: FailedCreate, message: nope, involvedObject: {kind: Deployment, name: web, uid: d}}",
        );
        assert_eq!(known.hear(&event), None);
        let told = said(known.see(DEPLOYMENT, object(WEB), false, false));
        assert_eq!(
            told,
            [
                "deployment/web created, wants 1 pod",
                "deployment/web warning FailedCreate: nope"
            ]
        );
    }
}
