//! The `kubernetes` Service, its Endpoints and its EndpointSlice: how clients inside the cluster reach the API server.
//!
//! Kubernetes: an existing Service is not changed; the Endpoints have exactly the addresses of live servers, and the
//! EndpointSlice mirrors the Endpoints (controlplane/controller/kubernetesservice, controlplane/reconcilers). Which servers
//! live their leases tell, if several share a store.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use http::Method;
use mizzen_value::{Value, value};

use super::server_leases::ServerLeases;
use crate::loopback_client::LoopbackClient;

/// How often they are reconciled.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);

/// How often the creation of the Service is tried again, and how long it waits before.
const MAX_TRIES: usize = 10;
const TRY_INTERVAL: Duration = Duration::from_millis(100);

const NAME: &str = "kubernetes";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
/// Disables the mirroring controller: the EndpointSlice is written here.
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";

/// The addresses and ports of the API server.
#[derive(Debug, Clone, Copy)]
pub struct KubernetesService {
    /// The address of the Service.
    pub service_ip: IpAddr,
    /// The address in the Endpoints; none if the host has only addresses that Endpoints may not have.
    pub advertise_address: Option<IpAddr>,
    /// The port that the server listens on.
    pub port: u16,
    /// The node port of the Service; none for type ClusterIP.
    pub node_port: Option<u16>,
}

impl KubernetesService {
    /// Creates the Service if it is missing, and reconciles the Endpoints.
    pub async fn sync(&self, client: &LoopbackClient) -> Result<(), String> {
        self.sync_service(client).await?;
        self.sync_endpoints(client, false).await
    }

    /// Creates the Service if it is missing.
    pub async fn sync_service(&self, client: &LoopbackClient) -> Result<(), String> {
        let own = format!("{SERVICES}/{NAME}");
        let mut tries = 0;
        loop {
            if client.call(Method::GET, &own, None).await?.0 != 404 {
                return Ok(());
            }
            let service = self.service();
            match client.call(Method::POST, SERVICES, Some(&service)).await {
                // Another server may have reserved its address, and be about to create it.
                Err(_) if tries < MAX_TRIES => tries += 1,
                outcome => return outcome.map(drop),
            }
            tokio::time::sleep(TRY_INTERVAL).await;
        }
    }

