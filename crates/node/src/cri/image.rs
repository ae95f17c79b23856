//! Images by pull policy. Each pull is one task; so many run at once as the node is configured for.
//!
//! A pod may use an image that is there if it could pull it: `pull_records` knows that.

use std::sync::Arc;

use mizzen_cri::image_name::ImageName;
use mizzen_cri::messages::{AuthConfig, Image, ImageSpec, ImageStatusRequest, PullImageRequest};
use mizzen_cri::{CallError, Code};
use mizzen_value::time::duration_text;
use mizzen_value::{Str, Value};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::CriNode;
use super::keyring::{Credentials, Keyring};
use super::pull_records::{PullCredentials, PullRecords, PullSecret};
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
        let namespace = task.pod["metadata"]["namespace"].str();
        let keyring = Keyring::from_secrets(namespace, &task.secrets);
        let accounts = keyring.map(|keyring| keyring.lookup(&name.repository()));
        if task.policy.as_str() != "Always" {
            let present = self.find_image(&spec).await.map_err(|error| {
                let message = format!("Failed to inspect image {image:?}: {error}");
                ("ImageInspectError", message)
            })?;
            let must_pull = match present {
                None => Ok(true),
                Some(present) => self.must_pull(image, present.id, &accounts).await,
            };
            if !must_pull.map_err(|message| ("ErrImagePull", message))? {
                return Ok(None);
            }
            if task.policy.as_str() == "Never" {
                // Kubernetes: the same for an image that the pod may not use, so that it does not learn
                // that the image is there.
                let message =
                    format!("Container image {image:?} is not present with pull policy of Never");
                return Err(("ErrImageNeverPull", message));
            }
        }
        begin();
        let pulled = match accounts {
            Ok(accounts) => self.pull(task, spec, accounts).await,
            Err(error) => Err(error),
        };
        pulled
            .map(Some)
            .map_err(|message| ("ErrImagePull", message))
    }

    /// Whether a pod must pull an image that is there, because it may not use it otherwise.
    async fn must_pull(
        &self,
        image: &str,
        id: String,
        accounts: &Result<Vec<Credentials>, String>,
    ) -> Result<bool, String> {
        let secrets = accounts.as_ref().map_err(String::clone).map(|accounts| {
            let sources = accounts.iter().map(|account| account.source.clone());
            sources.collect::<Vec<PullSecret>>()
        });
        let (image, now) = (image.to_owned(), self.now());
        let must_pull = move |records: &PullRecords| records.must_pull(&image, &id, secrets, now);
        self.with_pull_records(must_pull).await?
    }

    /// Reads or writes records of pulls.
    async fn with_pull_records<T: Send + 'static>(
        &self,
        work: impl FnOnce(&PullRecords) -> T + Send + 'static,
    ) -> Result<T, String> {
        let records = self.pull_records.clone();
        let done = spawn_blocking(move || work(&records)).await;
        done.map_err(|error| error.to_string())
    }

    /// Pulls an image when it is its turn, and returns the message of the Event. What it was pulled with
    /// is recorded.
    async fn pull(
        &self,
        task: &PullTask,
        spec: ImageSpec,
        accounts: Vec<Credentials>,
    ) -> Result<String, String> {
        let requested = Instant::now();
        let image = task.image.clone();
        let intended = self.with_pull_records(move |records| records.record_intent(&image));
        let intended = intended.await.and_then(|recorded| {
            recorded.map_err(|error| format!("failed to record image pull intent: {error}"))
        });
        intended.map_err(|error| {
            let image = task.image.as_str();
            format!("Failed to record image pull intent for container image {image:?}: {error}")
        })?;
        let pulled = self.pull_in_turn(task, &spec, accounts, requested).await;
        let (message, recorded) = match pulled {
            Ok((message, id, credentials)) => (Ok(message), Some((id, credentials))),
            Err(error) => (Err(error), None),
        };
        let (image, now) = (task.image.clone(), self.now());
        let record = move |records: &PullRecords| match recorded {
            Some((id, credentials)) => {
                records.record_end(&image, Some((id.as_str(), credentials)), now);
            }
            None => records.record_end(&image, None, now),
        };
        self.with_pull_records(record).await?;
        message
    }

    /// Returns the message of the Event, the ID of the image, and what it was pulled with.
    async fn pull_in_turn(
        &self,
        task: &PullTask,
        spec: &ImageSpec,
        accounts: Vec<Credentials>,
        requested: Instant,
    ) -> Result<(String, String, PullCredentials), String> {
        // It is never closed.
        let _turn = self.pulls.acquire().await;
        let began = Instant::now();
        let (image_ref, used) = self.pull_with(task, spec, accounts).await?;
        let (took, in_all) = (text_since(began), text_since(requested));
        let (id, size) = match self.find_image(spec).await {
            Ok(Some(image)) => (image.id, image.size),
            _ => (image_ref, 0),
        };
        let image = task.image.as_str();
        let message = format!(
            "Successfully pulled image {image:?} in {took} ({in_all} including waiting). Image size: {size} bytes."
        );
        Ok((message, id, used))
    }

    /// Tries one account after the other; without accounts it pulls without credentials. Returns the
    /// image as the runtime calls it, and what it was pulled with.
    async fn pull_with(
        &self,
        task: &PullTask,
        spec: &ImageSpec,
        accounts: Vec<Credentials>,
    ) -> Result<(String, PullCredentials), String> {
        let mut attempts: Vec<Option<Credentials>> = accounts.into_iter().map(Some).collect();
        if attempts.is_empty() {
            attempts.push(None);
        }
        let mut errors: Vec<String> = Vec::new();
        for account in attempts {
            let request = PullImageRequest {
                image: Some(spec.clone()),
                auth: account.as_ref().map(auth),
                sandbox_config: Some(self.sandbox_config(&task.pod, 0)),
            };
            let error = match self.client.call(request).await {
                Ok(pulled) => {
                    let used = account.map_or(PullCredentials::NodePods, |account| {
                        PullCredentials::Secrets(vec![account.source])
                    });
                    return Ok((pulled.image_ref, used));
                }
                Err(error) => pull_error(error),
            };
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

fn auth(account: &Credentials) -> AuthConfig {
    AuthConfig {
        username: account.username.clone(),
        password: account.password.clone(),
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
