//! The informer: reflectors into a cache, and changes of the cache to handlers.

use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;

use mizzen_metrics::{Collector, Families, Histogram};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, interval};

use super::event::Event;
use super::handler::{Handler, HandlerOptions, Registration, read_out};
use super::handler_scope::HandlerScope;
use super::mailbox::Mailbox;
use super::metrics::{BOUNDS, Metrics};
use crate::cache::{Entry, IndexFunction, Lister, Store, Version, by_namespace};
use crate::fifo::{Batch, Delta, DeltaFifo};
use crate::key::Key;
use crate::watch::{Backoff, ErrorHandler, ListWatch, Meter, Reflector, Transform};

/// The most objects that are processed at a time.
const BATCH: usize = 256;
/// Kubernetes: shorter resync periods are raised to this (client-go's shared_informer.go).
const MIN_RESYNC: Duration = Duration::from_secs(1);

/// The options of an informer.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use std::sync::Arc;
/// use mizzen_sdk::Object;
/// use mizzen_sdk::informer::{Informer, Options};
/// use mizzen_sdk::resource::CONFIG_MAPS;
/// use mizzen_sdk::watch::ListWatch;
///
/// let options = Options {
///     transform: Some(Arc::new(|config| config["data"] = serde_json::Value::Null)), // only names are used
///     ..Options::default()
/// };
/// let source = ListWatch::at(client, CONFIG_MAPS.path(""));
/// let configs: Informer<Object> = Informer::with_options(source, options);
/// # drop(configs);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Options {
    /// Its name in metrics; empty for that of its resource.
    pub name: String,
    /// The back-off after failures.
    pub backoff: Backoff,
    /// Called on failures.
    pub on_error: Option<ErrorHandler>,
    /// Changes objects before they are cached, for example to drop unused fields.
    pub transform: Option<Transform>,
    /// The default resync period of its handlers; `None` or zero for never.
    pub resync: Option<Duration>,
}

/// A shared informer of one kind. Clones share the informer.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// # let config = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default","labels":{"app":"web"}}}"#)?;
/// # mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::CONFIG_MAPS, &config).await?;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use mizzen_sdk::cache::by_label;
/// use mizzen_sdk::informer::{Event, Informer};
/// use mizzen_sdk::watch::ListWatch;
///
/// let configs: Informer<ConfigMap> = Informer::new(ListWatch::all(client));
/// configs.add_index("app", by_label("app"));
/// configs.add_handler(|event: Event<ConfigMap>| println!("{} changed", event.key()));
/// configs.start();
/// configs.wait_for_sync().await;
/// let web = configs.lister().by_index("app", "web").expect("there is this index")?;
/// assert_eq!(web.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Informer<K>(Arc<InformerInner<K>>, Option<HandlerScope>);

struct InformerInner<K> {
    sources: Vec<InformerSource<K>>,
    options: Options,
    store: Store<K>,
    /// The store is changed and events are queued under this lock, so that a new handler misses
    /// nothing.
    handlers: Mutex<Vec<Weak<Mailbox<K>>>>,
    synced: watch::Sender<bool>,
    running: Mutex<Option<AbortHandle>>,
    done: Mutex<BatchCounters>,
}

impl<K: DeserializeOwned + Send + Sync + 'static> Collector for Informer<K> {
    fn collect(&self, families: &mut Families) {
        self.metrics().collect(families);
    }
}

/// Counters of processed batches.
#[derive(Clone)]
struct BatchCounters {
    processing: Histogram,
    events: u64,
}

impl Default for BatchCounters {
    fn default() -> BatchCounters {
        BatchCounters {
            processing: Histogram::new(&BOUNDS),
            events: 0,
        }
    }
}

/// One reflector source, and the version up to which it is processed.
struct InformerSource<K> {
    list_watch: ListWatch<K>,
    namespace: Option<String>,
    progress: watch::Sender<(Version, bool)>,
    meter: Meter,
    /// Changes on their way to the cache, while the informer runs.
    fifo: Mutex<Option<DeltaFifo<K>>>,
}

