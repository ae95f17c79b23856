//! Bootstrap objects: system namespaces, roles and bindings, priority classes, priority levels and flow schemas, and the
//! `kubernetes` Service. They are written through the API.
//!
//! Namespaces come first; everything else is written at once, so that many writes share one fsync. Then
//! [`reconcile_owned`] restores what is deleted or changed, at kube-apiserver's intervals; roles, bindings and APIServices
//! are restored only when the server starts.

mod access;
pub mod authentication;
mod flow;
mod identity_lease;
mod kubernetes_service;
mod migration;
mod reconcile;
mod server_leases;
mod service_cidr;
#[cfg(test)]
mod tests;

pub use flow::parse_bool;
pub use identity_lease::api_server_id;
pub use kubernetes_service::KubernetesService;
pub use migration::allow_migration;

use std::net::SocketAddr;
use std::time::Duration;

use http::Method;
use mizzen_apiserver::{PeerEndpointLeases, Server};
use mizzen_authentication::TrustedAuthorities;
use mizzen_value::address::Cidr;
use mizzen_value::{Value, value};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at, timeout};

use crate::loopback_client::{KUBE_APISERVER, LoopbackClient};
use identity_lease::IdentityLease;

/// The system namespaces.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The system priority classes.
const PRIORITY_CLASSES: [(&str, i64, &str); 2] = [
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
];

/// An object that must exist.
pub struct BootstrapObject {
    /// The path of its collection.
    pub path: String,
    /// The object.
    pub object: Value,
}

/// How often missing namespaces are created.
const NAMESPACE_INTERVAL: Duration = Duration::from_secs(60);

/// How often the endpoint lease for peers is renewed. Kubernetes: DefaultPeerEndpointReconcileInterval.
const PEER_INTERVAL: Duration = Duration::from_secs(10);
const PEER_LEASE: &str = "the endpoint lease for peers";

/// How often the allocations of Services are repaired. Kubernetes: repairLoopInterval in controlplane/instance.go.
const REPAIR_INTERVAL: Duration = Duration::from_secs(3 * 60);
const REPAIRED: &str = "the allocations of Services";

/// The addresses of the server and of services.
#[derive(Debug, Clone)]
pub struct ServerLocation {
    /// The service CIDRs.
    pub service_ranges: Vec<Cidr>,
    /// The `kubernetes` Service.
    pub service: KubernetesService,
    /// Where API servers on the same store reach this one; none if the host has no address for that.
    pub peer_address: Option<SocketAddr>,
}

/// Creates what is missing, and updates what exists.
pub async fn bootstrap(
    server: &Server,
    location: &ServerLocation,
    trusted: &TrustedAuthorities,
) -> Result<(), String> {
    sync_namespaces(server).await?;
    server.complete(&[
        "poststarthook/start-system-namespaces-controller",
        "poststarthook/storage-readiness",
    ]);
    service_cidr::sync(server, &location.service_ranges).await?;
    server.complete(&["poststarthook/start-kubernetes-service-cidr-controller"]);
    let client = LoopbackClient::new(server, KUBE_APISERVER);
    let service = async {
        location.service.sync_service(&client).await?;
        log_outcome(
            "the Endpoints of the kubernetes Service",
            location.service.sync_endpoints(&client, true).await,
        );
        server.complete(&[
            "poststarthook/bootstrap-controller",
            "poststarthook/peer-endpoint-reconciler-controller",
        ]);
        Ok::<(), String>(())
    };
    let classes = async {
        let classes = PRIORITY_CLASSES.map(|(name, priority, description)| BootstrapObject {
            path: "/apis/scheduling.k8s.io/v1/priorityclasses".into(),
            object: value!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name },
                "value": priority, "description": description
            }),
        });
        ensure_all(server, classes.into()).await?;
        server.complete(&["poststarthook/scheduling/bootstrap-system-priority-classes"]);
        Ok::<(), String>(())
    };
    let roles = async {
        ensure_all(server, access::roles()).await?;
        server.complete(&["poststarthook/rbac/bootstrap-roles"]);
        Ok::<(), String>(())
    };
    let flows = async {
        flow::sync(server).await?;
        server.complete(&["poststarthook/priority-and-fairness-config-producer"]);
        Ok::<(), String>(())
    };
    let authentication = async {
        authentication::write(server, trusted).await?;
        server.complete(&["poststarthook/start-cluster-authentication-info-controller"]);
        Ok::<(), String>(())
    };
    tokio::try_join!(service, classes, roles, flows, authentication)?;
    log_outcome(REPAIRED, mizzen_controlplane::repair(server).await);
    server.complete(&["poststarthook/start-service-ip-repair-controllers"]);
    Ok(())
}

