//! The builder of controllers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::metrics::ReconcileCounters;
use super::owner_events::Owners;
use super::reconcile::{ObjectReconciler, Reconcile, ReconcileObject};
use super::run::{Controller, WorkerPool};
use super::selector_index::{ReadSelector, index_selectors};
use super::source::Source;
use super::worker::{RecordFailure, Worker};
use super::{Context, Error};
use crate::accessor::Accessor;
use crate::event::Note;
use crate::failure_log::FailureLog;
use crate::informer::{Event, Informer};
use crate::key::Key;
use crate::queue::{Limiter, Options, Queue};
use crate::resource::ResourceType;

/// Registers the event handler of a source, given the priority of initial objects, and returns what
/// removes it.
type Register = Box<dyn FnOnce(&Queue<Key>, i32) -> Unregister + Send>;

/// Removes an event handler.
pub(super) type Unregister = Box<dyn FnOnce() + Send>;

/// Builds a [`Controller`]. It reads as a sentence: a controller *for* a kind, that *owns* some
/// kinds and *watches* further ones, with so many *workers*, *reconciles* like this.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use std::time::Duration;
/// use k8s_openapi::api::apps::v1::Deployment;
/// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// use mizzen_sdk::Key;
/// use mizzen_sdk::controller::{Action, Context, Controller, generation_changed, typed};
/// use mizzen_sdk::queue::Exponential;
///
/// let context = Context::new(client).named("roller");
/// let controller = Controller::for_kind(&context, typed::<Deployment>().filter(generation_changed()))
///     .owns(typed::<Pod>().labels("app"))
///     .watches(typed::<ConfigMap>(), |config| {
///         let deployment = config.metadata.annotations.as_ref()?.get("used-by")?;
///         Some(Key::new(config.metadata.namespace.clone()?, &**deployment))
///     })
///     .workers(2)
///     .rate_limiter(Exponential::new(Duration::from_millis(100), Duration::from_secs(60)))
///     .record_failures("RollFailed")
///     .needs_leader_election(false)
///     .reconcile(|key: Key, _: Context| async move {
///         println!("{key} changed");
///         Ok(Action::done())
///     });
/// assert!(!controller.needs_leader_election());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a controller is built by `reconcile`"]
pub struct Builder<P> {
    context: Context,
    primary: P,
    sources: Vec<Register>,
    n_workers: usize,
    queue: Option<Queue<Key>>,
    queue_name: Option<String>,
    limiter: Option<Box<dyn Limiter<Key>>>,
    initial_priority: i32,
    needs_leader_election: bool,
    record_failure: Option<RecordFailure>,
}

/// The kind of a controller whose keys are objects of `K`.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use k8s_openapi::api::core::v1::Secret;
/// use mizzen_sdk::controller::{Builder, Context, Controller, ForKind, typed};
///
/// let context = Context::new(client).named("secrets");
/// let builder: Builder<ForKind<Secret>> = Controller::for_kind(&context, typed::<Secret>());
/// # drop(builder);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ForKind<K> {
    resource: ResourceType,
    informer: Informer<K>,
}

/// The kind of a controller whose keys are not those of one kind.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use k8s_openapi::api::core::v1::Secret;
/// use mizzen_sdk::Key;
/// use mizzen_sdk::controller::{Action, Builder, Context, Controller, ForKeys, typed};
///
/// let context = Context::new(client).named("tenants");
/// let builder: Builder<ForKeys> = Controller::for_keys(&context);
/// let controller = builder
///     .watches(typed::<Secret>(), |secret| {
///         let labels = secret.metadata.labels.as_ref()?;
///         Some(Key::cluster(labels.get("tenant")?.as_str())) // a tenant is not an object
///     })
///     .reconcile(|_tenant: Key, _: Context| async { Ok(Action::done()) });
/// # drop(controller);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ForKeys(());

