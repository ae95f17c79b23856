//! The state of a pod as controllers see it.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
pub(crate) use mizzen_component_helpers::pod_state::{is_ready, is_terminal};
use mizzen_object::condition;
use mizzen_value::{Value, time};

/// Whether a pod is active: not finished and not being deleted.
pub(crate) fn is_active(pod: &Value) -> bool {
    !is_terminal(pod) && !is_going(pod)
}

/// Whether a pod is being deleted and not finished.
pub(crate) fn is_terminating(pod: &Value) -> bool {
    !is_terminal(pod) && is_going(pod)
}

fn is_going(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

/// The condition of a type in the status of an object.
pub fn condition<'a>(pod: &'a Value, type_: &str) -> Option<&'a Value> {
    condition::find(&pod["status"]["conditions"], type_)
}

/// Since when a pod is ready, in seconds since 1970; none if it is not, or the condition has no
/// time.
pub(crate) fn ready_since(pod: &Value) -> Option<i64> {
    let ready = condition(pod, "Ready").filter(|ready| ready["status"].str() == "True")?;
    time::to_unix(ready["lastTransitionTime"].str())
}

/// Whether a pod has been ready for minReadySeconds.
pub(crate) fn is_available(pod: &Value, min_ready_seconds: i64, now: Timestamp) -> bool {
    is_ready(pod)
        && (min_ready_seconds == 0 || has_been_ready(ready_since(pod), min_ready_seconds, now))
}

/// Whether a pod that is ready since then has been ready for minReadySeconds.
pub(crate) fn has_been_ready(since: Option<i64>, min_ready_seconds: i64, now: Timestamp) -> bool {
    since.is_some_and(|since| since.saturating_add(min_ready_seconds) <= now.as_second())
}

/// How long until a pod that is ready since then is available; none if it is, or never will be.
pub(crate) fn time_until_available(
    since: Option<i64>,
    min_ready_seconds: i64,
    now: Timestamp,
) -> Option<Duration> {
    if min_ready_seconds <= 0 {
        return None;
    }
    let due = Timestamp::from_second(since?.saturating_add(min_ready_seconds)).ok()?;
    Duration::try_from(due.duration_since(now))
        .ok()
        .filter(|wait| !wait.is_zero())
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    fn pod(phase: &str, is_going: bool) -> Value {
        let deletion = is_going.then_some("2026-01-01T00:00:00Z");
        value!({"metadata": {"deletionTimestamp": deletion}, "status": {"phase": phase}})
    }

    #[test]
    fn a_pod_counts_until_it_is_done_or_deleted() {
        let cases = [
            ("Pending", false, true, false),
            ("Running", false, true, false),
            ("", false, true, false),
            ("Running", true, false, true),
            ("Succeeded", false, false, false),
            ("Failed", true, false, false),
        ];
        for (phase, going, active, terminating) in cases {
            let pod = pod(phase, going);
            assert_eq!(
                (is_active(&pod), is_terminating(&pod)),
                (active, terminating),
                "{phase} {going}"
            );
        }
    }

    fn at(seconds: i64, nanos: i32) -> Timestamp {
        Timestamp::new(seconds, nanos).expect("a time")
    }

    #[test]
    fn a_pod_is_available_when_it_was_ready_for_long_enough() {
        let ready = value!({"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:01:40Z"});
        let pod = value!({"status": {"conditions": [ready]}});
        assert!(is_available(&pod, 0, at(100, 0)) && !is_available(&pod, 10, at(109, 999_999_999)));
        assert!(is_available(&pod, 10, at(110, 0)));
    }

    #[test]
    fn a_pod_without_a_ready_time_is_available_only_without_min_ready_seconds() {
        let pod = value!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert!(is_available(&pod, 0, at(100, 0)) && !is_available(&pod, 1, at(100, 0)));
    }

    #[test]
    fn waiting_ends_exactly_when_a_pod_becomes_available() {
        assert_eq!(
            time_until_available(Some(100), 10, at(105, 500_000_000)),
            Some(Duration::from_millis(4500))
        );
        assert_eq!(time_until_available(Some(100), 10, at(110, 0)), None);
        assert_eq!(time_until_available(None, 10, at(110, 0)), None);
        assert_eq!(time_until_available(Some(100), 0, at(90, 0)), None);
    }
}
