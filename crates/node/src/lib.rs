//! What runs here? The node agent: nodes whose pods are simulated, and the seam behind which real containers will run.
//!
//! [`run`] registers nodes, keeps them alive, and lets the pods live that are sent to them. One task does that for all
//! nodes of a process. `docs/simulated-nodes.md` is for those who use it.
//!
//! ```no_run
//! # async fn example(client: kube::Client) {
//! use mizzen_node::{Options, run};
//!
//! run(Options::simulated(client, 3)).await;
//! # }
//! ```
//!
//! | part | the question it answers |
//! |---|---|
//! | [`script`] | What does a simulated container do? |
//! | [`runtime`] | Who runs containers? |
//! | [`pod`] | How does a pod live on a node? |
//! | `status` | What does the API say of a pod here? |
//! | `services` | Where are Services? |
//! | `admit` | Does a pod fit on its node? |
//! | `agent` | What becomes of the pods of all nodes? |
//! | `logs` | What did containers write? |
//! | `resource_metrics` | What does a kubelet report at `/metrics/resource`? |
//! | `streaming` | How do clients stream to and from a container? |
//! | `nodes` | How does the API hear of nodes, and that they live? |
//!
//! Invariant: nothing here reads the wall clock or draws a number; [`Options`] has the seam.

mod address;
mod admit;
mod agent;
mod logs;
mod moment;
mod nodes;
pub mod pod;
mod resource_metrics;
pub mod runtime;
pub mod script;
mod services;
mod settings;
mod shell;
mod status;
mod streaming;
mod timeline;

use std::hash::BuildHasher as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use mizzen_sdk::event::{ApiSink, Broadcaster, Limits};
use mizzen_sdk::informer::{Event, Factory, Informer};
use mizzen_sdk::metrics::Registry;
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{NODES, PODS, SERVICES};
use mizzen_sdk::seam::{Clock, wall_clock};
use mizzen_sdk::watch::ListWatch;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value};
use tokio::time::timeout;

use agent::{Agent, Handle};
use logs::is_loopback_v4;
pub use logs::{ServeError, Serving, client_authority};
pub use moment::Moment;
pub use nodes::parse_capacity;
use runtime::{ContainerRuntime, Simulated};
use services::ServiceLinks;
use settings::{Settings, unrepeated};
use timeline::Timeline;

/// How long pods wait for the Services at the start; after that, containers start without the variables of Services.
const SERVICES_WAIT: Duration = Duration::from_secs(10);

/// The way to the API for the node of this name.
pub type ClientOf = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// How nodes are set up.
pub struct Options {
    /// The way to the API for what is read of all nodes together: the nodes, their pods, and Services.
    pub client: Client,
    /// The way to the API for everything else, in the name of each node. It is made anew whenever it is needed.
    pub client_of: ClientOf,
    /// How many nodes there are.
    pub n_nodes: usize,
    /// How their names begin; a number follows.
    pub prefix: String,
    /// How much each of them has: amounts by resource.
    pub capacity: Value,
    /// The address of the first node, at which the API server asks what containers wrote. If it is in 127.0.0.0/8 and nodes can
    /// be asked at all addresses of that range, each further node has the next address; otherwise all nodes have this one.
    pub address: IpAddr,
    /// Who runs containers.
    pub runtime: Arc<dyn ContainerRuntime>,
    /// The time of day.
    pub clock: Clock,
    /// Where the API server asks what containers wrote; nowhere if nothing is said.
    pub serving: Option<Serving>,
    /// What follows objects, if others in the process do so as well; the nodes' own follow only what is theirs.
    pub informers: Option<Factory>,
    /// Where the metrics of the nodes' own informers are shown.
    pub metrics: Registry,
}

impl Options {
    /// So many simulated nodes of the usual size, on the wall clock, all by one client.
    pub fn simulated(client: Client, n_nodes: usize) -> Options {
        let same = client.clone();
        Options {
            client,
            client_of: Arc::new(move |_| same.clone()),
            n_nodes,
            prefix: "node".into(),
            capacity: nodes::usual_capacity(),
            address: Ipv4Addr::LOCALHOST.into(),
            runtime: Arc::new(Simulated),
            clock: wall_clock(),
            serving: None,
            informers: None,
            metrics: Registry::default(),
        }
    }
}

