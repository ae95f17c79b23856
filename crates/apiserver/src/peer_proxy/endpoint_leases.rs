//! The endpoint leases of API servers that share a store: the address of each that lives, by its identity, for its peers.
//!
//! Kubernetes: `peerserverleases/ID` (apiserver/pkg/reconcilers/peer_endpoint_lease.go). Upstream's servers on the same
//! etcd have theirs there, too.

use std::net::SocketAddr;

use mizzen_registry::{Draft, Expect, Keyspace, Registry, Write, WriteError};
use mizzen_value::{Value, json, value};

const SPACE: &str = "peerserverleases";
/// How long an address is known after its server has renewed the lease. Kubernetes: DefaultPeerEndpointReconcilerTTL.
const DURATION_SECONDS: u64 = 15;
/// The label with the identity of the server.
const IDENTITY_LABEL: &str = "apiserverIdentity";

/// All leases.
#[derive(Clone)]
pub struct PeerEndpointLeases {
    registry: Registry,
    space: Keyspace,
}

impl PeerEndpointLeases {
    /// Those of a shared store; none if this server is the only one.
    pub fn of(registry: &Registry) -> Option<PeerEndpointLeases> {
        let store = registry.store();
        store.is_shared().then(|| PeerEndpointLeases {
            registry: registry.clone(),
            space: store.keyspace(SPACE),
        })
    }

    /// Renews or creates the lease of the server `id`, which peers reach at `address`.
    pub async fn renew(&self, id: &str, address: SocketAddr) -> Result<(), String> {
        let store = self.registry.store();
        let found = store.get(&self.space, id).await;
        let found = found.map_err(|error| error.to_string())?;
        let stored = found.map(|record| parse(&record.value)).unwrap_or_default();
        let generation = stored["metadata"]["generation"].int() + 1;
        let ip = address.ip().to_string();
        let port = i64::from(address.port());
        let mut lease = value!({
            "kind": "Endpoints",
            "apiVersion": "v1",
            "metadata": { "generation": generation },
            "subsets": [{
                "addresses": [{ "ip": (ip.as_str()) }],
                "ports": [{ "name": "https", "port": port, "protocol": "TCP" }]
            }]
        });
        let labels = lease.entry("metadata").entry("labels");
        labels.set(IDENTITY_LABEL, id);
        let now = u64::try_from(self.registry.now()).unwrap_or_default();
        let draft = Draft {
            value: json::to_string(&lease).into(),
            expires: Some(now + DURATION_SECONDS),
            ..Draft::default()
        };
        let write = Write::put(&self.space, id, Expect::Any, draft);
        let written = store.commit_one(write).await;
        written.map(drop).map_err(|error| error.to_string())
    }

    /// Ends the lease of a server.
    pub async fn remove(&self, id: &str) -> Result<(), String> {
        let write = Write::delete(&self.space, id, Expect::Any, Draft::default());
        match self.registry.store().commit_one(write).await {
            Ok(_) | Err(WriteError::Missing { .. }) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The address of a server, `host:port`; none if it has no lease.
    pub(super) async fn address(&self, id: &str) -> Option<String> {
        let latest = self.registry.store().latest(&self.space).await.ok()?;
        let mut leases = latest.range("", None).map(|lease| parse(&lease.value));
        let lease = leases.find(|lease| lease["metadata"]["labels"][IDENTITY_LABEL].str() == id)?;
        let subset = &lease["subsets"][0];
        let ip = subset["addresses"][0]["ip"].str().parse().ok()?;
        let port = u16::try_from(subset["ports"][0]["port"].int()).ok()?;
        Some(SocketAddr::new(ip, port).to_string())
    }
}

/// A lease. One that cannot be decoded names no server.
fn parse(text: &[u8]) -> Value {
    json::parse(text).unwrap_or_default()
}
