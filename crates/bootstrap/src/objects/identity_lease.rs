//! The identity Lease of each API server in `kube-system`, and the garbage collection of expired ones.

use std::time::Duration;

use http::Method;
use mizzen_apiserver::Server;
use mizzen_value::clock::uuid;
use mizzen_value::{Value, time, value};
use ring::digest::{SHA256, digest};

use crate::loopback_client::{KUBE_APISERVER, LoopbackClient};

/// How often it is renewed.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);
/// How often expired Leases are deleted.
pub(super) const GARBAGE_COLLECTION_INTERVAL: Duration = Duration::from_secs(3600);

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const SELECTOR: &str = "?labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver";
const DURATION_SECONDS: i64 = 3600;

/// The Lease of one server.
pub(super) struct IdentityLease {
    server: Server,
    client: LoopbackClient,
    name: String,
    host: String,
    holder: String,
    /// The address and port for other servers.
    peer: Option<String>,
}

impl IdentityLease {
    /// The Lease of `server`, with the address `peer` for other servers.
    pub(super) fn new(server: &Server, peer: Option<String>) -> IdentityLease {
        let host = host_name();
        let name = identity(&host);
        let holder = format!("{name}_{}", uuid(server.registry().random()));
        let client = LoopbackClient::new(server, KUBE_APISERVER);
        IdentityLease {
            server: server.clone(),
            client,
            name,
            host,
            holder,
            peer,
        }
    }

    /// Renews or creates it.
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

    /// Deletes expired Leases.
    pub(super) async fn collect_garbage(&self) -> Result<(), String> {
        let (_, list) = self
            .client
            .call(Method::GET, &format!("{LEASES}{SELECTOR}"), None)
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

/// The identity of this API server: the name of its Lease, and its ID in metrics.
pub fn api_server_id() -> String {
    identity(&host_name())
}

fn host_name() -> String {
    let name = nix::unistd::gethostname().ok();
    name.and_then(|name| name.into_string().ok())
        .unwrap_or_default()
}

/// The identity of the server of a host. Kubernetes: 128 bits of the hash of host and component, each after its length
/// (apiserver/pkg/server/config.go).
fn identity(host: &str) -> String {
    let sized = |part: &str| [&(part.len() as u16).to_be_bytes()[..], part.as_bytes()].concat();
    let hash = digest(&SHA256, &[sized(host), sized(KUBE_APISERVER)].concat());
    format!("apiserver-{}", base32(&hash.as_ref()[..16]))
}

/// Base 32 in lower case, without padding.
fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let bit = |at: usize| bytes.get(at / 8).map_or(0, |byte| byte >> (7 - at % 8) & 1);
    let letter = |at: usize| ALPHABET[(0..5).fold(0, |sum, n| sum << 1 | bit(at + n)) as usize];
    (0..8 * bytes.len())
        .step_by(5)
        .map(|at| char::from(letter(at)))
        .collect()
}

/// Whether a Lease has expired, or has no holder.
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
    fn a_lease_has_upstreams_name_for_the_host() {
        assert_eq!(identity("vm"), "apiserver-wlv32tlttr4jl3gtroqexyxapa");
    }

    #[test]
    fn a_lease_expires_an_hour_after_it_was_renewed() {
        let spec = value!({ "holderIdentity": "x", "leaseDurationSeconds": 3600, "renewTime": "1970-01-01T01:00:00.000000Z" });
        assert!(!is_expired(&spec, 7200) && is_expired(&spec, 7201));
        assert!(is_expired(&Value::Null, 0));
    }
}
