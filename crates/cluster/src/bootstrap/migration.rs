//! What the loop that stores objects again may do: allowed once there is something for it to do.
//!
//! Kubernetes: its kind is off by default, and so is the role of its loop, which may write every object. A cluster
//! whose server has the kind, because somebody defined it or another server brings it, has the role as well.

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use mizzen_apiserver::Server;

use super::{access, make_all};
use crate::itself::{Client, KUBE_APISERVER};

/// Says when the kind's version begins to be served, by whomever.
const SERVED: &str = "/apis/apiregistration.k8s.io/v1/apiservices\
                      ?watch=true&fieldSelector=metadata.name=v1beta1.storagemigration.k8s.io";
/// How long to wait before the server is asked again.
const PAUSE: Duration = Duration::from_secs(1);

/// Waits until the kind is served, and lets the loop work then.
pub(crate) async fn allow_migration(server: Server) {
    let client = Client::new(&server, KUBE_APISERVER);
    while let Err(error) = allow(&client, &server).await {
        tracing::debug!(%error, "nobody may migrate yet");
        tokio::time::sleep(PAUSE).await;
    }
}

async fn allow(client: &Client, server: &Server) -> Result<(), String> {
    let mut services = client.send(Method::GET, SERVED, None).await?.into_body();
    match services.frame().await {
        Some(Ok(_)) => make_all(server, KUBE_APISERVER, access::objects_of_migration()).await,
        _ => Err("the watch ended".into()),
    }
}
