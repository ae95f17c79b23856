//! The manager of an operator: caches, webhooks, leader election and controllers, started in order
//! and stopped in order.
//!
//! ```
//! # use mizzen_apiserver::User;
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
//! # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
//! use std::time::Duration;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use mizzen_sdk::Key;
//! use mizzen_sdk::election;
//! use mizzen_sdk::manager::{Manager, Task};
//!
//! let mut manager = Manager::new(client)
//!     .leader_election("default", "shop-operator", election::Options::new("pod-1"))
//!     .read_your_writes(Duration::from_secs(5));
//! let configs = manager.cluster().api::<ConfigMap>();
//! # let (done, stopped) = tokio::sync::oneshot::channel::<()>();
//! manager.add_task(Task::new("greeter", async move |_stop| {
//!     let mut config = ConfigMap::default();
//!     config.metadata.name = Some("hello".into());
//!     config.metadata.namespace = Some("default".into());
//!     configs.create(&config).await?;
//!     // The cache has it: the client waits for its own writes.
//!     assert!(configs.get(&Key::new("default", "hello")).await?.is_some());
//! #   drop(done);
//!     Ok(())
//! }));
//! manager.run(async { drop(stopped.await) }).await?; // or run_until_signal()
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The start is: HTTP endpoints, webhooks, caches, tasks of every replica, leader election, tasks of
//! the leader. The stop is the reverse, within a grace period. Webhooks come before caches because a
//! cache may need the conversion webhook of this process to list its objects.
//!
//! Invariant: a task runs only while the caches are synced. Invariant: a task of the leader runs
//! only while the lease is held, and the lease is released after it has ended.

mod cached_api;
mod cluster;
mod endpoints;
mod run;
mod task;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use mizzen_metrics::Collector;
use tokio::net::TcpListener;

use crate::clock::Clock;
use crate::controller::Controller;
use crate::election;
use crate::informer::FactoryOptions;
#[cfg(feature = "webhook")]
use crate::webhook::{Server, ServingCertificate};

pub use cached_api::{CachedApi, ReadError};
pub use cluster::Cluster;
pub use endpoints::CheckFailed;
use endpoints::HealthCheck;
pub use run::RunError;
pub use task::{Stop, Task, TaskError};

/// Runs an operator: its caches, webhooks, controllers and further tasks.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use std::time::Duration;
/// use mizzen_sdk::election;
/// use mizzen_sdk::manager::Manager;
///
/// let manager = Manager::new(client)
///     .leader_election("default", "shop-operator", election::Options::new("pod-1"))
///     .endpoints(([127, 0, 0, 1], 0).into()) // port 0: off
///     .grace(Duration::from_secs(10));
/// manager.run(std::future::ready(())).await?; // or run_until_signal()
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Manager {
    clusters: Vec<Cluster>,
    client: Client,
    tasks: Vec<Task>,
    /// The tasks that serve webhooks.
    webhooks: Vec<Task>,
    election: Option<LeaderElection>,
    endpoints: Endpoints,
    live: Vec<HealthCheck>,
    ready: Vec<HealthCheck>,
    collectors: Vec<Arc<dyn Collector>>,
    grace: Duration,
    sync_timeout: Duration,
    read_your_writes: Option<Duration>,
}

/// The Lease of an election.
struct LeaderElection {
    namespace: String,
    name: String,
    options: election::Options,
}

/// Where `/metrics`, `/healthz` and `/readyz` are served.
enum Endpoints {
    Off,
    At(SocketAddr),
    On(TcpListener),
}

impl Manager {
    /// A manager of one cluster, with caches of all namespaces, without leader election and without
    /// HTTP endpoints.
    pub fn new(client: Client) -> Manager {
        Manager {
            clusters: vec![Cluster::new(
                "",
                client.clone(),
                FactoryOptions::default(),
                None,
            )],
            client,
            tasks: Vec::new(),
            webhooks: Vec::new(),
            election: None,
            endpoints: Endpoints::Off,
            live: Vec::new(),
            ready: Vec::new(),
            collectors: Vec::new(),
            grace: Duration::from_secs(30),
            sync_timeout: Duration::from_secs(120),
            read_your_writes: None,
        }
    }

