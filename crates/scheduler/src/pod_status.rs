//! Writes the scheduling result to the status of pods.
//!
//! Invariant: updates of one pod are written in order.

use std::sync::Arc;

use mizzen_object::condition::updated;
use mizzen_sdk::clock::Clock;
use mizzen_sdk::dynamic::{DynamicClient, PatchType};
use mizzen_sdk::resource::PODS;
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Object, condition};
use mizzen_value::{Str, Value, time, value};
use tokio::sync::mpsc::Sender;

use crate::HashMap;
use crate::events::SchedulerMessage;
use crate::model::PodInfo;

/// The content of a PodScheduled condition with status False.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnscheduledCondition {
    pub reason: &'static str,
    pub message: String,
}

/// An update of a pod's status.
pub(crate) struct PodStatusUpdate {
    pub pod: Arc<PodInfo>,
    pub condition: Option<UnscheduledCondition>,
    /// The nominated node, empty to clear it; `None` to leave it unchanged.
    pub nominated: Option<Str>,
}

impl PodStatusUpdate {
    /// Merges an earlier update that was not written yet.
    fn merge_after(self, earlier: Option<PodStatusUpdate>) -> PodStatusUpdate {
        let Some(earlier) = earlier else { return self };
        PodStatusUpdate {
            condition: self.condition.or(earlier.condition),
            nominated: self.nominated.or(earlier.nominated),
            pod: self.pod,
        }
    }
}

/// Writes status updates, one at a time per pod.
pub(crate) struct PodStatusWriter {
    api: DynamicClient,
    clock: Clock,
    sender: Sender<SchedulerMessage>,
    /// Pods with a write in flight, and the update to write next.
    busy: HashMap<Str, Option<PodStatusUpdate>>,
}

impl PodStatusWriter {
    pub(crate) fn new(
        api: DynamicClient,
        clock: Clock,
        sender: Sender<SchedulerMessage>,
    ) -> PodStatusWriter {
        PodStatusWriter {
            api,
            clock,
            sender,
            busy: HashMap::default(),
        }
    }

    /// Writes an update, now or after the write in flight. Newer updates replace queued ones.
    pub(crate) fn send(&mut self, report: PodStatusUpdate) {
        if let Some(next) = self.busy.get_mut(&report.pod.uid) {
            *next = Some(report.merge_after(next.take()));
            return;
        }
        let Some(change) = status_patch(&report, &time::from_unix((self.clock)().as_second()))
        else {
            return;
        };
        self.busy.insert(report.pod.uid.clone(), None);
        let (api, sender) = (self.api.clone(), self.sender.clone());
        tokio::spawn(async move {
            patch_pod_status(&api, &report.pod, &change).await;
            let _ = sender
                .send(SchedulerMessage::Reported {
                    uid: report.pod.uid.clone(),
                })
                .await;
        });
    }

    /// Continues after a write.
    pub(crate) fn done(&mut self, uid: &str) {
        if let Some(Some(next)) = self.busy.remove(uid) {
            self.send(next);
        }
    }
}

/// Patches the status of a pod.
pub(crate) async fn patch_pod_status(api: &DynamicClient, pod: &PodInfo, change: &Value) {
    match api
        .patch(&PODS, &pod.key(), "status", PatchType::Strategic, change)
        .await
    {
        Err(error) if !is_not_found(&error) => {
            tracing::warn!(pod = %pod.key(), %error, "cannot write a pod's status");
        }
        _ => {}
    }
}

/// The patch of an update; `None` if it changes nothing.
fn status_patch(report: &PodStatusUpdate, now: &str) -> Option<Value> {
    let Ok(object) = report.pod.entry.object() else {
        return None;
    };
    let mut status = Value::object();
    if let Some(condition) = &report.condition {
        let new = value!({
            "type": "PodScheduled", "status": "False",
            "reason": (condition.reason), "message": (&condition.message)
        });
        if let Some(condition) = updated_condition(&object, new, now) {
            status = condition::added(&object, condition);
        }
    }
    match &report.nominated {
        Some(node) if node.is_empty() && !report.pod.nominated_node.is_empty() => {
            status.set("nominatedNodeName", Value::Null);
        }
        Some(node) if *node != report.pod.nominated_node => status.set("nominatedNodeName", node),
        _ => {}
    }
    (!status.is_empty()).then(|| value!({"status": status}))
}

/// A condition with its timestamps, unless the pod has the same already.
pub(crate) fn updated_condition(pod: &Object, mut condition: Value, now: &str) -> Option<Value> {
    condition.set("observedGeneration", pod["metadata"]["generation"].clone());
    condition.set("lastProbeTime", Value::Null);
    condition.set("lastTransitionTime", now);
    updated(&pod["status"]["conditions"], condition)
}
