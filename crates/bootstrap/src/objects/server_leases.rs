//! The leases of API servers that share a store: the address of each that lives, for the Endpoints of the `kubernetes`
//! Service.
//!
//! Kubernetes: `masterleases/IP` (controlplane/reconcilers/lease.go). Upstream's servers on the same etcd have theirs there,
//! too.

use mizzen_registry::{Draft, Expect, Keyspace, Registry, Write, WriteError};
use mizzen_value::{Value, json, value};

const SPACE: &str = "masterleases";
/// How long a server is listed after it has renewed its lease. Kubernetes: DefaultEndpointReconcilerTTL.
const DURATION_SECONDS: u64 = 15;

/// All leases.
pub(super) struct ServerLeases<'a> {
    registry: &'a Registry,
    space: Keyspace,
}

impl<'a> ServerLeases<'a> {
    /// Those of a shared store; none if this server is the only one.
    pub(super) fn of(registry: &'a Registry) -> Option<ServerLeases<'a>> {
        let store = registry.store();
        store.is_shared().then(|| ServerLeases {
            registry,
            space: store.keyspace(SPACE),
        })
    }

    /// Renews or creates the lease of an address.
    pub(super) async fn renew(&self, address: &str) -> Result<(), String> {
        let store = self.registry.store();
        let found = store.get(&self.space, address).await;
        let found = found.map_err(|error| error.to_string())?;
        let stored = found.map(|record| parse(&record.value)).unwrap_or_default();
        let generation = stored["metadata"]["generation"].int() + 1;
        let lease = value!({
            "kind": "Endpoints",
            "apiVersion": "v1",
            "metadata": { "generation": generation },
            "subsets": [{ "addresses": [{ "ip": address }] }]
        });
        let now = u64::try_from(self.registry.now()).unwrap_or_default();
        let draft = Draft {
            value: json::to_string(&lease).into(),
            expires: Some(now + DURATION_SECONDS),
            ..Draft::default()
        };
        let write = Write::put(&self.space, address, Expect::Any, draft);
        let written = store.commit_one(write).await;
        written.map(drop).map_err(|error| error.to_string())
    }

    /// The addresses of servers that live, in order.
    pub(super) async fn list(&self) -> Result<Vec<String>, String> {
        let latest = self.registry.store().latest(&self.space).await;
        let latest = latest.map_err(|error| error.to_string())?;
        let addresses = latest.range("", None).map(|lease| {
            let lease = parse(&lease.value);
            lease["subsets"][0]["addresses"][0]["ip"].str().to_owned()
        });
        Ok(addresses.filter(|address| !address.is_empty()).collect())
    }

    /// Ends the lease of an address.
    pub(super) async fn remove(&self, address: &str) -> Result<(), String> {
        let write = Write::delete(&self.space, address, Expect::Any, Draft::default());
        match self.registry.store().commit_one(write).await {
            Ok(_) | Err(WriteError::Missing { .. }) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A lease. One that cannot be decoded names no server.
fn parse(text: &[u8]) -> Value {
    json::parse(text).unwrap_or_default()
}
