//! Client configuration in and out of a cluster, with a user agent and a rate limit.

use std::io::Write;

use clients::Error;
use http::header::{HeaderValue, USER_AGENT};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::config::KubeConfigOptions;
use kube::{Client, Config};
use mizzen_sdk::rate_limit::RateLimitLayer;

#[tokio::main]
async fn main() -> Result<(), Error> {
    // `Config::infer` tries the kubeconfig first; here it is the other way round, as in client-go's
    // examples.
    let mut config = match Config::incluster() {
        Ok(config) => config,
        Err(_) => Config::from_kubeconfig(&KubeConfigOptions::default()).await?,
    };
    let user_agent = HeaderValue::from_static("clients-config");
    config.headers.push((USER_AGENT, user_agent));
    // QPS and Burst of a rest.Config.
    let client = RateLimitLayer::new(50.0, 100).wrap(Client::try_from(config)?);
    run(client, &mut std::io::stdout()).await
}

/// Counts pods, and looks for one.
pub(crate) async fn run(client: Client, out: &mut impl Write) -> Result<(), Error> {
    let everywhere: Api<Pod> = Api::all(client.clone());
    let n_pods = everywhere.list(&ListParams::default()).await?.items.len();
    writeln!(out, "There are {n_pods} pods in the cluster")?;

    let namespace = client.default_namespace().to_owned();
    let pods: Api<Pod> = Api::namespaced(client, &namespace);
    match pods.get_opt("example-xxxxx").await? {
        Some(_) => writeln!(out, "Found example-xxxxx pod in {namespace} namespace")?,
        None => writeln!(out, "Pod example-xxxxx in namespace {namespace} not found")?,
    }
    Ok(())
}
