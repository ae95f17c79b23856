//! What does a pod's status say of its way to a node?
//!
//! Invariant: what is written of one pod is written in the order in which it happened.

use std::sync::Arc;

use mizzen_object::condition::updated;
use mizzen_sdk::api::{Api, Patch};
use mizzen_sdk::resource::PODS;
use mizzen_sdk::seam::Clock;
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Object, condition};
use mizzen_value::{Str, Value, time, value};
use tokio::sync::mpsc::Sender;

use crate::HashMap;
use crate::inbox::Letter;
use crate::model::Pod;

/// Why a pod is not placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub reason: &'static str,
    pub message: String,
}

/// What is to be written of a pod.
pub(crate) struct Report {
    pub pod: Arc<Pod>,
    pub condition: Option<Condition>,
    /// The node that is nominated for it, empty for none; none to leave it as it is.
    pub nominated: Option<Str>,
}

impl Report {
    /// This and what was to be written before, as one.
    fn after(self, earlier: Option<Report>) -> Report {
        let Some(earlier) = earlier else { return self };
        Report {
            condition: self.condition.or(earlier.condition),
            nominated: self.nominated.or(earlier.nominated),
            pod: self.pod,
        }
    }
}

/// Writes reports, for each pod one after the other.
pub(crate) struct Reports {
    api: Api,
    clock: Clock,
    sender: Sender<Letter>,
    /// Pods of which something is being written, and what is to be written next.
    busy: HashMap<Str, Option<Report>>,
}

impl Reports {
    pub(crate) fn new(api: Api, clock: Clock, sender: Sender<Letter>) -> Reports {
        Reports {
            api,
            clock,
            sender,
            busy: HashMap::default(),
        }
    }

    /// Writes a report, now or after what is being written. What is newer replaces what waits.
    pub(crate) fn send(&mut self, report: Report) {
        if let Some(next) = self.busy.get_mut(&report.pod.uid) {
            *next = Some(report.after(next.take()));
            return;
        }
        let Some(change) = change(&report, &time::from_unix((self.clock)().as_second())) else {
            return;
        };
        self.busy.insert(report.pod.uid.clone(), None);
        let (api, sender) = (self.api.clone(), self.sender.clone());
        tokio::spawn(async move {
            patch(&api, &report.pod, &change).await;
            let _ = sender
                .send(Letter::Reported {
                    uid: report.pod.uid.clone(),
                })
                .await;
        });
    }

    /// Goes on after a report was written.
    pub(crate) fn done(&mut self, uid: &str) {
        if let Some(Some(next)) = self.busy.remove(uid) {
            self.send(next);
        }
    }
}

/// Writes a change of a pod's status.
pub(crate) async fn patch(api: &Api, pod: &Pod, change: &Value) {
    match api
        .patch(&PODS, &pod.key(), "status", Patch::Strategic, change)
        .await
    {
        Err(error) if !is_not_found(&error) => {
            tracing::debug!(pod = %pod.key(), %error, "cannot write a pod's status");
        }
        _ => {}
    }
}

/// The change that writes a report; none if the pod already says so.
fn change(report: &Report, now: &str) -> Option<Value> {
    let Ok(object) = report.pod.entry.object() else {
        return None;
    };
    let mut status = Value::object();
    if let Some(condition) = &report.condition {
        let new = value!({
            "type": "PodScheduled", "status": "False",
            "reason": (condition.reason), "message": (&condition.message)
        });
        if let Some(condition) = renewed(&object, new, now) {
            status = condition::added(&object, condition);
        }
    }
    match &report.nominated {
        Some(node) if node.is_empty() && !report.pod.nominated.is_empty() => {
            status.set("nominatedNodeName", Value::Null);
        }
        Some(node) if *node != report.pod.nominated => status.set("nominatedNodeName", node),
        _ => {}
    }
    (!status.is_empty()).then(|| value!({"status": status}))
}

/// A condition with its times, unless the pod has the same already.
pub(crate) fn renewed(pod: &Object, mut condition: Value, now: &str) -> Option<Value> {
    condition.set("observedGeneration", pod["metadata"]["generation"].clone());
    condition.set("lastProbeTime", Value::Null);
    condition.set("lastTransitionTime", now);
    updated(&pod["status"]["conditions"], condition)
}
