//! The role of the storage version migrator, created once its API is served.
//!
//! Kubernetes: StorageVersionMigration is off by default, and so is the role of its controller, which may write every
//! object. A cluster that serves the kind by a definition or an aggregated server gets the role as well.

use std::time::Duration;

use http::Method;
use http_body_util::BodyExt as _;
use mizzen_apiserver::Server;

use super::{access, ensure_all};
use crate::loopback_client::{KUBE_APISERVER, LoopbackClient};

/// A watch of the APIService of the kind.
const API_SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices\
                      ?watch=true&fieldSelector=metadata.name=v1beta1.storagemigration.k8s.io";
/// How long to wait before the watch is started again.
const RETRY: Duration = Duration::from_secs(1);

/// Waits until the kind is served, and creates the role.
pub async fn allow_migration(server: Server) {
    let client = LoopbackClient::new(&server, KUBE_APISERVER);
    loop {
        let created = async {
            let services = client.send(Method::GET, API_SERVICE, None).await?;
            match services.into_body().frame().await {
                Some(Ok(_)) => ensure_all(&server, access::migration_roles()).await,
                _ => Err("the watch ended".into()),
            }
        };
        match created.await {
            Ok(()) => return,
            Err(error) => {
                tracing::debug!(%error, "cannot create the role of the storage version migrator")
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}