impl Controller {
    /// A controller for the objects of a kind: each event enqueues the key of its object.
    pub fn for_kind<K>(context: &Context, source: impl Into<Source<K>>) -> Builder<ForKind<K>>
    where
        K: DeserializeOwned + Send + Sync + 'static,
    {
        let source = source.into();
        let primary = ForKind {
            resource: source.resource.clone(),
            informer: source.informer(context.informers()),
        };
        Builder::new(context, primary).register(source, |event| vec![event.key().clone()])
    }

    /// A controller for keys that only [`watches`](Builder::watches) enqueues, for example a name
    /// that is not that of an object.
    pub fn for_keys(context: &Context) -> Builder<ForKeys> {
        Builder::new(context, ForKeys(()))
    }
}

impl<P> Builder<P> {
    fn new(context: &Context, primary: P) -> Builder<P> {
        Builder {
            context: context.clone(),
            primary,
            sources: Vec::new(),
            n_workers: 1,
            queue: None,
            queue_name: None,
            limiter: None,
            initial_priority: 0,
            needs_leader_election: true,
            record_failure: None,
        }
    }

    /// Watches another kind: `map` returns the keys to enqueue for an object. After an update it is
    /// called for the old and the new state.
    pub fn watches<D, I>(
        self,
        source: impl Into<Source<D>>,
        map: impl Fn(&D) -> I + Send + 'static,
    ) -> Builder<P>
    where
        D: DeserializeOwned + Send + Sync + 'static,
        I: IntoIterator<Item = Key>,
    {
        self.register(source.into(), move |event| {
            let states = match event {
                Event::Updated { old, new } if old.version() != new.version() => {
                    [Some(old), Some(new)]
                }
                event => [None, Some(event.object())],
            };
            let mut keys: Vec<Key> = Vec::new();
            for entry in states.into_iter().flatten() {
                match entry.object() {
                    Ok(object) => {
                        let found = map(&object).into_iter();
                        keys.extend(found.collect::<Vec<_>>());
                    }
                    Err(error) => tracing::warn!(%error, "event object not decoded"),
                }
            }
            keys
        })
    }

