//! Eviction because of a taint: sets the DisruptionTarget condition of a pod, then deletes it.

use mizzen_sdk::Object;
use mizzen_sdk::condition::added;
use mizzen_sdk::dynamic::{DeleteOptions, PatchType};
use mizzen_sdk::resource::PODS;
use mizzen_value::{Value, value};

use crate::{ControllerContext, Error};

/// Adds `condition` to the pod's status, if there is one to add, and deletes the pod. The uid is a
/// precondition of both.
pub(crate) async fn mark_and_delete(
    context: &ControllerContext,
    pod: &Object,
    condition: Option<Value>,
) -> Result<(), Error> {
    let (api, key) = (&context.api, pod.key());
    if let Some(condition) = condition {
        let status = added(pod, condition);
        let patch = value!({"metadata": {"uid": (pod.uid())}, "status": status});
        api.patch(&PODS, &key, "status", PatchType::Strategic, &patch)
            .await?;
    }
    let options = DeleteOptions {
        uid: Some(pod.uid()),
        ..DeleteOptions::default()
    };
    api.delete(&PODS, &key, &options).await?;
    Ok(())
}
