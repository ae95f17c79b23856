//! What happened between two states of an object, who did it, and why. Pure: from objects to sentences.

use mizzen_object::condition::find;
use mizzen_sdk::Object;
use mizzen_value::Value;

/// Something that one of the loops, or somebody else, did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// Who did it.
    pub actor: String,
    /// To which object: `pod/web-5d8f-x7k2p`.
    pub object: String,
    /// What.
    pub what: String,
    /// Why, if that can be told.
    pub cause: String,
}

/// What is seen of an object.
pub(super) struct Change<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// As it was; none if it is new.
    pub old: Option<&'a Object>,
    /// As it is; none if it is gone.
    pub new: Option<&'a Object>,
    /// The one that controls it, as it is known now.
    pub owner: Option<(&'a str, &'a Object)>,
    /// How many others its owner had when this happened.
    pub n_siblings: usize,
}

impl Change<'_> {
    /// The steps, in the order in which they happened. None if nothing that matters did.
    pub(super) fn steps(&self) -> Vec<Step> {
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
                vec![self.step(actor, "gone".into(), cause)]
            }
            (Some(old), Some(new)) => self.changed(old, new),
            (None, None) => Vec::new(),
        }
    }

    fn changed(&self, old: &Object, new: &Object) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut add =
            |actor: String, what: String, cause: String| steps.push(self.step(actor, what, cause));
        if !old.is_going() && new.is_going() {
            let (actor, cause) = self.deleter(new);
            add(actor, "told to go".into(), cause);
        }
        match self.kind {
            "Pod" => pod_steps(old, new, &mut add),
            _ => self.owner_steps(old, new, &mut add),
        }
        steps
    }

    /// What becomes of an object that has others of its own.
    fn owner_steps(&self, old: &Object, new: &Object, add: &mut dyn FnMut(String, String, String)) {
        if old["spec"] != new["spec"] {
            let (actor, cause) = match self.owner {
                Some((kind, owner)) => (
                    controller(kind),
                    format!("{} is rolled out", named(kind, owner)),
                ),
                None => (writer(new), String::new()),
            };
            add(actor, spec_change(old, new), cause);
        }
        if let Some(what) = status_change(self.kind, &old["status"], &new["status"]) {
            add(controller(self.kind), what, String::new());
        }
    }

    fn step(&self, actor: String, what: String, cause: String) -> Step {
        let object = self
            .new
            .or(self.old)
            .map(|object| named(self.kind, object))
            .unwrap_or_default();
        Step {
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
            (_, Some(n)) => format!("created, wants {}", pods(n)),
        }
    }

    fn cause_of_creation(&self) -> String {
        let Some((kind, owner)) = self.owner else {
            return String::new();
        };
        let name = named(kind, owner);
        match (self.kind, owner["spec"]["replicas"].as_int()) {
            ("Pod", Some(wanted)) => format!("{name} wants {wanted} and has {}", self.n_siblings),
            ("ReplicaSet", _) => format!("{name} has a template that no other set has"),
            _ => format!("{name} needs it"),
        }
    }

    /// Who lets an object go: a pod's kubelet, whoever took its finalizers, or the one who deletes it at once.
    fn remover(&self, old: &Object) -> (String, String) {
        match (self.kind, old["spec"]["nodeName"].str()) {
            ("Pod", node) if !node.is_empty() => (format!("kubelet {node}"), String::new()),
            _ => self.deleter(old),
        }
    }
}

/// An object that was there before somebody looked.
pub(super) fn there(kind: &str, object: &Object) -> Step {
    let (mut what, mut cause) = ("is there".to_string(), String::new());
    if kind == "Pod" {
        let refusal = refusal(object);
        match (pod_state(object), refusal.is_empty()) {
            (_, false) => (what, cause) = ("is there, not placed".into(), refusal.into()),
            (state, true) if !state.is_empty() => what = format!("is there, {state}"),
            _ => {}
        }
    }
    Step {
        actor: "-".into(),
        object: named(kind, object),
        what,
        cause,
    }
}