    /// Watches another kind: `handle` enqueues keys for an event, where a map of objects does not
    /// suffice.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use std::time::Duration;
    /// use mizzen_sdk::{Key, Object};
    /// use mizzen_sdk::controller::{Action, Context, Controller};
    /// use mizzen_sdk::informer::Event;
    /// use mizzen_sdk::resource::{CONFIG_MAPS, SECRETS};
    ///
    /// let context = Context::new(client).named("cleaner");
    /// let controller = Controller::for_kind(&context, &CONFIG_MAPS)
    ///     .watches_events(&SECRETS, |event: &Event<Object>, queue| {
    ///         if let Event::Deleted { last, .. } = event {
    ///             queue.add_after(last.key().clone(), Duration::from_secs(60)); // a while after the secret
    ///         }
    ///     })
    ///     .reconcile(|_: Key, _: Context| async { Ok(Action::done()) });
    /// # drop(controller);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn watches_events<D>(
        self,
        source: impl Into<Source<D>>,
        handle: impl FnMut(&Event<D>, &Queue<Key>) + Send + 'static,
    ) -> Builder<P>
    where
        D: DeserializeOwned + Send + Sync + 'static,
    {
        self.register(source.into().handler(handle), |_| Vec::new())
    }

    /// The one road from an event to the queue, whatever the type of the objects.
    fn register<D>(
        mut self,
        mut source: Source<D>,
        map: impl Fn(&Event<D>) -> Vec<Key> + Send + 'static,
    ) -> Builder<P>
    where
        D: DeserializeOwned + Send + Sync + 'static,
    {
        let informer = source.informer(self.context.informers());
        self.sources.push(Box::new(move |queue, initial_priority| {
            let (queue, priority) = (queue.clone(), source.priority);
            let (predicate, mut handler) = (source.predicate.take(), source.handler.take());
            let handle = move |event: Event<D>| {
                if predicate
                    .as_ref()
                    .is_some_and(|predicate| !predicate.accepts(&event))
                {
                    return;
                }
                if let Some(handler) = &mut handler {
                    return handler(&event, &queue);
                }
                let priority = match event {
                    Event::Added { initial: true, .. } => priority.saturating_add(initial_priority),
                    _ => priority,
                };
                for key in map(&event) {
                    queue.add_with_priority(key, priority);
                }
            };
            let registration = informer.add_handler_with(handle, source.options);
            Box::new(move || registration.remove())
        }));
        self
    }

    /// How many keys are reconciled at a time; the default is 1. No key is with two workers.
    pub fn workers(mut self, n_workers: usize) -> Builder<P> {
        self.n_workers = n_workers;
        self
    }

    /// How long failed keys wait; the default is client-go's.
    pub fn rate_limiter(mut self, limiter: impl Limiter<Key> + 'static) -> Builder<P> {
        self.limiter = Some(Box::new(limiter));
        self
    }

    /// The name of the queue in metrics, if it is not that of the controller.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::{Key, ResourceType};
    /// use mizzen_sdk::controller::{Action, Context, Controller, dynamic};
    /// use mizzen_sdk::metrics::Families;
    ///
    /// let ovens = ResourceType::namespaced("shop.example.com", "v1", "ovens", "Oven");
    /// let controller = Controller::for_kind(&Context::new(client).named("ovens"), dynamic(&ovens))
    ///     .queue_name("oven-work")
    ///     .reconcile(|_: Key, _: Context| async { Ok(Action::done()) });
    /// assert!(Families::of(&[&controller.metrics()]).to_string().contains(r#"workqueue_depth{name="oven-work"}"#));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queue_name(mut self, name: impl Into<String>) -> Builder<P> {
        self.queue_name = Some(name.into());
        self
    }

    /// The work queue, if it is shared with other tasks. It has its own name and rate limiter.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::Key;
    /// use mizzen_sdk::controller::{Action, Context, Controller};
    /// use mizzen_sdk::queue::Queue;
    ///
    /// let queue: Queue<Key> = Queue::new("alerts");
    /// queue.add(Key::cluster("disk-full")); // from anywhere, not only from events
    /// let context = Context::new(client).named("alerts");
    /// let controller = Controller::for_keys(&context)
    ///     .queue(queue.clone())
    ///     .reconcile(|_: Key, _: Context| async { Ok(Action::done()) });
    /// # drop(controller);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn queue(mut self, queue: Queue<Key>) -> Builder<P> {
        self.queue = Some(queue);
        self
    }

    /// Added to the priority of objects that exist when the controller starts. With a negative one
    /// later changes come first (controller-runtime: -100); the default is 0.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::{Key, ResourceType};
    /// use mizzen_sdk::controller::{Action, Context, Controller, dynamic};
    /// use mizzen_sdk::metrics::Families;
    ///
    /// let ovens = ResourceType::namespaced("shop.example.com", "v1", "ovens", "Oven");
    /// let controller = Controller::for_kind(&Context::new(client).named("ovens"), dynamic(&ovens))
    ///     .initial_priority(-100) // later changes come first
    ///     .reconcile(|_: Key, _: Context| async { Ok(Action::done()) });
    /// # drop(Families::of(&[&controller.metrics()]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn initial_priority(mut self, priority: i32) -> Builder<P> {
        self.initial_priority = priority;
        self
    }

    /// Whether only the leader of several replicas runs it; the default is true.
    pub fn needs_leader_election(mut self, needs: bool) -> Builder<P> {
        self.needs_leader_election = needs;
        self
    }

    /// The controller, which reconciles keys with `reconciler`.
    pub fn reconcile(self, reconciler: impl Reconcile) -> Controller {
        let Builder {
            context,
            sources,
            n_workers,
            limiter,
            ..
        } = self;
        let queue = self.queue.unwrap_or_else(|| {
            let name = self.queue_name.unwrap_or_else(|| context.name().into());
            let mut options = Options::new(name);
            options.limiter = limiter.unwrap_or(options.limiter);
            Queue::with(options)
        });
        let counters = Arc::new(ReconcileCounters::default());
        counters
            .max_concurrent
            .store(n_workers as u64, Ordering::Relaxed);
        let registered = sources
            .into_iter()
            .map(|register| register(&queue, self.initial_priority));
        let registered = registered.collect();
        let worker = Arc::new(Worker {
            context: context.clone(),
            queue: queue.clone(),
            reconciler,
            counters: counters.clone(),
            failures: FailureLog::after(Duration::ZERO),
            record_failure: self.record_failure,
        });
        let pool = WorkerPool {
            n_workers,
            queue,
            counters,
            worker: Box::new(move |controller, stopping| {
                let worker = worker.clone();
                Box::pin(async move { worker.run(&controller, stopping).await })
            }),
        };
        let mut controller = Controller::new(&context);
        controller.needs_leader_election = self.needs_leader_election;
        controller.pools.push(pool);
        controller.registered = registered;
        controller
    }
}

