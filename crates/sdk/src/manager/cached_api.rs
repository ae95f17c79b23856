//! The cached client: reads from informers, writes through the API server.

use std::sync::Arc;
use std::time::Duration;

use kube::{Client, Error};
use mizzen_value::{Value, json};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::cache::{DecodeError, Entry, Version};
use crate::dynamic::{DeleteOptions, DynamicClient, PatchType};
use crate::informer::Informer;
use crate::key::Key;
use crate::object::Object;
use crate::resource::ResourceType;

/// Objects of a kind: reads come from the cache, writes go to the API server. Typed and untyped
/// objects share one code path. Cheap to clone.
///
/// Reads start the informer of the kind and wait for its initial list. A cache lags behind the
/// server; with [`read_your_writes`](super::Manager::read_your_writes) it has at least the writes of
/// this client.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use std::time::Duration;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mizzen_sdk::{Key, Object};
/// use mizzen_sdk::dynamic::DeleteOptions;
/// use mizzen_sdk::manager::Manager;
/// use mizzen_sdk::resource::CONFIG_MAPS;
///
/// let manager = Manager::new(client).read_your_writes(Duration::from_secs(5));
/// let configs = manager.cluster().objects(&CONFIG_MAPS);
/// let config = Object::parse(br#"{"metadata":{"name":"web","namespace":"default"},"data":{"colour":"red"}}"#)?;
/// configs.create(&config).await?;
/// let key = Key::new("default", "web");
/// let mut config = Object::clone(&*configs.get(&key).await?.expect("it was created"));
/// config.entry("data").set("colour", "blue");
/// configs.update(&config).await?;
/// assert_eq!(configs.list("default").await?[0]["data"]["colour"].str(), "blue");
/// configs.delete(&key, &DeleteOptions::default()).await?;
/// assert!(configs.get(&key).await?.is_none());
///
/// let typed = manager.cluster().api::<ConfigMap>();
/// assert!(typed.get(&Key::new("default", "other")).await?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CachedApi<K> {
    api: DynamicClient,
    resource: ResourceType,
    informer: Informer<K>,
    namespaces: Vec<String>,
    read_your_writes: Option<Duration>,
}

impl<K> Clone for CachedApi<K> {
    fn clone(&self) -> CachedApi<K> {
        CachedApi {
            api: self.api.clone(),
            resource: self.resource.clone(),
            informer: self.informer.clone(),
            namespaces: self.namespaces.clone(),
            read_your_writes: self.read_your_writes,
        }
    }
}

/// Why an object cannot be read from the cache.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mizzen_sdk::Key;
/// use mizzen_sdk::informer::FactoryOptions;
/// use mizzen_sdk::manager::{Manager, ReadError};
///
/// let namespaces = vec!["shop".into()];
/// let manager = Manager::new(client).cache(FactoryOptions { namespaces, ..FactoryOptions::default() });
/// let error = manager.cluster().api::<ConfigMap>().get(&Key::new("bank", "web")).await.unwrap_err();
/// assert!(matches!(error, ReadError::NotCached(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, thiserror::Error)]
pub enum ReadError {
    /// The object does not decode as its type.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The cache is restricted to other namespaces.
    #[error("namespace {0:?} is not cached")]
    NotCached(String),
    /// There is no such index.
    #[error("there is no index {0:?}")]
    NoIndex(String),
}

