//! The node agent: nodes with simulated pods, behind the interface of a container runtime.
//!
//! [`run`] registers nodes, renews their leases, and runs the pods that are scheduled to them. One
//! task does that for all nodes of a process. `docs/simulated-nodes.md` is the user documentation.
//!
//! ```no_run
//! # async fn example(client: kube::Client) {
//! use mizzen_node::{Options, run};
//!
//! run(Options::simulated(client, 3)).await;
//! # }
//! ```
//!
//! | part | what it has |
//! |---|---|
//! | [`script`] | the behaviour of simulated containers |
//! | [`runtime`] | the container runtime interface, and the simulated runtime |
//! | [`cri`] | the runtime with real containers |
//! | [`pod`] | the life cycle of a pod on a node |
//! | `status` | the pod status that a kubelet writes |
//! | [`stats`] | the measured figures of a node and its pods |
//! | `services` | the environment variables of Services |
//! | `configuration` | the KubeletConfiguration of a node |
//! | `admit` | pod admission on the node |
//! | `static_pods` | pods from files, and their mirror pods |
//! | `agent` | the sync loop for the pods of all nodes |
//! | [`eviction`] | what happens when the node runs short of memory, disk or process IDs |
//! | [`shutdown`] | what happens before the machine shuts down |
//! | `server` | the kubelet's HTTPS endpoints: logs, pods, metrics |
//! | `resource_metrics` | `/metrics/resource` of a kubelet |
//! | `streaming` | exec, attach and port-forward |
//! | `provisioner` | directories as PersistentVolumes |
//! | `nodes` | node registration, leases and status |
//!
//! Invariant: nothing here reads the wall clock or a random source; [`Options`] has the clock.

mod address;
mod admit;
mod agent;
mod configuration;
pub mod cri;
mod dbus;
pub mod eviction;
mod moment;
mod nodes;
pub mod pod;
mod provisioner;
mod resource_metrics;
pub mod runtime;
pub mod script;
mod server;
mod services;
mod settings;
mod shell;
pub mod shutdown;
mod static_pods;
pub mod stats;
mod status;
mod streaming;
mod timeline;

use std::hash::BuildHasher as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kube::Client;
use mizzen_sdk::clock::{Clock, wall_clock};
use mizzen_sdk::event::{ApiSink, Broadcaster, Limits};
use mizzen_sdk::informer::{Event, Factory, Informer};
use mizzen_sdk::metrics::Registry;
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{NODES, PODS, SERVICES};
use mizzen_sdk::watch::ListWatch;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value};
use parking_lot::Mutex;
use tokio::time::timeout;

use agent::{Agent, AgentHandle};
use configuration::kubelet_configuration;
use cri::CriRuntime;
use eviction::EvictionConfig;
pub use moment::Moment;
pub use nodes::{NodeAddress, parse_capacity};
pub use provisioner::PROVISIONER;
use runtime::{ContainerRuntime, Simulated};
use server::is_loopback_v4;
pub use server::{ReviewConfig, ServeError, Serving, client_authority};
use services::ServiceLinks;
use settings::{NodeSettings, unrepeated};
use shutdown::ShutdownConfig;
pub use static_pods::{CompletePod, StaticPodSource};
use stats::StatsProvider;
pub use streaming::STREAMING_IDLE_TIMEOUT;
use timeline::MomentTimeline;

/// How long pods wait for Services at the start; after that, containers start without their
/// variables.
const SERVICES_WAIT: Duration = Duration::from_secs(10);

/// Makes the client of a node, by name.
pub type ClientOf = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// The configuration of nodes.
pub struct Options {
    /// The client for what is read of all nodes together: nodes, pods and Services.
    pub client: Client,
    /// The client for everything else, as the node. It is made anew whenever it is needed.
    pub client_of: ClientOf,
    /// The number of nodes.
    pub n_nodes: usize,
    /// The prefix of their names.
    pub prefix: String,
    /// Whether a number follows the prefix; otherwise there is one node of that name.
    pub is_numbered: bool,
    /// Their capacity, by resource.
    pub capacity: Value,
    /// The address of the first node, at which the API server reaches the kubelet endpoints. If it
    /// is in 127.0.0.0/8 and the server listens on that whole range, each further node has the next
    /// address; otherwise all nodes share this one.
    pub address: IpAddr,
    /// The address of a node with real containers, in place of `address`.
    pub node_address: Option<NodeAddress>,
    /// What is kept of the capacity for the system, by resource; pods cannot request it.
    pub reserved: Value,
    /// When pods are evicted, on nodes that are measured.
    pub eviction: EvictionConfig,
    /// How the node ends its pods before its machine shuts down.
    pub shutdown: ShutdownConfig,
    /// What measures the node; by default the runtime.
    pub stats: Option<Arc<dyn StatsProvider>>,
    /// The container runtime.
    pub runtime: Arc<dyn ContainerRuntime>,
    /// The static pods of the node, if there is one.
    pub static_pods: Option<StaticPodSource>,
    /// The wall clock.
    pub clock: Clock,
    /// The server of the kubelet endpoints; `None` to serve nothing.
    pub serving: Option<Serving>,
    /// How long what the API server says of tokens and permissions is used.
    pub reviews: ReviewConfig,
    /// How long a connection of exec, attach or port-forward may be idle; zero for ever.
    pub streaming_idle_timeout: Duration,
    /// Informers that are shared with the process. The nodes' own ones watch only their pods and
    /// nodes.
    pub informers: Option<Factory>,
    /// The registry for the metrics of the nodes' own informers.
    pub metrics: Registry,
}

