//! Warning events about traced objects, each once.

use std::collections::{HashMap, HashSet};

use mizzen_sdk::Object;

use super::step::{TraceStep, UNKNOWN};

/// The warnings of traced objects.
#[derive(Default)]
pub(super) struct TraceWarnings {
    printed: HashSet<(String, String, String)>,
    /// Those of objects that are not known yet, by UID.
    pending: HashMap<String, Vec<TraceStep>>,
}

impl TraceWarnings {
    /// The step of an event, if it is a new warning about a known object.
    pub(super) fn on_event(
        &mut self,
        event: &Object,
        is_known: impl Fn(&str) -> bool,
    ) -> Option<TraceStep> {
        let about = &event["involvedObject"];
        let (reason, message) = (event["reason"].str(), event["message"].str());
        // FailedScheduling is in the conditions of the pod as well.
        if event["type"].str() != "Warning" || reason == "FailedScheduling" {
            return None;
        }
        let uid = about["uid"].str().to_string();
        if !self
            .printed
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
        let (component, host) = (
            event["source"]["component"].str(),
            event["source"]["host"].str(),
        );
        let actor = match (component, event["reportingComponent"].str()) {
            ("kubelet", _) => format!("kubelet {host}"),
            ("", "") => UNKNOWN.into(),
            ("", reporter) => reporter.into(),
            (component, _) => component.into(),
        };
        let step = TraceStep {
            actor,
            object,
            what,
            cause: String::new(),
        };
        if is_known(&uid) {
            return Some(step);
        }
        self.pending.entry(uid).or_default().push(step);
        None
    }

    /// The pending warnings of an object.
    pub(super) fn take_pending(&mut self, uid: &str) -> Vec<TraceStep> {
        self.pending.remove(uid).unwrap_or_default()
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
    fn each_warning_is_printed_once() {
        let mut warnings = TraceWarnings::default();
        let failed = event(
            "type: Warning, reason: FailedCreate, message: nope, source: {component: replicaset-controller}",
        );
        let step = warnings.on_event(&failed, |_| true).unwrap();
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
        assert_eq!(warnings.on_event(&failed, |_| true), None);
        let other = event(
            "type: Warning, reason: FailedCreate, message: 'no, no', source: {component: kubelet, host: n1}",
        );
        assert_eq!(
            warnings.on_event(&other, |_| true).unwrap().actor,
            "kubelet n1"
        );
        assert_eq!(
            warnings.on_event(
                &event("type: Normal, reason: Pulled, message: fine"),
                |_| true
            ),
            None
        );
        assert_eq!(
            warnings.on_event(
                &event("type: Warning, reason: FailedScheduling, message: nope"),
                |_| true
            ),
            None
        );
    }

    #[test]
    fn a_warning_is_held_until_its_object_is_seen() {
        let mut warnings = TraceWarnings::default();
        assert_eq!(
            warnings.on_event(
                &event("type: Warning, reason: Failed, message: nope"),
                |_| false
            ),
            None
        );
        assert_eq!(warnings.take_pending("s").len(), 1);
        assert!(warnings.take_pending("s").is_empty());
    }
}