/// Why a pod has no node.
fn refusal(pod: &Object) -> &str {
    match pod["spec"]["nodeName"].is_empty() {
        true => condition(pod, "PodScheduled")["message"].str(),
        false => "",
    }
}

/// From no node to ready, and back.
fn pod_steps(old: &Object, new: &Object, add: &mut dyn FnMut(String, String, String)) {
    let node = new["spec"]["nodeName"].str();
    if old["spec"]["nodeName"].str().is_empty() && !node.is_empty() {
        add(
            "scheduler".into(),
            format!("bound to {node}"),
            "it had no node".into(),
        );
    }
    if refusal(new) != refusal(old) && !refusal(new).is_empty() {
        add("scheduler".into(), "not placed".into(), refusal(new).into());
    }
    let (before, after) = (pod_state(old), pod_state(new));
    if before != after && !node.is_empty() && !after.is_empty() {
        add(format!("kubelet {node}"), after, String::new());
    }
}

/// A pod's state as one would say it.
fn pod_state(pod: &Object) -> String {
    let status = &pod["status"];
    let mut reasons = status["containerStatuses"]
        .list()
        .iter()
        .map(|one| one["state"]["waiting"]["reason"].str());
    let waiting = reasons.find(|reason| !reason.is_empty());
    let is_ready = condition(pod, "Ready")["status"].str() == "True";
    match (status["phase"].str(), waiting) {
        ("Running", Some(reason)) => format!("running, a container waits: {reason}"),
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

/// One condition of an object; null if there is none.
pub(super) fn condition<'a>(object: &'a Object, name: &str) -> &'a Value {
    static NONE: Value = Value::Null;
    find(&object["status"]["conditions"], name).unwrap_or(&NONE)
}

fn spec_change(old: &Object, new: &Object) -> String {
    let replicas = |object: &Object| object["spec"]["replicas"].as_int();
    let template = old["spec"]["template"] != new["spec"]["template"];
    match (replicas(old), replicas(new)) {
        (Some(before), Some(after)) if before != after => {
            format!("scaled from {before} to {after}")
        }
        _ if template => "got a new template".into(),
        _ => "changed".into(),
    }
}

/// What an owner's status says that it did not say before.
fn status_change(kind: &str, old: &Value, new: &Value) -> Option<String> {
    let counts = |status: &Value| match kind {
        "Job" => format!(
            "{} active, {} succeeded, {} failed",
            count(status, "active"),
            count(status, "succeeded"),
            count(status, "failed")
        ),
        "DaemonSet" => {
            format!(
                "{} ready of {}",
                count(status, "numberReady"),
                count(status, "desiredNumberScheduled")
            )
        }
        _ => format!(
            "{} ready of {}",
            count(status, "readyReplicas"),
            count(status, "replicas")
        ),
    };
    let (before, after) = (counts(old), counts(new));
    (before != after).then(|| format!("counts {after}"))
}

fn count(status: &Value, field: &str) -> i64 {
    status[field].int()
}

fn pods(n: i64) -> String {
    if n == 1 {
        "1 pod".into()
    } else {
        format!("{n} pods")
    }
}

/// An object as kubectl names it.
pub(super) fn named(kind: &str, object: &Object) -> String {
    format!("{}/{}", kind.to_lowercase(), object.name())
}

/// The loop that looks after a kind.
pub(super) fn controller(kind: &str) -> String {
    format!("{}-controller", kind.to_lowercase())
}

