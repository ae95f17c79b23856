//! What belongs to the traced object: it, what it controls, and what that controls in turn.

use std::collections::HashMap;

use mizzen_sdk::{Key, Object};

use super::KINDS;
use super::step::{Change, Step, named};

/// All objects that belong to the traced one.
pub struct Known {
    root_kind: usize,
    root: Key,
    objects: HashMap<String, (usize, Object)>,
    /// Objects whose owner has not been seen yet.
    strangers: Vec<(usize, Object)>,
}

impl Known {
    /// Nothing is known of `root` yet.
    pub fn new(root_kind: usize, root: Key) -> Known {
        Known { root_kind, root, objects: HashMap::new(), strangers: Vec::new() }
    }

    /// The steps that led to an object being as it is now, or gone.
    pub fn see(&mut self, kind: usize, object: Object, is_gone: bool, initial: bool) -> Vec<Step> {
        if !self.belongs(kind, &object) {
            self.remember_stranger(kind, object, is_gone);
            return Vec::new();
        }
        let old = self.objects.remove(object.uid());
        if is_gone && old.is_none() {
            return Vec::new();
        }
        let steps = match initial {
            true => vec![there(kind, &object)],
            false => self.change(kind, old.as_ref().map(|(_, old)| old), (!is_gone).then_some(&object)),
        };
        let uid = object.uid().to_string();
        if !is_gone {
            self.objects.insert(uid.clone(), (kind, object));
        }
        let adopted = self.adopt(&uid);
        steps.into_iter().chain(adopted).collect()
    }

    /// Whether all pods of the traced object are ready, or it is complete.
    pub fn is_ready(&self) -> bool {
        let is_root =
            |(kind, object): &&(usize, Object)| *kind == self.root_kind && object.key() == self.root;
        let Some((_, root)) = self.objects.values().find(is_root) else { return false };
        let (spec, status) = (&root["spec"], &root["status"]);
        let is_current = status["observedGeneration"].int() >= root["metadata"]["generation"].int();
        let has = |name: &str| {
            let conditions = status["conditions"].list().iter();
            conditions.filter(|one| one["status"].str() == "True").any(|one| one["type"].str() == name)
        };
        match &*KINDS[self.root_kind].kind {
            "Job" => has("Complete") || has("Failed"),
            "Pod" => has("Ready") || matches!(status["phase"].str(), "Succeeded" | "Failed"),
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
        kind == self.root_kind && object.key() == self.root
            || self.objects.contains_key(object.uid())
            || object.controller().is_some_and(|owner| self.objects.contains_key(owner["uid"].str()))
    }

    fn remember_stranger(&mut self, kind: usize, object: Object, is_gone: bool) {
        self.strangers.retain(|(_, known)| known.uid() != object.uid());
        if !is_gone && object.controller().is_some() {
            self.strangers.push((kind, object));
        }
    }

    /// What came before its owner did.
    fn adopt(&mut self, uid: &str) -> Vec<Step> {
        let strangers = std::mem::take(&mut self.strangers);
        let (own, others) = strangers.into_iter().partition(|(_, object)| object.is_controlled_by(uid));
        self.strangers = others;
        let own: Vec<(usize, Object)> = own;
        own.into_iter().flat_map(|(kind, object)| self.see(kind, object, false, true)).collect()
    }

    fn change(&self, kind: usize, old: Option<&Object>, new: Option<&Object>) -> Vec<Step> {
        let Some(object) = new.or(old) else { return Vec::new() };
        let owner_uid = object.controller().map(|owner| owner["uid"].str()).unwrap_or_default();
        let owner = self.objects.get(owner_uid).map(|(kind, owner)| (&*KINDS[*kind].kind, owner));
        let is_sibling = |one: &Object| one.is_controlled_by(owner_uid) && !one.is_going();
        let siblings = self.objects.values().filter(|(_, one)| is_sibling(one) && one.uid() != object.uid());
        let n_siblings = siblings.count();
        Change { kind: &KINDS[kind].kind, old, new, owner, n_siblings }.steps()
    }
}

fn there(kind: usize, object: &Object) -> Step {
    let object = named(&KINDS[kind].kind, object);
    Step { actor: "-".into(), object, what: "is there".into(), cause: String::new() }
}

#[cfg(test)]
mod tests {
    use mizzen_object::yaml;

    use super::*;

    const DEPLOYMENT: usize = 1;
    const REPLICA_SET: usize = 2;
    const POD: usize = 7;

    fn object(text: &str) -> Object {
        Object(yaml::read(text.as_bytes()).unwrap().value)
    }

    fn known() -> Known {
        Known::new(DEPLOYMENT, Key::new("a", "web"))
    }

    const WEB: &str = "{metadata: {name: web, namespace: a, uid: d}, spec: {replicas: 1}}";
    const SET: &str = "{metadata: {name: s, namespace: a, uid: s, ownerReferences: [{uid: d, controller: true}]}, spec: {replicas: 1}}";
    const ITS_POD: &str =
        "{metadata: {name: p, namespace: a, uid: p, ownerReferences: [{uid: s, controller: true}]}}";

    fn said(steps: Vec<Step>) -> Vec<String> {
        steps.iter().map(|step| format!("{} {}", step.object, step.what)).collect()
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
        assert_eq!(said(known.see(POD, object(ITS_POD), false, false)), ["pod/p created"]);
        assert!(
            known.see(POD, object("{metadata: {name: q, uid: q, namespace: a}}"), false, false).is_empty()
        );
        assert_eq!(said(known.see(POD, object(ITS_POD), true, false)), ["pod/p gone"]);
    }

    #[test]
    fn what_comes_before_its_owner_is_told_after_it() {
        let mut known = known();
        assert!(known.see(POD, object(ITS_POD), false, true).is_empty());
        assert!(known.see(REPLICA_SET, object(SET), false, true).is_empty());
        let all = said(known.see(DEPLOYMENT, object(WEB), false, true));
        assert_eq!(all, ["deployment/web is there", "replicaset/s is there", "pod/p is there"]);
    }

    #[test]
    fn a_deployment_is_ready_when_all_its_pods_are_and_new() {
        let mut known = known();
        let check = |known: &mut Known, status: &str, ready: bool| {
            let text = format!(
                "{{metadata: {{name: web, namespace: a, uid: d, generation: 2}}, spec: {{replicas: 2}}, status: {{{status}}}}}"
            );
            known.see(DEPLOYMENT, object(&text), false, false);
            assert_eq!(known.is_ready(), ready, "{status}");
        };
        check(&mut known, "observedGeneration: 1, readyReplicas: 2, updatedReplicas: 2", false);
        check(&mut known, "observedGeneration: 2, readyReplicas: 1, updatedReplicas: 2", false);
        check(&mut known, "observedGeneration: 2, readyReplicas: 2, updatedReplicas: 1", false);
        check(&mut known, "observedGeneration: 2, readyReplicas: 2, updatedReplicas: 2", true);
    }
}
