//! The peer proxy (mixed version proxy): a request for a resource that this server does not serve goes to a peer that does.
//!
//! Peers are API servers on the same store. `endpoint_leases` has their addresses, `follow` keeps up with their identity
//! Leases and fetches what they serve (`discovery`); `exclusions` has the versions that every server knows from the store;
//! `merge` adds what peers serve to aggregated discovery.
//!
//! Kubernetes: the feature UnknownVersionInteroperabilityProxy (apiserver/pkg/util/peerproxy). Every server publishes its
//! address; only one with `--peer-ca-file` proxies.
//!
//! Invariant: a request is proxied once: a peer answers it, whatever it serves.

mod discovery;
mod endpoint_leases;
mod exclusions;
mod follow;
mod merge;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};
use mizzen_metrics::{Collector as _, CounterVec, Families};
use mizzen_object::Status;
use mizzen_outgoing::{Target, Trust};
use mizzen_registry::Registry;
use mizzen_value::{Str, Value};
use parking_lot::{Mutex, RwLock};

use crate::Server;
use crate::aggregation::{self, hop_by_hop};
use crate::request::{Request, ResourcePath};
use crate::response::Response;
use crate::server::ServerParts;
use discovery::PeerDiscovery;
pub use endpoint_leases::PeerEndpointLeases;

/// The header of a request that a peer has proxied, and its value.
const PEER_PROXIED: HeaderName = HeaderName::from_static("x-kubernetes-peer-proxied");
const ALREADY_PROXIED: HeaderValue = HeaderValue::from_static("true");

/// The name that the serving certificate of a peer must have. Kubernetes: controlplane/apiserver/peer.go.
const SERVER_NAME: &str = "kubernetes.default.svc";

/// How peers are called.
#[derive(Clone)]
pub struct PeerProxyOptions {
    /// The identity of this server, the name of its identity Lease.
    pub server_id: String,
    /// The certificate authorities of the serving certificates of peers, as PEM.
    pub authorities: Vec<u8>,
}

/// Without the certificates.
impl fmt::Debug for PeerProxyOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("PeerProxyOptions");
        shown
            .field("server_id", &self.server_id)
            .finish_non_exhaustive()
    }
}

/// What peers serve, by their identity.
type PeerDiscoveries = BTreeMap<Str, PeerDiscovery>;

/// The peer proxy of a server.
pub(crate) struct PeerProxy {
    options: PeerProxyOptions,
    leases: PeerEndpointLeases,
    /// Without excluded versions.
    peers: RwLock<Arc<PeerDiscoveries>>,
    /// The last merged discovery: the parts that it was made of, and the document.
    merged: Mutex<Option<(Arc<PeerDiscoveries>, Value, Value)>>,
    is_synced: AtomicBool,
    proxied: CounterVec<4>,
    errors: CounterVec<4>,
    sync_errors: CounterVec<1>,
    cache_hits: AtomicU64,
    cache_misses: AtomicU64,
}

impl PeerProxy {
    /// None if the store is not shared: then there are no peers.
    pub(crate) fn new(registry: &Registry, options: Option<PeerProxyOptions>) -> Option<PeerProxy> {
        const RESOURCE: [&str; 3] = ["group", "version", "resource"];
        let [group, version, resource] = RESOURCE;
        Some(PeerProxy {
            options: options?,
            leases: PeerEndpointLeases::of(registry)?,
            peers: RwLock::default(),
            merged: Mutex::default(),
            is_synced: AtomicBool::new(false),
            proxied: CounterVec::new(
                "apiserver_rerouted_request_total",
                "Requests that were proxied to a peer because this server does not serve the resource.",
                ["code", group, version, resource],
            ),
            errors: CounterVec::new(
                "apiserver_peer_proxy_errors_total",
                "Requests that could not be proxied to a peer.",
                ["type", group, version, resource],
            ),
            sync_errors: CounterVec::new(
                "apiserver_peer_discovery_sync_errors_total",
                "Failures to learn what peers serve.",
                ["type"],
            ),
            cache_hits: AtomicU64::default(),
            cache_misses: AtomicU64::default(),
        })
    }

    /// The peers that serve a resource.
    fn serving(&self, path: &ResourcePath) -> Vec<Str> {
        let peers = self.peers.read();
        let serving = peers
            .iter()
            .filter(|(_, peer)| peer.has(&path.group, &path.version, &path.resource));
        serving.map(|(id, _)| id.clone()).collect()
    }

    /// The peer at `address`.
    fn target(&self, address: String, http2: bool) -> Target {
        Target {
            address,
            server_name: SERVER_NAME.into(),
            trust: Trust::Bundle(self.options.authorities.clone()),
            as_front_proxy: true,
            http2,
        }
    }