    /// Restricts the caches of the cluster: to namespaces, labels, fields. Call it before
    /// [`cluster`](Manager::cluster).
    ///
    /// ```
    /// # fn restrict(client: kube::Client) {
    /// use mizzen_sdk::informer::FactoryOptions;
    /// use mizzen_sdk::manager::Manager;
    ///
    /// let manager = Manager::new(client).cache(FactoryOptions {
    ///     namespaces: vec!["shop".into()],
    ///     labels: Some("app=shop".into()),
    ///     ..FactoryOptions::default()
    /// });
    /// # }
    /// ```
    pub fn cache(mut self, options: FactoryOptions) -> Manager {
        self.clusters[0] = Cluster::new("", self.client.clone(), options, self.read_your_writes);
        self
    }

    /// Clients wait after each write until the cache has it, for at most `timeout`. Call it before
    /// [`cluster`](Manager::cluster).
    pub fn read_your_writes(mut self, timeout: Duration) -> Manager {
        self.read_your_writes = Some(timeout);
        for cluster in &mut self.clusters {
            cluster.read_your_writes = Some(timeout);
        }
        self
    }

    /// The wall clock of controllers and of events; the default is that of the system. A test on virtual time sets the one
    /// of its cluster. Call it before [`cluster`](Manager::cluster).
    ///
    /// ```
    /// # fn at_the_epoch(client: kube::Client) {
    /// use std::sync::Arc;
    /// use k8s_openapi::jiff::Timestamp;
    /// use mizzen_sdk::manager::Manager;
    ///
    /// let manager = Manager::new(client).clock(Arc::new(|| Timestamp::UNIX_EPOCH));
    /// # }
    /// ```
    pub fn clock(mut self, clock: Clock) -> Manager {
        for cluster in &mut self.clusters {
            cluster.clock = clock.clone();
        }
        self
    }

    /// Tasks run on the replica that holds a Lease; except those
    /// [on every replica](Task::on_every_replica).
    pub fn leader_election(
        mut self,
        namespace: impl Into<String>,
        name: impl Into<String>,
        options: election::Options,
    ) -> Manager {
        self.election = Some(LeaderElection {
            namespace: namespace.into(),
            name: name.into(),
            options,
        });
        self
    }

    /// Serves `/metrics`, `/healthz` and `/readyz` over HTTP; port 0 switches them off.
    pub fn endpoints(mut self, address: SocketAddr) -> Manager {
        self.endpoints = match address.port() {
            0 => Endpoints::Off,
            _ => Endpoints::At(address),
        };
        self
    }

