//! The status of an autoscaler.

use mizzen_object::condition;
use mizzen_value::{Value, value};

/// A status to be written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StatusDraft {
    pub status: Value,
    now: String,
}

impl StatusDraft {
    /// Starts from the previous status.
    pub(super) fn new(status: Value, now: String) -> StatusDraft {
        StatusDraft { status, now }
    }

    /// Sets a condition. lastTransitionTime changes only if the status changes.
    pub(super) fn set_condition(
        &mut self,
        kind: &str,
        is: bool,
        reason: &str,
        message: impl Into<String>,
    ) {
        let new = value!({
            "type": (kind),
            "status": (if is { "True" } else { "False" }),
            "lastTransitionTime": (self.now.as_str()),
            "reason": (reason),
            "message": (message.into()),
        });
        condition::set(self.status.entry("conditions").make_list(), new);
    }

    /// Sets the replica counts and current metrics. Without `desired`, `desiredReplicas` stays.
    pub(super) fn set_replicas(
        &mut self,
        current: i64,
        desired: Option<i64>,
        metrics: Option<Vec<Value>>,
    ) {
        let old = &self.status;
        let desired = desired.unwrap_or(old["desiredReplicas"].int());
        let mut status = value!({"desiredReplicas": (desired), "currentMetrics": (metrics)});
        if current != 0 {
            status.set("currentReplicas", current);
        }
        for kept in ["lastScaleTime", "conditions"] {
            if !old[kept].is_null() {
                status.set(kept, old[kept].clone());
            }
        }
        self.status = status;
    }

    /// Sets `lastScaleTime` to now.
    pub(super) fn set_last_scale_time(&mut self) {
        self.status.set("lastScaleTime", self.now.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_time_changes_only_with_the_status() {
        let mut draft = StatusDraft::new(Value::Null, "t0".into());
        draft.set_condition("AbleToScale", true, "A", "a");
        let mut draft = StatusDraft::new(draft.status, "t1".into());
        draft.set_condition("AbleToScale", true, "B", "b");
        draft.set_condition("ScalingActive", true, "C", "c");
        let mut draft = StatusDraft::new(draft.status, "t2".into());
        draft.set_condition("ScalingActive", false, "D", "d");
        assert_eq!(
            draft.status["conditions"],
            value!([
                {"type": "AbleToScale", "lastTransitionTime": "t0", "status": "True", "reason": "B", "message": "b"},
                {"type": "ScalingActive", "lastTransitionTime": "t2", "status": "False", "reason": "D", "message": "d"}
            ])
        );
    }

    #[test]
    fn unknown_values_stay_as_they_were() {
        let old = value!({"desiredReplicas": 7, "lastScaleTime": "t0", "currentMetrics": [{"type": "Resource"}]});
        let mut draft = StatusDraft::new(old, "t1".into());
        draft.set_replicas(3, None, None);
        assert_eq!(
            draft.status,
            value!({"desiredReplicas": 7, "currentMetrics": null, "currentReplicas": 3, "lastScaleTime": "t0"})
        );
    }
}