    /// The aggregated discovery of `/apis` with what peers serve.
    pub(crate) fn merge(&self, own: Value) -> Value {
        let peers = self.peers.read().clone();
        let mut merged = self.merged.lock();
        if let Some((known, known_own, document)) = &*merged
            && Arc::ptr_eq(known, &peers)
            && *known_own == own
        {
            self.cache_hits.fetch_add(1, Ordering::Relaxed);
            return document.clone();
        }
        self.cache_misses.fetch_add(1, Ordering::Relaxed);
        let groups = peers
            .iter()
            .map(|(id, peer)| (id.as_str(), &peer.groups[..]));
        let mut servers: BTreeMap<&str, &[Value]> = groups.collect();
        let items = own["items"].list();
        servers.insert(&self.options.server_id, items);
        let items = merge::merge_groups(&servers, items);
        let mut document = own.clone();
        document.set("items", items);
        *merged = Some((peers, own, document.clone()));
        document
    }

    /// Counts an event of a request in `counter`, by `what` happened.
    fn count(counter: &CounterVec<4>, what: Cow<'static, str>, path: &ResourcePath) {
        let label = |text: &Str| Cow::Owned(text.to_string());
        let [group, version, resource] = [&path.group, &path.version, &path.resource].map(label);
        counter.add([what, group, version, resource], 1);
    }

    pub(crate) fn collect(&self, families: &mut Families) {
        self.proxied.collect(families);
        self.errors.collect(families);
        self.sync_errors.collect(families);
        let mut count = |name, help, counter: &AtomicU64| {
            let family = families.counter(name, help);
            family.add(&[], counter.load(Ordering::Relaxed));
        };
        count(
            "aggregator_discovery_peer_aggregated_cache_hits_total",
            "Requests for discovery that were served from the cache of the discovery of all servers.",
            &self.cache_hits,
        );
        count(
            "aggregator_discovery_peer_aggregated_cache_misses_total",
            "How often the discovery of all servers was merged.",
            &self.cache_misses,
        );
    }
}

/// Proxies a request to a peer; none if this server is to answer it.
pub(crate) async fn proxy_request(
    server: &ServerParts,
    request: &Request,
) -> Option<Result<Response, Status>> {
    let proxy = server.peer_proxy.as_ref()?;
    let path = request.info.resource().filter(|path| !path.unrouted)?;
    let is_own = request.headers.get(PEER_PROXIED) == Some(&ALREADY_PROXIED)
        || !proxy.is_synced.load(Ordering::Relaxed)
        || is_served(server, request, path);
    let serving = if is_own {
        return None;
    } else {
        proxy.serving(path)
    };
    if serving.is_empty() {
        return None;
    }
    let mut addresses = Vec::new();
    for id in &serving {
        addresses.extend(proxy.leases.address(id).await);
    }
    let Some(address) = choose(server.registry.random(), addresses) else {
        tracing::warn!(
            resource = %path.resource, version = %path.version, group = %path.group, peers = ?serving,
            "no peer that serves the resource has an endpoint lease"
        );
        PeerProxy::count(&proxy.errors, "endpoint_resolution".into(), path);
        return Some(Err(Status::failure(
            503,
            "ServiceUnavailable",
            "Error getting ip and port info of the remote server while proxying",
        )));
    };
    tracing::debug!(
        peer = address,
        path = request.uri.path(),
        "proxying a request to a peer"
    );
    let target = proxy.target(address, !hop_by_hop::is_upgrade(&request.headers));
    let mark = HeaderMap::from_iter([(PEER_PROXIED, ALREADY_PROXIED)]);
    let answer = aggregation::forward(server, request, &target, mark).await;
    let code = answer.status().as_u16().to_string();
    PeerProxy::count(&proxy.proxied, code.into(), path);
    Some(Ok(answer))
}

/// Whether this server, or one that is aggregated here, serves a resource. Kubernetes: whatever its subresource is.
fn is_served(server: &ServerParts, request: &Request, path: &ResourcePath) -> bool {
    let own = || {
        server
            .catalog
            .get(&path.group, &path.version, &path.resource)
    };
    aggregation::other_server(server, &request.info).is_some() || own().is_some()
}

/// One of several addresses.
fn choose(random: &dyn mizzen_value::clock::Random, mut addresses: Vec<String>) -> Option<String> {
    if addresses.is_empty() {
        return None;
    }
    let mut bytes = [0; 4];
    random.fill(&mut bytes);
    let at = u32::from_le_bytes(bytes) as usize % addresses.len();
    Some(addresses.swap_remove(at))
}

impl Server {
    /// Keeps up with what peers serve, if requests are proxied to them, until the server stops.
    pub fn follow_peers(&self) {
        if self.0.peer_proxy.is_some() {
            tokio::spawn(follow::run(self.clone()));
        }
    }
}