/// Reconciles the objects that the server owns. Never returns.
pub async fn reconcile_owned(server: Server, location: ServerLocation) {
    let client = LoopbackClient::new(&server, KUBE_APISERVER);
    let peer_address = location.peer_address.map(|address| address.to_string());
    let lease = IdentityLease::new(&server, peer_address);
    log_outcome(PEER_LEASE, renew_peer_lease(&server, &location).await);
    if log_outcome("the identity lease", lease.renew().await) {
        server.complete(&["poststarthook/start-kube-apiserver-identity-lease-controller"]);
    }
    if log_outcome(
        "identity leases of other servers",
        lease.collect_garbage().await,
    ) {
        server.complete(&["poststarthook/start-kube-apiserver-identity-lease-garbage-collector"]);
    }
    tokio::join!(
        every(REPAIR_INTERVAL, REPAIRED, || mizzen_controlplane::repair(
            &server
        )),
        every(NAMESPACE_INTERVAL, "system namespaces", || sync_namespaces(
            &server
        )),
        every(
            kubernetes_service::INTERVAL,
            "the kubernetes Service",
            || location.service.sync(&client)
        ),
        every(PEER_INTERVAL, PEER_LEASE, || renew_peer_lease(
            &server, &location
        )),
        every(service_cidr::INTERVAL, "the default ServiceCIDR", || {
            service_cidr::sync(&server, &location.service_ranges)
        }),
        every(flow::INTERVAL, "priority levels and flow schemas", || {
            flow::sync(&server)
        }),
        every(identity_lease::INTERVAL, "the identity lease", || async {
            lease.renew().await?;
            server.complete(&["poststarthook/start-kube-apiserver-identity-lease-controller"]);
            Ok(())
        }),
        every(
            identity_lease::GARBAGE_COLLECTION_INTERVAL,
            "identity leases of other servers",
            || async {
                lease.collect_garbage().await?;
                server.complete(&[
                    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
                ]);
                Ok(())
            }
        ),
    );
}

/// Renews the endpoint lease by which peers find this server. A store that is not shared has none.
async fn renew_peer_lease(server: &Server, location: &ServerLocation) -> Result<(), String> {
    match PeerEndpointLeases::of(server.registry()).zip(location.peer_address) {
        Some((leases, address)) => leases.renew(&api_server_id(), address).await,
        None => Ok(()),
    }
}

/// Removes a server that stops from the Endpoints of the `kubernetes` Service, and its endpoint lease for peers.
/// [`reconcile_owned`] must have ended.
pub async fn leave(server: &Server, location: &ServerLocation) {
    if let Some(leases) = PeerEndpointLeases::of(server.registry()) {
        let removed = timeout(2 * PEER_INTERVAL, async {
            leases.remove(&api_server_id()).await
        });
        let removed = removed.await;
        let outcome = removed.unwrap_or_else(|elapsed| Err(elapsed.to_string()));
        log_outcome(PEER_LEASE, outcome);
    }
    let client = LoopbackClient::new(server, KUBE_APISERVER);
    // Kubernetes: a server that cannot reach etcd stops all the same (kubernetesservice/controller.go).
    let left = timeout(
        2 * kubernetes_service::INTERVAL,
        location.service.leave(&client),
    );
    log_outcome(
        "the Endpoints of the kubernetes Service",
        left.await
            .unwrap_or_else(|elapsed| Err(elapsed.to_string())),
    );
}

