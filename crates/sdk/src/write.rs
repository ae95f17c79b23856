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
///
/// ```
/// use mizzen_sdk::write::is_conflict;
///
/// let status = kube::core::Status::failure("no", "Conflict").with_code(409);
/// assert!(is_conflict(&kube::Error::Api(status.boxed())));
/// ```
pub fn is_conflict(error: &Error) -> bool {
    has_code(error, 409)
}

/// Whether the object does not exist.
///
/// ```
/// use mizzen_sdk::write::is_not_found;
///
/// let status = kube::core::Status::failure("no", "NotFound").with_code(404);
/// assert!(is_not_found(&kube::Error::Api(status.boxed())));
/// ```
pub fn is_not_found(error: &Error) -> bool {
    has_code(error, 404)
}

/// Whether the object exists already. Its reason distinguishes it from a conflict.
///
/// ```
/// use mizzen_sdk::write::is_already_exists;
///
/// let status = kube::core::Status::failure("no", "AlreadyExists").with_code(409);
/// assert!(is_already_exists(&kube::Error::Api(status.boxed())));
/// ```
pub fn is_already_exists(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.reason == "AlreadyExists")
}

/// Whether the request was rejected as invalid (422).
///
/// ```
/// use mizzen_sdk::write::is_invalid;
///
/// let status = kube::core::Status::failure("no", "Invalid").with_code(422);
/// assert!(is_invalid(&kube::Error::Api(status.boxed())));
/// ```
pub fn is_invalid(error: &Error) -> bool {
    has_code(error, 422)
}

/// Whether the kind does not support this type of patch (415): custom kinds have no strategic merge
/// patch.
///
/// ```
/// use mizzen_sdk::write::is_unsupported_media_type;
///
/// let status = kube::core::Status::failure("no", "UnsupportedMediaType").with_code(415);
/// assert!(is_unsupported_media_type(&kube::Error::Api(status.boxed())));
/// ```
pub fn is_unsupported_media_type(error: &Error) -> bool {
    has_code(error, 415)
}

/// Whether a create failed because the namespace is being deleted. A controller then does nothing
/// more.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// # let config = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"}}"#)?;
/// use mizzen_sdk::dynamic::DynamicClient;
/// use mizzen_sdk::resource::CONFIG_MAPS;
/// use mizzen_sdk::write::is_namespace_terminating;
///
/// match DynamicClient::new(client).create(&CONFIG_MAPS, &config).await {
///     Err(error) if is_namespace_terminating(&error) => {} // nothing to do any more
///     outcome => drop(outcome?),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::Key;
/// use mizzen_sdk::dynamic::{DeleteOptions, DynamicClient};
/// use mizzen_sdk::resource::CONFIG_MAPS;
/// use mizzen_sdk::write::ignore_not_found;
///
/// let api = DynamicClient::new(client);
/// let deleted = api.delete(&CONFIG_MAPS, &Key::new("default", "gone"), &DeleteOptions::default()).await;
/// ignore_not_found(deleted)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn ignore_not_found<T>(outcome: Result<T, Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if !is_not_found(&error) => Err(error),
        _ => Ok(()),
    }
}

/// The server's message, or the error of the request.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::Key;
/// use mizzen_sdk::dynamic::DynamicClient;
/// use mizzen_sdk::resource::CONFIG_MAPS;
/// use mizzen_sdk::write;
///
/// let error = DynamicClient::new(client).get(&CONFIG_MAPS, &Key::new("default", "web")).await.unwrap_err();
/// assert_eq!(write::message(&error), r#"configmaps "web" not found"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// # let config = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"}}"#)?;
/// # mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::CONFIG_MAPS, &config).await?;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::Api;
/// use mizzen_sdk::write;
///
/// let configs: Api<ConfigMap> = Api::default_namespaced(client);
/// let config = write::update(&configs, "web", |config| {
///     config.data.get_or_insert_default().insert("colour".into(), "red".into());
/// })
/// .await?;
/// assert_eq!(config.data.unwrap_or_default()["colour"], "red");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub async fn update<K>(api: &Api<K>, name: &str, change: impl FnMut(&mut K)) -> Result<K, Error>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug + PartialEq,
{
    WriteTarget::Whole.update(api, name, change).await
}

/// The same for an object's status. It needs the verbs `get` of the resource and `update` of its
/// subresource `status`.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
/// use kube::Api;
/// use mizzen_sdk::write;
///
/// let namespaces: Api<Namespace> = Api::all(client);
/// let ready = NamespaceCondition { type_: "Ready".into(), status: "True".into(), ..NamespaceCondition::default() };
/// let namespace = write::update_status(&namespaces, "default", |namespace| {
///     namespace.status.get_or_insert_default().conditions = Some(vec![ready.clone()]);
/// })
/// .await?;
/// assert!(namespace.status.and_then(|status| status.conditions).is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// # let config = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"}}"#)?;
/// # mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::CONFIG_MAPS, &config).await?;
/// use mizzen_sdk::Key;
/// use mizzen_sdk::dynamic::DynamicClient;
/// use mizzen_sdk::resource::CONFIG_MAPS;
/// use mizzen_sdk::write;
///
/// let (api, key) = (DynamicClient::new(client), Key::new("default", "web"));
/// let config = write::retry(async || {
///     let mut config = api.get(&CONFIG_MAPS, &key).await?;
///     config.entry("data").set("colour", "red");
///     api.update(&CONFIG_MAPS, &config).await
/// })
/// .await?;
/// assert_eq!(config["data"]["colour"].str(), "red");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::Api;
/// use mizzen_sdk::write::{Applier, is_conflict};
/// use serde_json::json;
///
/// let configs: Api<ConfigMap> = Api::default_namespaced(client);
/// let wanted = |colour: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": {"colour": colour}});
/// Applier::new("painter").apply(&configs, "web", &wanted("red")).await?;
/// let refused = Applier::without_force("rival").apply(&configs, "web", &wanted("blue")).await;
/// assert!(refused.is_err_and(|error| is_conflict(&error)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use k8s_openapi::api::core::v1::Namespace;
    /// use kube::Api;
    /// use mizzen_sdk::write::Applier;
    /// use serde_json::json;
    ///
    /// let namespaces: Api<Namespace> = Api::all(client);
    /// let conditions = json!([{"type": "Ready", "status": "True"}]);
    /// let wanted = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}, "status": {"conditions": conditions}});
    /// let namespace = Applier::new("my-controller").apply_status(&namespaces, "default", &wanted).await?;
    /// assert!(namespace.status.and_then(|status| status.conditions).is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn apply_status<K, P>(&self, api: &Api<K>, name: &str, wanted: &P) -> Result<K, Error>
    where
        K: Clone + DeserializeOwned + Debug,
        P: Serialize + Debug,
    {
        api.patch_status(name, &self.params, &Patch::Apply(wanted))
            .await
    }
}
