//! Failed image pulls: their Events and their back-off.

use std::time::Duration;

use mizzen_sdk::event::Note;
use mizzen_value::{Str, Value};

use super::container::present;
use super::references::ReferencedObjects;
use super::{ContainerState, SyncContext};
use crate::moment::Moment;
use crate::runtime::{ImageRequest, ImageState};

/// How long it takes until a failed pull is noticed.
const NOTICE: Duration = Duration::from_secs(1);
/// Kubernetes: the initial and the maximum back-off of an image pull (kubelet.go).
const FIRST_WAIT: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// A failed pull.
#[derive(Debug)]
pub struct FailedPull {
    image: Str,
    n_tries: u32,
    failed: Moment,
    wait: Duration,
    reason: &'static str,
    why: String,
    /// Whether ImagePullBackOff is reported by now.
    is_noticed: bool,
}

impl FailedPull {
    fn failed(
        image: &str,
        before: Option<Box<FailedPull>>,
        (reason, why): (&'static str, String),
        now: Moment,
    ) -> FailedPull {
        let wait = before
            .as_ref()
            .map_or(FIRST_WAIT, |pull| (pull.wait * 2).min(LONGEST_WAIT));
        let n_tries = before.map_or(0, |pull| pull.n_tries) + 1;
        FailedPull {
            image: image.into(),
            n_tries,
            failed: now,
            wait,
            reason,
            why,
            is_noticed: false,
        }
    }

    /// The reason and the message of the waiting state.
    pub fn waiting(&self, image: &str) -> (&'static str, String) {
        match self.is_noticed && self.backs_off() {
            false => (self.reason, self.why.clone()),
            true => (
                "ImagePullBackOff",
                format!(
                    "Back-off pulling image {image:?}: {}: {}",
                    self.reason, self.why
                ),
            ),
        }
    }

    /// Kubernetes: an image that was not pulled stays missing without ImagePullBackOff
    /// (pkg/kubelet/images).
    fn backs_off(&self) -> bool {
        reason_without_pull(self.reason).is_none()
    }
}

/// The reason of the Event if there was no pull: it must not be, or the image is not known.
fn reason_without_pull(reason: &str) -> Option<&'static str> {
    match reason {
        "ErrImageNeverPull" => Some("ErrImageNeverPull"),
        "ImageInspectError" | "InvalidImageName" => Some("InspectFailed"),
        _ => None,
    }
}

/// Reason and message of a pull that failed. Kubernetes: a runtime may name them
/// (image_manager.go, `evalCRIPullErr`).
fn pull_failure(image: &str, why: &str) -> (&'static str, String) {
    for (reason, what) in [
        ("RegistryUnavailable", "registry is unavailable"),
        ("SignatureValidationFailed", "signature validation failed"),
    ] {
        if let Some(more) = why.strip_prefix(reason) {
            let message = format!("image pull failed for {image} because the {what}{more}");
            return (reason, message);
        }
    }
    ("ErrImagePull", why.to_owned())
}

impl ContainerState {
    /// Whether its image is present; if not, it is pulled with back-off.
    pub(super) fn image_ready(
        &mut self,
        spec: &Value,
        referenced: Option<&mut ReferencedObjects>,
        sync: &mut SyncContext,
    ) -> bool {
        // Kubernetes: another image has a back-off of its own (pkg/kubelet/images).
        self.pull.take_if(|pull| pull.image != spec["image"].str());
        if self
            .pull
            .as_ref()
            .is_some_and(|pull| sync.now < pull.failed + pull.wait)
        {
            self.wait_for_retry(spec, sync);
            return false;
        }
        let (image, n_tries) = (
            spec["image"].str(),
            self.pull.as_ref().map_or(0, |pull| pull.n_tries),
        );
        // A Secret may have been made or changed since the last pull.
        let since = self.pull.as_ref().map(|pull| pull.failed);
        let secrets = match referenced {
            Some(referenced) => referenced.pull_secrets(sync, since.unwrap_or_default()),
            None => Some(Vec::new()),
        };
        let Some(pull_secrets) = secrets else {
            return false;
        };
        let request = ImageRequest {
            pod: sync.pod,
            container: spec,
            n_tries,
            pull_secrets,
        };
        let (reason, why) = match sync.runtime.image(&request) {
            ImageState::Present { message } => {
                (self.pull, self.is_pulling) = (None, false);
                self.pulled = message;
                return true;
            }
            ImageState::Pending => return false,
            ImageState::Pulling => {
                self.record_pulling(image, sync);
                return false;
            }
            ImageState::Failed { reason, message } => (reason, message),
        };
        let (reason, why) = match reason_without_pull(reason) {
            Some(event) => {
                sync.record(self, Note::warning(event, "", why.as_str()));
                (reason, why)
            }
            None => {
                self.record_pulling(image, sync);
                let failed = format!("Failed to pull image {image:?}: {why}");
                sync.record(self, Note::warning("Failed", "", failed));
                pull_failure(image, &why)
            }
        };
        self.is_pulling = false;
        sync.record(
            self,
            Note::warning("Failed", "", format!("Error: {reason}")),
        );
        self.pull = Some(Box::new(FailedPull::failed(
            image,
            self.pull.take(),
            (reason, why),
            sync.now,
        )));
        self.changes_at = Some(sync.now + NOTICE);
        false
    }

    /// Records that a pull has begun, once.
    fn record_pulling(&mut self, image: &str, sync: &mut SyncContext) {
        if !std::mem::replace(&mut self.is_pulling, true) {
            let message = format!("Pulling image {image:?}");
            sync.record(self, Note::normal("Pulling", "", message));
        }
    }

    /// The Event of an image that is there.
    pub(super) fn record_pulled(&mut self, spec: &Value, sync: &mut SyncContext) {
        let note = match self.pulled.take() {
            Some(message) => Note::normal("Pulled", "", message),
            None => present(spec),
        };
        sync.record(self, note);
    }

    /// Waits until the next pull.
    fn wait_for_retry(&mut self, spec: &Value, sync: &mut SyncContext) {
        let Some(pull) = &mut self.pull else { return };
        let is_new = !pull.is_noticed && pull.backs_off() && sync.now >= pull.failed + NOTICE;
        pull.is_noticed |= is_new;
        self.changes_at = Some(if pull.is_noticed || !pull.backs_off() {
            pull.failed + pull.wait
        } else {
            pull.failed + NOTICE
        });
        if is_new {
            let image = spec["image"].str();
            sync.record(
                self,
                Note::normal("BackOff", "", format!("Back-off pulling image {image:?}")),
            );
            sync.record(self, Note::warning("Failed", "", "Error: ImagePullBackOff"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_may_name_why_a_pull_failed() {
        for (why, reason, message) in [
            ("not found", "ErrImagePull", "not found"),
            (
                "RegistryUnavailable: no route",
                "RegistryUnavailable",
                "image pull failed for a:1 because the registry is unavailable: no route",
            ),
            (
                "SignatureValidationFailed",
                "SignatureValidationFailed",
                "image pull failed for a:1 because the signature validation failed",
            ),
        ] {
            assert_eq!(pull_failure("a:1", why), (reason, message.to_owned()));
        }
    }
}
