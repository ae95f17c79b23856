//! Writes with optimistic concurrency, and server-side apply.
//!
//! ```
//! # use mizzen_apiserver::User;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
//! # let config = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"}}"#)?;
//! # mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::CONFIG_MAPS, &config).await?;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::Api;
//! use mizzen_sdk::write::{self, Applier};
//! use serde_json::json;
//!
//! let api: Api<ConfigMap> = Api::namespaced(client, "default");
//! write::update(&api, "web", |config| {
//!     config.data.get_or_insert_default().insert("replicas".into(), "3".into());
//! })
//! .await?;
//! let wanted = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"colour": "red"}});
//! Applier::new("my-controller").apply(&api, "web", &wanted).await?;
//! # let data = api.get("web").await?.data.unwrap_or_default();
//! # assert_eq!((data["replicas"].as_str(), data["colour"].as_str()), ("3", "red"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt::Debug;
use std::time::Duration;

use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Error, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::sleep;

/// The number of attempts on conflicts.
const TRIES: usize = 5;
/// The wait before the first retry; doubled each time.
const WAIT: Duration = Duration::from_millis(10);

/// Whether a write failed with a conflict.
pub fn is_conflict(error: &Error) -> bool {
    has_code(error, 409)
}

/// Whether the object does not exist.
pub fn is_not_found(error: &Error) -> bool {
    has_code(error, 404)
}

/// Whether the object exists already. Its reason distinguishes it from a conflict.
pub fn is_already_exists(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.reason == "AlreadyExists")
}

/// Whether the request was rejected as invalid (422).
pub fn is_invalid(error: &Error) -> bool {
    has_code(error, 422)
}

/// Whether a create failed because the namespace is being deleted. A controller then does nothing
/// more.
pub fn is_namespace_terminating(error: &Error) -> bool {
    let Error::Api(status) = error else {
        return false;
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .into_iter()
        .any(|cause| cause.reason == "NamespaceTerminating")
}

/// Ignores that the object does not exist any more.
pub fn ignore_not_found<T>(outcome: Result<T, Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if !is_not_found(&error) => Err(error),
        _ => Ok(()),
    }
}

/// The server's message, or the error of the request.
pub fn message(error: &Error) -> String {
    match error {
        Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        // The error itself, without the prefix of the library.
        Error::Service(error) => error.to_string(),
        error => error.to_string(),
    }
}

fn has_code(error: &Error, code: u16) -> bool {
    matches!(error, Error::Api(status) if status.code == code)
}

/// Reads, changes and writes an object, with retries on conflicts. `change` may be called several
/// times, each time with the current object; if it changes nothing, nothing is written.
pub async fn update<K>(api: &Api<K>, name: &str, change: impl FnMut(&mut K)) -> Result<K, Error>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug + PartialEq,
{
    WriteTarget::Whole.update(api, name, change).await
}

/// The same for an object's status. It needs the verbs `get` of the resource and `update` of its
/// subresource `status`.
pub async fn update_status<K>(
    api: &Api<K>,
    name: &str,
    change: impl FnMut(&mut K),
) -> Result<K, Error>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug + PartialEq,
{
    WriteTarget::Status.update(api, name, change).await
}

/// The part of an object that is written.
enum WriteTarget {
    Whole,
    Status,
}

impl WriteTarget {
    async fn update<K>(
        &self,
        api: &Api<K>,
        name: &str,
        mut change: impl FnMut(&mut K),
    ) -> Result<K, Error>
    where
        K: Resource + Clone + DeserializeOwned + Serialize + Debug + PartialEq,
    {
        let mut retries = RetryState::default();
        loop {
            // Not `get_status`: it returns the same object, and needs a permission that roles seldom grant.
            let current = api.get(name).await?;
            let mut new = current.clone();
            change(&mut new);
            if new == current {
                return Ok(current);
            }
            let outcome = match self {
                WriteTarget::Whole => api.replace(name, &PostParams::default(), &new).await,
                WriteTarget::Status => api.replace_status(name, &PostParams::default(), &new).await,
            };
            match outcome {
                Err(error) if retries.has_more(&error) => retries.wait().await,
                outcome => return outcome,
            }
        }
    }
}

/// Retries a write on conflicts, with back-off.
pub async fn retry<T, F: Future<Output = Result<T, Error>>>(
    mut write: impl FnMut() -> F,
) -> Result<T, Error> {
    let mut retries = RetryState::default();
    loop {
        match write().await {
            Err(error) if retries.has_more(&error) => retries.wait().await,
            outcome => return outcome,
        }
    }
}

/// The attempts and the back-off of a write.
struct RetryState {
    n_tries: usize,
    wait: Duration,
}

impl Default for RetryState {
    fn default() -> RetryState {
        RetryState {
            n_tries: 1,
            wait: WAIT,
        }
    }
}

impl RetryState {
    fn has_more(&self, error: &Error) -> bool {
        is_conflict(error) && self.n_tries < TRIES
    }

    async fn wait(&mut self) {
        sleep(self.wait).await;
        self.n_tries += 1;
        self.wait *= 2;
    }
}

/// Applies objects with one field manager.
#[derive(Debug, Clone)]
pub struct Applier {
    params: PatchParams,
}

impl Applier {
    /// Applies as `manager` with force: conflicting fields are taken over, as controllers should.
    pub fn new(manager: &str) -> Applier {
        Applier {
            params: PatchParams::apply(manager).force(),
        }
    }

    /// Applies as `manager` without force: a conflict with another manager is an error.
    pub fn without_force(manager: &str) -> Applier {
        Applier {
            params: PatchParams::apply(manager),
        }
    }

    /// Applies `wanted`; fields that this manager no longer sets are removed.
    pub async fn apply<K, P>(&self, api: &Api<K>, name: &str, wanted: &P) -> Result<K, Error>
    where
        K: Clone + DeserializeOwned + Debug,
        P: Serialize + Debug,
    {
        api.patch(name, &self.params, &Patch::Apply(wanted)).await
    }

    /// The same for an object's status.
    pub async fn apply_status<K, P>(&self, api: &Api<K>, name: &str, wanted: &P) -> Result<K, Error>
    where
        K: Clone + DeserializeOwned + Debug,
        P: Serialize + Debug,
    {
        api.patch_status(name, &self.params, &Patch::Apply(wanted))
            .await
    }
}