    /// Serves `/metrics`, `/healthz` and `/readyz` on a socket that is bound already.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::manager::Manager;
    ///
    /// let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?; // a free port
    /// let manager = Manager::new(client).endpoints_on(listener);
    /// # drop(manager);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn endpoints_on(mut self, listener: TcpListener) -> Manager {
        self.endpoints = Endpoints::On(listener);
        self
    }

    /// How long the stop may take; the default is 30 s, as in controller-runtime.
    pub fn grace(mut self, grace: Duration) -> Manager {
        self.grace = grace;
        self
    }

    /// How long the caches may take to sync; the default is two minutes.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use std::time::Duration;
    /// use mizzen_sdk::manager::Manager;
    ///
    /// let manager = Manager::new(client).sync_timeout(Duration::from_secs(20));
    /// # drop(manager);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sync_timeout(mut self, timeout: Duration) -> Manager {
        self.sync_timeout = timeout;
        self
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.clusters[0]
    }

    /// Adds another cluster, with caches of its own. They are started and stopped with the manager.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = async || kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// # let (local, remote) = (client().await, client().await);
    /// use mizzen_sdk::informer::FactoryOptions;
    /// use mizzen_sdk::manager::Manager;
    ///
    /// let mut manager = Manager::new(local);
    /// let remote = manager.add_cluster("remote", remote, FactoryOptions::default());
    /// assert_eq!(remote.name(), "remote");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_cluster(
        &mut self,
        name: impl Into<String>,
        client: Client,
        options: FactoryOptions,
    ) -> Cluster {
        let mut cluster = Cluster::new(name, client, options, self.read_your_writes);
        cluster.clock = self.clusters[0].clock.clone();
        self.clusters.push(cluster.clone());
        cluster
    }

    /// Adds a controller, which runs on the leader unless it needs no leader election.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use k8s_openapi::api::core::v1::Namespace;
    /// use mizzen_sdk::Key;
    /// use mizzen_sdk::controller::{Action, Controller, typed};
    /// use mizzen_sdk::manager::Manager;
    ///
    /// let mut manager = Manager::new(client);
    /// let context = manager.cluster().context("greeter");
    /// # let (done, stopped) = tokio::sync::oneshot::channel::<()>();
    /// # let done = parking_lot::Mutex::new(Some(done));
    /// manager.add_controller(Controller::for_kind(&context, typed::<Namespace>()).reconcile(move |key: Key, _| {
    ///     println!("hello {key}");
    /// #   drop(done.lock().take());
    ///     async { Ok(Action::done()) }
    /// }));
    /// manager.run(async { drop(stopped.await) }).await?; // or run_until_signal()
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_controller(&mut self, controller: Controller) {
        self.add_metrics(controller.metrics());
        let needs_leader = controller.needs_leader_election();
        let name = controller.name().to_owned();
        let mut task = Task::new(name, move |stop: Stop| async move {
            Ok(controller.run(stop.requested()).await?)
        });
        task.needs_leader = needs_leader;
        self.tasks.push(task);
    }

    /// Adds a task.
    pub fn add_task(&mut self, task: Task) {
        self.tasks.push(task);
    }

    /// Serves webhooks on a bound socket. With certificates of its own, add the rotator as a task:
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// # let server = mizzen_sdk::webhook::Server::builder("shop").build()?;
    /// use mizzen_sdk::manager::{Manager, Task};
    /// use mizzen_sdk::webhook::{CertificateRotator, Endpoint, RotationOptions};
    ///
    /// let mut manager = Manager::new(client.clone());
    /// let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    /// let endpoint = Endpoint::service("default", "shop-webhook");
    /// let options = RotationOptions::new("default", "shop-webhook", endpoint.names());
    /// let rotator = CertificateRotator::start(client, options).await?;
    /// manager.add_webhooks(server, listener, rotator.certificate());
    /// let rotate = Task::new("certificates", async move |stop| {
    ///     tokio::select! {
    ///         () = rotator.run() => {}
    ///         () = stop.requested() => {}
    ///     }
    ///     Ok(())
    /// });
    /// manager.add_task(rotate.on_every_replica());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "webhook")]
    pub fn add_webhooks(
        &mut self,
        server: Server,
        listener: TcpListener,
        certificate: ServingCertificate,
    ) {
        let grace = self.grace;
        let serve = Task::new("webhooks", move |stop: Stop| async move {
            server
                .serve(listener, certificate, stop.requested(), grace)
                .await;
            Ok(())
        });
        self.webhooks.push(serve.on_every_replica());
    }

    /// Adds a check of `/healthz`: a failure means that the process should be restarted.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::manager::{CheckFailed, Manager};
    ///
    /// let mut manager = Manager::new(client);
    /// manager.add_health_check("disk", || match std::fs::metadata("/") {
    ///     Ok(_) => Ok(()),
    ///     Err(error) => Err(CheckFailed::new(error.to_string())),
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_health_check(
        &mut self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), CheckFailed> + Send + Sync + 'static,
    ) {
        self.live.push(HealthCheck::new(name, check));
    }

    /// Adds a check of `/readyz`: a failure means that the process should get no requests. It is
    /// ready when its caches have synced.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::manager::{CheckFailed, Manager};
    ///
    /// let mut manager = Manager::new(client);
    /// manager.add_readiness_check("database", || Err(CheckFailed::new("not connected yet")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_readiness_check(
        &mut self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), CheckFailed> + Send + Sync + 'static,
    ) {
        self.ready.push(HealthCheck::new(name, check));
    }

    /// Adds metrics to `/metrics`.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::Key;
    /// use mizzen_sdk::manager::Manager;
    /// use mizzen_sdk::queue::Queue;
    ///
    /// let mut manager = Manager::new(client);
    /// manager.add_metrics(Queue::<Key>::new("uploads"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_metrics(&mut self, collector: impl Collector + 'static) {
        self.collectors.push(Arc::new(collector));
    }

    /// Runs until SIGINT or SIGTERM. A second signal ends the process at once.
    pub async fn run_until_signal(self) -> Result<(), RunError> {
        let stop = crate::signal::shutdown().map_err(RunError::Listen)?;
        self.run(stop).await
    }
}
