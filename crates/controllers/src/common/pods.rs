//! Making and deleting pods on behalf of an owner, and telling people of it.

use mizzen_sdk::api::DeleteOptions;
use mizzen_sdk::event::Note;
use mizzen_sdk::resource::PODS;
use mizzen_sdk::write::is_not_found;
use mizzen_sdk::{Key, Object, Resource};
use mizzen_value::Value;

use super::failure::{is_namespace_going, message};
use crate::{Context, Error};

/// The owner of pods.
pub(crate) struct Owner<'a> {
    /// The loop that acts.
    pub context: &'a Context,
    /// The owner.
    pub object: &'a Object,
    /// Its kind.
    pub kind: &'a Resource,
}

impl Owner<'_> {
    /// Makes a pod. A failure is told, unless the whole namespace goes.
    pub(crate) async fn create(&self, pod: &Value) -> Result<Object, kube::Error> {
        let outcome = self.context.api.create(&PODS, pod).await;
        match &outcome {
            Ok(pod) => self.tell(Note::normal(
                "SuccessfulCreate",
                "",
                format!("Created pod: {}", pod.name()),
            )),
            Err(error) if is_namespace_going(error) => {}
            Err(error) => {
                self.tell(Note::warning(
                    "FailedCreate",
                    "",
                    format!("Error creating: {}", message(error)),
                ));
            }
        }
        outcome
    }

    /// Deletes a pod; whether it was there. A failure is told.
    pub(crate) async fn delete(&self, pod: &Key) -> Result<bool, Error> {
        match self
            .context
            .api
            .delete(&PODS, pod, &DeleteOptions::default())
            .await
        {
            Ok(_) => {
                self.tell(Note::normal(
                    "SuccessfulDelete",
                    "",
                    format!("Deleted pod: {}", pod.name()),
                ));
                Ok(true)
            }
            Err(error) if is_not_found(&error) => Ok(false),
            Err(error) => {
                let reason = message(&error);
                self.tell(Note::warning(
                    "FailedDelete",
                    "",
                    format!("Error deleting: {reason}"),
                ));
                Err(Error::Other(format!("unable to delete pods: {reason}")))
            }
        }
    }

    fn tell(&self, note: Note) {
        self.context.record(self.kind, self.object, note);
    }
}
