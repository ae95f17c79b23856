//! Keeps up with the identity Leases of peers, and fetches what they serve.
//!
//! A peer is asked when its Lease appears or gets another holder, because another process serves it then. A failed fetch is
//! repeated with back-off: a server has an identity Lease before it has an endpoint lease.
//!
//! Kubernetes: util/peerproxy/peer_discovery.go, which gives up after 20 attempts, and forgets a peer that does not answer.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mizzen_object::select::LabelSelector;
use mizzen_registry::{ListOptions, Resource, Selection};
use mizzen_value::Str;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::discovery::{self, PeerDiscovery};
use super::exclusions::{Exclusions, GroupVersion};
use super::{PeerDiscoveries, PeerProxy};
use crate::change_watcher::{ChangeWatcher, any_changed};
use crate::{Server, health};

/// The back-off after a failed fetch; it doubles.
const MIN_BACKOFF: Duration = Duration::from_millis(5);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// The label of identity Leases.
const IDENTITY: &str = "apiserver.kubernetes.io/identity=kube-apiserver";

/// Follows peers until the server stops.
pub(super) async fn run(server: Server) {
    let mut stopping = server.0.stopping.subscribe();
    let Some(mut follower) = PeerFollower::new(server) else {
        return;
    };
    let follow = async {
        loop {
            follower.sync().await;
            follower.wait().await;
        }
    };
    tokio::select! {
        () = follow => {}
        _ = stopping.wait_for(|stopping| *stopping) => {}
    }
}

struct PeerFollower {
    server: Server,
    leases: Resource,
    watchers: Vec<ChangeWatcher>,
    /// Changes with the versions of groups that this server serves.
    served: watch::Receiver<()>,
    /// The holders of the identity Leases of peers, by name.
    holders: BTreeMap<Str, Str>,
    /// What peers said that they serve.
    found: PeerDiscoveries,
    exclusions: Exclusions,
    /// When a failed fetch is repeated, and the back-off after that.
    retry: Option<(Instant, Duration)>,
}

impl PeerFollower {
    fn new(server: Server) -> Option<PeerFollower> {
        let catalog = &server.0.catalog;
        let leases = catalog.get("coordination.k8s.io", "v1", "leases")?;
        let identities = ChangeWatcher::new(&server, leases.clone()).selecting(identities());
        let services = catalog.get("apiregistration.k8s.io", "v1", "apiservices");
        let services = services.map(|services| ChangeWatcher::new(&server, services));
        let served = server.0.aggregation.changes();
        Some(PeerFollower {
            watchers: std::iter::once(identities).chain(services).collect(),
            leases,
            served,
            server,
            holders: BTreeMap::new(),
            found: BTreeMap::new(),
            exclusions: Exclusions::default(),
            retry: None,
        })
    }

    fn proxy(&self) -> Option<&PeerProxy> {
        self.server.0.peer_proxy.as_ref()
    }

    /// Fetches what is not known yet, and publishes what peers serve.
    async fn sync(&mut self) {
        let (is_found, is_excluded) = (self.sync_peers().await, self.sync_exclusions());
        if (is_found || is_excluded)
            && let Some(proxy) = self.proxy()
        {
            let peers = self.found.iter();
            let peers = peers.map(|(id, peer)| (id.clone(), peer.without(&self.exclusions)));
            *proxy.peers.write() = Arc::new(peers.collect());
        }
        if let Some(proxy) = self.proxy() {
            proxy.is_synced.store(true, Ordering::Relaxed);
        }
        self.server.complete(&health::PEERS);
    }