impl<K: Accessor + DeserializeOwned + 'static> Builder<ForKind<K>> {
    /// Owns objects of another kind: their events enqueue their controller, by the owner reference
    /// with this controller's group and kind and the owner's uid.
    pub fn owns<D>(self, source: impl Into<Source<D>>) -> Builder<ForKind<K>>
    where
        D: DeserializeOwned + Send + Sync + 'static,
    {
        let owners = self.owners(None);
        self.register(source.into(), move |event| owners.for_event(event))
    }

    /// Owns objects of another kind, and may adopt those that a selector in its own objects
    /// matches: an orphan enqueues every object that selects it. See
    /// [`ControllerRefManager`](super::ControllerRefManager), which adopts and releases.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::{Key, Object};
    /// use mizzen_sdk::controller::{Action, Context, Controller, LabelSelector};
    /// use mizzen_sdk::resource::{PODS, REPLICA_SETS};
    ///
    /// let context = Context::new(client).named("replicas");
    /// let controller = Controller::for_kind(&context, &REPLICA_SETS)
    ///     .owns_selected(&PODS, |set: &Object| {
    ///         let app = set["spec"]["selector"]["matchLabels"]["app"].str();
    ///         LabelSelector::parse(&format!("app={app}")).ok()
    ///     })
    ///     .reconcile(|_: Key, _: Context| async { Ok(Action::done()) });
    /// # drop(controller);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn owns_selected<D>(
        self,
        source: impl Into<Source<D>>,
        selector: ReadSelector<K>,
    ) -> Builder<ForKind<K>>
    where
        D: DeserializeOwned + Send + Sync + 'static,
    {
        index_selectors(self.primary.informer.store(), selector);
        let owners = self.owners(Some(selector));
        self.register(source.into(), move |event| owners.for_event(event))
    }

    fn owners(&self, selector: Option<ReadSelector<K>>) -> Owners<K> {
        Owners {
            resource: self.primary.resource.clone(),
            store: self.primary.informer.store().clone(),
            selector,
        }
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Builder<ForKind<K>> {
    /// Records a Warning event with this reason about the object for each failure, except for
    /// conflicts.
    pub fn record_failures(mut self, reason: &'static str) -> Builder<ForKind<K>> {
        let (store, recorder) = (
            self.primary.informer.store().clone(),
            self.context.recorder(),
        );
        let (resource, recorder) = (self.primary.resource.clone(), recorder.clone());
        self.record_failure = Some(Arc::new(move |key: &Key, error: &Error| {
            if let Some(entry) = store.get(key) {
                let note = Note::warning(reason, "Reconcile", error.to_string());
                let version = entry.version().to_string();
                recorder.record(&resource.reference(key, entry.uid(), &version), note);
            }
        }));
        self
    }

    /// The controller, which reconciles objects of the cache with `reconciler`.
    pub fn reconcile_objects(self, reconciler: impl ReconcileObject<K>) -> Controller {
        let objects = self.primary.informer.lister();
        self.reconcile(ObjectReconciler {
            objects,
            reconciler,
        })
    }
}
