//! The REST client: requests by path, with and without types.

use std::io::Write;

use clients::Error;
use http::{Method, Request};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Client, Config};
use mizzen_sdk::dynamic::{DynamicClient, query};
use mizzen_sdk::resource::{NAMESPACES, PODS};
use mizzen_sdk::{Key, Object, yaml};

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Outside of a cluster from the kubeconfig, inside from the service account of the pod.
    let config = Config::infer().await?;
    run(Client::try_from(config)?, &mut std::io::stdout()).await
}

/// Sends four requests.
pub(crate) async fn run(client: Client, out: &mut impl Write) -> Result<(), Error> {
    // Get().AbsPath("/healthz").DoRaw()
    let health = Request::get("/healthz").body(Vec::new())?;
    writeln!(out, "/healthz: {}", client.request_text(health).await?)?;

    // Get().Resource("namespaces").Name("default").Do().Into(&namespace)
    let path = NAMESPACES.path_of(&Key::cluster("default"));
    let namespace: Namespace = client
        .request(Request::get(&path).body(Vec::new())?)
        .await?;
    let phase = namespace.status.and_then(|status| status.phase);
    writeln!(out, "{path}: {}", phase.unwrap_or_default())?;

    // VersionedParams(&metav1.ListOptions{Limit: 1}, scheme.ParameterCodec)
    let api = DynamicClient::new(client);
    let path = format!("{}{}", PODS.path("default"), query(&[("limit", "1")]));
    let pods = api.raw(Method::GET, &path, None).await?;
    writeln!(out, "{path}: {}", pods["kind"].str())?;

    // Post().Body(review).Do()
    let review: Object = yaml::read(
        b"spec: {resourceAttributes: {verb: list, resource: pods, namespace: default}}",
    )?;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let review = api.raw(Method::POST, path, Some(&review)).await?;
    let is_allowed = review["status"]["allowed"].bool();
    writeln!(out, "{path}: {is_allowed}")?;
    Ok(())
}
