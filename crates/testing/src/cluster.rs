//! A control plane in the process of a test.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kube::Client;
use mizzen_apiserver::clock::{CountingRandom, SettableClock, WallClock};
use mizzen_apiserver::{Server, User};
use mizzen_authentication::TrustedAuthorities;
use mizzen_bootstrap::objects::{KubernetesService, ServerLocation, bootstrap, bootstrap_nodes};
use mizzen_controlplane::{Options, Plugins};
use mizzen_object::condition;
use mizzen_registry::{Registry, Revision, Store};
use mizzen_sdk::clock::{self, Clock};
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::manager::Manager;
use mizzen_sdk::queue;
use mizzen_value::address::Cidr;
use mizzen_value::clock::Clock as _;
use mizzen_value::{Str, value};
use parking_lot::Mutex;
use tokio::sync::{OnceCell, mpsc};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use crate::builder::Builder;
use crate::components::{AUTHORITY, Components, Environment, Program, TOKEN_KEY};
use crate::explore::is_exploring;
use crate::faults::{Fault, Faults, Injection};
use crate::outcome::ProgramOutcome;
use crate::random::SeededRandom;
use crate::steps::{Step, StepLog};
use crate::time::{is_paused, pause_if_possible};
use crate::transport::{InFlight, Network, Process};
use crate::webhooks::{WebhookHandlers, Webhooks};

/// The time at which every cluster on virtual time starts: 2023-11-14 22:13:20 UTC.
const BEGIN: i64 = 1_700_000_000;
/// The address of the server in objects. Nothing listens there.
const ADVERTISED: &str = "127.0.0.1:6443";
/// The namespaces of a cluster without bootstrap objects.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// How often expired Events are deleted. Seldom, so that idle time is cheap.
const EXPIRE_INTERVAL: Duration = Duration::from_secs(1800);
/// How long a watch on virtual time lasts, in seconds. Watches that end and start again are most of what an idle cluster
/// does.
const WATCH_SECONDS: u64 = 10 * 365 * 24 * 3600;
/// How long a killed process is away.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// How many kills may wait.
const MAX_KILLS: usize = 16;
/// How many steps are printed when a test fails.
const LAST_STEPS: usize = 40;

/// A Kubernetes control plane inside a test. It stops when the last clone is dropped.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use mizzen_testing::Cluster;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let cluster = Cluster::start().await;
/// cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: nginx}]}}").await;
/// cluster.settle().await;
/// let pod: Pod = cluster.get("web").await;
/// assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("node-0"));
/// # }
/// ```
#[derive(Clone)]
pub struct Cluster(Arc<ClusterInner>);

struct ClusterInner {
    env: Environment,
    dynamic_client: DynamicClient,
    builder: Mutex<Builder>,
    components: Mutex<Components>,
    webhooks: Webhooks,
    /// Stops with the cluster.
    tasks: Mutex<JoinSet<()>>,
    is_virtual: std::sync::atomic::AtomicBool,
}

impl Cluster {
    /// A cluster with all controllers, the scheduler and one node.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::Namespace;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// assert_eq!(cluster.list::<Namespace>().await.len(), 4);
    /// # }
    /// ```
    pub async fn start() -> Cluster {
        Cluster::builder().start().await
    }

