//! The actor and the cause of a deletion, derived from the object and its owner: the API does not record them.

use mizzen_sdk::Object;

use super::step::{ObjectChange, UNKNOWN, condition, controller, named};

/// The actors of the reasons of `DisruptionTarget`.
const EVICTORS: [(&str, &str); 5] = [
    ("EvictionByEvictionAPI", "eviction"),
    ("DeletionByTaintManager", "taint-eviction-controller"),
    (
        "DeletionByDeviceTaintManager",
        "device-taint-eviction-controller",
    ),
    ("PreemptionByScheduler", "scheduler"),
    ("DeletionByPodGC", "pod-garbage-collector"),
];

impl ObjectChange<'_> {
    /// The actor and the cause: the first rule that applies.
    pub(super) fn deleter(&self, object: &Object) -> (String, String) {
        let found = self
            .disrupted(object)
            .or_else(|| self.orphaned(object))
            .or_else(|| self.surplus())
            .or_else(|| self.replaced(object));
        found.unwrap_or_else(|| (UNKNOWN.into(), String::new()))
    }

    /// It has the condition `DisruptionTarget`.
    fn disrupted(&self, object: &Object) -> Option<(String, String)> {
        let condition = condition(object, "DisruptionTarget");
        if condition["status"].str() != "True" {
            return None;
        }
        let reason = condition["reason"].str();
        let evictor = EVICTORS.iter().find(|(known, _)| *known == reason);
        let actor = match (evictor, reason) {
            (Some((_, actor)), _) => (*actor).into(),
            (None, "TerminationByKubelet") => {
                format!("kubelet {}", object["spec"]["nodeName"].str())
            }
            _ => UNKNOWN.into(),
        };
        Some((actor, condition["message"].str().into()))
    }

    /// Its owner is terminating, or deleted.
    fn orphaned(&self, object: &Object) -> Option<(String, String)> {
        let owner = object.controller()?;
        let name = format!(
            "{}/{}",
            owner["kind"].str().to_lowercase(),
            owner["name"].str()
        );
        let cause = match self.owner {
            Some((_, owner)) if owner.is_terminating() => format!("{name} is terminating"),
            Some(_) => return None,
            None => format!("{name} was deleted"),
        };
        Some(("garbage-collector".into(), cause))
    }

    /// Its owner has more replicas than desired.
    fn surplus(&self) -> Option<(String, String)> {
        let (kind, owner) = self.owner?;
        let wanted = owner["spec"]["replicas"]
            .as_int()
            .filter(|_| self.kind == "Pod")?;
        let is_surplus = self.n_siblings as i64 >= wanted;
        is_surplus.then(|| {
            (
                controller(kind),
                format!("{} has {wanted} replicas", named(kind, owner)),
            )
        })
    }

    /// Its owner replaces it, or does not need it any more.
    fn replaced(&self, object: &Object) -> Option<(String, String)> {
        let (kind, owner) = self.owner?;
        let name = named(kind, owner);
        let revision = object["metadata"]["labels"]["controller-revision-hash"].str();
        let updated = owner["status"]["updateRevision"].str();
        let cause = match kind {
            "StatefulSet" if !updated.is_empty() && revision != updated => {
                format!("{name} rolls out")
            }
            "Job" if owner["spec"]["suspend"].bool() => format!("{name} is suspended"),
            "Job" => match ["FailureTarget", "Failed", "SuccessCriteriaMet"]
                .map(|one| condition(owner, one))
            {
                [failing, failed, _]
                    if failing["status"].str() == "True" || failed["status"].str() == "True" =>
                {
                    format!("{name} failed")
                }
                [_, _, met] if met["status"].str() == "True" => {
                    format!("{name} met its success criteria")
                }
                _ => return None,
            },
            "Deployment" if object["spec"]["replicas"].int() == 0 => {
                format!("{name} exceeds its revision history limit")
            }
            "CronJob" if !object["status"]["conditions"].is_empty() => {
                format!("{name} exceeds its job history limit")
            }
            _ => return None,
        };
        Some((controller(kind), cause))
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::yaml;

    use super::*;

    fn object(text: &str) -> Object {
        Object(yaml::read(text.as_bytes()).unwrap().value)
    }

    #[track_caller]
    fn check(
        kind: &str,
        text: &str,
        owner: Option<(&str, &str)>,
        n_siblings: usize,
        expected: (&str, &str),
    ) {
        let old = object(text);
        let owner = owner.map(|(kind, text)| (kind, object(text)));
        let owner = owner.as_ref().map(|(kind, owner)| (*kind, owner));
        let change = ObjectChange {
            kind,
            old: Some(&old),
            new: None,
            owner,
            n_siblings,
        };
        let (actor, cause) = change.deleter(&old);
        assert_eq!((actor.as_str(), cause.as_str()), expected, "{text}");
    }

    const OWNED: &str = "metadata: {name: p, ownerReferences: [{kind: ReplicaSet, name: web-1, uid: s, controller: true}]}";

    #[test]
    fn a_disruption_target_names_its_actor() {
        for (reason, actor) in [
            ("EvictionByEvictionAPI", "eviction"),
            ("DeletionByTaintManager", "taint-eviction-controller"),
            ("PreemptionByScheduler", "scheduler"),
            ("TerminationByKubelet", "kubelet n1"),
            ("Boredom", "unknown"),
        ] {
            let conditions = format!(
                "[{{type: DisruptionTarget, status: 'True', reason: {reason}, message: why}}]"
            );
            let pod = format!(
                "{{{OWNED}, spec: {{nodeName: n1}}, status: {{conditions: {conditions}}}}}"
            );
            check(
                "Pod",
                &pod,
                Some((
                    "ReplicaSet",
                    "{metadata: {name: web-1}, spec: {replicas: 3}}",
                )),
                3,
                (actor, "why"),
            );
        }
    }

    #[test]
    fn objects_without_an_owner_are_garbage_collected() {
        let pod = format!("{{{OWNED}}}");
        check(
            "Pod",
            &pod,
            None,
            0,
            ("garbage-collector", "replicaset/web-1 was deleted"),
        );
        let going = "{metadata: {name: web-1, deletionTimestamp: x}, spec: {replicas: 3}}";
        check(
            "Pod",
            &pod,
            Some(("ReplicaSet", going)),
            0,
            ("garbage-collector", "replicaset/web-1 is terminating"),
        );
        check("Pod", "{metadata: {name: p}}", None, 0, ("unknown", ""));
    }

    #[test]
    fn an_owner_deletes_what_it_does_not_need() {
        let pod = format!("{{{OWNED}}}");
        let set = "{metadata: {name: web-1}, spec: {replicas: 3}}";
        check(
            "Pod",
            &pod,
            Some(("ReplicaSet", set)),
            3,
            ("replicaset-controller", "replicaset/web-1 has 3 replicas"),
        );
        check("Pod", &pod, Some(("ReplicaSet", set)), 2, ("unknown", ""));
        let stateful =
            "{metadata: {name: db}, spec: {replicas: 3}, status: {updateRevision: db-2}}";
        check(
            "Pod",
            &pod,
            Some(("StatefulSet", stateful)),
            2,
            ("statefulset-controller", "statefulset/db rolls out"),
        );
        let job =
            "{metadata: {name: j}, status: {conditions: [{type: FailureTarget, status: 'True'}]}}";
        check(
            "Pod",
            &pod,
            Some(("Job", job)),
            0,
            ("job-controller", "job/j failed"),
        );
        let suspended = "{metadata: {name: j}, spec: {suspend: true}}";
        check(
            "Pod",
            &pod,
            Some(("Job", suspended)),
            0,
            ("job-controller", "job/j is suspended"),
        );
        let deployment = ("Deployment", "{metadata: {name: web}, spec: {replicas: 3}}");
        let old_set = format!("{{{OWNED}, spec: {{replicas: 0}}}}");
        check(
            "ReplicaSet",
            &old_set,
            Some(deployment),
            9,
            (
                "deployment-controller",
                "deployment/web exceeds its revision history limit",
            ),
        );
    }
}
