//! Images by pull policy. Pulls run in parallel, and each is one task.

use std::sync::Arc;

use mizzen_cri::CallError;
use mizzen_cri::messages::{Image, ImageSpec, ImageStatusRequest, PullImageRequest};
use mizzen_value::time::duration_text;
use mizzen_value::{Str, Value};
use tokio::time::Instant;

use super::{CriNode, config};
use crate::runtime::ImageState;

/// The pull of a container's image.
pub(super) struct Pull {
    image: Str,
    /// The failed pulls before it.
    n_tries: u32,
    state: ImageState,
}

impl CriNode {
    /// The state of a container's image; starts a task if there is none for it.
    pub(super) fn ensure_image(
        self: Arc<Self>,
        pod: &Value,
        container: &Value,
        n_tries: u32,
    ) -> ImageState {
        let (name, image) = (
            Str::from(container["name"].str()),
            Str::from(container["image"].str()),
        );
        let known = self.with_pod(pod, |record| {
            let pull = record.pulls.get(&name);
            let same = pull.filter(|pull| pull.image == image && pull.n_tries == n_tries);
            if let Some(pull) = same {
                return Some(pull.state.clone());
            }
            let pull = Pull {
                image: image.clone(),
                n_tries,
                state: ImageState::Pending,
            };
            record.pulls.insert(name.clone(), pull);
            None
        });
        if let Some(state) = known {
            return state;
        }
        let (pod, policy) = (pod.clone(), container["imagePullPolicy"].str().to_owned());
        tokio::spawn(async move {
            let set_state = |state: ImageState| {
                self.update_pod(pod["metadata"]["uid"].str(), |record| {
                    let pull = record.pulls.get_mut(&name);
                    let mine = |pull: &&mut Pull| pull.image == image && pull.n_tries == n_tries;
                    if let Some(pull) = pull.filter(mine) {
                        pull.state = state;
                    }
                });
            };
            let begin = || set_state(ImageState::Pulling);
            set_state(self.pull(&pod, &image, &policy, begin).await);
        });
        ImageState::Pending
    }

    /// Kubernetes: pkg/kubelet/images/image_manager.go.
    async fn pull(&self, pod: &Value, image: &str, policy: &str, begin: impl Fn()) -> ImageState {
        let failed = |reason, message| ImageState::Failed { reason, message };
        let present = match self.find_image(image).await {
            Ok(present) => present,
            Err(error) => {
                let message = format!("Failed to inspect image {image:?}: {error}");
                return failed("ImageInspectError", message);
            }
        };
        match (policy, present) {
            ("Never", None) => {
                let message =
                    format!("Container image {image:?} is not present with pull policy of Never");
                return failed("ErrImageNeverPull", message);
            }
            ("Never" | "IfNotPresent", Some(_)) => return ImageState::Present { message: None },
            _ => {}
        }
        begin();
        let began = Instant::now();
        let request = PullImageRequest {
            image: Some(ImageSpec {
                image: image.into(),
                user_specified_image: image.into(),
                ..ImageSpec::default()
            }),
            auth: None,
            sandbox_config: Some(config::sandbox(pod, &self.node, 0, &self.paths)),
        };
        if let Err(error) = self.client.call(request).await {
            return failed("ErrImagePull", error.to_string());
        }
        let millis = began.elapsed().as_millis() as i64;
        let took = duration_text(millis * 1_000_000);
        let size = match self.find_image(image).await {
            Ok(Some(image)) => image.size,
            _ => 0,
        };
        let message = format!(
            "Successfully pulled image {image:?} in {took} ({took} including waiting). Image size: {size} bytes."
        );
        ImageState::Present {
            message: Some(message),
        }
    }

    async fn find_image(&self, image: &str) -> Result<Option<Image>, CallError> {
        let request = ImageStatusRequest {
            image: Some(ImageSpec {
                image: image.into(),
                ..ImageSpec::default()
            }),
            verbose: false,
        };
        Ok(self.client.call(request).await?.image)
    }
}
