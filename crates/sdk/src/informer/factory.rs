//! The informer factory: one informer per kind and scope.

use parking_lot::Mutex;
use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::ClusterResourceScope;
use kube::{Client, Resource};
use mizzen_metrics::{Collector, Families};
use serde::de::DeserializeOwned;

use super::handler_scope::HandlerScope;
use super::shared::{Informer, Options};
use crate::object::Object;
use crate::resource::ResourceType;
use crate::watch::ListWatch;

/// Shares informers: the same one for the same kind and scope. Clones share the factory.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use k8s_openapi::api::core::v1::Namespace;
/// use mizzen_sdk::informer::Factory;
///
/// let factory = Factory::new(client);
/// let (one, other) = (factory.informer::<Namespace>(), factory.informer::<Namespace>());
/// factory.start();
/// factory.wait_for_sync().await;
/// assert_eq!(one.store().len(), other.store().len()); // the same informer
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Factory(Arc<FactoryInner>, Option<HandlerScope>);

/// The options of all informers of a factory.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use k8s_openapi::api::core::v1::Namespace;
/// use mizzen_sdk::informer::{Factory, FactoryOptions};
///
/// let factory = Factory::with(client, FactoryOptions {
///     fields: Some("metadata.name=default".into()),
///     ..FactoryOptions::default()
/// });
/// let namespaces = factory.informer::<Namespace>();
/// factory.start();
/// factory.wait_for_sync().await;
/// assert_eq!(namespaces.store().len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct FactoryOptions {
    /// The namespaces to watch; empty for all. Cluster-scoped kinds are watched anyway.
    pub namespaces: Vec<String>,
    /// A label selector for all informers, besides their own.
    pub labels: Option<String>,
    /// A field selector for all informers, besides their own. Every kind must support its fields.
    pub fields: Option<String>,
    /// The options of each informer; its name is that of its resource.
    pub informer: Options,
}

struct FactoryInner {
    client: Client,
    options: FactoryOptions,
    /// In order, so that informers start in the same order in every run of a simulation.
    informers: Mutex<BTreeMap<InformerKey, Arc<dyn SharedInformer>>>,
}

/// The key of a shared informer.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct InformerKey {
    path: String,
    labels: Option<String>,
    fields: Option<String>,
    metadata_only: bool,
    ty: TypeId,
}

/// An informer of any kind.
trait SharedInformer: Collector {
    fn start(&self);
    fn stop(&self);
    fn synced(&self) -> futures_util::future::BoxFuture<'_, ()>;
    fn as_any(&self) -> &dyn Any;
}

