//! Pod control: creates and deletes pods for an owner, and records events.

use mizzen_sdk::controller::{Context, Error};
use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::event::Note;
use mizzen_sdk::resource::PODS;
use mizzen_sdk::write::{is_namespace_terminating, is_not_found, message};
use mizzen_sdk::{Key, Object, ResourceType};
use mizzen_value::Value;

/// Creates and deletes the pods of an owner.
pub(crate) struct PodControl<'a> {
    pub context: &'a Context,
    pub owner: &'a Object,
    pub owner_kind: &'a ResourceType,
}

impl PodControl<'_> {
    /// Creates a pod. A failure is recorded as an event, unless the namespace is being deleted.
    pub(crate) async fn create(&self, pod: &Value) -> Result<Object, kube::Error> {
        let outcome = self.context.api.create(&PODS, pod).await;
        match &outcome {
            Ok(pod) => self.record_event(Note::normal(
                "SuccessfulCreate",
                "",
                format!("Created pod: {}", pod.name()),
            )),
            Err(error) if is_namespace_terminating(error) => {}
            Err(error) => {
                self.record_event(Note::warning(
                    "FailedCreate",
                    "",
                    format!("Error creating: {}", message(error)),
                ));
            }
        }
        outcome
    }

    /// Deletes a pod; whether it existed. A failure is recorded as an event.
    pub(crate) async fn delete(&self, pod: &Key) -> Result<bool, Error> {
        let api = &self.context.api;
        match api.delete(&PODS, pod, &DeleteOptions::default()).await {
            Ok(_) => {
                self.record_event(Note::normal(
                    "SuccessfulDelete",
                    "",
                    format!("Deleted pod: {}", pod.name()),
                ));
                Ok(true)
            }
            Err(error) if is_not_found(&error) => Ok(false),
            Err(error) => {
                let reason = message(&error);
                self.record_event(Note::warning(
                    "FailedDelete",
                    "",
                    format!("Error deleting: {reason}"),
                ));
                Err(Error::other(format!("unable to delete pods: {reason}")))
            }
        }
    }

    fn record_event(&self, note: Note) {
        self.context.record_event(self.owner_kind, self.owner, note);
    }
}