    /// Asks peers if there are others than before, or if one did not answer. Returns whether it did.
    async fn sync_peers(&mut self) -> bool {
        let is_due = self.retry.is_some_and(|(due, _)| due <= Instant::now());
        let Some(holders) = self.list_holders() else {
            if let Some(proxy) = self.proxy() {
                proxy.sync_errors.add(["lease_list".into()], 1);
            }
            self.back_off();
            return false;
        };
        if holders != self.holders {
            self.retry = None;
        } else if !is_due {
            return false;
        }
        self.holders = holders;
        let mut fetches = JoinSet::new();
        for id in self.holders.keys() {
            fetches.spawn(fetch(self.server.clone(), id.clone()));
        }
        let fetched = fetches.join_all().await;
        let is_complete = fetched.iter().all(|peer| peer.is_complete);
        // What a peer served before is known until it says otherwise: a request for that gets 503 then, not 404.
        let mut known = std::mem::take(&mut self.found);
        for FetchedPeer {
            id,
            serves,
            is_complete,
        } in fetched
        {
            let before = known.remove(&id).filter(|_| !is_complete);
            let serves = before.unwrap_or(serves);
            if !serves.is_empty() {
                self.found.insert(id, serves);
            }
        }
        match is_complete {
            true => self.retry = None,
            false => self.back_off(),
        }
        true
    }

    /// The holders of the identity Leases of peers; none if they cannot be read.
    fn list_holders(&self) -> Option<BTreeMap<Str, Str>> {
        let own = self.proxy()?.options.server_id.as_str();
        let options = ListOptions {
            selection: identities(),
            ..ListOptions::default()
        };
        let stored = self.server.registry().list(&self.leases, &options).ok()?;
        let leases = stored.items.iter().map(|lease| lease.value());
        let holders = leases.filter_map(|lease| {
            let name: Str = lease["metadata"]["name"].str().into();
            let holder = lease["spec"]["holderIdentity"].as_str()?.into();
            (name != own).then_some((name, holder))
        });
        Some(holders.collect())
    }

    fn back_off(&mut self) {
        let backoff = self.retry.map_or(MIN_BACKOFF, |(_, backoff)| backoff);
        let next = (backoff * 2).min(MAX_BACKOFF);
        self.retry = Some((Instant::now() + backoff, next));
    }

    /// Excludes the versions of all definitions and aggregated API servers. Returns whether others were excluded before.
    fn sync_exclusions(&mut self) -> bool {
        let parts = &self.server.0;
        let mut active: HashSet<GroupVersion> = parts.catalog.defined_versions();
        active.extend(parts.aggregation.remote_versions(&parts.registry));
        self.exclusions.set_active(active, Instant::now())
    }

    /// Waits until something may have changed.
    async fn wait(&mut self) {
        let retry = self.retry.map(|(due, _)| due);
        let due = retry.into_iter().chain(self.exclusions.next_expiry()).min();
        let sleep = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = any_changed(&mut self.watchers) => {}
            Ok(()) = self.served.changed() => {}
            () = sleep => {}
        }
    }
}

/// What a peer says.
struct FetchedPeer {
    id: Str,
    serves: PeerDiscovery,
    /// Whether that is all.
    is_complete: bool,
}

/// Fetches what a peer serves.
async fn fetch(server: Server, id: Str) -> FetchedPeer {
    let mut peer = FetchedPeer {
        id,
        serves: PeerDiscovery::default(),
        is_complete: false,
    };
    let Some(proxy) = &server.0.peer_proxy else {
        return peer;
    };
    let Some(address) = proxy.leases.address(&peer.id).await else {
        proxy.sync_errors.add(["hostport_resolution".into()], 1);
        return peer;
    };
    let target = proxy.target(address, true);
    let (serves, errors) = discovery::fetch(&server.0.client, &target).await;
    for error in &errors {
        proxy.sync_errors.add(["fetch_discovery".into()], 1);
        tracing::warn!(%error, peer = %peer.id, "cannot fetch the discovery of a peer");
    }
    peer.is_complete = errors.is_empty();
    peer.serves = serves;
    peer
}

/// The identity Leases of API servers.
fn identities() -> Selection {
    Selection {
        namespace: "kube-system".into(),
        labels: LabelSelector::parse(IDENTITY).expect("a valid selector"),
        ..Selection::default()
    }
}
