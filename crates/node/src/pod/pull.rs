//! Image pulls of containers and volumes: their Events and their back-off.

use std::time::Duration;

use mizzen_sdk::event::Note;
use mizzen_value::{Str, Value};

use super::references::ReferencedObjects;
use super::{ContainerState, SyncContext};
use crate::moment::Moment;
use crate::runtime::{ImageRequest, ImageState, ImageUser};

/// How long it takes until a failed pull is noticed.
const NOTICE: Duration = Duration::from_secs(1);
/// Kubernetes: the initial and the maximum back-off of an image pull (kubelet.go). The first is also
/// when a pod is synced again whose image was not pulled at all (`backOffPeriod`).
const FIRST_WAIT: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// A failed pull.
#[derive(Debug)]
struct FailedPull {
    image: Str,
    n_tries: u32,
    failed: Moment,
    /// The back-off of pulls; zero before the first.
    back_off: Duration,
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
        let back_off = before.as_ref().map(|pull| pull.back_off);
        let back_off = match reason_without_pull(reason) {
            Some(_) => back_off.unwrap_or_default(),
            None => (back_off.unwrap_or_default() * 2).clamp(FIRST_WAIT, LONGEST_WAIT),
        };
        let n_tries = before.map_or(0, |pull| pull.n_tries) + 1;
        FailedPull {
            image: image.into(),
            n_tries,
            failed: now,
            back_off,
            reason,
            why,
            is_noticed: false,
        }
    }

    /// The reason and the message of the waiting state.
    fn waiting(&self) -> (&'static str, String) {
        match self.is_noticed && self.backs_off() {
            false => (self.reason, self.why.clone()),
            true => (
                "ImagePullBackOff",
                format!(
                    "Back-off pulling image {:?}: {}: {}",
                    self.image.as_str(),
                    self.reason,
                    self.why
                ),
            ),
        }
    }

    /// When the image is looked for again.
    fn next_try(&self) -> Moment {
        match self.backs_off() {
            true => self.failed + self.back_off,
            false => self.failed + FIRST_WAIT,
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

/// An image that a container or a volume needs.
pub(super) struct WantedImage<'a> {
    pub user: ImageUser<'a>,
    pub image: &'a str,
    pub policy: &'a str,
}

/// The image of a container or of a volume, until it is present.
#[derive(Debug, Default)]
pub struct ImagePull {
    /// The failed pull, while it backs off.
    failed: Option<Box<FailedPull>>,
    /// Whether it is being pulled.
    is_pulling: bool,
    /// The message of a successful pull, until its Event is recorded.
    pulled: Option<String>,
}

/// What has come of a sync of a pull.
#[derive(Debug, Default)]
pub(super) struct PullStep {
    /// Whether the image is present.
    pub is_ready: bool,
    /// The reason for which containers wait, if it is a new one.
    pub error: Option<&'static str>,
    /// When the next sync is due.
    pub changes_at: Option<Moment>,
    /// The Events to record.
    pub notes: Vec<Note>,
}

impl ImagePull {
    /// The reason and the message of the waiting state, while a failed pull backs off.
    pub fn waiting(&self) -> Option<(&'static str, String)> {
        self.failed.as_ref().map(|failed| failed.waiting())
    }

    /// Whether it is being pulled.
    pub(super) fn is_pulling(&self) -> bool {
        self.is_pulling
    }

    /// Pulls the image with back-off, unless it is present.
    pub(super) fn sync(
        &mut self,
        wanted: &WantedImage,
        referenced: Option<&mut ReferencedObjects>,
        sync: &mut SyncContext,
    ) -> PullStep {
        let mut step = PullStep::default();
        // Kubernetes: another image has a back-off of its own (pkg/kubelet/images).
        self.failed.take_if(|pull| pull.image != wanted.image);
        if self
            .failed
            .as_ref()
            .is_some_and(|pull| sync.now < pull.next_try())
        {
            self.wait_for_retry(sync.now, &mut step);
            return step;
        }
        // A Secret may have been made or changed since the last pull.
        let since = self.failed.as_ref().map(|pull| pull.failed);
        let secrets = match referenced {
            Some(referenced) => referenced.pull_secrets(sync, since.unwrap_or_default()),
            None => Some(Vec::new()),
        };
        let Some(pull_secrets) = secrets else {
            return step;
        };
        let request = ImageRequest {
            pod: sync.pod,
            user: wanted.user,
            image: wanted.image,
            policy: wanted.policy,
            n_tries: self.failed.as_ref().map_or(0, |pull| pull.n_tries),
            pull_secrets,
        };
        match sync.runtime.image(&request) {
            ImageState::Present { message } => {
                (self.failed, self.is_pulling) = (None, false);
                self.pulled = message;
                step.is_ready = true;
            }
            ImageState::Pending => {}
            ImageState::Pulling => self.note_pulling(wanted.image, &mut step),
            ImageState::Failed { reason, message } => {
                self.fail(wanted.image, (reason, message), sync.now, &mut step);
            }
        }
        step
    }

    fn fail(
        &mut self,
        image: &str,
        (reason, why): (&'static str, String),
        now: Moment,
        step: &mut PullStep,
    ) {
        let (reason, why) = match reason_without_pull(reason) {
            Some(event) => {
                step.notes.push(Note::warning(event, "", why.as_str()));
                (reason, why)
            }
            None => {
                self.note_pulling(image, step);
                let failed = format!("Failed to pull image {image:?}: {why}");
                step.notes.push(Note::warning("Failed", "", failed));
                pull_failure(image, &why)
            }
        };
        self.is_pulling = false;
        step.error = Some(reason);
        let before = self.failed.take();
        let failed = FailedPull::failed(image, before, (reason, why), now);
        self.failed = Some(Box::new(failed));
        step.changes_at = Some(now + NOTICE);
    }

    /// Records that a pull has begun, once.
    fn note_pulling(&mut self, image: &str, step: &mut PullStep) {
        if !std::mem::replace(&mut self.is_pulling, true) {
            let message = format!("Pulling image {image:?}");
            step.notes.push(Note::normal("Pulling", "", message));
        }
    }

    /// The Event of an image that is there.
    pub(super) fn pulled_note(&mut self, image: &str) -> Note {
        match self.pulled.take() {
            Some(message) => Note::normal("Pulled", "", message),
            None => present(image),
        }
    }

    /// Waits until the next pull.
    fn wait_for_retry(&mut self, now: Moment, step: &mut PullStep) {
        let Some(pull) = &mut self.failed else { return };
        let is_new = !pull.is_noticed && pull.backs_off() && now >= pull.failed + NOTICE;
        pull.is_noticed |= is_new;
        step.changes_at = Some(if pull.is_noticed || !pull.backs_off() {
            pull.next_try()
        } else {
            pull.failed + NOTICE
        });
        if is_new {
            let message = format!("Back-off pulling image {:?}", pull.image.as_str());
            step.notes.push(Note::normal("BackOff", "", message));
            step.error = Some("ImagePullBackOff");
        }
    }

    /// Gives up.
    pub(super) fn cancel(&mut self) {
        (self.failed, self.is_pulling) = (None, false);
    }
}

/// The Event of an image that was present.
pub(super) fn present(image: &str) -> Note {
    let message = format!(
        "Container image {image:?} already present on machine and can be accessed by the pod"
    );
    Note::normal("Pulled", "", message)
}

impl ContainerState {
    /// Whether its image is present; if not, it is pulled with back-off.
    pub(super) fn image_ready(
        &mut self,
        spec: &Value,
        referenced: Option<&mut ReferencedObjects>,
        sync: &mut SyncContext,
    ) -> bool {
        let wanted = WantedImage {
            user: ImageUser::Container(spec["name"].str()),
            image: spec["image"].str(),
            policy: spec["imagePullPolicy"].str(),
        };
        let step = self.pull.sync(&wanted, referenced, sync);
        for note in step.notes {
            sync.record(self, note);
        }
        if let Some(error) = step.error {
            let message = format!("Error: {error}");
            sync.record(self, Note::warning("Failed", "", message));
        }
        self.changes_at = step.changes_at.or(self.changes_at);
        step.is_ready
    }

    /// The Event of an image that is there.
    pub(super) fn record_pulled(&mut self, spec: &Value, sync: &mut SyncContext) {
        let note = self.pull.pulled_note(spec["image"].str());
        sync.record(self, note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pulls_back_off() {
        let mut failed = None;
        let mut now = Moment::default();
        let mut waits = Vec::new();
        for reason in [
            "ErrImageNeverPull",
            "InvalidImageName",
            "ErrImagePull",
            "ErrImagePull",
            "ImageInspectError",
            "ErrImagePull",
            "ErrImagePull",
            "ErrImagePull",
            "ErrImagePull",
        ] {
            let pull = FailedPull::failed("a:1", failed.take(), (reason, String::new()), now);
            waits.push(pull.next_try().saturating_since(now).as_secs());
            now = pull.next_try();
            failed = Some(Box::new(pull));
        }
        assert_eq!(waits, [10, 10, 10, 20, 10, 40, 80, 160, 300]);
    }

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
