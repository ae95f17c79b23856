//! Sources of events: a kind, as which type it is read, and which of its events count.

use std::marker::PhantomData;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::predicate::Predicate;
use crate::informer::{Event, Factory, HandlerOptions, Informer};
use crate::key::Key;
use crate::object::Object;
use crate::queue::Queue;
use crate::resource::ResourceType;

/// Enqueues keys for an event.
pub(super) type EventHandler<K> = Box<dyn FnMut(&Event<K>, &Queue<Key>) + Send>;

/// A kind that a controller watches: [`typed`], [`dynamic`] or [`metadata`]. All three share one
/// code path: the cache has the text of an object, and `K` is what it is decoded to on use.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use mizzen_sdk::controller::{dynamic, generation_changed, metadata, typed};
/// use mizzen_sdk::resource::{PODS, SECRETS};
///
/// let shop = typed::<Pod>().labels("app=shop").filter(generation_changed());
/// let all = dynamic(&PODS).priority(10);
/// let names = metadata(&SECRETS); // without their data
/// # drop((shop, all, names));
/// ```
pub struct Source<K> {
    pub(super) resource: ResourceType,
    labels: Option<String>,
    fields: Option<String>,
    metadata_only: bool,
    forget_managed_fields: bool,
    pub(super) predicate: Option<Predicate<K>>,
    pub(super) priority: i32,
    pub(super) handler: Option<EventHandler<K>>,
    pub(super) options: HandlerOptions,
    kind: PhantomData<fn() -> K>,
}

/// Objects of a Rust type.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use k8s_openapi::api::core::v1::Pod;
/// use mizzen_sdk::controller::{Context, typed};
///
/// let pods = Context::new(client).informer(typed::<Pod>().fields("spec.nodeName!="));
/// # drop(pods);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn typed<K>() -> Source<K>
where
    K: kube::Resource<DynamicType = (), Scope: 'static>,
{
    Source::new(ResourceType::from_type::<K>())
}

/// Untyped objects of a resource type, without managed fields. `&ResourceType` converts to this.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::ResourceType;
/// use mizzen_sdk::controller::{Context, dynamic};
///
/// let ovens = ResourceType::namespaced("shop.example.com", "v1", "ovens", "Oven");
/// let ovens = Context::new(client).informer(dynamic(&ovens).labels("app=shop"));
/// # drop(ovens);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn dynamic(resource: &ResourceType) -> Source<Object> {
    Source {
        forget_managed_fields: true,
        ..Source::new(resource.clone())
    }
}

/// The metadata of objects of a resource type.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// # let secret = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"},"stringData":{"a":"b"}}"#)?;
/// # mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::SECRETS, &secret).await?;
/// use mizzen_sdk::controller::{Context, metadata};
/// use mizzen_sdk::resource::SECRETS;
///
/// let secrets = Context::new(client).informer(metadata(&SECRETS));
/// secrets.start();
/// secrets.wait_for_sync().await;
/// let secret = secrets.lister().namespaced("default").get("web")?.expect("it is there");
/// assert!(secret["data"].is_null()); // never sent
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn metadata(resource: &ResourceType) -> Source<Object> {
    Source {
        metadata_only: true,
        ..dynamic(resource)
    }
}

impl From<&ResourceType> for Source<Object> {
    fn from(resource: &ResourceType) -> Source<Object> {
        dynamic(resource)
    }
}

impl<K> Source<K> {
    fn new(resource: ResourceType) -> Source<K> {
        Source {
            resource,
            labels: None,
            fields: None,
            metadata_only: false,
            forget_managed_fields: false,
            predicate: None,
            priority: 0,
            handler: None,
            options: HandlerOptions::default(),
            kind: PhantomData,
        }
    }

    /// Only objects that a label selector matches.
    pub fn labels(mut self, selector: impl Into<String>) -> Source<K> {
        self.labels = Some(selector.into());
        self
    }

    /// Only objects that a field selector matches.
    pub fn fields(mut self, selector: impl Into<String>) -> Source<K> {
        self.fields = Some(selector.into());
        self
    }

    /// Only metadata is read; `K` must be decodable without the rest.
    pub fn metadata_only(mut self) -> Source<K> {
        self.metadata_only = true;
        self
    }

    /// Only events that the predicate accepts enqueue keys.
    pub fn filter(mut self, predicate: Predicate<K>) -> Source<K>
    where
        K: 'static,
    {
        self.predicate = Some(match self.predicate.take() {
            Some(known) => known.and(predicate),
            None => predicate,
        });
        self
    }

    /// Keys are enqueued with this priority; the default is 0. Those of higher priority are
    /// reconciled first.
    pub fn priority(mut self, priority: i32) -> Source<K> {
        self.priority = priority;
        self
    }

    /// Replaces what enqueues keys: `handle` is called for each event that the predicate accepts,
    /// with the queue. It may delay keys or add several.
    ///
    /// ```
    /// use std::time::Duration;
    /// use mizzen_sdk::controller::dynamic;
    /// use mizzen_sdk::resource::PODS;
    ///
    /// let pods = dynamic(&PODS).handler(|event, queue| queue.add_after(event.key().clone(), Duration::from_secs(1)));
    /// # drop(pods);
    /// ```
    pub fn handler(
        mut self,
        handle: impl FnMut(&Event<K>, &Queue<Key>) + Send + 'static,
    ) -> Source<K> {
        self.handler = Some(Box::new(handle));
        self
    }

    /// How often every object is enqueued again; zero for never.
    ///
    /// ```
    /// use std::time::Duration;
    /// use mizzen_sdk::controller::dynamic;
    /// use mizzen_sdk::resource::PODS;
    ///
    /// let pods = dynamic(&PODS).resync(Duration::from_secs(600));
    /// # drop(pods);
    /// ```
    pub fn resync(mut self, period: Duration) -> Source<K> {
        self.options.resync = Some(period);
        self
    }

    /// The number of queued events from which events of the same object are merged.
    ///
    /// ```
    /// use mizzen_sdk::controller::dynamic;
    /// use mizzen_sdk::resource::PODS;
    ///
    /// let pods = dynamic(&PODS).merge_beyond(64); // a slow handler
    /// # drop(pods);
    /// ```
    pub fn merge_beyond(mut self, limit: usize) -> Source<K> {
        self.options.limit = limit;
        self
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Source<K> {
    /// The shared informer.
    pub(super) fn informer(&self, informers: &Factory) -> Informer<K> {
        informers.resource(&self.resource, |source| {
            source.labels.clone_from(&self.labels);
            source.fields.clone_from(&self.fields);
            source.metadata_only = self.metadata_only;
            source.forget_managed_fields = self.forget_managed_fields;
        })
    }
}
