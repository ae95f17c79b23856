//! Steps: what changed between two states of an object, the actor, and the cause. Pure.

use std::time::Duration;

use mizzen_object::condition::find;
use mizzen_sdk::Object;
use mizzen_value::Value;

/// The actor of a change that cannot be derived.
pub(super) const UNKNOWN: &str = "unknown";

/// A line of the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TraceStep {
    /// The component or user.
    pub actor: String,
    /// The object: `pod/web-5d8f-x7k2p`.
    pub object: String,
    /// What changed.
    pub what: String,
    /// The cause, if it can be derived.
    pub cause: String,
}

impl TraceStep {
    /// The line of the output, with the time since the start.
    pub(super) fn line(&self, at: Duration) -> String {
        let TraceStep {
            actor,
            object,
            what,
            cause,
        } = self;
        let because = if cause.is_empty() {
            String::new()
        } else {
            format!("  because {cause}")
        };
        format!(
            "{:>8.3}s  {actor:<24} {object:<34} {what}{because}",
            at.as_secs_f64()
        )
    }
}

/// A change of an object.
pub(super) struct ObjectChange<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// The previous state; none if it is new.
    pub old: Option<&'a Object>,
    /// The new state; none if it was deleted.
    pub new: Option<&'a Object>,
    /// Its controller, in the current state.
    pub owner: Option<(&'a str, &'a Object)>,
    /// The number of other dependents of its owner.
    pub n_siblings: usize,
}

impl ObjectChange<'_> {
    /// The steps in order; none if nothing relevant changed.
    pub(super) fn steps(&self) -> Vec<TraceStep> {
        match (self.old, self.new) {
            (None, Some(new)) => {
                vec![self.step(
                    self.creator(new),
                    self.created(new),
                    self.cause_of_creation(),
                )]
            }
            (Some(old), None) => {
                let (actor, cause) = self.remover(old);
                vec![self.step(actor, "deleted".into(), cause)]
            }
            (Some(old), Some(new)) => self.changed(old, new),
            (None, None) => Vec::new(),
        }
    }

    fn changed(&self, old: &Object, new: &Object) -> Vec<TraceStep> {
        let mut steps = Vec::new();
        let mut add =
            |actor: String, what: String, cause: String| steps.push(self.step(actor, what, cause));
        if !old.is_terminating() && new.is_terminating() {
            let (actor, cause) = self.deleter(new);
            add(actor, "terminating".into(), cause);
        }
        match self.kind {
            "Pod" => self.pod_steps(old, new, &mut add),
            _ => self.owner_steps(old, new, &mut add),
        }
        steps
    }

    /// The steps of an object that has dependents.
    fn owner_steps(&self, old: &Object, new: &Object, add: &mut dyn FnMut(String, String, String)) {
        if old["spec"] != new["spec"] {
            let (actor, cause) = match self.owner {
                Some((kind, owner)) => (
                    controller(kind),
                    format!("{} rolls out", named(kind, owner)),
                ),
                None => (writer(new), String::new()),
            };
            let replicas = |object: &Object| object["spec"]["replicas"].as_int();
            let what = match (replicas(old), replicas(new)) {
                (Some(before), Some(after)) if before != after => {
                    format!("scaled from {before} to {after}")
                }
                _ if old["spec"]["template"] != new["spec"]["template"] => {
                    "template changed".into()
                }
                _ => "changed".into(),
            };
            add(actor, what, cause);
        }
        let (before, after) = (self.counts(&old["status"]), self.counts(&new["status"]));
        if before != after {
            add(controller(self.kind), after, String::new());
        }
    }

    /// The numbers of dependents in a status.
    fn counts(&self, status: &Value) -> String {
        let count = |field: &str| status[field].int();
        let (ready, all) = match self.kind {
            "Job" => {
                let (active, succeeded) = (count("active"), count("succeeded"));
                let failed = count("failed");
                return format!("{active} active, {succeeded} succeeded, {failed} failed");
            }
            "DaemonSet" => ("numberReady", "desiredNumberScheduled"),
            _ => ("readyReplicas", "replicas"),
        };
        format!("{} of {} ready", count(ready), count(all))
    }

    /// The steps of a pod: scheduling, and its state.
    fn pod_steps(&self, old: &Object, new: &Object, add: &mut dyn FnMut(String, String, String)) {
        let node = new["spec"]["nodeName"].str();
        if old["spec"]["nodeName"].str().is_empty() && !node.is_empty() {
            let cause = "it had no node".into();
            add("scheduler".into(), format!("bound to {node}"), cause);
        }
        let message = unschedulable_message(new);
        if message != unschedulable_message(old) && !message.is_empty() {
            add("scheduler".into(), "unschedulable".into(), message.into());
        }
        let (before, after) = (pod_state(old), pod_state(new));
        if before != after && !node.is_empty() && !after.is_empty() {
            add(format!("kubelet {node}"), after, String::new());
        }
    }

    fn step(&self, actor: String, what: String, cause: String) -> TraceStep {
        let object = self
            .new
            .or(self.old)
            .map(|object| named(self.kind, object))
            .unwrap_or_default();
        TraceStep {
            actor,
            object,
            what,
            cause,
        }
    }

    fn creator(&self, new: &Object) -> String {
        self.owner
            .map_or_else(|| writer(new), |(kind, _)| controller(kind))
    }

    fn created(&self, new: &Object) -> String {
        match (self.kind, new["spec"]["replicas"].as_int()) {
            ("Pod", _) | (_, None) => "created".into(),
            (_, Some(n)) => format!("created, replicas {n}"),
        }
    }

    fn cause_of_creation(&self) -> String {
        let Some((kind, owner)) = self.owner else {
            return String::new();
        };
        let name = named(kind, owner);
        match (self.kind, owner["spec"]["replicas"].as_int()) {
            ("Pod", Some(wanted)) => format!("{name} has {} of {wanted} replicas", self.n_siblings),
            ("ReplicaSet", _) => format!("{name} has a new template"),
            _ => format!("{name} requires it"),
        }
    }

    /// The actor of the final deletion: the kubelet of a pod, or the deleter.
    fn remover(&self, old: &Object) -> (String, String) {
        match (self.kind, old["spec"]["nodeName"].str()) {
            ("Pod", node) if !node.is_empty() => (format!("kubelet {node}"), String::new()),
            _ => self.deleter(old),
        }
    }
}

