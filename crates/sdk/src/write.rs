//! Writing objects when others write them, too.
//!
//! ```
//! # use mizzen_apiserver::User;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
//! # let config = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"}}"#)?;
//! # mizzen_sdk::api::Api::new(client.clone()).create(&mizzen_sdk::resource::CONFIG_MAPS, &config).await?;
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

/// How often a write that lost a race is tried again.
const TRIES: usize = 5;
/// How long to wait before the first of them; each next one waits longer.
const WAIT: Duration = Duration::from_millis(10);

/// Whether somebody else was faster.
pub fn is_conflict(error: &Error) -> bool {
    has_code(error, 409)
}

/// Whether there is no such object.
pub fn is_not_found(error: &Error) -> bool {
    has_code(error, 404)
}

/// Whether there is such an object already. It is told from a conflict by its reason.
pub fn is_already_exists(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.reason == "AlreadyExists")
}

/// What the server said, or why it could not be asked, for people.
pub fn message(error: &Error) -> String {
    match error {
        Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        // Its own words, without the library's word for where they come from.
        Error::Service(error) => error.to_string(),
        error => error.to_string(),
    }
}

fn has_code(error: &Error, code: u16) -> bool {
    matches!(error, Error::Api(status) if status.code == code)
}

/// Reads, changes and writes an object until nobody else is faster. `change` may be called several times, each time
/// with what is there then; if it changes nothing, nothing is written.
pub async fn update<K>(api: &Api<K>, name: &str, change: impl FnMut(&mut K)) -> Result<K, Error>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug + PartialEq,
{
    Part::Whole.update(api, name, change).await
}

/// The same for an object's status.
pub async fn update_status<K>(
    api: &Api<K>,
    name: &str,
    change: impl FnMut(&mut K),
) -> Result<K, Error>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug + PartialEq,
{
    Part::Status.update(api, name, change).await
}

/// What of an object is written.
enum Part {
    Whole,
    Status,
}

impl Part {
    async fn update<K>(
        &self,
        api: &Api<K>,
        name: &str,
        mut change: impl FnMut(&mut K),
    ) -> Result<K, Error>
    where
        K: Resource + Clone + DeserializeOwned + Serialize + Debug + PartialEq,
    {
        let mut patience = Patience::default();
        loop {
            let current = match self {
                Part::Whole => api.get(name).await?,
                Part::Status => api.get_status(name).await?,
            };
            let mut new = current.clone();
            change(&mut new);
            if new == current {
                return Ok(current);
            }
            let outcome = match self {
                Part::Whole => api.replace(name, &PostParams::default(), &new).await,
                Part::Status => api.replace_status(name, &PostParams::default(), &new).await,
            };
            match outcome {
                Err(error) if patience.has_more(&error) => patience.wait().await,
                outcome => return outcome,
            }
        }
    }
}

/// Tries something again that lost a race, a few times, and waits a bit longer each time.
pub async fn retry<T, F: Future<Output = Result<T, Error>>>(
    mut write: impl FnMut() -> F,
) -> Result<T, Error> {
    let mut patience = Patience::default();
    loop {
        match write().await {
            Err(error) if patience.has_more(&error) => patience.wait().await,
            outcome => return outcome,
        }
    }
}

/// How often and how long to wait for others.
struct Patience {
    n_tries: usize,
    wait: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            n_tries: 1,
            wait: WAIT,
        }
    }
}

impl Patience {
    fn has_more(&self, error: &Error) -> bool {
        is_conflict(error) && self.n_tries < TRIES
    }

    async fn wait(&mut self) {
        sleep(self.wait).await;
        self.n_tries += 1;
        self.wait *= 2;
    }
}

/// Applies objects under one name, so that what it owns is told from what others own.
#[derive(Debug, Clone)]
pub struct Applier {
    params: PatchParams,
}

impl Applier {
    /// Applies as `manager`, and takes over what others own: a controller knows what it wants.
    pub fn new(manager: &str) -> Applier {
        Applier {
            params: PatchParams::apply(manager).force(),
        }
    }

    /// Applies as `manager`, and fails where another owns a field with another value.
    pub fn polite(manager: &str) -> Applier {
        Applier {
            params: PatchParams::apply(manager),
        }
    }

    /// Lets the object be as `wanted` says; what this manager no longer names goes.
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
