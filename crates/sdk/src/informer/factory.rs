//! One informer per kind and scope, however many ask.

use parking_lot::Mutex;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use kube::core::ClusterResourceScope;
use kube::{Client, Resource};
use mizzen_metrics::{Collector, Families};
use serde::de::DeserializeOwned;

use super::guest::Guest;
use super::shared::{Informer, Options};
use crate::object::Object;
use crate::resource;
use crate::watch::ListWatch;

/// Hands out informers, the same one to everybody who asks for the same thing. Clones are the same factory.
#[derive(Clone)]
pub struct Factory(Arc<Inner>, Option<Guest>);

/// What all informers of a factory have in common.
#[derive(Clone, Default)]
pub struct FactoryOptions {
    /// The namespaces to be followed, all if there are none here. Types that live in no namespace are followed anyway.
    pub namespaces: Vec<String>,
    /// How each informer is set up, its default resync period included; each has the name of what it follows.
    pub informer: Options,
}

struct Inner {
    client: Client,
    options: FactoryOptions,
    informers: Mutex<HashMap<Wanted, Arc<dyn Shared>>>,
}

/// What somebody follows.
#[derive(PartialEq, Eq, Hash)]
struct Wanted {
    ty: TypeId,
    path: String,
    labels: Option<String>,
    fields: Option<String>,
    metadata_only: bool,
}

/// An informer of any kind.
trait Shared: Collector {
    fn start(&self);
    fn stop(&self);
    fn synced(&self) -> futures_util::future::BoxFuture<'_, ()>;
    fn as_any(&self) -> &dyn Any;
}

impl<K: DeserializeOwned + Send + Sync + 'static> Shared for Informer<K> {
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
    /// Informers of every namespace.
    pub fn new(client: Client) -> Factory {
        Factory::with(client, FactoryOptions::default())
    }

    /// Informers of some namespaces, or set up in one's own way.
    pub fn with(client: Client, options: FactoryOptions) -> Factory {
        Factory(
            Arc::new(Inner {
                client,
                options,
                informers: Mutex::default(),
            }),
            None,
        )
    }

    /// The same informers for somebody who may leave while others go on: to stop this factory ends the handlers that came
    /// by it, and nothing else.
    pub fn lend(&self) -> Factory {
        Factory(self.0.clone(), Some(Guest::default()))
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

    /// The informer of a kind that is known at run time, or of a part of a kind: `choose` may set selectors. Whoever
    /// asks for the same gets the same, and what the first chose besides counts for all.
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

    /// The informer of the objects of a resource, whatever their kind. Who owns which field is not kept.
    pub fn objects(&self, of: &resource::Resource) -> Informer<Object> {
        let namespaces = if of.namespaced {
            &self.0.options.namespaces[..]
        } else {
            &[]
        };
        self.informer_from(namespaces, |namespace| {
            let path = of.path(namespace.unwrap_or_default());
            let mut source = ListWatch::at(self.0.client.clone(), path);
            source.forget_managed_fields = true;
            source
        })
    }

    fn informer_from<K: DeserializeOwned + Send + Sync + 'static>(
        &self,
        namespaces: &[String],
        source: impl Fn(Option<&str>) -> ListWatch<K>,
    ) -> Informer<K> {
        let all = source(None);
        let wanted = Wanted {
            ty: TypeId::of::<K>(),
            path: all.path().into(),
            labels: all.labels.clone(),
            fields: all.fields.clone(),
            metadata_only: all.metadata_only,
        };
        let mut informers = self.0.informers.lock();
        let shared = informers.entry(wanted).or_insert_with(|| {
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
            .lent(self.1.clone())
    }

    /// The namespaces in which a kind is followed one by one.
    fn namespaces<K: Resource<Scope: 'static>>(&self) -> &[String] {
        match TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>() {
            true => &[],
            false => &self.0.options.namespaces,
        }
    }

    /// Starts every informer that was asked for and does not run yet.
    pub fn start(&self) {
        self.all().iter().for_each(|informer| informer.start());
    }

    /// Stops them all; one that is lent stops only what came by it.
    pub fn stop(&self) {
        if let Some(guest) = &self.1 {
            return guest.leave();
        }
        self.all().iter().for_each(|informer| informer.stop());
    }

    /// Waits until every informer that was asked for has what there was when it began.
    pub async fn wait_for_sync(&self) {
        for informer in self.all() {
            informer.synced().await;
        }
    }

    fn all(&self) -> Vec<Arc<dyn Shared>> {
        let informers = self.0.informers.lock();
        informers.values().cloned().collect()
    }
}

/// Those of all informers. A factory that is lent has none: its owner shows them.
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
