//! An image that could not be had: what people see of it, and when it is tried again.

use std::time::Duration;

use mizzen_sdk::event::Note;
use mizzen_value::{Str, Value};

use super::{Held, Turn};
use crate::moment::Moment;

/// How long it takes until somebody notices that a pull failed.
const NOTICE: Duration = Duration::from_secs(1);
/// Kubernetes: how long an image that cannot be had is left alone, at first and at most (kubelet.go).
const FIRST_WAIT: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// A pull that failed.
#[derive(Debug)]
pub struct Pull {
    image: Str,
    n_tries: u32,
    failed: Moment,
    wait: Duration,
    why: String,
    /// Whether it is known by now that it failed.
    is_noticed: bool,
}

impl Pull {
    fn failed(image: &str, before: Option<Box<Pull>>, why: String, now: Moment) -> Pull {
        let wait = before
            .as_ref()
            .map_or(FIRST_WAIT, |pull| (pull.wait * 2).min(LONGEST_WAIT));
        let n_tries = before.map_or(0, |pull| pull.n_tries) + 1;
        Pull {
            image: image.into(),
            n_tries,
            failed: now,
            wait,
            why,
            is_noticed: false,
        }
    }

    /// Why the container waits: a word, and a text for people.
    pub fn waiting(&self, image: &str) -> (&'static str, String) {
        match self.is_noticed {
            false => ("ErrImagePull", self.why.clone()),
            true => (
                "ImagePullBackOff",
                format!(
                    "Back-off pulling image {image:?}: ErrImagePull: {}",
                    self.why
                ),
            ),
        }
    }
}

impl Held {
    /// Whether its image is there; if not, it is tried to be had now and then.
    pub(super) fn has_image(&mut self, spec: &Value, turn: &mut Turn) -> bool {
        // Kubernetes: another image has a back-off of its own (pkg/kubelet/images).
        self.pull.take_if(|pull| pull.image != spec["image"].str());
        if self
            .pull
            .as_ref()
            .is_some_and(|pull| turn.now < pull.failed + pull.wait)
        {
            self.leave_alone(spec, turn);
            return false;
        }
        let (image, n_tries) = (
            spec["image"].str(),
            self.pull.as_ref().map_or(0, |pull| pull.n_tries),
        );
        let Err(why) = turn.runtime.pull(turn.pod, spec, n_tries) else {
            self.pull = None;
            return true;
        };
        turn.tell(
            self,
            Note::normal("Pulling", "", format!("Pulling image {image:?}")),
        );
        turn.tell(
            self,
            Note::warning(
                "Failed",
                "",
                format!("Failed to pull image {image:?}: {why}"),
            ),
        );
        turn.tell(self, Note::warning("Failed", "", "Error: ErrImagePull"));
        self.pull = Some(Box::new(Pull::failed(
            image,
            self.pull.take(),
            why,
            turn.now,
        )));
        self.changes_at = Some(turn.now + NOTICE);
        false
    }

    /// Waits until the image is tried again.
    fn leave_alone(&mut self, spec: &Value, turn: &mut Turn) {
        let Some(pull) = &mut self.pull else { return };
        let is_new = !pull.is_noticed && turn.now >= pull.failed + NOTICE;
        pull.is_noticed |= is_new;
        self.changes_at = Some(if pull.is_noticed {
            pull.failed + pull.wait
        } else {
            pull.failed + NOTICE
        });
        if is_new {
            let image = spec["image"].str();
            turn.tell(
                self,
                Note::normal("BackOff", "", format!("Back-off pulling image {image:?}")),
            );
            turn.tell(self, Note::warning("Failed", "", "Error: ImagePullBackOff"));
        }
    }
}