    fn service(&self) -> Value {
        // Kubernetes: other fields are allocated, and have no manager (kubernetesservice/controller.go).
        let address = self.service_ip.to_string();
        let mut service = value!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": NAME,
                "namespace": "default",
                "labels": { "component": "apiserver", "provider": "kubernetes" }
            },
            "spec": {
                "clusterIP": (address.as_str()),
                "internalTrafficPolicy": "Cluster",
                "ipFamilyPolicy": "SingleStack",
                "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": (self.port) }],
                "sessionAffinity": "None",
                "type": (if self.node_port.is_some() { "NodePort" } else { "ClusterIP" })
            }
        });
        if let Some(port) = self.node_port {
            service.entry("spec").entry("ports").make_list()[0].set("nodePort", i64::from(port));
        }
        service
    }

    /// Reconciles the Endpoints and the EndpointSlice; ports only when the server starts.
    pub async fn sync_endpoints(
        &self,
        client: &LoopbackClient,
        reconcile_ports: bool,
    ) -> Result<(), String> {
        let Some(address) = self.advertise_address else {
            return Ok(());
        };
        let address = address.to_string();
        let addresses = match ServerLeases::of(client.registry()) {
            Some(leases) => {
                leases.renew(&address).await?;
                leases.list().await?
            }
            None => vec![address],
        };
        if addresses.is_empty() {
            // The own lease was just renewed.
            return Err("no lease of an API server is stored".into());
        }
        self.write_endpoints(client, &addresses, reconcile_ports)
            .await
    }

    /// Ends the lease of a server that stops, and removes it from the Endpoints. Only if servers share a store: alone, the
    /// server keeps its Endpoints.
    pub async fn leave(&self, client: &LoopbackClient) -> Result<(), String> {
        let leases = ServerLeases::of(client.registry());
        let Some((leases, address)) = leases.zip(self.advertise_address) else {
            return Ok(());
        };
        leases.remove(&address.to_string()).await?;
        let addresses = leases.list().await?;
        self.write_endpoints(client, &addresses, true).await
    }

    async fn write_endpoints(
        &self,
        client: &LoopbackClient,
        addresses: &[String],
        reconcile_ports: bool,
    ) -> Result<(), String> {
        let own = format!("{ENDPOINTS}/{NAME}");
        let (code, stored) = client.call(Method::GET, &own, None).await?;
        let base = match code {
            404 => value!({
                "apiVersion": "v1", "kind": "Endpoints", "metadata": { "name": NAME, "namespace": "default" }
            }),
            _ => stored.clone(),
        };
        let wanted = self.reconcile_endpoints(&base, addresses, reconcile_ports);
        match code {
            404 => drop(client.call(Method::POST, ENDPOINTS, Some(&wanted)).await?),
            _ if wanted != stored => drop(client.call(Method::PUT, &own, Some(&wanted)).await?),
            _ => {}
        }
        self.sync_slice(client, &endpoint_slice(&wanted)).await
    }

    async fn sync_slice(&self, client: &LoopbackClient, wanted: &Value) -> Result<(), String> {
        let own = format!("{SLICES}/{NAME}");
        let (code, stored) = client.call(Method::GET, &own, None).await?;
        if code == 404 {
            return client
                .call(Method::POST, SLICES, Some(wanted))
                .await
                .map(drop);
        }
        // The type of addresses cannot be changed.
        if stored["addressType"] != wanted["addressType"] {
            client.call(Method::DELETE, &own, None).await?;
            return client
                .call(Method::POST, SLICES, Some(wanted))
                .await
                .map(drop);
        }
        let is_current = ["endpoints", "ports"]
            .iter()
            .all(|field| stored[*field] == wanted[*field])
            && stored["metadata"]["labels"] == wanted["metadata"]["labels"];
        match is_current {
            true => Ok(()),
            false => client.call(Method::PUT, &own, Some(wanted)).await.map(drop),
        }
    }

    /// The Endpoints with the addresses of the servers.
    fn reconcile_endpoints(
        &self,
        endpoints: &Value,
        addresses: &[String],
        reconcile_ports: bool,
    ) -> Value {
        let mut wanted = endpoints.clone();
        wanted
            .entry("metadata")
            .entry("labels")
            .set(SKIP_MIRROR, "true");
        let ports = value!([{ "name": "https", "port": (self.port), "protocol": "TCP" }]);
        if addresses.is_empty() {
            wanted.remove("subsets");
            return wanted;
        }
        let all = || -> Vec<Value> {
            let addresses = addresses.iter();
            addresses
                .map(|address| value!({ "ip": (address.as_str()) }))
                .collect()
        };
        let subsets = endpoints["subsets"].list();
        let has_format = subsets.len() == 1;
        let stored: BTreeSet<&str> = subsets
            .iter()
            .flat_map(|subset| subset["addresses"].list())
            .map(|one| one["ip"].str())
            .collect();
        if !has_format {
            let subset = value!({ "addresses": (all()), "ports": (ports) });
            wanted.set("subsets", vec![subset]);
            return wanted;
        }
        let mut subset = subsets[0].clone();
        if stored != addresses.iter().map(String::as_str).collect() {
            subset.set("addresses", all());
            subset.remove("notReadyAddresses");
        }
        if reconcile_ports {
            subset.set("ports", ports);
        }
        wanted.set("subsets", vec![subset]);
        wanted
    }
}