    /// The options of a cluster.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::Node;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::builder().nodes(3).start().await;
    /// assert_eq!(cluster.list::<Node>().await.len(), 3);
    /// # }
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) async fn start_with(builder: Builder) -> Cluster {
        let is_virtual = !builder.is_real_time && pause_if_possible();
        let now = if is_virtual { BEGIN } else { WallClock.now().0 };
        let store = match (&builder.open_store, builder.is_bootstrapped) {
            (Some(open), is_bootstrapped) => {
                let store = open();
                if is_bootstrapped {
                    bootstrap_store(&store, now).await;
                }
                store
            }
            (None, true) => bootstrapped_store().await.fork(),
            (None, false) => Store::in_memory(Default::default()),
        };
        let clock = SettableClock::starting_at(now);
        let webhooks = WebhookHandlers::default();
        Cluster::on_store(store, clock, builder, Components::default(), webhooks).await
    }

    /// Starts an API server on a store, and the components beside it.
    async fn on_store(
        store: Store,
        clock: SettableClock,
        builder: Builder,
        mut components: Components,
        webhooks: WebhookHandlers,
    ) -> Cluster {
        let steps = StepLog::new();
        let faults = Faults::new(builder.faults.clone(), steps.clone());
        let webhooks = Webhooks::new(webhooks, faults.clone());
        let random = SeededRandom::new(builder.seed);
        let registry = Registry::new(store, Arc::new(clock.clone()), Arc::new(random.clone()));
        // Without the controller that creates service accounts, pods must not need one.
        let plugins = match builder.has_controller("serviceaccount-controller") {
            true => Plugins::default(),
            false => Plugins::alone(),
        };
        let mut server = mizzen_apiserver::Options {
            advertise: ADVERTISED.into(),
            signer: Some(TOKEN_KEY.clone()),
            webhook_interceptor: Some(Arc::new(webhooks.clone())),
            ..mizzen_apiserver::Options::default()
        };
        let is_virtual = is_paused();
        if is_virtual {
            // Programs have sources of random numbers that the cluster does not see: the jitter of a back-off.
            clock::simulate_rng(random.rng());
            // They have work queues that the cluster does not see, too.
            queue::track_retries();
            // Whatever happens every few seconds makes long advances slow: watches last, and seats are not lent.
            server.min_request_timeout = WATCH_SECONDS;
            server.concurrency.is_fair = false;
        }
        let mut options = Options {
            plugins,
            ..server.into()
        };
        (builder.tune_server)(&mut options);
        let server = mizzen_controlplane::server(registry.clone(), options);
        server.start().await;
        if !builder.is_bootstrapped {
            for name in NAMESPACES {
                let namespace = value!({"metadata": {"name": name}});
                // A fork has them.
                server
                    .ask("POST", "/api/v1/namespaces", Some(&namespace))
                    .await;
            }
        }
        let (kills, killed) = mpsc::channel(MAX_KILLS);
        let network = Network {
            server,
            faults,
            steps,
            n_in_flight: Arc::default(),
            has_long_watches: is_virtual,
            is_open: !builder.is_bootstrapped,
            kills,
        };
        let env = Environment {
            network,
            clock,
            random,
        };
        components.start_all(&builder, &env).await;
        let cluster = Cluster(Arc::new(ClusterInner {
            dynamic_client: DynamicClient::new(env.network.test_client(User::master("admin"))),
            env,
            builder: Mutex::new(builder),
            components: Mutex::new(components),
            webhooks,
            tasks: Mutex::default(),
            is_virtual: is_virtual.into(),
        }));
        cluster.spawn_tasks(registry, killed);
        cluster.wait_until_usable().await;
        cluster
    }

    /// Spawns what the server does at intervals, and the restart of killed processes.
    fn spawn_tasks(&self, registry: Registry, mut killed: mpsc::Receiver<Process>) {
        let mut tasks = self.0.tasks.lock();
        tasks.spawn(async move {
            let mut ticks = interval(EXPIRE_INTERVAL);
            loop {
                ticks.tick().await;
                registry.expire().await;
            }
        });
        let cluster = Arc::downgrade(&self.0);
        tasks.spawn(async move {
            while let Some(process) = killed.recv().await {
                let Some(inner) = cluster.upgrade() else {
                    return;
                };
                inner.components.lock().kill(&process);
                let _restarting = InFlight::new(&inner.env.network);
                drop(inner);
                sleep(RESTART_DELAY).await;
                if let Some(inner) = cluster.upgrade() {
                    inner.start_process(&process);
                }
            }
        });
        let cluster = Arc::downgrade(&self.0);
        let faults = self.0.env.network.faults.clone();
        let mut is_on = faults.subscribe();
        tasks.spawn(async move {
            while is_on.wait_for(|is_on| *is_on).await.is_ok() {
                sleep(Duration::from_secs(1)).await;
                let Some(fault) = faults.on_second() else {
                    continue;
                };
                let Some(inner) = cluster.upgrade() else {
                    return;
                };
                match fault {
                    Fault::RestartAll => inner.restart_all(),
                    Fault::ClockStep { seconds } => inner.env.clock.step(i64::from(seconds)),
                    Fault::LoseNodes { seconds } if inner.builder.lock().n_nodes > 0 => {
                        inner.components.lock().kill(&Process::Nodes);
                        let _restarting = InFlight::new(&inner.env.network);
                        drop(inner);
                        sleep(Duration::from_secs(u64::from(seconds))).await;
                        if let Some(inner) = cluster.upgrade() {
                            inner.start_process(&Process::Nodes);
                        }
                    }
                    _ => {}
                }
            }
        });
    }

    /// Waits until pods are admitted, and until there are nodes for them.
    async fn wait_until_usable(&self) {
        let (builder, store) = (self.0.builder.lock().clone(), self.store());
        let account = "/api/v1/namespaces/default/serviceaccounts/default";
        let needs_account = builder.has_controller("serviceaccount-controller");
        let has_taints = builder.has_controller("node-lifecycle-controller");
        loop {
            let now = store.revision();
            let (code, _) = self.server().ask("GET", account, None).await;
            let (_, nodes) = self.server().ask("GET", "/api/v1/nodes", None).await;
            let ready = nodes["items"].list().iter().filter(|node| {
                let ready = condition::find(&node["status"]["conditions"], "Ready");
                let is_ready = ready.is_some_and(|ready| ready["status"].str() == "True");
                is_ready && (!has_taints || node["spec"]["taints"].is_empty())
            });
            let n_missing = builder.n_nodes.saturating_sub(ready.count());
            if (code == 200 || !needs_account) && n_missing == 0 {
                return;
            }
            // Each of the missing nodes is written at least once.
            store
                .reached(Revision(now.0 + n_missing.max(1) as u64))
                .await;
        }
    }

    /// A client with all permissions.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), kube::Error> {
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::Api;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// let configs: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    /// let config = serde_json::from_str(r#"{"metadata":{"name":"settings"}}"#).unwrap();
    /// let created = configs.create(&Default::default(), &config).await?;
    /// assert!(created.metadata.uid.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn client(&self) -> Client {
        self.0.env.network.test_client(User::master("admin"))
    }

    /// A client of a user, with the permissions that RBAC grants to the user and the groups.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::Pod;
    /// use kube::Api;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// let jane = cluster.client_as("jane", &["developers"]);
    /// let error = Api::<Pod>::default_namespaced(jane).list(&Default::default()).await.unwrap_err();
    /// assert!(error.to_string().contains("forbidden"), "{error}");
    /// # }
    /// ```
    pub fn client_as(&self, user: &str, groups: &[&str]) -> Client {
        let mut user = User::component(user);
        user.groups
            .extend(groups.iter().map(|group| Str::from(*group)));
        self.0.webhooks.add_test_user(&user.name);
        self.0.env.network.test_client(user)
    }

    /// A client of objects without a type, with all permissions.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_sdk::resource::SECRETS;
    /// use mizzen_sdk::write::is_not_found;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::builder().server_only().start().await;
    /// let missing = cluster.dynamic_client().get(&SECRETS, &"default/key".parse().unwrap()).await;
    /// assert!(is_not_found(&missing.unwrap_err()));
    /// # }
    /// ```
    pub fn dynamic_client(&self) -> &DynamicClient {
        &self.0.dynamic_client
    }

    /// The API server, for requests without a client.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// let (code, version) = cluster.server().ask("GET", "/version", None).await;
    /// assert_eq!((code, version["major"].str()), (200, "1"));
    /// # }
    /// ```
    pub fn server(&self) -> &Server {
        &self.0.env.network.server
    }

    /// The wall clock of the server and of all components.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use std::time::Duration;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// // The clock of the machine is corrected by an hour.
    /// cluster.clock().step(-3600);
    /// cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: early}}").await;
    /// let early: ConfigMap = cluster.get("early").await;
    /// assert_eq!(early.metadata.creation_timestamp.unwrap().0.to_string(), "2023-11-14T21:13:20Z");
    /// # }
    /// ```
    pub fn clock(&self) -> &SettableClock {
        &self.0.env.clock
    }

    /// The wall clock as controllers of `mizzen_sdk` read it: for `ContextOptions::clock` and `Manager::clock`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use std::time::Duration;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// let clock = cluster.wall_clock();
    /// let before = clock();
    /// cluster.advance(Duration::from_secs(3600)).await;
    /// assert_eq!(clock().duration_since(before).as_secs(), 3600);
    /// # }
    /// ```
    pub fn wall_clock(&self) -> Clock {
        clock::following(self.clock().clone())
    }

    /// Runs a program beside the components: a controller or a manager. It gets a client with all permissions, whose
    /// writes are steps of `name`, and which sees faults. A killed program is started again, so `program` may be called
    /// more than once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), kube::Error> {
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::Api;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// cluster.run("greeter", |client| async move {
    ///     let greeting: ConfigMap = serde_json::from_str(r#"{"metadata":{"name":"hello"}}"#).unwrap();
    ///     Api::default_namespaced(client).create(&Default::default(), &greeting).await.map(drop)
    /// });
    /// cluster.settle().await;
    /// cluster.get::<ConfigMap>("hello").await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn run<F, R>(&self, name: &str, program: F)
    where
        F: Fn(Client) -> R + Send + Sync + 'static,
        R: Future<Output: ProgramOutcome> + Send + 'static,
    {
        let name: Arc<str> = name.into();
        let (steps, actor) = (self.0.env.network.steps.clone(), name.clone());
        let program: Program = Arc::new(move |client| {
            let (running, steps, actor) = (program(client), steps.clone(), actor.clone());
            Box::pin(async move {
                if let Some(error) = running.await.failure() {
                    steps.record_fault(&actor, format!("the program ended: {error}"));
                }
            })
        });
        self.0.components.lock().add_program(name.clone(), program);
        self.0.start_process(&Process::Program(name));
    }

    /// Runs the manager of an operator beside the components, as [`run`](Cluster::run) does: `manager` makes it, with the
    /// client of the program and the [clock](Cluster::wall_clock) of the cluster.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use std::sync::Arc;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::{Api, Client};
    /// use mizzen_sdk::clock::Clock;
    /// use mizzen_sdk::controller::{Action, Context, Controller, Error, typed};
    /// use mizzen_sdk::manager::Manager;
    /// use mizzen_sdk::write;
    /// use mizzen_testing::Cluster;
    ///
    /// async fn stamp(config: Arc<ConfigMap>, context: Context) -> Result<Action, Error> {
    ///     let name = config.metadata.name.clone().unwrap_or_default();
    ///     let configs: Api<ConfigMap> = Api::default_namespaced(context.client());
    ///     if name == "letter" && config.data.is_none() {
    ///         let today = context.now().strftime("%Y-%m-%d").to_string();
    ///         write::update(&configs, &name, |config| {
    ///             config.data = Some([("date".to_owned(), today.clone())].into());
    ///         }).await?;
    ///     }
    ///     Ok(Action::done())
    /// }
    ///
    /// fn manager(client: Client, clock: Clock) -> Manager {
    ///     let mut manager = Manager::new(client).clock(clock);
    ///     let context = manager.cluster().context("stamper");
    ///     manager.add_controller(Controller::for_kind(&context, typed::<ConfigMap>()).reconcile_objects(stamp));
    ///     manager
    /// }
    ///
    /// let cluster = Cluster::start().await;
    /// cluster.run_manager("stamper", manager);
    /// cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: letter}}").await;
    /// cluster.settle().await;
    /// assert_eq!(cluster.get::<ConfigMap>("letter").await.data.unwrap()["date"], "2023-11-14");
    /// # }
    /// ```
    pub fn run_manager<F>(&self, name: &str, manager: F)
    where
        F: Fn(Client, Clock) -> Manager + Send + Sync + 'static,
    {
        let clock = self.wall_clock();
        self.run(name, move |client| {
            manager(client, clock.clone()).run(std::future::pending())
        });
    }

    /// Kills a program. It does not start again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use std::time::Duration;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::{Api, Client};
    /// use mizzen_testing::Cluster;
    ///
    /// async fn tick(client: Client) {
    ///     for n in 0.. {
    ///         tokio::time::sleep(Duration::from_secs(1)).await;
    ///         let config = serde_json::from_str(&format!(r#"{{"metadata":{{"name":"n-{n}"}}}}"#)).unwrap();
    ///         let configs: Api<ConfigMap> = Api::default_namespaced(client.clone());
    ///         configs.create(&Default::default(), &config).await.unwrap();
    ///     }
    /// }
    ///
    /// let cluster = Cluster::start().await;
    /// cluster.run("ticker", tick);
    /// cluster.advance(Duration::from_millis(2_500)).await;
    /// cluster.stop("ticker");
    /// cluster.advance(Duration::from_secs(60)).await;
    /// assert!(cluster.find::<ConfigMap>("n-1").await.is_some());
    /// assert!(cluster.find::<ConfigMap>("n-2").await.is_none());
    /// # }
    /// ```
    pub fn stop(&self, program: &str) {
        self.0.components.lock().remove_program(program);
    }

    /// Kills all components and programs, and starts them with empty caches.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::Pod;
    /// use mizzen_testing::{Cluster, assert_status};
    ///
    /// let cluster = Cluster::start().await;
    /// cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}").await;
    /// cluster.restart();
    /// cluster.settle().await;
    /// assert_status!(cluster, Pod, "p", {"phase": "Running"});
    /// # }
    /// ```
    pub fn restart(&self) {
        let what = "all components are killed and restarted".into();
        let steps = &self.0.env.network.steps;
        steps.record_fault(&"cluster".into(), what);
        self.0.restart_all();
    }

    /// Kills all components and programs, and starts those of changed options with empty caches. When this returns they
    /// run. The API server keeps its options.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_testing::{Builder, Cluster};
    ///
    /// let cluster = Cluster::start().await;
    /// // What happens while no component runs?
    /// cluster.restart_with(Builder::server_only).await;
    /// cluster.restart_with(|builder| builder.controllers(["job-controller"])).await;
    /// # }
    /// ```
    pub async fn restart_with(&self, change: impl FnOnce(Builder) -> Builder) {
        let programs = self.0.components.lock().programs();
        *self.0.components.lock() = Components::default();
        let builder = change(self.0.builder.lock().clone());
        *self.0.builder.lock() = builder.clone();
        let mut components = Components::with_programs(programs);
        components.start_all(&builder, &self.0.env).await;
        *self.0.components.lock() = components;
        self.wait_until_usable().await;
    }

    /// The metrics of controllers and scheduler, as their `/metrics` have them.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// assert!(cluster.metrics().contains("scheduler_pending_pods"));
    /// # }
    /// ```
    pub fn metrics(&self) -> String {
        self.0.components.lock().metrics().to_string()
    }

    /// Switches the faults of [`Builder::faults`] on or off. Watches that could lose events end with 410 when they are
    /// switched off, so that their clients list again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use std::time::Duration;
    /// use mizzen_testing::{Cluster, FaultRates};
    ///
    /// let rates = FaultRates { conflict: 50, ..FaultRates::none() };
    /// let cluster = Cluster::builder().faults(rates).start().await;
    /// cluster.set_faults(true);
    /// cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}").await;
    /// cluster.advance(Duration::from_secs(60)).await;
    /// cluster.set_faults(false);
    /// assert!(!cluster.injected().is_empty());
    /// # }
    /// ```
    pub fn set_faults(&self, are_on: bool) {
        self.0.env.network.faults.set_on(are_on);
    }

    /// Injects one fault: at the n-th request of a kind from now on, as in [`Site::request`](crate::Site::request). Requests
    /// are counted while faults are on, which this switches on.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_testing::{Cluster, Fault};
    ///
    /// let cluster = Cluster::start().await;
    /// // The controller dies after it has created its first ReplicaSet.
    /// cluster.inject("deployment-controller", "POST replicasets", 1, Fault::Kill);
    /// // The scheduler dies after its third write, whatever that is.
    /// cluster.inject("scheduler", "WRITE", 3, Fault::Kill);
    /// # }
    /// ```
    pub fn inject(&self, actor: &str, request: &str, nth: u32, fault: Fault) {
        let site = crate::Site {
            actor: actor.into(),
            request: request.into(),
            nth,
        };
        self.0.env.network.faults.plan(Injection { site, fault });
    }

    /// The faults that were injected, in order.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_testing::{Cluster, Fault};
    ///
    /// let cluster = Cluster::start().await;
    /// cluster.inject("scheduler", "POST pods/binding", 1, Fault::Unavailable);
    /// cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}").await;
    /// cluster.settle().await;
    /// let injected: Vec<String> = cluster.injected().iter().map(ToString::to_string).collect();
    /// assert_eq!(injected, ["scheduler: POST pods/binding #1 gets 503, not applied"]);
    /// # }
    /// ```
    pub fn injected(&self) -> Vec<Injection> {
        self.0.env.network.faults.injected()
    }

    /// Who wrote what, and the faults, oldest first: the latest 20,000, without Events and Leases.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}").await;
    /// cluster.settle().await;
    /// let mut steps = cluster.steps();
    /// steps.retain(|step| step.object == "pods/p");
    /// let actors: Vec<&str> = steps.iter().map(|step| &*step.actor).collect();
    /// assert_eq!(actors[..3], ["test", "scheduler", "kubelet"]);
    /// # }
    /// ```
    pub fn steps(&self) -> Vec<Step> {
        self.0.env.network.steps.steps()
    }

    /// The last steps, a line each, as `mizzen trace` prints them.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}").await;
    /// assert!(cluster.last_steps(1).contains("configmaps/settings"));
    /// # }
    /// ```
    pub fn last_steps(&self, n: usize) -> String {
        self.0.env.network.steps.tail(n)
    }

    /// A copy of the cluster, to try something: both go their own ways. Copying the state costs a few pointers; components
    /// and programs of the copy start with empty caches, at the same time of day.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// let fork = cluster.fork().await;
    /// fork.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: try, namespace: default}}").await;
    /// assert!(fork.find::<ConfigMap>("try").await.is_some());
    /// assert!(cluster.find::<ConfigMap>("try").await.is_none());
    /// # }
    /// ```
    pub async fn fork(&self) -> Cluster {
        let clock = SettableClock::starting_at(self.clock().now().0);
        let components = Components::with_programs(self.0.components.lock().programs());
        let builder = self.0.builder.lock().clone();
        let builder = Builder {
            // Names that the copy generates differ from those that the original will.
            seed: builder.seed.wrapping_add(0x5851_f42d_4c95_7f2d),
            ..builder
        };
        let webhooks = self.0.webhooks.handlers();
        Cluster::on_store(self.store().fork(), clock, builder, components, webhooks).await
    }

    pub(crate) fn webhooks(&self) -> &Webhooks {
        &self.0.webhooks
    }

    pub(crate) fn store(&self) -> &Store {
        self.server().parts().registry.store()
    }

    /// Whether time passes only when all tasks are idle.
    pub(crate) fn is_virtual(&self) -> bool {
        self.0.is_virtual.load(Ordering::Relaxed)
    }

    /// Goes on in real time: the clock of the runtime is resumed, and the wall clock is set.
    pub(crate) fn join_real_time(&self) {
        if self.0.is_virtual.swap(false, Ordering::Relaxed) {
            tokio::time::resume();
            self.clock().step(WallClock.now().0 - self.clock().now().0);
        }
    }

    /// Spawns a task that stops with the cluster.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.tasks.lock().spawn(task);
    }

    /// The requests that are not answered yet, and what else is known to happen.
    pub(crate) fn n_in_flight(&self) -> usize {
        self.0.env.network.n_in_flight.load(Ordering::Relaxed)
    }
}

