//! What is there before anybody asks: the system's namespaces, roles and bindings, priorities, and the server as a
//! service. Like everybody, it is made through the API.
//!
//! Namespaces come first; everything else is made at once, so that many writes share one trip to the disk. Then loops put
//! back what is deleted or changed, at kube-apiserver's intervals ([`reconcile_owned`]); roles, bindings and APIServices are put back
//! when the server starts only.

mod access;
pub(crate) mod authentication;
mod flow;
mod identity_lease;
mod kubernetes_service;
mod migration;
mod reconcile;
mod service_cidr;
#[cfg(test)]
mod tests;

pub(crate) use kubernetes_service::KubernetesService;
pub(crate) use migration::allow_migration;

use std::time::Duration;

use http::Method;
use mizzen_apiserver::Server;
use mizzen_apiserver::authenticate::Trusted;
use mizzen_value::address::Block;
use mizzen_value::{Value, value};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at};

use crate::itself::{Client, KUBE_APISERVER};
use identity_lease::IdentityLease;

/// The namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The priorities of what the cluster cannot do without.
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

/// An object that must be there.
pub(crate) struct Wanted {
    /// The path of its collection.
    pub path: String,
    /// The object.
    pub object: Value,
}

/// How often missing namespaces are looked for.
const NAMESPACE_INTERVAL: Duration = Duration::from_secs(60);

/// What says where the server and its services are.
#[derive(Debug, Clone)]
pub(crate) struct Location {
    /// The ranges of services' addresses.
    pub service_ranges: Vec<Block>,
    /// The server as a service.
    pub service: KubernetesService,
}

/// Makes what is missing, and brings what is there up to date.
pub(crate) async fn bootstrap(
    server: &Server,
    location: &Location,
    trusted: &Trusted,
) -> Result<(), String> {
    sync_namespaces(server).await?;
    server.complete(&[
        "poststarthook/start-system-namespaces-controller",
        "poststarthook/storage-readiness",
    ]);
    service_cidr::sync(server, &location.service_ranges).await?;
    server.complete(&["poststarthook/start-kubernetes-service-cidr-controller"]);
    let client = Client::new(server, KUBE_APISERVER);
    let service = async {
        location.service.sync_service(&client).await?;
        log(
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
        make_all(
            server,
            KUBE_APISERVER,
            PRIORITY_CLASSES.map(priority_class).into(),
        )
        .await?;
        server.complete(&["poststarthook/scheduling/bootstrap-system-priority-classes"]);
        Ok::<(), String>(())
    };
    let roles = async {
        make_all(server, KUBE_APISERVER, access::objects()).await?;
        server.complete(&["poststarthook/rbac/bootstrap-roles"]);
        Ok::<(), String>(())
    };
    let flows = async {
        flow::sync(server).await?;
        server.complete(&["poststarthook/priority-and-fairness-config-producer"]);
        Ok::<(), String>(())
    };
    let told = async {
        authentication::write(server, trusted).await?;
        server.complete(&["poststarthook/start-cluster-authentication-info-controller"]);
        Ok::<(), String>(())
    };
    tokio::try_join!(service, classes, roles, flows, told)?;
    server.repair().await;
    server.complete(&["poststarthook/start-service-ip-repair-controllers"]);
    Ok(())
}

/// Puts back what the server owns, for as long as it runs.
pub(crate) async fn reconcile_owned(server: Server, location: Location) {
    let client = Client::new(&server, KUBE_APISERVER);
    let peer = location
        .service
        .advertise_address
        .map(|ip| std::net::SocketAddr::new(ip, location.service.port));
    let lease = IdentityLease::new(&server, peer.map(|peer| peer.to_string()));
    if log("the identity lease", lease.renew().await) {
        server.complete(&["poststarthook/start-kube-apiserver-identity-lease-controller"]);
    }
    if log(
        "identity leases of other servers",
        lease.collect_garbage().await,
    ) {
        server.complete(&["poststarthook/start-kube-apiserver-identity-lease-garbage-collector"]);
    }
    tokio::join!(
        every(NAMESPACE_INTERVAL, "system namespaces", || sync_namespaces(
            &server
        )),
        every(
            kubernetes_service::INTERVAL,
            "the kubernetes Service",
            || location.service.sync(&client)
        ),
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

/// Syncs something again and again, first after `interval`. What fails is tried again the next time.
async fn every<F: Future<Output = Result<(), String>>>(
    interval: Duration,
    what: &str,
    sync: impl Fn() -> F,
) {
    let mut ticks = interval_at(tokio::time::Instant::now() + interval, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        log(what, sync().await);
    }
}

/// Says what failed; whether nothing did.
fn log(what: &str, outcome: Result<(), String>) -> bool {
    if let Err(error) = &outcome {
        tracing::warn!(%error, "cannot reconcile {what}");
    }
    outcome.is_ok()
}

/// Creates the namespaces that are missing.
async fn sync_namespaces(server: &Server) -> Result<(), String> {
    make_all(server, KUBE_APISERVER, NAMESPACES.map(namespace).into()).await
}

/// Makes what the nodes need that run beside the server.
pub(crate) async fn bootstrap_nodes(server: &Server) -> Result<(), String> {
    make_all(server, KUBE_APISERVER, access::objects_of_nodes()).await
}

/// Makes what the metrics API needs.
pub(crate) async fn bootstrap_metrics(server: &Server) -> Result<(), String> {
    make_all(server, KUBE_APISERVER, access::objects_of_metrics()).await
}

/// Makes objects, whose fields `manager` owns, all at once.
async fn make_all(
    server: &Server,
    manager: &'static str,
    wanted: Vec<Wanted>,
) -> Result<(), String> {
    let mut tasks = JoinSet::new();
    for wanted in wanted {
        let client = Client::new(server, manager);
        tasks.spawn(async move { ensure(&client, wanted).await });
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome.map_err(|error| error.to_string())??;
    }
    Ok(())
}

fn namespace(name: &str) -> Wanted {
    let object = value!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    Wanted {
        path: "/api/v1/namespaces".into(),
        object,
    }
}

fn priority_class((name, priority, description): (&str, i64, &str)) -> Wanted {
    let object = value!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name },
        "value": priority, "description": description
    });
    Wanted {
        path: "/apis/scheduling.k8s.io/v1/priorityclasses".into(),
        object,
    }
}

/// Makes an object, or brings the one that is there up to date.
async fn ensure(client: &Client, wanted: Wanted) -> Result<(), String> {
    let Wanted { path, object } = &wanted;
    let own = format!("{path}/{}", object["metadata"]["name"].str());
    let (code, stored) = client.call(Method::GET, &own, None).await?;
    if code == 404 {
        return client
            .call(Method::POST, path, Some(object))
            .await
            .map(drop);
    }
    match reconciled(&stored, object) {
        Some(object) => client
            .call(Method::PUT, &own, Some(&object))
            .await
            .map(drop),
        None => Ok(()),
    }
}

/// Only what Kubernetes keeps up to date is touched once it is there.
fn reconciled(stored: &Value, wanted: &Value) -> Option<Value> {
    if wanted["metadata"]["annotations"].is_empty() {
        None
    } else {
        reconcile::reconcile(stored, wanted)
    }
}