/// The EndpointSlice that mirrors the Endpoints.
fn endpoint_slice(endpoints: &Value) -> Value {
    let subset = &endpoints["subsets"][0];
    let ips = |field: &str| {
        subset[field]
            .list()
            .iter()
            .map(|one| one["ip"].str().to_owned())
            .collect()
    };
    let (ready, not_ready): (Vec<String>, Vec<String>) =
        (ips("addresses"), ips("notReadyAddresses"));
    let is_v6 = |ip: &String| ip.contains(':');
    let all_v6 =
        !(ready.is_empty() && not_ready.is_empty()) && ready.iter().chain(&not_ready).all(is_v6);
    let of_family = |ips: Vec<String>, ready: bool| {
        let ips = ips.into_iter().filter(move |ip| is_v6(ip) == all_v6);
        ips.map(move |ip| value!({ "addresses": [(ip)], "conditions": { "ready": ready } }))
    };
    let endpoints: Vec<Value> = of_family(ready, true)
        .chain(of_family(not_ready, false))
        .collect();
    value!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": NAME, "namespace": "default", "labels": { "kubernetes.io/service-name": NAME },
        },
        "addressType": (if all_v6 { "IPv6" } else { "IPv4" }),
        "endpoints": endpoints,
        "ports": (subset["ports"].clone()),
    })
}

#[cfg(test)]
mod tests {
    use mizzen_value::json::{parse, to_string};

    use super::*;

    #[track_caller]
    fn check(subsets: &str, reconcile_ports: bool, expected: &str) {
        check_servers(&["192.0.2.7"], subsets, reconcile_ports, expected);
    }

    #[track_caller]
    fn check_servers(servers: &[&str], subsets: &str, reconcile_ports: bool, expected: &str) {
        let stored = format!(
            r#"{{"metadata":{{"labels":{{"{SKIP_MIRROR}":"true"}}}},"subsets":{subsets}}}"#
        );
        let stored = parse(stored.as_bytes()).unwrap();
        let service = KubernetesService {
            service_ip: [10, 0, 0, 1].into(),
            advertise_address: None,
            port: 6443,
            node_port: None,
        };
        let servers: Vec<String> = servers.iter().map(|server| String::from(*server)).collect();
        let found = service.reconcile_endpoints(&stored, &servers, reconcile_ports);
        assert_eq!(to_string(&found["subsets"]), expected);
    }

    #[test]
    fn endpoints_have_only_the_address_of_the_server() {
        const GOOD: &str = r#"[{"addresses":[{"ip":"192.0.2.7"}],"ports":[{"name":"https","port":6443,"protocol":"TCP"}]}]"#;
        check(GOOD, false, GOOD);
        check("[]", false, GOOD);
        check("null", false, GOOD);
        check(
            r#"[{"addresses":[{"ip":"192.0.2.7"}]},{"addresses":[{"ip":"192.0.2.8"}]}]"#,
            false,
            GOOD,
        );
        let others = GOOD.replace("192.0.2.7", "192.0.2.8");
        check(&others, false, GOOD);
        let port = GOOD.replace("6443", "1");
        check(&port, false, &port);
        check(&port, true, GOOD);
    }

    #[test]
    fn endpoints_have_the_addresses_of_all_servers_that_live() {
        const BOTH: &str = r#"[{"addresses":[{"ip":"192.0.2.7"},{"ip":"192.0.2.8"}],"ports":[{"name":"https","port":6443,"protocol":"TCP"}]}]"#;
        let servers = ["192.0.2.7", "192.0.2.8"];
        check_servers(&servers, "[]", false, BOTH);
        let one = BOTH.replace(r#"{"ip":"192.0.2.7"},"#, "");
        check_servers(&servers, &one, false, BOTH);
        check_servers(&["192.0.2.8"], BOTH, false, &one);
        // The order is no difference.
        let turned = BOTH.replace(
            r#"{"ip":"192.0.2.7"},{"ip":"192.0.2.8"}"#,
            r#"{"ip":"192.0.2.8"},{"ip":"192.0.2.7"}"#,
        );
        check_servers(&servers, &turned, false, &turned);
        check_servers(&[], BOTH, false, "null");
    }

    #[test]
    fn a_slice_has_the_family_of_its_addresses() {
        let endpoints = |ip: &str| value!({ "subsets": [{ "addresses": [{ "ip": ip }] }] });
        assert_eq!(
            endpoint_slice(&endpoints("192.0.2.7"))["addressType"].str(),
            "IPv4"
        );
        assert_eq!(
            endpoint_slice(&endpoints("2001:db8::1"))["addressType"].str(),
            "IPv6"
        );
        assert_eq!(endpoint_slice(&Value::Null)["addressType"].str(), "IPv4");
    }
}