/// Calls `sync` at an interval, first after `interval`. A failure is logged and retried the next time.
async fn every<F: Future<Output = Result<(), String>>>(
    interval: Duration,
    what: &str,
    sync: impl Fn() -> F,
) {
    let mut ticks = interval_at(tokio::time::Instant::now() + interval, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        log_outcome(what, sync().await);
    }
}

/// Logs a failure. Returns whether there was none.
fn log_outcome(objects: &str, outcome: Result<(), String>) -> bool {
    if let Err(error) = &outcome {
        tracing::warn!(%error, objects, "reconciling bootstrap objects failed");
    }
    outcome.is_ok()
}

/// Creates the namespaces that are missing.
async fn sync_namespaces(server: &Server) -> Result<(), String> {
    let namespaces = NAMESPACES.map(|name| BootstrapObject {
        path: "/api/v1/namespaces".into(),
        object: value!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
    });
    ensure_all(server, namespaces.into()).await
}

/// Creates the roles of the simulated nodes.
pub async fn bootstrap_nodes(server: &Server) -> Result<(), String> {
    ensure_all(server, access::node_roles()).await
}

/// Creates what volumes of nodes with real containers need: the roles of their provisioner, and the default StorageClass.
/// Its volumes are made only for nodes with the label of real containers.
pub async fn bootstrap_volumes(server: &Server, provisioner: &str) -> Result<(), String> {
    let real_nodes = value!({ "key": "mizzen.dev/node-runtime", "values": ["cri"] });
    let class = BootstrapObject {
        path: "/apis/storage.k8s.io/v1/storageclasses".into(),
        object: value!({
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {
                "name": "standard",
                "annotations": { "storageclass.kubernetes.io/is-default-class": "true" },
            },
            "allowVolumeExpansion": true,
            "allowedTopologies": [{ "matchLabelExpressions": [real_nodes] }],
            "provisioner": provisioner,
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "WaitForFirstConsumer",
        }),
    };
    ensure_all(server, access::volumes_roles()).await?;
    let client = LoopbackClient::new(server, KUBE_APISERVER);
    // A class that exists is the user's.
    ensure(&client, &class, |_, _| None).await
}

/// Creates the roles of the metrics API.
pub async fn bootstrap_metrics(server: &Server) -> Result<(), String> {
    ensure_all(server, access::metrics_roles()).await
}

/// Creates or updates objects concurrently.
async fn ensure_all(server: &Server, objects: Vec<BootstrapObject>) -> Result<(), String> {
    // Only what Kubernetes keeps up to date is changed once it exists.
    let update = |stored: &Value, wanted: &Value| match wanted["metadata"]["annotations"].is_empty()
    {
        true => None,
        false => reconcile::reconcile(stored, wanted),
    };
    let mut tasks = JoinSet::new();
    for object in objects {
        let client = LoopbackClient::new(server, KUBE_APISERVER);
        tasks.spawn(async move { ensure(&client, &object, update).await });
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome.map_err(|error| error.to_string())??;
    }
    Ok(())
}

/// Creates an object, or replaces the stored one if `update` returns another.
async fn ensure(
    client: &LoopbackClient,
    BootstrapObject { path, object }: &BootstrapObject,
    update: impl Fn(&Value, &Value) -> Option<Value>,
) -> Result<(), String> {
    let own = format!("{path}/{}", object["metadata"]["name"].str());
    let (code, stored) = client.call(Method::GET, &own, None).await?;
    if code == 404 {
        client.call(Method::POST, path, Some(object)).await?;
    } else if let Some(updated) = update(&stored, object) {
        client.call(Method::PUT, &own, Some(&updated)).await?;
    }
    Ok(())
}
