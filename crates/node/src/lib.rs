//! What runs here? The node agent: nodes whose pods are simulated, and the seam behind which real containers will run.
//!
//! [`run`] registers nodes, keeps them alive, and lets the pods live that are sent to them. One task does that for all
//! nodes of a process. `docs/simulated-nodes.md` is for those who use it.
//!
//! | part | the question it answers |
//! |---|---|
//! | [`script`] | What does a simulated container do? |
//! | [`runtime`] | Who runs containers? |
//! | [`pod`] | How does a pod live on a node? |
//! | `status` | What does the API say of a pod here? |
//! | `admit` | Does a pod fit on its node? |
//! | `agent` | What becomes of the pods of all nodes? |
//! | `nodes` | How does the API hear of nodes, and that they live? |
//!
//! Invariant: nothing here reads the wall clock or draws a number; [`Options`] has the seam.

mod address;
mod admit;
mod agent;
mod moment;
mod nodes;
pub mod pod;
mod resources;
pub mod runtime;
pub mod script;
mod settings;
mod status;

use std::hash::BuildHasher as _;
use std::sync::Arc;

use kube::Client;
use mizzen_object::{Str, Value};
use mizzen_sdk::api::Api;
use mizzen_sdk::event::{ApiSink, Broadcaster, Limits};
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::resource::{NODES, PODS};
use mizzen_sdk::seam::{Clock, wall_clock};
use mizzen_sdk::watch::ListWatch;
use mizzen_sdk::Object;
use tokio::sync::mpsc::unbounded_channel;

use agent::Agent;
use runtime::{ContainerRuntime, Simulated};
use settings::{Settings, unrepeated};
use status::Host;

/// How nodes are set up.
#[derive(Clone)]
pub struct Options {
    /// The way to the API.
    pub client: Client,
    /// How many nodes there are.
    pub n_nodes: usize,
    /// How their names begin; a number follows.
    pub prefix: String,
    /// How much each of them has: amounts by resource.
    pub capacity: Value,
    /// Who runs containers.
    pub runtime: Arc<dyn ContainerRuntime>,
    /// The time of day.
    pub clock: Clock,
}

impl Options {
    /// So many simulated nodes of the usual size, on the wall clock.
    pub fn simulated(client: Client, n_nodes: usize) -> Options {
        Options {
            client,
            n_nodes,
            prefix: "node".into(),
            capacity: nodes::usual_capacity(),
            runtime: Arc::new(Simulated),
            clock: wall_clock(),
        }
    }
}

/// Registers nodes and lets the pods live that are sent to them, until the future is dropped.
pub async fn run(options: Options) {
    let settings = Arc::new(settings(options));
    let (pods, followed) = (follow_pods(&settings), follow_nodes(&settings));
    let (tell, heard_pods) = unbounded_channel();
    pods.add_handler(move |event: Event<Object>| {
        let _ = tell.send(event.key().clone());
    });
    let (tell, heard_nodes) = unbounded_channel();
    followed.add_handler(move |event: Event<Object>| {
        if let Ok(node) = event.object().object() {
            let is_gone = matches!(event, Event::Deleted { .. });
            let _ = tell.send(if is_gone { nodes::Heard::Gone(node) } else { nodes::Heard::Is(node) });
        }
    });
    let agent = Agent::new(settings.clone(), pods.clone(), followed.clone());
    tokio::select! {
        () = agent.run(heard_pods) => {}
        () = nodes::keep(settings, heard_nodes) => {}
        () = pods.run() => {}
        () = followed.run() => {}
    }
}

fn settings(options: Options) -> Settings {
    let Options { client, n_nodes, prefix, capacity, runtime, clock } = options;
    let sink = ApiSink::core(client.clone());
    let scheme = runtime.version().split("://").next().map(Str::from).unwrap_or_default();
    Settings {
        api: Api::new(client),
        events: Broadcaster::with(vec![Box::new(sink)], Limits::default(), unrepeated(clock.clone())),
        host: Host { address: Str::new_static("127.0.0.1"), scheme },
        port: 10250,
        runtime,
        clock,
        prefix,
        n_nodes,
        capacity,
    }
}

/// Pods of any node, or of the only one.
fn follow_pods(settings: &Settings) -> Informer<Object> {
    let mut source = ListWatch::at(settings.api.client().clone(), PODS.path(""));
    source.fields = Some(match settings.n_nodes {
        1 => format!("spec.nodeName={}", settings.name(0)),
        _ => "spec.nodeName!=".into(),
    });
    Informer::new(source)
}

fn follow_nodes(settings: &Settings) -> Informer<Object> {
    let mut source = ListWatch::at(settings.api.client().clone(), NODES.path(""));
    if settings.n_nodes == 1 {
        source.fields = Some(format!("metadata.name={}", settings.name(0)));
    }
    Informer::new(source)
}

/// A number that stands for a text, the same on every day and machine.
fn digest(text: &str) -> u64 {
    foldhash::quality::FixedState::default().hash_one(text)
}