impl<K> Clone for Informer<K> {
    fn clone(&self) -> Informer<K> {
        Informer(self.0.clone(), self.1.clone())
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Informer<K> {
    /// An informer of `source`.
    pub fn new(source: ListWatch<K>) -> Informer<K> {
        Informer::with(vec![(None, source)], Options::default())
    }

    /// An informer of several namespaces, each with its own source, with one cache.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use k8s_openapi::api::core::v1::Pod;
    /// use mizzen_sdk::informer::{Informer, Options};
    /// use mizzen_sdk::watch::ListWatch;
    ///
    /// let source = |namespace: &str| (namespace.to_owned(), ListWatch::<Pod>::namespaced(client.clone(), namespace));
    /// let pods: Informer<Pod> = Informer::namespaces(vec![source("shop"), source("bank")], Options::default());
    /// # drop(pods);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn namespaces(sources: Vec<(String, ListWatch<K>)>, options: Options) -> Informer<K> {
        Informer::with(
            sources
                .into_iter()
                .map(|(namespace, source)| (Some(namespace), source))
                .collect(),
            options,
        )
    }

    /// An informer with options.
    pub fn with_options(source: ListWatch<K>, options: Options) -> Informer<K> {
        Informer::with(vec![(None, source)], options)
    }

    fn with(sources: Vec<(Option<String>, ListWatch<K>)>, options: Options) -> Informer<K> {
        let store = Store::new();
        store.add_index(crate::cache::NAMESPACE, by_namespace());
        let sources = sources.into_iter().map(|(namespace, list_watch)| {
            let progress = watch::Sender::new((Version::default(), false));
            let meter = Meter::new(list_watch.name());
            InformerSource {
                list_watch,
                namespace,
                progress,
                meter,
                fifo: Mutex::default(),
            }
        });
        let inner = InformerInner {
            sources: sources.collect(),
            options,
            store,
            handlers: Mutex::default(),
            synced: watch::Sender::new(false),
            running: Mutex::default(),
            done: Mutex::default(),
        };
        Informer(Arc::new(inner), None)
    }

    /// The same informer in a handler scope.
    pub(super) fn scoped(&self, handler_scope: Option<HandlerScope>) -> Informer<K> {
        Informer(self.0.clone(), handler_scope)
    }

    /// A lister of the cache.
    pub fn lister(&self) -> Lister<K> {
        Lister::new(self.0.store.clone())
    }

    /// The cache.
    pub fn store(&self) -> &Store<K> {
        &self.0.store
    }

    /// Adds an index to the cache.
    pub fn add_index(&self, name: impl Into<String>, function: IndexFunction<K>) {
        self.0.store.add_index(name, function);
    }

    /// Adds a handler. It first gets all objects of the cache.
    pub fn add_handler(&self, handler: impl Handler<K>) -> Registration<K> {
        self.add_handler_with(handler, HandlerOptions::default())
    }

    /// Adds a handler with options.
    pub fn add_handler_with(
        &self,
        handler: impl Handler<K>,
        options: HandlerOptions,
    ) -> Registration<K> {
        let mailbox = Arc::new(Mailbox::new(options.limit));
        let synced = watch::Sender::new(false);
        let registration = Registration {
            mailbox: mailbox.clone(),
            synced: synced.subscribe(),
        };
        self.introduce(&mailbox);
        if let Some(handler_scope) = &self.1 {
            handler_scope.add(&mailbox);
        }
        let period = options
            .resync
            .or(self.0.options.resync)
            .filter(|period| !period.is_zero());
        if let Some(period) = period {
            let every = period.max(MIN_RESYNC);
            tokio::spawn(resync(
                self.0.store.clone(),
                Arc::downgrade(&mailbox),
                every,
            ));
        }
        tokio::spawn(read_out(mailbox, handler, synced));
        registration
    }

    fn introduce(&self, mailbox: &Arc<Mailbox<K>>) {
        let mut handlers = self.0.handlers.lock();
        for entry in self.0.store.list() {
            mailbox.push(Event::Added {
                object: entry,
                initial: true,
            });
        }
        if *self.0.synced.borrow() {
            mailbox.push_synced();
        }
        handlers.push(Arc::downgrade(mailbox));
    }

    /// Starts the informer in the background. A second call has no effect; after
    /// [`stop`](Informer::stop) it resumes from the cache.
    pub fn start(&self) {
        let mut running = self.0.running.lock();
        if running.as_ref().is_none_or(AbortHandle::is_finished) {
            let informer = self.clone();
            *running = Some(tokio::spawn(async move { informer.run().await }).abort_handle());
        }
    }

    /// Stops the informer. Handlers get the queued events, and the cache stays as it is. In a
    /// handler scope it removes the handlers of the scope, and the informer continues.
    pub fn stop(&self) {
        if let Some(handler_scope) = &self.1 {
            return handler_scope.remove_all();
        }
        if let Some(running) = self.0.running.lock().take() {
            running.abort();
        }
    }

    /// Runs until the future is dropped.
    pub async fn run(&self) {
        let mut tasks = JoinSet::new();
        for at in 0..self.0.sources.len() {
            let (reflector, fifo) = self.reflector(&self.0.sources[at]);
            tasks.spawn(async move {
                reflector.run().await;
            });
            let informer = self.clone();
            tasks.spawn(async move { informer.process_deltas(at, fifo).await });
        }
        while tasks.join_next().await.is_some() {}
    }

    /// The reflector of a source, and the queue that it fills.
    fn reflector(&self, source: &InformerSource<K>) -> (Reflector<K, DeltaFifo<K>>, DeltaFifo<K>) {
        let fifo = match &source.namespace {
            Some(namespace) => DeltaFifo::namespaced(self.0.store.clone(), namespace),
            None => DeltaFifo::new(self.0.store.clone()),
        };
        *source.fifo.lock() = Some(fifo.clone());
        let mut reflector = Reflector::new(source.list_watch.clone(), fifo.clone());
        reflector.backoff = self.0.options.backoff.clone();
        reflector.on_error = self.0.options.on_error.clone();
        reflector.transform = self.0.options.transform.clone();
        reflector.meter = source.meter.clone();
        (reflector, fifo)
    }

    /// Processes changes into the cache and to the handlers.
    async fn process_deltas(&self, source: usize, fifo: DeltaFifo<K>) {
        while let Some(batch) = fifo.pop(BATCH).await {
            self.take(source, batch);
        }
    }

    fn take(&self, source: usize, batch: Batch<K>) {
        let (started, mut n_events) = (Instant::now(), 0);
        let mut handlers = self.0.handlers.lock();
        handlers.retain(|mailbox| mailbox.strong_count() > 0);
        let listening: Vec<Arc<Mailbox<K>>> = handlers.iter().filter_map(Weak::upgrade).collect();
        if batch.deltas.is_empty() {
            // A bookmark: the informer is idle.
            self.0.store.rest();
        }
        for delta in batch.deltas.into_iter().flatten() {
            for event in self.change(delta) {
                n_events += listening.len() as u64;
                listening
                    .iter()
                    .for_each(|mailbox| mailbox.push(event.clone()));
            }
        }
        self.progress(source, batch.version, batch.synced);
        if !*self.0.synced.borrow()
            && self
                .0
                .sources
                .iter()
                .all(|source| source.progress.borrow().1)
        {
            listening.iter().for_each(|mailbox| mailbox.push_synced());
            self.0.synced.send_replace(true);
        }
        let mut done = self.0.done.lock();
        done.processing.observe(started.elapsed().as_secs_f64());
        done.events += n_events;
    }

    /// Applies a delta to the cache and returns the events for handlers.
    fn change(&self, delta: Delta<K>) -> Vec<Event<K>> {
        let store = &self.0.store;
        match delta {
            Delta::Deleted(last) => {
                let known = store.remove(last.key());
                known
                    .map(|_| Event::Deleted {
                        last,
                        final_state_unknown: false,
                    })
                    .into_iter()
                    .collect()
            }
            Delta::Lost(entry) => {
                let known = store.remove(entry.key());
                known
                    .map(|last| Event::Deleted {
                        last,
                        final_state_unknown: true,
                    })
                    .into_iter()
                    .collect()
            }
            Delta::Added(new) | Delta::Updated(new) | Delta::Replaced(new) | Delta::Sync(new) => {
                let initial = !*self.0.synced.borrow();
                match store.insert(new.clone()) {
                    None => vec![Event::Added {
                        object: new,
                        initial,
                    }],
                    Some(old) if old.uid() != new.uid() => vec![
                        Event::Deleted {
                            last: old,
                            final_state_unknown: true,
                        },
                        Event::Added {
                            object: new,
                            initial: false,
                        },
                    ],
                    Some(old) if old.version() == new.version() => Vec::new(),
                    Some(old) => vec![Event::Updated { old, new }],
                }
            }
        }
    }

    fn progress(&self, source: usize, version: Version, synced: bool) {
        self.0.sources[source]
            .progress
            .send_modify(|(known, whole)| {
                *known = version.max(*known);
                *whole |= synced;
            });
        self.0.store.advance(version);
    }

    /// The current metrics.
    pub fn metrics(&self) -> Metrics {
        let InformerInner {
            sources,
            options,
            store,
            handlers,
            done,
            ..
        } = &*self.0;
        let queued =
            |source: &InformerSource<K>| source.fifo.lock().as_ref().map_or(0, DeltaFifo::len);
        let BatchCounters { processing, events } = done.lock().clone();
        let followed = sources.first().map(|source| &source.list_watch);
        Metrics {
            name: if options.name.is_empty() {
                followed.map(ListWatch::name).unwrap_or_default()
            } else {
                options.name.clone()
            },
            path: followed.map_or_else(String::new, |source| source.path().into()),
            reflectors: sources.iter().map(|source| source.meter.read()).collect(),
            queued: sources.iter().map(queued).sum(),
            processing,
            objects: store.len(),
            version: store.version(),
            events,
            waiting: handlers
                .lock()
                .iter()
                .filter_map(Weak::upgrade)
                .map(|mailbox| mailbox.len())
                .collect(),
        }
    }

    /// Waits until the cache has the initial objects.
    pub async fn wait_for_sync(&self) {
        let mut synced = self.0.synced.subscribe();
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Whether the cache has the initial objects.
    pub fn has_synced(&self) -> bool {
        *self.0.synced.borrow()
    }

    /// Waits until the cache has a written version of an object, to read one's own write. Objects
    /// outside the informer's namespaces are not waited for.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// # let config = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"}}"#)?;
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::dynamic::DynamicClient;
    /// use mizzen_sdk::informer::Informer;
    /// use mizzen_sdk::resource::CONFIG_MAPS;
    /// use mizzen_sdk::watch::ListWatch;
    ///
    /// let configs: Informer<Object> = Informer::new(ListWatch::at(client.clone(), CONFIG_MAPS.path("")));
    /// configs.start();
    /// let api = DynamicClient::new(client);
    /// let config = api.create(&CONFIG_MAPS, &config).await?;
    /// use mizzen_sdk::cache::Version;
    ///
    /// configs.wait_for(&config.key(), Version::parse(config.version())).await;
    /// assert!(configs.store().get(&config.key()).is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn wait_for(&self, key: &Key, version: Version) {
        if let Some(mut progress) = self.progress_of(key) {
            let _ = progress.wait_for(|(known, _)| *known >= version).await;
        }
    }

    /// Waits until the cache has an object, or its absence, as `is_met` demands. Objects outside the
    /// informer's namespaces are not waited for.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// # let config = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"web","namespace":"default"}}"#)?;
    /// use mizzen_sdk::Object;
    /// use mizzen_sdk::dynamic::DynamicClient;
    /// use mizzen_sdk::informer::Informer;
    /// use mizzen_sdk::resource::CONFIG_MAPS;
    /// use mizzen_sdk::watch::ListWatch;
    ///
    /// let configs: Informer<Object> = Informer::new(ListWatch::at(client.clone(), CONFIG_MAPS.path("")));
    /// configs.start();
    /// let api = DynamicClient::new(client);
    /// let config = api.create(&CONFIG_MAPS, &config).await?;
    /// configs.wait_until(&config.key(), |known| known.is_some_and(|known| known.uid() == config.uid())).await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn wait_until(&self, key: &Key, is_met: impl Fn(Option<Entry<K>>) -> bool) {
        let Some(mut progress) = self.progress_of(key) else {
            return;
        };
        // The cache is read after the progress, so no change is missed.
        progress.borrow_and_update();
        while !is_met(self.0.store.get(key)) {
            if progress.changed().await.is_err() {
                return;
            }
        }
    }

    /// The progress of the source that has an object.
    fn progress_of(&self, key: &Key) -> Option<watch::Receiver<(Version, bool)>> {
        let follows = |source: &&InformerSource<K>| {
            let namespace = source.namespace.as_deref();
            namespace.is_none_or(|namespace| namespace == key.namespace())
        };
        let source = self.0.sources.iter().find(follows)?;
        Some(source.progress.subscribe())
    }
}

impl<K> Drop for InformerInner<K> {
    fn drop(&mut self) {
        let handlers = self.handlers.lock();
        handlers
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|mailbox| mailbox.close());
    }
}

/// Sends every object to a handler periodically.
async fn resync<K>(store: Store<K>, mailbox: Weak<Mailbox<K>>, every: Duration) {
    let mut ticks = interval(every);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let Some(mailbox) = mailbox.upgrade() else {
            return;
        };
        for entry in store.list() {
            mailbox.push(Event::Updated {
                old: entry.clone(),
                new: entry,
            });
        }
    }
}