/// The step of an object that existed before the trace.
pub(super) fn existing(kind: &str, object: &Object) -> TraceStep {
    let (mut what, mut cause) = ("exists".to_string(), String::new());
    if kind == "Pod" {
        let message = unschedulable_message(object);
        match (pod_state(object), message.is_empty()) {
            (_, false) => (what, cause) = ("exists, unschedulable".into(), message.into()),
            (state, true) if !state.is_empty() => what = format!("exists, {state}"),
            _ => {}
        }
    }
    TraceStep {
        actor: "-".into(),
        object: named(kind, object),
        what,
        cause,
    }
}

/// The message of the scheduler for a pod without a node.
fn unschedulable_message(pod: &Object) -> &str {
    match pod["spec"]["nodeName"].is_empty() {
        true => condition(pod, "PodScheduled")["message"].str(),
        false => "",
    }
}

/// The state of a pod for a line.
fn pod_state(pod: &Object) -> String {
    let status = &pod["status"];
    let mut reasons = status["containerStatuses"]
        .list()
        .iter()
        .map(|one| one["state"]["waiting"]["reason"].str());
    let waiting = reasons.find(|reason| !reason.is_empty());
    let is_ready = condition(pod, "Ready")["status"].str() == "True";
    match (status["phase"].str(), waiting) {
        ("Running", Some(reason)) => format!("running, container waiting: {reason}"),
        ("Running", None) if is_ready => "running and ready".into(),
        ("Running", None) => "running, not ready".into(),
        ("Succeeded", _) => "succeeded".into(),
        ("Failed", _) => format!("failed {}", status["reason"].str())
            .trim_end()
            .into(),
        (_, Some(reason)) => format!("starting: {reason}"),
        _ => String::new(),
    }
}

/// A condition of an object; null if it is missing.
pub(super) fn condition<'a>(object: &'a Object, name: &str) -> &'a Value {
    static NONE: Value = Value::Null;
    find(&object["status"]["conditions"], name).unwrap_or(&NONE)
}

/// An object as kubectl names it.
pub(super) fn named(kind: &str, object: &Object) -> String {
    format!("{}/{}", kind.to_lowercase(), object.name())
}

/// The controller of a kind.
pub(super) fn controller(kind: &str) -> String {
    format!("{}-controller", kind.to_lowercase())
}