impl<K: DeserializeOwned + Send + Sync + 'static> SharedInformer for Informer<K> {
    fn start(&self) {
        Informer::start(self);
    }

    fn stop(&self) {
        Informer::stop(self);
    }

    fn synced(&self) -> futures_util::future::BoxFuture<'_, ()> {
        Box::pin(self.wait_for_sync())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Factory {
    /// Informers of all namespaces.
    pub fn new(client: Client) -> Factory {
        Factory::with(client, FactoryOptions::default())
    }

    /// Informers with options.
    pub fn with(client: Client, options: FactoryOptions) -> Factory {
        Factory(
            Arc::new(FactoryInner {
                client,
                options,
                informers: Mutex::default(),
            }),
            None,
        )
    }

    /// The same informers in a scope of their own: stopping this factory removes the handlers that
    /// were added through it, and nothing else.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use k8s_openapi::api::core::v1::Namespace;
    /// use mizzen_sdk::informer::{Event, Factory};
    ///
    /// let factory = Factory::new(client);
    /// let scoped = factory.scoped(); // for a component that ends before the others
    /// scoped.informer::<Namespace>().add_handler(|_: Event<Namespace>| {});
    /// scoped.stop(); // removes this handler; the informer runs on
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scoped(&self) -> Factory {
        Factory(self.0.clone(), Some(HandlerScope::default()))
    }

    /// The informer of a kind.
    pub fn informer<K>(&self) -> Informer<K>
    where
        K: Resource<DynamicType: Default, Scope: 'static>
            + DeserializeOwned
            + Send
            + Sync
            + 'static,
    {
        self.informer_of(&K::DynamicType::default(), |_| {})
    }

    /// The informer of a kind that is known at run time, or of a part of a kind: `choose` may set
    /// selectors. The same selectors share an informer, and the other settings of the first call
    /// apply to all.
    pub fn informer_of<K>(
        &self,
        kind: &K::DynamicType,
        choose: impl Fn(&mut ListWatch<K>),
    ) -> Informer<K>
    where
        K: Resource<Scope: 'static> + DeserializeOwned + Send + Sync + 'static,
    {
        let source = |namespace: Option<&str>| {
            let mut source = ListWatch::new(self.0.client.clone(), kind, namespace);
            choose(&mut source);
            source
        };
        self.informer_from(self.namespaces::<K>(), source)
    }

    /// The informer of a resource, as untyped objects without managed fields.
    pub fn objects(&self, of: &ResourceType) -> Informer<Object> {
        self.resource(of, |source| source.forget_managed_fields = true)
    }

    /// The informer of a resource whose objects are read as `K`. `choose` may set selectors, as in
    /// [`informer_of`](Factory::informer_of).
    pub fn resource<K: DeserializeOwned + Send + Sync + 'static>(
        &self,
        of: &ResourceType,
        choose: impl Fn(&mut ListWatch<K>),
    ) -> Informer<K> {
        let namespaces = if of.namespaced {
            &self.0.options.namespaces[..]
        } else {
            &[]
        };
        self.informer_from(namespaces, |namespace| {
            let path = of.path(namespace.unwrap_or_default());
            let mut source = ListWatch::at(self.0.client.clone(), path);
            choose(&mut source);
            source
        })
    }

    fn informer_from<K: DeserializeOwned + Send + Sync + 'static>(
        &self,
        namespaces: &[String],
        source: impl Fn(Option<&str>) -> ListWatch<K>,
    ) -> Informer<K> {
        let FactoryOptions { labels, fields, .. } = &self.0.options;
        let source = |namespace: Option<&str>| {
            let mut source = source(namespace);
            source.labels = join_selectors(labels, &source.labels);
            source.fields = join_selectors(fields, &source.fields);
            source
        };
        let all = source(None);
        let key = InformerKey {
            path: all.path().into(),
            labels: all.labels.clone(),
            fields: all.fields.clone(),
            metadata_only: all.metadata_only,
            ty: TypeId::of::<K>(),
        };
        let mut informers = self.0.informers.lock();
        let shared = informers.entry(key).or_insert_with(|| {
            let options = Options {
                name: String::new(),
                ..self.0.options.informer.clone()
            };
            match namespaces {
                [] => Arc::new(Informer::with_options(all, options)),
                namespaces => {
                    let sources = namespaces
                        .iter()
                        .map(|name| (name.clone(), source(Some(name))));
                    Arc::new(Informer::namespaces(sources.collect(), options))
                }
            }
        });
        let informer = shared.as_any().downcast_ref::<Informer<K>>();
        informer
            .expect("the type is part of the key")
            .scoped(self.1.clone())
    }

    /// The namespaces in which a kind is watched separately.
    fn namespaces<K: Resource<Scope: 'static>>(&self) -> &[String] {
        match TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>() {
            true => &[],
            false => &self.0.options.namespaces,
        }
    }

    /// Starts all informers that do not run yet.
    pub fn start(&self) {
        self.all().iter().for_each(|informer| informer.start());
    }

    /// Stops all informers; a scoped factory removes only its handlers.
    pub fn stop(&self) {
        if let Some(handler_scope) = &self.1 {
            return handler_scope.remove_all();
        }
        self.all().iter().for_each(|informer| informer.stop());
    }

    /// Waits until all informers have synced.
    pub async fn wait_for_sync(&self) {
        for informer in self.all() {
            informer.synced().await;
        }
    }

    fn all(&self) -> Vec<Arc<dyn SharedInformer>> {
        let informers = self.0.informers.lock();
        informers.values().cloned().collect()
    }
}

/// Objects must match both selectors.
fn join_selectors(one: &Option<String>, other: &Option<String>) -> Option<String> {
    let both: Vec<&str> = one.iter().chain(other).map(String::as_str).collect();
    (!both.is_empty()).then(|| both.join(","))
}

/// The metrics of all informers. A scoped factory has none: its owner shows them.
impl Collector for Factory {
    fn collect(&self, families: &mut Families) {
        if self.1.is_none() {
            let informers = self.all();
            informers
                .iter()
                .for_each(|informer| informer.collect(families));
        }
    }
}
