//! A lister: typed reads from the cache of an informer, without a request.

use std::io::Write;

use clients::{Error, Shirts};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, Config, ResourceExt as _};
use mizzen_sdk::informer::Informer;
use mizzen_sdk::watch::ListWatch;

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Outside of a cluster from the kubeconfig, inside from the service account of the pod.
    let config = Config::infer().await?;
    run(Client::try_from(config)?, &mut std::io::stdout()).await
}

/// Gets and lists ConfigMaps of one namespace.
pub(crate) async fn run(client: Client, out: &mut impl Write) -> Result<(), Error> {
    let shirts = Shirts::new(client.clone(), "lister");
    shirts.create("red").await?;
    shirts.create("blue").await?;

    let namespace = client.default_namespace().to_owned();
    let informer: Informer<ConfigMap> = Informer::new(ListWatch::all(client));
    informer.start();
    informer.wait_for_sync().await;

    let lister = informer.lister().namespaced(namespace);
    match lister.get("lister-red")? {
        Some(red) => writeln!(out, "{}: {:?}", red.name_any(), red.data)?,
        None => writeln!(out, "lister-red is not found")?,
    }
    let missing = lister.get("lister-green")?;
    writeln!(out, "lister-green exists: {}", missing.is_some())?;

    // Only objects that match are decoded.
    let ours = |name: &str| name.starts_with("lister-");
    let found = lister.list_where(|entry| ours(entry.key().name()))?;
    let mut names: Vec<String> = found.iter().map(|config| config.name_any()).collect();
    names.sort_unstable();
    writeln!(out, "listed {}", names.join(", "))?;

    informer.stop();
    shirts.delete_all().await?;
    Ok(())
}