/// Registers nodes and lets the pods live that are sent to them, until the future is dropped.
pub async fn run(mut options: Options) {
    let (serving, shared) = (options.serving.take(), options.informers.take());
    let metrics = options.metrics.clone();
    let settings = Arc::new(settings(options, serving.as_ref(), shared.as_ref()));
    let (pods, followed) = match &shared {
        Some(shared) => (shared.objects(&PODS), shared.objects(&NODES)),
        None => (follow_pods(&settings), follow_nodes(&settings)),
    };
    // Shared ones are shown by their owner.
    let own = shared
        .is_none()
        .then(|| [&pods, &followed].map(|informer| Arc::new(informer.clone())));
    own.iter()
        .flatten()
        .for_each(|informer| metrics.register(informer));
    let (pod_queue, node_queue) = (enqueue(&pods, "pods"), enqueue(&followed, "nodes"));
    let (handle, requests) = Handle::new(settings.clone());
    let told = async {
        match serving {
            Some(serving) => logs::serve(serving, settings.clone(), handle).await,
            None => std::future::pending().await,
        }
    };
    let agent = Agent::new(settings.clone(), pods.clone(), followed.clone());
    let services = settings.services.informer();
    let agent = async {
        // Kubernetes: no container starts before Services were read once (kubelet_pods.go, `makeEnvironmentVariables`).
        if timeout(SERVICES_WAIT, services.wait_for_sync())
            .await
            .is_err()
        {
            tracing::warn!("Services cannot be read, containers start without their variables");
        }
        agent.run(pod_queue, requests).await;
    };
    tokio::select! {
        () = agent => {}
        () = nodes::keep(settings.clone(), followed.store().clone(), node_queue) => {}
        () = told => {}
        () = follow(shared.as_ref(), [&pods, &followed, services]) => {}
    }
}

/// A queue of the keys of objects that changed: a key that waits is not added again, so it holds at most one per object.
fn enqueue(informer: &Informer<Object>, name: &str) -> Queue<Key> {
    let queue = Queue::new(name);
    let keys = queue.clone();
    informer.add_handler(move |event: Event<Object>| keys.add(event.key().clone()));
    queue
}

/// Lets what is followed be followed: by whoever shares it, or here.
async fn follow(shared: Option<&Factory>, [pods, nodes, services]: [&Informer<Object>; 3]) {
    match shared {
        Some(shared) => {
            shared.start();
            std::future::pending().await
        }
        None => tokio::select! {
            () = pods.run() => {}
            () = nodes.run() => {}
            () = services.run() => {}
        },
    }
}

fn settings(options: Options, serving: Option<&Serving>, shared: Option<&Factory>) -> Settings {
    let Options {
        client,
        client_of,
        n_nodes,
        prefix,
        capacity,
        address,
        runtime,
        clock,
        ..
    } = options;
    let services = match shared {
        Some(shared) => shared.objects(&SERVICES),
        None => Informer::new(ListWatch::at(client.clone(), SERVICES.path(""))),
    };
    let writer = client_of.clone();
    let sink = ApiSink::core_of(move |node| writer(node));
    let scheme = runtime
        .version()
        .split("://")
        .next()
        .map(Str::from)
        .unwrap_or_default();
    Settings {
        client,
        client_of,
        events: Broadcaster::with(
            vec![Box::new(sink)],
            Limits::default(),
            unrepeated(clock.clone()),
        ),
        address,
        has_own_addresses: is_loopback_v4(address) && serving.is_none_or(Serving::spans_loopback),
        scheme,
        port: serving.map_or(0, Serving::port),
        runtime,
        timeline: Timeline::new(clock),
        prefix,
        n_nodes,
        capacity,
        services: ServiceLinks::new(services),
    }
}

/// Pods of any node, or of the only one.
fn follow_pods(settings: &Settings) -> Informer<Object> {
    let mut source = ListWatch::at(settings.client.clone(), PODS.path(""));
    source.forget_managed_fields = true;
    source.fields = Some(match settings.n_nodes {
        1 => format!("spec.nodeName={}", settings.name(0)),
        _ => "spec.nodeName!=".into(),
    });
    Informer::new(source)
}

fn follow_nodes(settings: &Settings) -> Informer<Object> {
    let mut source = ListWatch::at(settings.client.clone(), NODES.path(""));
    source.forget_managed_fields = true;
    if settings.n_nodes == 1 {
        source.fields = Some(format!("metadata.name={}", settings.name(0)));
    }
    Informer::new(source)
}

/// A number that stands for a text, the same on every day and machine.
fn digest(text: &str) -> u64 {
    foldhash::quality::FixedState::default().hash_one(text)
}
