//! The Lease in `kube-system` by which each API server shows that it lives, and what becomes of those of servers that do not.

use std::time::Duration;

use http::Method;
use mizzen_apiserver::Server;
use mizzen_value::clock::uuid;
use mizzen_value::{Value, time, value};
use ring::digest::{SHA256, digest};

use crate::itself::{Client, KUBE_APISERVER};

/// How often it is renewed.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);
/// How often Leases of servers that are gone are deleted.
pub(super) const GARBAGE_COLLECTION_INTERVAL: Duration = Duration::from_secs(3600);

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const OURS: &str = "?labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver";
const DURATION_SECONDS: i64 = 3600;

/// The Lease of one server.
pub(super) struct IdentityLease {
    server: Server,
    client: Client,
    name: String,
    host: String,
    holder: String,
    /// The address and port at which other servers would reach this one.
    peer: Option<String>,
}

impl IdentityLease {
    /// The Lease of `server`, which peers would reach at `peer`.
    pub(super) fn new(server: &Server, peer: Option<String>) -> IdentityLease {
        let host = nix::unistd::gethostname()
            .ok()
            .and_then(|name| name.into_string().ok())
            .unwrap_or_default();
        let name = name(&host);
        let holder = format!("{name}_{}", uuid(server.registry().random()));
        let client = Client::new(server, KUBE_APISERVER);
        IdentityLease {
            server: server.clone(),
            client,
            name,
            host,
            holder,
            peer,
        }
    }

    /// Renews it, or creates it if it is missing.
    pub(super) async fn renew(&self) -> Result<(), String> {
        let own = format!("{LEASES}/{}", self.name);
        let (code, stored) = self.client.call(Method::GET, &own, None).await?;
        let mut lease = match code {
            404 => value!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": { "name": (self.name.as_str()), "namespace": "kube-system" }
            }),
            _ => stored,
        };
        let labels = lease.entry("metadata").entry("labels");
        labels.set("apiserver.kubernetes.io/identity", "kube-apiserver");
        labels.set("kubernetes.io/hostname", self.host.as_str());
        if let Some(peer) = &self.peer {
            let annotations = lease.entry("metadata").entry("annotations");
            annotations.set("kubernetes.io/peer-advertise-address", peer.as_str());
        }
        let spec = lease.entry("spec");
        spec.set("holderIdentity", self.holder.as_str());
        spec.set("leaseDurationSeconds", DURATION_SECONDS);
        spec.set("renewTime", self.now());
        match code {
            404 => self
                .client
                .call(Method::POST, LEASES, Some(&lease))
                .await
                .map(drop),
            _ => self
                .client
                .call(Method::PUT, &own, Some(&lease))
                .await
                .map(drop),
        }
    }

    /// Deletes the Leases that have expired.
    pub(super) async fn collect_garbage(&self) -> Result<(), String> {
        let (_, list) = self
            .client
            .call(Method::GET, &format!("{LEASES}{OURS}"), None)
            .await?;
        let now = self.server.registry().now();
        for lease in list["items"]
            .list()
            .iter()
            .filter(|lease| is_expired(&lease["spec"], now))
        {
            let path = format!("{LEASES}/{}", lease["metadata"]["name"].str());
            self.client.call(Method::DELETE, &path, None).await?;
        }
        Ok(())
    }

    fn now(&self) -> String {
        let now = self.server.registry().moment();
        format!(
            "{}.{:06}Z",
            time::from_unix(now.seconds).trim_end_matches('Z'),
            now.nanos / 1000
        )
    }
}

/// Kubernetes: 128 bits of the hash of the host and of what the server is, each after its length (apiserver/pkg/server/config.go).
fn name(host: &str) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let sized = |part: &str| [&(part.len() as u16).to_be_bytes()[..], part.as_bytes()].concat();
    let hash = digest(&SHA256, &[sized(host), sized(KUBE_APISERVER)].concat());
    let bit = |at: usize| hash.as_ref()[at / 8] >> (7 - at % 8) & 1;
    let letter = |n: usize| {
        let bits = (n * 5..n * 5 + 5).map(|at| if at < 128 { bit(at) } else { 0 });
        char::from(ALPHABET[bits.fold(0, |sum, bit| sum << 1 | usize::from(bit))])
    };
    let text: String = (0..26).map(letter).collect();
    format!("apiserver-{text}")
}

fn is_expired(spec: &Value, now: i64) -> bool {
    let renewed = time::to_unix(spec["renewTime"].str());
    let lasts = spec["leaseDurationSeconds"].as_int();
    spec["holderIdentity"].is_empty()
        || renewed
            .zip(lasts)
            .is_none_or(|(renewed, lasts)| renewed.saturating_add(lasts) < now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_its_host_as_upstream_names_it() {
        assert_eq!(name("vm"), "apiserver-wlv32tlttr4jl3gtroqexyxapa");
    }

    #[test]
    fn a_lease_expires_an_hour_after_it_was_renewed() {
        let spec = value!({ "holderIdentity": "x", "leaseDurationSeconds": 3600, "renewTime": "1970-01-01T01:00:00.000000Z" });
        assert!(!is_expired(&spec, 7200) && is_expired(&spec, 7201));
        assert!(is_expired(&Value::Null, 0));
    }
}
