//! Who deletes an object, and why? Nobody signs a deletion; what is known of the object and of its owner tells.

use mizzen_sdk::Object;

use super::step::{Change, condition, controller, named};

/// Who writes the reasons for which pods are made to leave (`DisruptionTarget`).
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

impl Change<'_> {
    /// Who deletes this object, and why. The first that can be known counts.
    pub(super) fn deleter(&self, object: &Object) -> (String, String) {
        let known = disruption(object)
            .or_else(|| self.orphaned(object))
            .or_else(|| self.surplus())
            .or_else(|| self.replaced(object));
        known.unwrap_or_else(|| ("somebody".into(), String::new()))
    }

    /// Its owner goes, or is gone.
    fn orphaned(&self, object: &Object) -> Option<(String, String)> {
        let owner = object.controller()?;
        let name = format!(
            "{}/{}",
            owner["kind"].str().to_lowercase(),
            owner["name"].str()
        );
        let cause = match self.owner {
            Some((_, owner)) if owner.is_going() => format!("{name} is deleted"),
            Some(_) => return None,
            None => format!("{name} is gone"),
        };
        Some(("garbage-collector".into(), cause))
    }

    /// Its owner has more than it wants.
    fn surplus(&self) -> Option<(String, String)> {
        let (kind, owner) = self.owner?;
        let wanted = owner["spec"]["replicas"]
            .as_int()
            .filter(|_| self.kind == "Pod")?;
        let is_surplus = self.n_siblings as i64 >= wanted;
        is_surplus.then(|| {
            (
                controller(kind),
                format!("{} wants {wanted}", named(kind, owner)),
            )
        })
    }

    /// Its owner has something new instead, or no use for it any more.
    fn replaced(&self, object: &Object) -> Option<(String, String)> {
        let (kind, owner) = self.owner?;
        let name = named(kind, owner);
        let revision = object["metadata"]["labels"]["controller-revision-hash"].str();
        let updated = owner["status"]["updateRevision"].str();
        let cause = match kind {
            "StatefulSet" if !updated.is_empty() && revision != updated => {
                format!("{name} is rolled out")
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
                [_, _, met] if met["status"].str() == "True" => format!("{name} has what it wants"),
                _ => return None,
            },
            "Deployment" if object["spec"]["replicas"].int() == 0 => {
                format!("{name} keeps only so many old sets")
            }
            "CronJob" if !object["status"]["conditions"].is_empty() => {
                format!("{name} keeps only so many jobs that are over")
            }
            _ => return None,
        };
        Some((controller(kind), cause))
    }
}

fn disruption(object: &Object) -> Option<(String, String)> {
    let said = condition(object, "DisruptionTarget");
    if said["status"].str() != "True" {
        return None;
    }
    let reason = said["reason"].str();
    let evictor = EVICTORS
        .iter()
        .find(|(known, _)| *known == reason)
        .map(|(_, actor)| actor.to_string());
    let by_kubelet = || format!("kubelet {}", object["spec"]["nodeName"].str());
    let actor = evictor.unwrap_or_else(|| match reason {
        "TerminationByKubelet" => by_kubelet(),
        _ => "somebody".into(),
    });
    Some((actor, said["message"].str().into()))
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
        let change = Change {
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
    fn whoever_makes_pods_leave_says_so_in_a_condition() {
        for (reason, actor) in [
            ("EvictionByEvictionAPI", "eviction"),
            ("DeletionByTaintManager", "taint-eviction-controller"),
            ("PreemptionByScheduler", "scheduler"),
            ("TerminationByKubelet", "kubelet n1"),
            ("Boredom", "somebody"),
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
    fn what_has_lost_its_owner_is_collected() {
        let pod = format!("{{{OWNED}}}");
        check(
            "Pod",
            &pod,
            None,
            0,
            ("garbage-collector", "replicaset/web-1 is gone"),
        );
        let going = "{metadata: {name: web-1, deletionTimestamp: x}, spec: {replicas: 3}}";
        check(
            "Pod",
            &pod,
            Some(("ReplicaSet", going)),
            0,
            ("garbage-collector", "replicaset/web-1 is deleted"),
        );
        check("Pod", "{metadata: {name: p}}", None, 0, ("somebody", ""));
    }

    #[test]
    fn an_owner_lets_go_what_it_does_not_want() {
        let pod = format!("{{{OWNED}}}");
        let set = "{metadata: {name: web-1}, spec: {replicas: 3}}";
        check(
            "Pod",
            &pod,
            Some(("ReplicaSet", set)),
            3,
            ("replicaset-controller", "replicaset/web-1 wants 3"),
        );
        check("Pod", &pod, Some(("ReplicaSet", set)), 2, ("somebody", ""));
        let stateful =
            "{metadata: {name: db}, spec: {replicas: 3}, status: {updateRevision: db-2}}";
        check(
            "Pod",
            &pod,
            Some(("StatefulSet", stateful)),
            2,
            ("statefulset-controller", "statefulset/db is rolled out"),
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
                "deployment/web keeps only so many old sets",
            ),
        );
    }
}