impl Options {
    /// Simulated nodes with the default capacity, on the system clock, with one client for all.
    pub fn simulated(client: Client, n_nodes: usize) -> Options {
        let same = client.clone();
        Options {
            client,
            client_of: Arc::new(move |_| same.clone()),
            n_nodes,
            prefix: "node".into(),
            is_numbered: true,
            capacity: nodes::default_capacity(),
            address: Ipv4Addr::LOCALHOST.into(),
            node_address: None,
            reserved: Value::object(),
            eviction: EvictionConfig::default(),
            shutdown: ShutdownConfig::default(),
            stats: None,
            runtime: Arc::new(Simulated),
            static_pods: None,
            clock: wall_clock(),
            serving: None,
            reviews: ReviewConfig::default(),
            streaming_idle_timeout: STREAMING_IDLE_TIMEOUT,
            informers: None,
            metrics: Registry::default(),
        }
    }
}

impl Options {
    /// One node with real containers, on the system clock, with one client for all.
    pub fn cri(client: Client, node: &str, runtime: CriRuntime) -> Options {
        Options {
            prefix: node.into(),
            is_numbered: false,
            capacity: runtime.capacity(),
            runtime: Arc::new(runtime),
            ..Options::simulated(client, 1)
        }
    }
}

/// Registers nodes and runs their pods until the future is dropped.
pub async fn run(mut options: Options) {
    let (serving, shared) = (options.serving.take(), options.informers.take());
    let static_pods = options.static_pods.clone();
    let (metrics, clock) = (options.metrics.clone(), options.clock.clone());
    let settings = Arc::new(settings(options, serving.as_ref(), shared.as_ref()));
    let (pods, followed) = match &shared {
        Some(shared) => (shared.objects(&PODS), shared.objects(&NODES)),
        None => (settings.pod_informer(), settings.node_informer()),
    };
    // Shared informers are registered by their owner.
    let own = shared
        .is_none()
        .then(|| [&pods, &followed].map(|informer| Arc::new(informer.clone())));
    own.iter()
        .flatten()
        .for_each(|informer| metrics.register(informer));
    let (pod_queue, node_queue) = (enqueue(&pods, "pods"), enqueue(&followed, "nodes"));
    let (handle, requests) = AgentHandle::new(settings.clone());
    let files = follow_files(static_pods, settings.clone(), pods.clone(), handle.clone());
    let eviction = eviction::run(settings.clone(), handle.clone(), node_queue.clone());
    let shutdown = shutdown::run(
        settings.clone(),
        handle.clone(),
        pods.clone(),
        node_queue.clone(),
    );
    let server_task = async {
        match serving {
            Some(serving) => server::serve(serving, settings.clone(), handle).await,
            None => std::future::pending().await,
        }
    };
    let (woken, runtime) = (pod_queue.clone(), settings.runtime.clone());
    runtime.on_change(Arc::new(move |key| woken.add(key)));
    runtime.set_api(settings.api_of(&settings.name(0)));
    let agent = Agent::new(settings.clone(), pods.clone(), followed.clone());
    let services = settings.services.informer();
    let agent = async {
        // Kubernetes: no container starts before Services have synced (kubelet_pods.go,
        // `makeEnvironmentVariables`).
        if timeout(SERVICES_WAIT, services.wait_for_sync())
            .await
            .is_err()
        {
            tracing::warn!("Services have not synced, containers start without their variables");
        }
        agent.run(pod_queue, requests).await;
    };
    let informers = async {
        match &shared {
            Some(shared) => {
                shared.start();
                std::future::pending().await
            }
            None => tokio::select! {
                () = pods.run() => {}
                () = followed.run() => {}
                () = services.run() => {}
            },
        }
    };
    let provisioner = async {
        match settings.runtime.volume_directory() {
            Some(directory) => provisioner::run(settings.clone(), directory, clock).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = agent => {}
        () = files => {}
        () = provisioner => {}
        () = runtime.run() => {}
        () = nodes::run_heartbeats(settings.clone(), followed.store().clone(), node_queue) => {}
        () = server_task => {}
        () = eviction => {}
        () = shutdown => {}
        () = informers => {}
    }
}

/// Passes static pods to the agent, and removes orphans once all pods are known. Static pods do not
/// wait for the API server.
async fn follow_files(
    source: Option<StaticPodSource>,
    settings: Arc<NodeSettings>,
    pods: Informer<Object>,
    agent: AgentHandle,
) {
    let runs_processes = settings.runtime.runs_processes();
    let remove_orphans = async {
        if runs_processes {
            pods.wait_for_sync().await;
            agent.remove_orphans().await;
        }
    };
    let follow = async {
        match source {
            Some(source) => {
                source
                    .run(settings.name(0).to_string(), agent.clone())
                    .await
            }
            // Mirror pods of an earlier configuration are deleted.
            None if runs_processes => agent.set_static_pods(Vec::new()).await,
            None => {}
        }
    };
    tokio::join!(remove_orphans, follow);
    std::future::pending().await
}

/// A queue of the keys of objects that changed. A key that waits is not added again.
fn enqueue(informer: &Informer<Object>, name: &str) -> Queue<Key> {
    let queue = Queue::new(name);
    let keys = queue.clone();
    informer.add_handler(move |event: Event<Object>| keys.add(event.key().clone()));
    queue
}

fn settings(options: Options, serving: Option<&Serving>, shared: Option<&Factory>) -> NodeSettings {
    let configuration = kubelet_configuration(&options, serving);
    let Options {
        client,
        client_of,
        n_nodes,
        prefix,
        is_numbered,
        capacity,
        reserved,
        eviction,
        shutdown,
        stats,
        address,
        node_address,
        runtime,
        clock,
        reviews,
        streaming_idle_timeout,
        ..
    } = options;
    let services = match shared {
        Some(shared) => shared.objects(&SERVICES),
        None => Informer::new(ListWatch::at(client.clone(), SERVICES.path(""))),
    };
    let stats = stats.or_else(|| runtime.stats());
    let reservation = stats.as_ref().map(|_| &eviction);
    let allocatable = nodes::allocatable(&capacity, &reserved, reservation);
    let allocatable = nodes::without_huge_pages(allocatable, &capacity);
    let before_eviction = nodes::allocatable(&capacity, &reserved, None);
    runtime.set_allocatable(&allocatable, &before_eviction);
    let writer = client_of.clone();
    let sink = ApiSink::core_of(move |node| writer(node));
    let scheme = runtime
        .version()
        .split("://")
        .next()
        .map(Str::from)
        .unwrap_or_default();
    NodeSettings {
        client,
        client_of,
        events: Broadcaster::with(
            vec![Box::new(sink)],
            Limits::default(),
            unrepeated(clock.clone()),
        ),
        address,
        node_address,
        has_own_addresses: is_loopback_v4(address) && serving.is_none_or(Serving::spans_loopback),
        scheme,
        port: serving.map_or(0, Serving::port),
        configuration,
        reviews,
        streaming_idle_timeout,
        runtime,
        timeline: MomentTimeline::new(clock),
        prefix,
        is_numbered,
        n_nodes,
        capacity,
        allocatable,
        stats,
        eviction,
        pressures: Mutex::default(),
        shutdown,
        is_shutting_down: AtomicBool::default(),
        services: ServiceLinks::new(services),
    }
}

impl NodeSettings {
    /// An informer of the pods of these nodes.
    fn pod_informer(&self) -> Informer<Object> {
        let mut source = ListWatch::at(self.client.clone(), PODS.path(""));
        source.forget_managed_fields = true;
        source.fields = Some(match self.n_nodes {
            1 => format!("spec.nodeName={}", self.name(0)),
            _ => "spec.nodeName!=".into(),
        });
        Informer::new(source)
    }

    /// The UIDs of the pods of these nodes.
    fn uids_here(&self, pods: &Informer<Object>) -> Vec<Str> {
        let names: Vec<Str> = self.names().collect();
        let pods = pods.store().list().into_iter();
        pods.filter_map(|entry| entry.object().ok())
            .filter(|pod| {
                names
                    .iter()
                    .any(|name| name == pod["spec"]["nodeName"].str())
            })
            .map(|pod| pod.uid().into())
            .collect()
    }

    /// An informer of these nodes.
    fn node_informer(&self) -> Informer<Object> {
        let mut source = ListWatch::at(self.client.clone(), NODES.path(""));
        source.forget_managed_fields = true;
        if self.n_nodes == 1 {
            source.fields = Some(format!("metadata.name={}", self.name(0)));
        }
        Informer::new(source)
    }
}

/// A hash of a text that is stable over time and machines.
fn digest(text: &str) -> u64 {
    foldhash::quality::FixedState::default().hash_one(text)
}
