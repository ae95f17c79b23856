//! Runs a controller until it is stopped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use mizzen_metrics::Collector;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Context;
use super::builder::Unregister;
use super::metrics::{ControllerMetrics, ReconcileCounters};
use crate::key::Key;
use crate::queue::Queue;

/// A controller: its work queues with their workers, and its background tasks. It is built by
/// [`Controller::for_kind`], and works once its informers have synced.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use k8s_openapi::api::core::v1::Namespace;
/// use mizzen_sdk::Key;
/// use mizzen_sdk::controller::{Action, Context, Controller, typed};
/// use tokio::sync::oneshot;
///
/// let (stop, stopped) = oneshot::channel::<()>();
/// let stop = parking_lot::Mutex::new(Some(stop));
/// let context = Context::new(client).named("watcher");
/// let controller = Controller::for_kind(&context, typed::<Namespace>()).reconcile(move |key: Key, _| {
///     println!("{key} was seen");
///     drop(stop.lock().take()); // as a signal would
///     async { Ok(Action::done()) }
/// });
/// controller.run(async { drop(stopped.await) }).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Controller {
    context: Context,
    name: Arc<str>,
    pub(super) needs_leader_election: bool,
    pub(super) pools: Vec<WorkerPool>,
    pub(super) registered: Vec<Unregister>,
    tasks: Vec<BoxFuture<'static, ()>>,
    collectors: Vec<Arc<dyn Collector>>,
    sync_timeout: Duration,
}

/// The workers of one queue.
pub(super) struct WorkerPool {
    pub n_workers: usize,
    pub queue: Queue<Key>,
    pub counters: Arc<ReconcileCounters>,
    pub worker: WorkerFn,
}

/// Starts a worker of the controller of a name, which ends when the receiver says so.
type WorkerFn = Box<dyn Fn(Arc<str>, watch::Receiver<bool>) -> BoxFuture<'static, ()> + Send>;

/// Why a controller ended.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use std::time::Duration;
/// use mizzen_sdk::controller::{Action, Context, Controller, RunError, dynamic};
/// use mizzen_sdk::{Key, ResourceType};
///
/// let unserved = ResourceType::namespaced("example.com", "v1", "ovens", "Oven");
/// let context = Context::new(client).named("bakery");
/// let controller = Controller::for_kind(&context, dynamic(&unserved))
///     .reconcile(|_: Key, _: Context| async { Ok(Action::done()) })
///     .with_sync_timeout(Duration::from_millis(10));
/// let outcome = controller.run(std::future::pending()).await;
/// assert!(matches!(outcome, Err(RunError::Sync { .. })));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// Its informers did not sync in time: a kind may not be served, or not be readable.
    #[error("the caches of controller {controller} did not sync within {timeout:?}")]
    Sync {
        /// The controller's name.
        controller: String,
        /// The timeout.
        timeout: Duration,
    },
}

impl Controller {
    /// A controller without workers, for [tasks](Controller::with_task).
    pub fn new(context: &Context) -> Controller {
        Controller {
            context: context.clone(),
            name: Arc::from(context.name()),
            needs_leader_election: true,
            pools: Vec::new(),
            registered: Vec::new(),
            tasks: Vec::new(),
            collectors: Vec::new(),
            // Upstream's default of CacheSyncTimeout.
            sync_timeout: Duration::from_secs(120),
        }
    }

