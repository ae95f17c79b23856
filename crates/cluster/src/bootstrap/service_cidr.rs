//! The default ServiceCIDR, `kubernetes`: the ranges of services' addresses, and that they can be used.
//!
//! Kubernetes: one that says something else than the arguments is left alone, but for a second family that comes later
//! (controlplane/controller/defaultservicecidr).

use std::time::Duration;

use http::Method;
use mizzen_apiserver::Server;
use mizzen_object::condition::find;
use mizzen_value::address::Block;
use mizzen_value::{Value, value};

use crate::itself::{Client, KUBE_APISERVER};

/// How often it is reconciled.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);

const PATH: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const OWN: &str = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes";
const READY: &str = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes/status\
                     ?fieldManager=kubernetes-service-cidr-controller&force=true";

/// Creates it if it is missing, and says that it is ready.
pub(super) async fn sync(server: &Server, ranges: &[Block]) -> Result<(), String> {
    let client = Client::new(server, KUBE_APISERVER);
    let cidrs = Value::from(
        ranges
            .iter()
            .map(|range| Value::from(range.to_string()))
            .collect::<Vec<_>>(),
    );
    let (code, mut known) = client.call(Method::GET, OWN, None).await?;
    if code == 404 {
        let mut range = object();
        range.set("spec", value!({ "cidrs": (cidrs) }));
        client.call(Method::POST, PATH, Some(&range)).await?;
        return set_ready(server, &client).await;
    }
    if known["spec"]["cidrs"].list() == &cidrs.list()[..1] && cidrs.list().len() == 2 {
        known.entry("spec").set("cidrs", cidrs);
        return client.call(Method::PUT, OWN, Some(&known)).await.map(drop);
    }
    let is_going = !known["metadata"]["deletionTimestamp"].is_null();
    let ready = find(&known["status"]["conditions"], "Ready");
    let is_open = ready.is_none_or(|ready| ready["status"].str() == "Unknown");
    match !is_going && is_open && known["spec"]["cidrs"] == cidrs {
        true => set_ready(server, &client).await,
        false => Ok(()),
    }
}

async fn set_ready(server: &Server, client: &Client) -> Result<(), String> {
    let condition = value!({
        "type": "Ready", "status": "True", "message": "Kubernetes default Service CIDR is ready",
        "lastTransitionTime": (server.registry().timestamp())
    });
    let mut ready = object();
    ready.set("status", value!({ "conditions": [(condition)] }));
    client
        .call(Method::PATCH, READY, Some(&ready))
        .await
        .map(drop)
}

fn object() -> Value {
    value!({ "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": { "name": "kubernetes" } })
}
