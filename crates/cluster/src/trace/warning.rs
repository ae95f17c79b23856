//! What do people hear of the traced objects that is not in the objects themselves? Warnings, each once.

use std::collections::{HashMap, HashSet};

use mizzen_sdk::Object;

use super::step::Step;

/// Warnings by the object that they are about.
#[derive(Default)]
pub(super) struct Warnings {
    told: HashSet<(String, String, String)>,
    /// Those about objects that have not been seen.
    waiting: HashMap<String, Vec<Step>>,
}

impl Warnings {
    /// The step that an event tells, if it is a new warning about an object that is known.
    pub(super) fn hear(&mut self, event: &Object, is_known: impl Fn(&str) -> bool) -> Option<Step> {
        let about = &event["involvedObject"];
        let (reason, message) = (event["reason"].str(), event["message"].str());
        // What the scheduler says is in the pod's conditions as well.
        if event["type"].str() != "Warning" || reason == "FailedScheduling" {
            return None;
        }
        let uid = about["uid"].str().to_string();
        if !self
            .told
            .insert((uid.clone(), reason.into(), message.into()))
        {
            return None;
        }
        let object = format!(
            "{}/{}",
            about["kind"].str().to_lowercase(),
            about["name"].str()
        );
        let what = format!("warning {reason}: {}", message.trim_end());
        let step = Step {
            actor: teller(event),
            object,
            what,
            cause: String::new(),
        };
        if is_known(&uid) {
            return Some(step);
        }
        self.waiting.entry(uid).or_default().push(step);
        None
    }

    /// What was heard of an object before it was seen.
    pub(super) fn about(&mut self, uid: &str) -> Vec<Step> {
        self.waiting.remove(uid).unwrap_or_default()
    }
}

/// Who wrote an event: a loop, or a kubelet with its node.
fn teller(event: &Object) -> String {
    let (component, host) = (
        event["source"]["component"].str(),
        event["source"]["host"].str(),
    );
    match (component, event["reportingComponent"].str()) {
        ("kubelet", _) => format!("kubelet {host}"),
        ("", "") => "somebody".into(),
        ("", reporter) => reporter.into(),
        (component, _) => component.into(),
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::yaml;

    use super::*;

    fn event(text: &str) -> Object {
        let text = format!("{{involvedObject: {{kind: ReplicaSet, name: s, uid: s}}, {text}}}");
        Object(yaml::read(text.as_bytes()).unwrap().value)
    }

    #[test]
    fn each_warning_is_told_once() {
        let mut warnings = Warnings::default();
        let failed = event(
            "type: Warning, reason: FailedCreate, message: nope, source: {component: replicaset-controller}",
        );
        let step = warnings.hear(&failed, |_| true).unwrap();
        assert_eq!(
            (
                step.actor.as_str(),
                step.object.as_str(),
                step.what.as_str()
            ),
            (
                "replicaset-controller",
                "replicaset/s",
                "warning FailedCreate: nope"
            )
        );
        assert_eq!(warnings.hear(&failed, |_| true), None);
        let other = event(
            "type: Warning, reason: FailedCreate, message: 'no, no', source: {component: kubelet, host: n1}",
        );
        assert_eq!(warnings.hear(&other, |_| true).unwrap().actor, "kubelet n1");
        assert_eq!(
            warnings.hear(
                &event("type: Normal, reason: Pulled, message: fine"),
                |_| true
            ),
            None
        );
        assert_eq!(
            warnings.hear(
                &event("type: Warning, reason: FailedScheduling, message: nope"),
                |_| true
            ),
            None
        );
    }

    #[test]
    fn what_is_heard_before_its_object_is_seen_is_told_then() {
        let mut warnings = Warnings::default();
        assert_eq!(
            warnings.hear(
                &event("type: Warning, reason: Failed, message: nope"),
                |_| false
            ),
            None
        );
        assert_eq!(warnings.about("s").len(), 1);
        assert!(warnings.about("s").is_empty());
    }
}
