//! What all parts share: clients, runtime, clock, and the configuration of nodes.

use parking_lot::Mutex;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Client;
use mizzen_sdk::Object;
use mizzen_sdk::clock::Clock;
use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::event::{Broadcaster, Note};
use mizzen_value::{Str, Value};

use crate::ClientOf;
use crate::eviction::{EvictionConfig, NodePressure};
use crate::moment::Moment;
use crate::nodes::NodeAddress;
use crate::pod::inputs::{Inputs, NodeContext};
use crate::runtime::ContainerRuntime;
use crate::server::ReviewConfig;
use crate::services::ServiceLinks;
use crate::shutdown::{self, ShutdownConfig};
use crate::stats::{MeasuredPods, NodeStats, StatsProvider};
use crate::status::Host;
use crate::timeline::MomentTimeline;

pub(crate) struct NodeSettings {
    /// The client for what is read of all nodes together.
    pub client: Client,
    /// The client of each node.
    pub client_of: ClientOf,
    pub runtime: Arc<dyn ContainerRuntime>,
    pub timeline: MomentTimeline,
    /// The prefix of node names.
    pub prefix: String,
    /// Whether a number follows; otherwise there is one node.
    pub is_numbered: bool,
    pub n_nodes: usize,
    /// The capacity of every node.
    pub capacity: Value,
    /// What pods may request of it.
    pub allocatable: Value,
    /// What measures the node; `None` if nothing is measured.
    pub stats: Option<Arc<dyn StatsProvider>>,
    pub eviction: EvictionConfig,
    /// What the node runs short of.
    pub pressures: Mutex<Vec<NodePressure>>,
    pub shutdown: ShutdownConfig,
    /// Whether the machine is about to shut down.
    pub is_shutting_down: AtomicBool,
    /// The address of the first node.
    pub address: IpAddr,
    /// The address of the node with real containers.
    pub node_address: Option<NodeAddress>,
    /// Whether each node has an address of its own, following that of the node before.
    pub has_own_addresses: bool,
    /// The scheme of container IDs: the runtime's name.
    pub scheme: Str,
    /// The port of the kubelet endpoints; 0 if they are not served.
    pub port: u16,
    /// The KubeletConfiguration of the nodes, for `/configz`.
    pub configuration: Value,
    /// How long what the API server says of users is used.
    pub reviews: ReviewConfig,
    /// How long a connection of exec, attach or port-forward may be idle; zero for ever.
    pub streaming_idle_timeout: Duration,
    pub events: Broadcaster,
    /// The environment variables of Services.
    pub services: ServiceLinks,
}

impl NodeSettings {
    /// The client of a node.
    pub(crate) fn api_of(&self, node: &str) -> DynamicClient {
        DynamicClient::new((self.client_of)(node))
    }

    /// A node as the status of its pods has it.
    pub(crate) fn host(&self, node: &str) -> Host {
        Host {
            address: self.address(node).to_string().into(),
            scheme: self.scheme.clone(),
            recursive_read_only: self
                .runtime
                .features()
                .is_none_or(|features| features.recursive_read_only()),
        }
    }

    /// Whether there are nodes that have an address together.
    pub(crate) fn share_an_address(&self) -> bool {
        self.n_nodes > 1 && !self.has_own_addresses
    }

    fn address(&self, node: &str) -> IpAddr {
        const LAST: u32 = u32::from_be_bytes([127, 255, 255, 254]);
        if let Some(of_node) = &self.node_address {
            return of_node.current();
        }
        let at = node
            .strip_prefix(self.prefix.as_str())
            .and_then(|rest| rest.strip_prefix('-')?.parse().ok());
        match (self.address, at) {
            (IpAddr::V4(first), Some(at)) if self.has_own_addresses => {
                let own = u32::from(first).checked_add(at).filter(|own| *own <= LAST);
                own.map_or(first, Ipv4Addr::from).into()
            }
            (address, _) => address,
        }
    }

    /// What a node adds to the containers of a pod whose shared inputs are `common`.
    pub(crate) fn node_context<'a>(
        &'a self,
        host: &'a Host,
        common: &'a Arc<Inputs>,
    ) -> NodeContext<'a> {
        NodeContext {
            host_ip: &host.address,
            allocatable: &self.allocatable,
            common: Some(common),
        }
    }

    /// Whether the machine is about to shut down.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.is_shutting_down.load(Ordering::Relaxed)
    }

    /// Sets whether the machine is about to shut down; true if that is a change.
    pub(crate) fn set_shutting_down(&self, is_shutting_down: bool) -> bool {
        let before = self
            .is_shutting_down
            .swap(is_shutting_down, Ordering::Relaxed);
        before != is_shutting_down
    }

    /// Why the node is not ready, if it is not. Kubernetes: several reasons are in brackets.
    pub(crate) fn health(&self) -> Result<(), String> {
        let health = self.runtime.health();
        match (health, self.is_shutting_down()) {
            (health, false) => health,
            (Ok(()), true) => Err(shutdown::NOT_READY.into()),
            (Err(lost), true) => Err(format!("[{lost}, {}]", shutdown::NOT_READY)),
        }
    }

    /// The figures of the node and these pods; `None` if nothing is measured.
    pub(crate) async fn node_stats(&self, pods: MeasuredPods) -> Option<NodeStats> {
        let mut stats = self.stats.as_ref()?.stats(pods).await;
        stats.at = self.now().wall();
        Some(stats)
    }

    pub(crate) fn now(&self) -> Moment {
        self.timeline.now()
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = Str> {
        (0..self.n_nodes).map(|at| self.name(at))
    }

    pub(crate) fn name(&self, at: usize) -> Str {
        match self.is_numbered {
            true => format!("{}-{at}", self.prefix).into(),
            false => self.prefix.as_str().into(),
        }
    }

    /// Records an Event about a node. Kubernetes: its UID is the name (kubelet.go, `nodeRef`).
    pub(crate) fn record_about_node(&self, node: &str, note: Note) {
        let text = |text: &str| Some(text.to_string());
        let regarding = ObjectReference {
            api_version: text("v1"),
            kind: text("Node"),
            name: text(node),
            uid: text(node),
            ..ObjectReference::default()
        };
        self.events
            .recorder("kubelet", node)
            .record(&regarding, note);
    }

    /// Records an Event about a pod on a node, or about one of its containers.
    pub(crate) fn record(&self, pod: &Object, node: &str, path: &str, note: Note) {
        let text = |text: &str| Some(text.to_string()).filter(|text| !text.is_empty());
        let regarding = ObjectReference {
            api_version: text("v1"),
            kind: text("Pod"),
            name: text(pod.name()),
            namespace: text(pod.namespace()),
            resource_version: text(pod.version()),
            uid: text(pod.uid()),
            field_path: text(path),
        };
        self.events
            .recorder("kubelet", node)
            .record(&regarding, note);
    }
}

/// A clock that never shows the same time twice in a row, because events are named by their time.
/// It follows a wall clock that is set back.
pub(crate) fn unrepeated(clock: Clock) -> Clock {
    let last = Mutex::new(Timestamp::MIN);
    Arc::new(move || {
        let mut last = last.lock();
        let next = Timestamp::from_nanosecond(last.as_nanosecond() + 1).unwrap_or(*last);
        let now = clock();
        let is_step = last.duration_since(now) > SignedDuration::from_secs(1);
        *last = if is_step { now } else { now.max(next) };
        *last
    })
}
