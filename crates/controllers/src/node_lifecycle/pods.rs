//! Pods of nodes that are not ready: their Ready condition becomes False.

use mizzen_sdk::Object;
use mizzen_sdk::event::Note;
use mizzen_sdk::resource::PODS;
use mizzen_sdk::write::is_not_found;
use mizzen_value::Value;

use crate::{ControllerContext, Error};

/// Sets Ready to False if it is True.
pub(super) async fn mark_pod_not_ready(
    context: &ControllerContext,
    pod: &Object,
) -> Result<(), Error> {
    let Some(marked) = not_ready(pod, &context.now_text()) else {
        return Ok(());
    };
    match context.api.update_status(&PODS, &marked).await {
        Err(error) if is_not_found(&error) => return Ok(()),
        outcome => drop(outcome?),
    }
    context.record_event(
        &PODS,
        pod,
        Note::warning("NodeNotReady", "", "Node is not ready"),
    );
    Ok(())
}

fn not_ready(pod: &Object, now: &str) -> Option<Object> {
    let mut pod = pod.clone();
    let conditions = pod
        .at_mut("status.conditions")
        .map(Value::list_mut)
        .unwrap_or_default();
    let ready = conditions
        .iter_mut()
        .find(|condition| condition["type"].str() == "Ready")?;
    if ready["status"].str() == "False" {
        return None;
    }
    ready.set("status", "False");
    ready.set("lastTransitionTime", now);
    Some(pod)
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[track_caller]
    fn check(conditions: Value, wanted: Option<Value>) {
        let pod = Object(value!({"status": {"conditions": conditions}}));
        let marked = not_ready(&pod, "now");
        assert_eq!(
            marked.map(|pod| pod["status"]["conditions"][0].clone()),
            wanted
        );
    }

    #[test]
    fn only_a_ready_pod_is_marked() {
        check(value!([]), None);
        check(value!([{"type": "Ready", "status": "False"}]), None);
        let marked = value!({"type": "Ready", "status": "False", "reason": "kept", "lastTransitionTime": "now"});
        check(
            value!([{"type": "Ready", "status": "True", "reason": "kept"}]),
            Some(marked),
        );
    }
}