impl<K: DeserializeOwned + Serialize + Send + Sync + 'static> CachedApi<K> {
    pub(super) fn new(
        client: Client,
        resource: ResourceType,
        informer: Informer<K>,
        namespaces: Vec<String>,
    ) -> CachedApi<K> {
        CachedApi {
            api: DynamicClient::new(client),
            namespaces: if resource.namespaced {
                namespaces
            } else {
                Vec::new()
            },
            resource,
            informer,
            read_your_writes: None,
        }
    }

    /// Writes wait until the cache has them, for at most `timeout`; `None` for not at all.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use std::time::Duration;
    /// use mizzen_sdk::manager::Manager;
    /// use mizzen_sdk::resource::PODS;
    ///
    /// let manager = Manager::new(client).read_your_writes(Duration::from_secs(5));
    /// let pods = manager.cluster().objects(&PODS).with_read_your_writes(None); // written, never read
    /// # drop(pods);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_read_your_writes(mut self, timeout: Option<Duration>) -> CachedApi<K> {
        self.read_your_writes = timeout;
        self
    }

    /// The informer behind the cache, for handlers and indexes.
    pub fn informer(&self) -> &Informer<K> {
        &self.informer
    }

    /// An object of the cache.
    pub async fn get(&self, key: &Key) -> Result<Option<Arc<K>>, ReadError> {
        self.sync(key.namespace()).await?;
        Ok(self.informer.lister().by_key(key)?)
    }

    /// All objects of a namespace, or of all cached namespaces if it is empty.
    pub async fn list(&self, namespace: &str) -> Result<Vec<Arc<K>>, ReadError> {
        self.sync(namespace).await?;
        let lister = self.informer.lister();
        Ok(match namespace {
            "" => lister.list()?,
            namespace => lister.namespaced(namespace).list()?,
        })
    }

    /// All objects with a value of an index of the informer.
    pub async fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<K>>, ReadError> {
        self.sync("").await?;
        let found = self.informer.lister().by_index(index, value);
        Ok(found.ok_or_else(|| ReadError::NoIndex(index.into()))??)
    }

    async fn sync(&self, namespace: &str) -> Result<(), ReadError> {
        let is_cached = namespace.is_empty()
            || self.namespaces.is_empty()
            || self.namespaces.iter().any(|cached| cached == namespace);
        if !is_cached {
            return Err(ReadError::NotCached(namespace.into()));
        }
        if !self.informer.has_synced() {
            self.informer.start();
            self.informer.wait_for_sync().await;
        }
        Ok(())
    }

    /// Creates an object, in the namespace that it names.
    pub async fn create(&self, object: &K) -> Result<K, Error> {
        let object = encode(object)?;
        self.written(self.api.create(&self.resource, &object).await?)
            .await
    }

    /// Updates an object.
    pub async fn update(&self, object: &K) -> Result<K, Error> {
        let object = encode(object)?;
        self.written(self.api.update(&self.resource, &object).await?)
            .await
    }

    /// Updates the status of an object.
    pub async fn update_status(&self, object: &K) -> Result<K, Error> {
        let object = encode(object)?;
        self.written(self.api.update_status(&self.resource, &object).await?)
            .await
    }

    /// Patches an object, or a subresource unless that is empty.
    pub async fn patch(
        &self,
        key: &Key,
        subresource: &str,
        how: PatchType<'_>,
        change: &Value,
    ) -> Result<K, Error> {
        let patched = self
            .api
            .patch(&self.resource, key, subresource, how, change);
        self.written(patched.await?).await
    }

    /// Deletes an object. With read-your-writes, the cache has lost it afterwards, or has its
    /// deletionTimestamp if finalizers or a grace period delay the deletion. Otherwise the cache may
    /// have it for a moment longer.
    pub async fn delete(&self, key: &Key, options: &DeleteOptions<'_>) -> Result<(), Error> {
        let response = self.api.delete(&self.resource, key, options).await?;
        let Some(limit) = self.read_your_writes else {
            return Ok(());
        };
        // The API server returns a Status if the object is gone, and otherwise the object.
        let uid = match response.uid() {
            "" => response["details"]["uid"].str(),
            uid => uid,
        };
        let terminating = response
            .is_terminating()
            .then(|| Version::parse(response.version()));
        let is_deleted = |known: Option<Entry<K>>| {
            known.is_none_or(|known| {
                known.uid() != uid
                    || terminating.is_some_and(|deletion| known.version() >= deletion)
            })
        };
        self.wait_for_cache(key, limit, self.informer.wait_until(key, is_deleted))
            .await;
        Ok(())
    }

    /// Waits for the cache, and decodes the object that was written.
    async fn written(&self, object: Object) -> Result<K, Error> {
        if let Some(limit) = self.read_your_writes {
            let (key, version) = (object.key(), Version::parse(object.version()));
            self.wait_for_cache(&key, limit, self.informer.wait_for(&key, version))
                .await;
        }
        serde_json::from_str(&json::to_string(&object)).map_err(Error::SerdeError)
    }

    async fn wait_for_cache(&self, key: &Key, limit: Duration, seen: impl Future<Output = ()>) {
        self.informer.start();
        if timeout(limit, seen).await.is_err() {
            let kind = &self.resource.kind;
            tracing::warn!(%key, %kind, ?limit, "the cache did not get a write in time");
        }
    }
}

fn encode(object: &impl Serialize) -> Result<Object, Error> {
    let text = serde_json::to_string(object).map_err(Error::SerdeError)?;
    serde_json::from_str(&text).map_err(Error::SerdeError)
}
