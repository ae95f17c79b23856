//! What is there before anybody asks: the system's namespaces, roles and bindings, priorities, and the server as a
//! service. Like everybody, it is made through the API.
//!
//! Namespaces come first; everything else is made at once, so that many writes share one trip to the disk.

mod access;
pub mod authentication;
mod flow;
mod migration;
mod reconcile;

pub use migration::allow_migration;

use std::net::IpAddr;

use http::Method;
use mizzen_apiserver::Server;
use mizzen_apiserver::authenticate::Trusted;
use mizzen_object::address::{Block, family};
use mizzen_object::{Value, value};
use tokio::task::JoinSet;

use crate::itself::{Client, KUBE_APISERVER};

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

/// Makes what is missing, and brings what is there up to date.
pub async fn bootstrap(
    server: &Server,
    ranges: &[Block],
    port: u16,
    trusted: &Trusted,
) -> Result<(), String> {
    make_all(server, KUBE_APISERVER, NAMESPACES.map(namespace).into()).await?;
    serve_ranges(server, ranges).await?;
    let mut wanted = vec![service(ranges[0].nth(1), port)];
    wanted.extend(PRIORITY_CLASSES.map(priority_class));
    wanted.extend(access::objects());
    let flows = make_all(server, flow::MANAGER, flow::objects());
    let told = authentication::write(server, trusted);
    tokio::try_join!(make_all(server, KUBE_APISERVER, wanted), flows, told)?;
    server.repair().await;
    Ok(())
}

/// Makes what the nodes need that run beside the server.
pub async fn bootstrap_nodes(server: &Server) -> Result<(), String> {
    make_all(server, KUBE_APISERVER, access::objects_of_nodes()).await
}

/// The ranges of services' addresses, and that they can be used.
async fn serve_ranges(server: &Server, ranges: &[Block]) -> Result<(), String> {
    const PATH: &str = "/apis/networking.k8s.io/v1/servicecidrs";
    const READY: &str = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes/status\
                         ?fieldManager=kubernetes-service-cidr-controller&force=true";
    let client = Client::new(server, KUBE_APISERVER);
    let cidrs = Value::from(ranges.iter().map(|range| Value::from(range.to_string())).collect::<Vec<_>>());
    let own = format!("{PATH}/kubernetes");
    let (code, mut known) = client.call(Method::GET, &own, None).await?;
    if code == 200 {
        // A second family may come later.
        if known["spec"]["cidrs"].list() == &cidrs.list()[..1] && cidrs.list().len() == 2 {
            known.entry("spec").set("cidrs", cidrs);
            client.call(Method::PUT, &own, Some(&known)).await?;
        }
        return Ok(());
    }
    let mut range = value!({ "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": { "name": "kubernetes" } });
    let mut ready = range.clone();
    range.set("spec", value!({ "cidrs": (cidrs) }));
    client.call(Method::POST, PATH, Some(&range)).await?;
    let condition = value!({
        "type": "Ready", "status": "True", "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": (server.registry().timestamp())
    });
    ready.set("status", value!({ "conditions": [(condition)] }));
    client.call(Method::PATCH, READY, Some(&ready)).await.map(drop)
}

/// Makes objects, whose fields `manager` owns, all at once.
async fn make_all(server: &Server, manager: &'static str, wanted: Vec<Wanted>) -> Result<(), String> {
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
    Wanted { path: "/api/v1/namespaces".into(), object }
}

fn priority_class((name, priority, description): (&str, i64, &str)) -> Wanted {
    let object = value!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": name },
        "value": priority, "description": description
    });
    Wanted { path: "/apis/scheduling.k8s.io/v1/priorityclasses".into(), object }
}

fn service(address: IpAddr, port: u16) -> Wanted {
    let (text, family) = (address.to_string(), family(address));
    let object = value!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": { "component": "apiserver", "provider": "kubernetes" }
        },
        "spec": {
            "clusterIP": (text.as_str()),
            "clusterIPs": [(text.as_str())],
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": [(family)],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": port }],
            "sessionAffinity": "None",
            "type": "ClusterIP"
        }
    });
    Wanted { path: "/api/v1/namespaces/default/services".into(), object }
}

/// Makes an object, or brings the one that is there up to date.
async fn ensure(client: &Client, wanted: Wanted) -> Result<(), String> {
    let Wanted { path, object } = &wanted;
    let own = format!("{path}/{}", object["metadata"]["name"].str());
    let (code, stored) = client.call(Method::GET, &own, None).await?;
    if code == 404 {
        return client.call(Method::POST, path, Some(object)).await.map(drop);
    }
    match reconciled(&stored, object) {
        Some(object) => client.call(Method::PUT, &own, Some(&object)).await.map(drop),
        None => Ok(()),
    }
}

/// Only what Kubernetes keeps up to date is touched once it is there.
fn reconciled(stored: &Value, wanted: &Value) -> Option<Value> {
    if wanted["metadata"]["annotations"].is_empty() { None } else { reconcile::reconcile(stored, wanted) }
}
