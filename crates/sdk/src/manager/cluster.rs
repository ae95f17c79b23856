//! A cluster: its client and its caches.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube::Client;
use mizzen_metrics::{Collector, Families};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cached_api::CachedApi;
use crate::clock::{self, Clock};
use crate::controller::{Context, ContextOptions};
use crate::informer::{Factory, FactoryOptions};
use crate::object::Object;
use crate::resource::ResourceType;

/// A cluster of a manager. Cheap to clone.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use k8s_openapi::api::core::v1::Namespace;
/// use mizzen_sdk::Key;
/// use mizzen_sdk::manager::Manager;
///
/// let manager = Manager::new(client);
/// let cluster = manager.cluster();
/// let namespaces = cluster.api::<Namespace>(); // reads from the cache, writes through
/// assert!(namespaces.get(&Key::cluster("default")).await?.is_some());
/// assert_eq!(cluster.context("my-controller").name(), "my-controller");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Cluster {
    name: String,
    client: Client,
    informers: Factory,
    namespaces: Vec<String>,
    /// The context that all controllers share, once there is one.
    context: Arc<OnceLock<Context>>,
    pub(super) read_your_writes: Option<Duration>,
    /// The wall clock of controllers and events.
    pub(super) clock: Clock,
}

impl Cluster {
    pub(super) fn new(
        name: impl Into<String>,
        client: Client,
        options: FactoryOptions,
        read_your_writes: Option<Duration>,
    ) -> Cluster {
        Cluster {
            name: name.into(),
            namespaces: options.namespaces.clone(),
            informers: Factory::with(client.clone(), options),
            client,
            context: Arc::default(),
            read_your_writes,
            clock: clock::wall_clock(),
        }
    }

    /// Its name; empty for the first one.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its client, which reads from the API server.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Its informers, which all users of the manager share.
    pub fn informers(&self) -> &Factory {
        &self.informers
    }

    /// The context of a controller: its informers are those of the cluster, and all controllers
    /// share one recorder of events. Must be called within a runtime.
    pub fn context(&self, controller: &str) -> Context {
        let context = self.context.get_or_init(|| {
            let client = self.client.clone();
            let options = ContextOptions::new(Arc::new(move |_| client.clone()));
            Context::with(ContextOptions {
                informers: self.informers.clone(),
                clock: self.clock.clone(),
                ..options
            })
        });
        context.named(controller)
    }

    /// Reads objects of a type from the cache, and writes them through the API server.
    pub fn api<K>(&self) -> CachedApi<K>
    where
        K: kube::Resource<DynamicType = (), Scope: 'static>
            + DeserializeOwned
            + Serialize
            + Send
            + Sync
            + 'static,
    {
        let resource = ResourceType::from_type::<K>();
        let informer = self.informers.informer::<K>();
        CachedApi::new(
            self.client.clone(),
            resource,
            informer,
            self.namespaces.clone(),
        )
        .with_read_your_writes(self.read_your_writes)
    }

    /// The same for untyped objects of a resource.
    pub fn objects(&self, resource: &ResourceType) -> CachedApi<Object> {
        let informer = self.informers.objects(resource);
        CachedApi::new(
            self.client.clone(),
            resource.clone(),
            informer,
            self.namespaces.clone(),
        )
        .with_read_your_writes(self.read_your_writes)
    }
}

/// The metrics of its informers, with the label `cluster` except for the first cluster.
impl Collector for Cluster {
    fn collect(&self, families: &mut Families) {
        families.collect_labelled(("cluster", &self.name), &self.informers);
    }
}
