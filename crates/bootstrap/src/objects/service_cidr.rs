//! The default ServiceCIDR, `kubernetes`, and its Ready condition.
//!
//! Kubernetes: a ServiceCIDR that differs from the arguments is not changed, except that a second family is added
//! (controlplane/controller/defaultservicecidr).

use std::time::Duration;

use http::Method;
use mizzen_apiserver::Server;
use mizzen_object::condition::find;
use mizzen_value::address::Cidr;
use mizzen_value::{Value, value};

use crate::loopback_client::{KUBE_APISERVER, LoopbackClient};

/// How often it is reconciled.
pub(super) const INTERVAL: Duration = Duration::from_secs(10);

const PATH: &str = "/apis/networking.k8s.io/v1/servicecidrs";
const OWN: &str = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes";
const READY: &str = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes/status\
                     ?fieldManager=kubernetes-service-cidr-controller&force=true";

/// Creates it if it is missing, and sets its Ready condition.
pub(super) async fn sync(server: &Server, ranges: &[Cidr]) -> Result<(), String> {
    let client = LoopbackClient::new(server, KUBE_APISERVER);
    let cidrs = Value::from(
        ranges
            .iter()
            .map(|range| Value::from(range.to_string()))
            .collect::<Vec<_>>(),
    );
    let (code, mut stored) = client.call(Method::GET, OWN, None).await?;
    if code == 404 {
        let mut service_cidr = object();
        service_cidr.set("spec", value!({ "cidrs": (cidrs) }));
        client.call(Method::POST, PATH, Some(&service_cidr)).await?;
        return set_ready(server, &client).await;
    }
    if stored["spec"]["cidrs"].list() == &cidrs.list()[..1] && cidrs.list().len() == 2 {
        stored.entry("spec").set("cidrs", cidrs);
        return client.call(Method::PUT, OWN, Some(&stored)).await.map(drop);
    }
    let is_deleted = !stored["metadata"]["deletionTimestamp"].is_null();
    let ready = find(&stored["status"]["conditions"], "Ready");
    let is_unset = ready.is_none_or(|ready| ready["status"].str() == "Unknown");
    match !is_deleted && is_unset && stored["spec"]["cidrs"] == cidrs {
        true => set_ready(server, &client).await,
        false => Ok(()),
    }
}

async fn set_ready(server: &Server, client: &LoopbackClient) -> Result<(), String> {
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
