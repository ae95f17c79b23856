//! The Terminating condition of a CustomResourceDefinition.

use mizzen_value::{Value, value};

/// Keeps a deleted definition until its objects are gone.
const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Marks a definition as being deleted.
pub(super) fn mark(definition: &mut Value, now: &str) -> bool {
    let finalizers = definition.entry("metadata").entry("finalizers").make_list();
    if !finalizers
        .iter()
        .any(|finalizer| finalizer.str() == FINALIZER)
    {
        finalizers.push(FINALIZER.into());
    }
    let terminating = value!({
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": now,
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    });
    let conditions = definition.entry("status").entry("conditions").make_list();
    conditions.retain(|condition| condition["type"].str() != "Terminating");
    conditions.push(terminating);
    true
}