/// The field manager that wrote the spec last.
fn writer(object: &Object) -> String {
    let fields = object["metadata"]["managedFields"].list();
    let spec = fields.iter().filter(|one| one["subresource"].is_null());
    let latest = spec.max_by_key(|one| one["time"].str().to_string());
    match latest.map(|one| one["manager"].str()) {
        Some(manager) if !manager.is_empty() => manager.split('-').next().unwrap_or(manager).into(),
        _ => UNKNOWN.into(),
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
        old: &str,
        new: &str,
        owner: Option<(&str, &str)>,
        n_siblings: usize,
        expected: &[&str],
    ) {
        let read = |text: &str| (!text.is_empty()).then(|| object(text));
        let (old, new) = (read(old), read(new));
        let owner = owner.map(|(kind, text)| (kind, object(text)));
        let owner = owner.as_ref().map(|(kind, owner)| (*kind, owner));
        let steps = ObjectChange {
            kind,
            old: old.as_ref(),
            new: new.as_ref(),
            owner,
            n_siblings,
        }
        .steps();
        let lines: Vec<String> = steps
            .iter()
            .map(|step| {
                format!(
                    "{}: {} {}; {}",
                    step.actor, step.object, step.what, step.cause
                )
            })
            .collect();
        assert_eq!(lines, expected);
    }

    const SET: (&str, &str) = (
        "ReplicaSet",
        "{metadata: {name: web-1}, spec: {replicas: 3}}",
    );

    #[test]
    fn the_creator_is_the_field_manager() {
        let new = "{metadata: {name: web, managedFields: [{manager: kubectl-client-side-apply, time: a}]}, spec: {replicas: 3}}";
        check(
            "Deployment",
            "",
            new,
            None,
            0,
            &["kubectl: deployment/web created, replicas 3; "],
        );
    }

    #[test]
    fn a_replica_set_is_created_for_a_template_and_a_pod_for_a_replica() {
        let deployment = Some(("Deployment", "{metadata: {name: web}, spec: {replicas: 3}}"));
        check(
            "ReplicaSet",
            "",
            "{metadata: {name: web-1}, spec: {replicas: 3}}",
            deployment,
            0,
            &[
                "deployment-controller: replicaset/web-1 created, replicas 3; deployment/web has a new template",
            ],
        );
        check(
            "Pod",
            "",
            "{metadata: {name: web-1-a}}",
            Some(SET),
            2,
            &["replicaset-controller: pod/web-1-a created; replicaset/web-1 has 2 of 3 replicas"],
        );
    }

    #[test]
    fn a_pod_is_bound_started_and_ready() {
        let pod = |rest: &str| format!("{{metadata: {{name: p}}, {rest}}}");
        let bound = pod("spec: {nodeName: n1}, status: {phase: Pending}");
        let starting = pod(
            "spec: {nodeName: n1}, status: {phase: Pending, containerStatuses: [{state: {waiting: {reason: ContainerCreating}}}]}",
        );
        let ready = pod(
            "spec: {nodeName: n1}, status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}",
        );
        check(
            "Pod",
            &pod("spec: {}"),
            &bound,
            None,
            0,
            &["scheduler: pod/p bound to n1; it had no node"],
        );
        check(
            "Pod",
            &bound,
            &starting,
            None,
            0,
            &["kubelet n1: pod/p starting: ContainerCreating; "],
        );
        check(
            "Pod",
            &starting,
            &ready,
            None,
            0,
            &["kubelet n1: pod/p running and ready; "],
        );
        check("Pod", &ready, "", None, 0, &["kubelet n1: pod/p deleted; "]);
    }

    #[test]
    fn an_unschedulable_pod_is_reported_once() {
        let waits = "{metadata: {name: p}, status: {conditions: [{type: PodScheduled, status: 'False', message: no room}]}}";
        check(
            "Pod",
            "{metadata: {name: p}}",
            waits,
            None,
            0,
            &["scheduler: pod/p unschedulable; no room"],
        );
        check("Pod", waits, waits, None, 0, &[]);
    }

    #[test]
    fn a_pod_terminates_and_one_without_a_node_is_deleted_at_once() {
        let (there, going) = (
            "{metadata: {name: p}}",
            "{metadata: {name: p, deletionTimestamp: x}}",
        );
        let cause = "replicaset-controller: pod/p terminating; replicaset/web-1 has 3 replicas";
        check("Pod", there, going, Some(SET), 3, &[cause]);
        check(
            "Pod",
            there,
            "",
            Some(SET),
            3,
            &["replicaset-controller: pod/p deleted; replicaset/web-1 has 3 replicas"],
        );
    }

    #[test]
    fn an_existing_pod_has_its_state() {
        let check = |text: &str, what: &str, cause: &str| {
            let step = super::existing("Pod", &object(text));
            assert_eq!(
                (step.what.as_str(), step.cause.as_str()),
                (what, cause),
                "{text}"
            );
        };
        check(
            "{metadata: {name: p}, status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', message: no room}]}}",
            "exists, unschedulable",
            "no room",
        );
        check(
            "{metadata: {name: p}, spec: {nodeName: n}, status: {phase: Succeeded}}",
            "exists, succeeded",
            "",
        );
        check("{metadata: {name: p}}", "exists", "");
    }

    #[test]
    fn an_owner_is_scaled_and_counts_its_pods() {
        check(
            "ReplicaSet",
            "{metadata: {name: web-1}, spec: {replicas: 0}}",
            "{metadata: {name: web-1}, spec: {replicas: 1}, status: {replicas: 1, readyReplicas: 1}}",
            Some(("Deployment", "{metadata: {name: web}}")),
            0,
            &[
                "deployment-controller: replicaset/web-1 scaled from 0 to 1; deployment/web rolls out",
                "replicaset-controller: replicaset/web-1 1 of 1 ready; ",
            ],
        );
    }
}