    /// Adds a background task, which is dropped when the controller stops.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::Key;
    /// use mizzen_sdk::controller::{Action, Context, Controller, dynamic};
    /// use mizzen_sdk::resource::CONFIG_MAPS;
    ///
    /// let controller = Controller::for_kind(&Context::new(client).named("ovens"), dynamic(&CONFIG_MAPS))
    ///     .reconcile(|_: Key, _: Context| async { Ok(Action::done()) })
    ///     .with_task(async { println!("in the background, until the controller stops") });
    /// # drop(controller);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_task(mut self, task: impl Future<Output = ()> + Send + 'static) -> Controller {
        self.tasks.push(Box::pin(task));
        self
    }

    /// Adds the metrics of a part of the controller, such as a queue of its own.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::Key;
    /// use mizzen_sdk::controller::{Action, Context, Controller, dynamic};
    /// use mizzen_sdk::queue::Queue;
    /// use mizzen_sdk::resource::CONFIG_MAPS;
    ///
    /// let controller = Controller::for_kind(&Context::new(client).named("ovens"), dynamic(&CONFIG_MAPS))
    ///     .reconcile(|_: Key, _: Context| async { Ok(Action::done()) })
    ///     .with_metrics(Queue::<Key>::new("extra"));
    /// # drop(controller);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_metrics(mut self, collector: impl Collector + 'static) -> Controller {
        self.collectors.push(Arc::new(collector));
        self
    }

    /// Adds the workers and tasks of another controller.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::Key;
    /// use mizzen_sdk::controller::{Action, Context, Controller, Error};
    /// use mizzen_sdk::resource::{CONFIG_MAPS, SECRETS};
    ///
    /// let context = Context::new(client).named("configs-and-secrets");
    /// let done = |_: Key, _: Context| async { Ok::<_, Error>(Action::done()) };
    /// let controller = Controller::for_kind(&context, &CONFIG_MAPS).queue_name("configs").reconcile(done);
    /// let controller = controller.merge(Controller::for_kind(&context, &SECRETS).queue_name("secrets").reconcile(done));
    /// # drop(controller);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn merge(mut self, other: Controller) -> Controller {
        self.pools.extend(other.pools);
        self.tasks.extend(other.tasks);
        self.collectors.extend(other.collectors);
        self.registered.extend(other.registered);
        self
    }

    /// Changes the name in metrics and spans.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::Key;
    /// use mizzen_sdk::controller::{Action, Context, Controller, dynamic};
    /// use mizzen_sdk::resource::CONFIG_MAPS;
    ///
    /// let controller = Controller::for_kind(&Context::new(client).named("ovens"), dynamic(&CONFIG_MAPS))
    ///     .reconcile(|_: Key, _: Context| async { Ok(Action::done()) })
    ///     .with_name("renamed");
    /// assert_eq!(controller.name(), "renamed");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_name(mut self, name: &str) -> Controller {
        self.name = Arc::from(name);
        self
    }

    /// Changes the number of workers of each queue.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::Key;
    /// use mizzen_sdk::controller::{Action, Context, Controller, dynamic};
    /// use mizzen_sdk::metrics::Families;
    /// use mizzen_sdk::resource::CONFIG_MAPS;
    ///
    /// let controller = Controller::for_kind(&Context::new(client).named("ovens"), dynamic(&CONFIG_MAPS))
    ///     .reconcile(|_: Key, _: Context| async { Ok(Action::done()) })
    ///     .with_workers(8);
    /// assert!(Families::of(&[&controller.metrics()]).to_string().contains(r#"max_concurrent_reconciles{controller="ovens"} 8"#));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_workers(mut self, n_workers: usize) -> Controller {
        for pool in &mut self.pools {
            pool.n_workers = n_workers;
            let shown = &pool.counters.max_concurrent;
            shown.store(n_workers as u64, Ordering::Relaxed);
        }
        self
    }

    /// Changes how long [`run`](Controller::run) waits for the caches; the default is two minutes.
    pub fn with_sync_timeout(mut self, sync_timeout: Duration) -> Controller {
        self.sync_timeout = sync_timeout;
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether only the leader of several replicas runs it.
    pub fn needs_leader_election(&self) -> bool {
        self.needs_leader_election
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Its metrics.
    pub fn metrics(&self) -> ControllerMetrics {
        let pools = self.pools.iter();
        ControllerMetrics {
            controller: self.name.clone(),
            pools: pools
                .map(|pool| (pool.queue.clone(), pool.counters.clone()))
                .collect(),
            others: self.collectors.clone(),
        }
    }

    /// Starts the informers of its context, waits for their caches, and works until `stop`
    /// completes. Then running reconciles end and no other starts. If the future is dropped,
    /// everything ends at once.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) -> Result<(), RunError> {
        let mut stop = std::pin::pin!(stop);
        let informers = self.context.informers();
        informers.start();
        tokio::select! {
            () = &mut stop => return Ok(()),
            synced = timeout(self.sync_timeout, informers.wait_for_sync()) => {
                synced.map_err(|_| RunError::Sync {
                    controller: self.name.to_string(),
                    timeout: self.sync_timeout,
                })?;
            }
        }
        let (stopping, is_stopping) = watch::channel(false);
        let mut workers = JoinSet::new();
        for pool in &self.pools {
            for _ in 0..pool.n_workers {
                workers.spawn((pool.worker)(self.name.clone(), is_stopping.clone()));
            }
        }
        let tasks: JoinSet<()> = self.tasks.into_iter().collect();
        stop.await;
        stopping.send_replace(true);
        self.registered.into_iter().for_each(|remove| remove());
        self.pools.iter().for_each(|pool| pool.queue.shut_down());
        drop(tasks);
        while workers.join_next().await.is_some() {}
        Ok(())
    }
}