/// Who wrote an object's specification last, as far as its fields' owners tell.
fn writer(object: &Object) -> String {
    let fields = object["metadata"]["managedFields"].list();
    let spec = fields.iter().filter(|one| one["subresource"].is_null());
    let latest = spec.max_by_key(|one| one["time"].str().to_string());
    match latest.map(|one| one["manager"].str()) {
        Some(manager) if !manager.is_empty() => manager.split('-').next().unwrap_or(manager).into(),
        _ => "somebody".into(),
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
        let steps = Change {
            kind,
            old: old.as_ref(),
            new: new.as_ref(),
            owner,
            n_siblings,
        }
        .steps();
        let said: Vec<String> = steps
            .iter()
            .map(|step| {
                format!(
                    "{}: {} {}; {}",
                    step.actor, step.object, step.what, step.cause
                )
            })
            .collect();
        assert_eq!(said, expected);
    }

    const SET: (&str, &str) = (
        "ReplicaSet",
        "{metadata: {name: web-1}, spec: {replicas: 3}}",
    );

    #[test]
    fn who_made_the_first_object_is_told_by_its_fields() {
        let new = "{metadata: {name: web, managedFields: [{manager: kubectl-client-side-apply, time: a}]}, spec: {replicas: 3}}";
        check(
            "Deployment",
            "",
            new,
            None,
            0,
            &["kubectl: deployment/web created, wants 3 pods; "],
        );
    }

    #[test]
    fn a_set_is_made_for_a_template_and_a_pod_for_a_number() {
        let deployment = Some(("Deployment", "{metadata: {name: web}, spec: {replicas: 3}}"));
        check(
            "ReplicaSet",
            "",
            "{metadata: {name: web-1}, spec: {replicas: 3}}",
            deployment,
            0,
            &[
                "deployment-controller: replicaset/web-1 created, wants 3 pods; deployment/web has a template that no other set has",
            ],
        );
        check(
            "Pod",
            "",
            "{metadata: {name: web-1-a}}",
            Some(SET),
            2,
            &["replicaset-controller: pod/web-1-a created; replicaset/web-1 wants 3 and has 2"],
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
        check("Pod", &ready, "", None, 0, &["kubelet n1: pod/p gone; "]);
    }

    #[test]
    fn a_refusal_of_the_scheduler_is_told_once() {
        let waits = "{metadata: {name: p}, status: {conditions: [{type: PodScheduled, status: 'False', message: no room}]}}";
        check(
            "Pod",
            "{metadata: {name: p}}",
            waits,
            None,
            0,
            &["scheduler: pod/p not placed; no room"],
        );
        check("Pod", waits, waits, None, 0, &[]);
    }

    #[test]
    fn a_pod_is_told_to_go_and_one_without_a_node_is_gone_at_once() {
        let (there, going) = (
            "{metadata: {name: p}}",
            "{metadata: {name: p, deletionTimestamp: x}}",
        );
        let cause = "replicaset-controller: pod/p told to go; replicaset/web-1 wants 3";
        check("Pod", there, going, Some(SET), 3, &[cause]);
        check(
            "Pod",
            there,
            "",
            Some(SET),
            3,
            &["replicaset-controller: pod/p gone; replicaset/web-1 wants 3"],
        );
    }

    #[test]
    fn what_was_there_before_says_how_it_is() {
        let check = |text: &str, what: &str, cause: &str| {
            let step = super::there("Pod", &object(text));
            assert_eq!(
                (step.what.as_str(), step.cause.as_str()),
                (what, cause),
                "{text}"
            );
        };
        check(
            "{metadata: {name: p}, status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', message: no room}]}}",
            "is there, not placed",
            "no room",
        );
        check(
            "{metadata: {name: p}, spec: {nodeName: n}, status: {phase: Succeeded}}",
            "is there, succeeded",
            "",
        );
        check("{metadata: {name: p}}", "is there", "");
    }

    #[test]
    fn an_owner_is_scaled_and_counts() {
        check(
            "ReplicaSet",
            "{metadata: {name: web-1}, spec: {replicas: 0}}",
            "{metadata: {name: web-1}, spec: {replicas: 1}, status: {replicas: 1, readyReplicas: 1}}",
            Some(("Deployment", "{metadata: {name: web}}")),
            0,
            &[
                "deployment-controller: replicaset/web-1 scaled from 0 to 1; deployment/web is rolled out",
                "replicaset-controller: replicaset/web-1 counts 1 ready of 1; ",
            ],
        );
    }
}