impl ClusterInner {
    fn start_process(&self, process: &Process) {
        let mut components = self.components.lock();
        components.start(process, &self.builder.lock(), &self.env);
    }

    fn restart_all(&self) {
        let (mut components, builder) = (self.components.lock(), self.builder.lock());
        for process in components.processes(&builder) {
            components.start(&process, &builder, &self.env);
        }
    }
}

/// A failing test shows what the cluster did last.
impl Drop for ClusterInner {
    fn drop(&mut self) {
        if std::thread::panicking() && !is_exploring() {
            let steps = self.env.network.steps.tail(LAST_STEPS);
            eprintln!("the last steps of the cluster:\n{steps}");
        }
    }
}

/// A store with the bootstrap objects. It is made once in a process, and forked for every cluster.
async fn bootstrapped_store() -> &'static Store {
    static STORE: OnceCell<Store> = OnceCell::const_new();
    STORE
        .get_or_init(|| async {
            let store = Store::in_memory(Default::default());
            bootstrap_store(&store, BEGIN).await;
            store
        })
        .await
}

/// Creates the bootstrap objects in a store, at the Unix time `now`.
async fn bootstrap_store(store: &Store, now: i64) {
    let clock = SettableClock::starting_at(now);
    let random = Arc::new(CountingRandom::default());
    let registry = Registry::new(store.clone(), Arc::new(clock), random);
    let server = mizzen_controlplane::server(registry, Options::default());
    server.start().await;
    let ranges: Vec<Cidr> = Options::default().service_ranges;
    let location = ServerLocation {
        service: KubernetesService {
            service_ip: ranges[0].nth(1),
            advertise_address: None,
            port: 6443,
            node_port: None,
        },
        peer_address: None,
        service_ranges: ranges,
    };
    let trusted = TrustedAuthorities {
        clients: AUTHORITY.certificate.clone(),
        ..TrustedAuthorities::default()
    };
    let bootstrapped = async {
        bootstrap(&server, &location, &trusted).await?;
        bootstrap_nodes(&server).await
    };
    bootstrapped
        .await
        .expect("the bootstrap objects can be created");
}
