//! Images by pull policy. Each pull is one task; so many run at once as the node is configured for.

use std::sync::Arc;

use mizzen_cri::image_name::ImageName;
use mizzen_cri::messages::{AuthConfig, Image, ImageSpec, ImageStatusRequest, PullImageRequest};
use mizzen_cri::{CallError, Code};
use mizzen_value::time::duration_text;
use mizzen_value::{Str, Value};
use tokio::time::Instant;

use super::CriNode;
use super::keyring::{Credentials, Keyring};
use crate::pod::references::Contents;
use crate::runtime::{ImageRequest, ImageState, ImageUser};

/// What an image is pulled for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum PullUser {
    Container(Str),
    Volume(Str),
}

/// The pull of an image.
pub(super) struct Pull {
    image: Str,
    /// The failed pulls before it.
    n_tries: u32,
    state: ImageState,
}

/// What a task needs to have an image.
struct PullTask {
    pod: Value,
    image: Str,
    policy: Str,
    secrets: Vec<Arc<Contents>>,
}

/// Why there is no image: the reason of the waiting container, and a message.
type PullError = (&'static str, String);

impl CriNode {
    /// The state of an image; starts a task if there is none for it.
    pub(super) fn ensure_image(self: Arc<Self>, request: &ImageRequest) -> ImageState {
        let (pod, n_tries, image) = (request.pod, request.n_tries, Str::from(request.image));
        let user = match request.user {
            ImageUser::Container(name) => PullUser::Container(name.into()),
            ImageUser::Volume(name) => PullUser::Volume(name.into()),
        };
        let known = self.with_pod(pod, |record| {
            let pull = record.pulls.get(&user);
            let same = pull.filter(|pull| pull.image == image && pull.n_tries == n_tries);
            if let Some(pull) = same {
                return Some(pull.state.clone());
            }
            let pull = Pull {
                image: image.clone(),
                n_tries,
                state: ImageState::Pending,
            };
            record.pulls.insert(user.clone(), pull);
            None
        });
        if let Some(state) = known {
            return state;
        }
        let task = PullTask {
            pod: pod.clone(),
            image: image.clone(),
            policy: request.policy.into(),
            secrets: request.pull_secrets.clone(),
        };
        tokio::spawn(async move {
            let set_state = |state: ImageState| {
                self.update_pod(task.pod["metadata"]["uid"].str(), |record| {
                    let pull = record.pulls.get_mut(&user);
                    let mine = |pull: &&mut Pull| pull.image == image && pull.n_tries == n_tries;
                    if let Some(pull) = pull.filter(mine) {
                        pull.state = state;
                    }
                });
            };
            let begin = || set_state(ImageState::Pulling);
            let ensured = self.ensure_present(&task, begin).await;
            set_state(match ensured {
                Ok(message) => ImageState::Present { message },
                Err((reason, message)) => ImageState::Failed { reason, message },
            });
        });
        ImageState::Pending
    }

    /// Kubernetes: pkg/kubelet/images/image_manager.go. Returns the message of the Event if the
    /// image was pulled.
    async fn ensure_present(
        &self,
        task: &PullTask,
        begin: impl Fn(),
    ) -> Result<Option<String>, PullError> {
        let image = task.image.as_str();
        let name = ImageName::parse(image).map_err(|error| {
            let why = format!("couldn't parse image name {image:?}: {error}");
            let message = format!("Failed to apply default image tag {image:?}: {why}");
            ("InvalidImageName", message)
        })?;
        let spec = image_spec(image, &name);
        let present = self.find_image(&spec).await.map_err(|error| {
            let message = format!("Failed to inspect image {image:?}: {error}");
            ("ImageInspectError", message)
        })?;
        match (task.policy.as_str(), present) {
            ("Never", None) => {
                let message =
                    format!("Container image {image:?} is not present with pull policy of Never");
                Err(("ErrImageNeverPull", message))
            }
            ("Never" | "IfNotPresent", Some(_)) => Ok(None),
            _ => {
                begin();
                let pulled = self.pull(task, spec, &name.repository()).await;
                pulled
                    .map(Some)
                    .map_err(|message| ("ErrImagePull", message))
            }
        }
    }

    /// Pulls an image when it is its turn, and returns the message of the Event.
    async fn pull(
        &self,
        task: &PullTask,
        spec: ImageSpec,
        repository: &str,
    ) -> Result<String, String> {
        let requested = Instant::now();
        // It is never closed.
        let _turn = self.pulls.acquire().await;
        let began = Instant::now();
        let keyring = Keyring::from_secrets(&task.secrets)?;
        self.pull_with(task, &spec, keyring.lookup(repository))
            .await?;
        let (took, in_all) = (text_since(began), text_since(requested));
        let size = match self.find_image(&spec).await {
            Ok(Some(image)) => image.size,
            _ => 0,
        };
        let image = task.image.as_str();
        Ok(format!(
            "Successfully pulled image {image:?} in {took} ({in_all} including waiting). Image size: {size} bytes."
        ))
    }

    /// Tries one account after the other; without accounts it pulls without credentials.
    async fn pull_with(
        &self,
        task: &PullTask,
        spec: &ImageSpec,
        accounts: Vec<Credentials>,
    ) -> Result<(), String> {
        let mut attempts: Vec<Option<AuthConfig>> =
            accounts.into_iter().map(auth).map(Some).collect();
        if attempts.is_empty() {
            attempts.push(None);
        }
        let mut errors: Vec<String> = Vec::new();
        for auth in attempts {
            let request = PullImageRequest {
                image: Some(spec.clone()),
                auth,
                sandbox_config: Some(self.sandbox_config(&task.pod, 0)),
            };
            let Err(error) = self.client.call(request).await else {
                return Ok(());
            };
            let error = pull_error(error);
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
        Err(match errors.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        })
    }

    pub(super) async fn find_image(&self, spec: &ImageSpec) -> Result<Option<Image>, CallError> {
        let request = ImageStatusRequest {
            image: Some(spec.clone()),
            verbose: false,
        };
        Ok(self.client.call(request).await?.image)
    }
}

/// The name of an image that was pulled for a volume.
pub(super) fn spec_of(image: &str) -> ImageSpec {
    match ImageName::parse(image) {
        Ok(name) => image_spec(image, &name),
        Err(_) => ImageSpec {
            image: image.into(),
            ..ImageSpec::default()
        },
    }
}

/// Kubernetes: a name without a tag gets the default one, but stays as short as it is.
fn image_spec(image: &str, name: &ImageName) -> ImageSpec {
    let tagged = match (&name.tag, &name.digest) {
        (None, None) => format!("{image}:latest"),
        _ => image.to_owned(),
    };
    ImageSpec {
        image: tagged,
        user_specified_image: image.into(),
        ..ImageSpec::default()
    }
}

fn auth(account: Credentials) -> AuthConfig {
    AuthConfig {
        username: account.username,
        password: account.password,
        ..AuthConfig::default()
    }
}

/// Kubernetes: the code of an unknown error says nothing (cri-client, `PullImage`).
fn pull_error(error: CallError) -> String {
    match error.code {
        Code::Unknown => error.message,
        _ => error.to_string(),
    }
}

fn text_since(began: Instant) -> String {
    duration_text(began.elapsed().as_millis() as i64 * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_tag_gets_the_default_one() {
        let digest = format!("a@sha256:{}", "0".repeat(64));
        for (image, expected) in [
            ("busybox", "busybox:latest"),
            ("busybox:1", "busybox:1"),
            ("127.0.0.1:5000/a", "127.0.0.1:5000/a:latest"),
            (&digest, &digest),
        ] {
            let name = ImageName::parse(image).unwrap();
            assert_eq!(image_spec(image, &name).image, expected);
        }
    }

    #[test]
    fn the_code_of_an_unknown_error_is_left_out() {
        let error = |code| CallError {
            code,
            message: "no such host".into(),
        };
        assert_eq!(pull_error(error(Code::Unknown)), "no such host");
        assert_eq!(
            pull_error(error(Code::NotFound)),
            "rpc error: code = NotFound desc = no such host"
        );
    }
}
