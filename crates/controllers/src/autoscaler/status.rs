//! What does an autoscaler say about itself?

use mizzen_object::condition;
use mizzen_value::{Value, value};

/// A status that is being written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Draft {
    /// What there is so far.
    pub status: Value,
    now: String,
}

impl Draft {
    /// Begins with what was said before.
    pub(super) fn new(status: Value, now: String) -> Draft {
        Draft { status, now }
    }

    /// Sets a condition. It keeps its time as long as it does not turn.
    pub(super) fn condition(
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

    /// Says how many replicas there are and should be, and what was measured. Without `desired` that stays as it was.
    pub(super) fn replicas(
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

    /// Says that the target was scaled now.
    pub(super) fn scaled(&mut self) {
        self.status.set("lastScaleTime", self.now.as_str());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_time_until_it_turns() {
        let mut draft = Draft::new(Value::Null, "t0".into());
        draft.condition("AbleToScale", true, "A", "a");
        let mut draft = Draft::new(draft.status, "t1".into());
        draft.condition("AbleToScale", true, "B", "b");
        draft.condition("ScalingActive", true, "C", "c");
        let mut draft = Draft::new(draft.status, "t2".into());
        draft.condition("ScalingActive", false, "D", "d");
        assert_eq!(
            draft.status["conditions"],
            value!([
                {"type": "AbleToScale", "lastTransitionTime": "t0", "status": "True", "reason": "B", "message": "b"},
                {"type": "ScalingActive", "lastTransitionTime": "t2", "status": "False", "reason": "D", "message": "d"}
            ])
        );
    }

    #[test]
    fn what_is_not_known_anew_stays() {
        let old = value!({"desiredReplicas": 7, "lastScaleTime": "t0", "currentMetrics": [{"type": "Resource"}]});
        let mut draft = Draft::new(old, "t1".into());
        draft.replicas(3, None, None);
        assert_eq!(
            draft.status,
            value!({"desiredReplicas": 7, "currentMetrics": null, "currentReplicas": 3, "lastScaleTime": "t0"})
        );
    }
}
