//! A reflector: a local copy of a kind that follows the server.

use std::io::Write;

use clients::{Error, Shirts};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, Config};
use mizzen_sdk::cache::Store;
use mizzen_sdk::watch::{Initial, ListWatch, Reflector};

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Outside of a cluster from the kubeconfig, inside from the service account of the pod.
    let config = Config::infer().await?;
    run(Client::try_from(config)?, &mut std::io::stdout()).await
}

/// Reflects ConfigMaps into a store.
pub(crate) async fn run(client: Client, out: &mut impl Write) -> Result<(), Error> {
    let shirts = Shirts::new(client.clone(), "reflector");
    shirts.create("red").await?;
    let created = shirts.create("blue").await?;

    let mut source: ListWatch<ConfigMap> = ListWatch::all(client);
    source.labels = Some(shirts.selector());
    source.initial = Initial::Stream; // WatchListClient
    let store = Store::new();
    let mut reflector = Reflector::new(source, store.clone());
    reflector.on_error = Some(std::sync::Arc::new(|error| eprintln!("{error}")));
    let task = tokio::spawn(reflector.run()); // retries for ever, until it is aborted

    store.wait_for(created).await;
    print(&store, out)?;
    store.wait_for(shirts.dye("red", "pink").await?).await;
    print(&store, out)?;

    task.abort();
    shirts.delete_all().await?;
    Ok(())
}

/// Writes the content of the store in one line.
fn print(store: &Store<ConfigMap>, out: &mut impl Write) -> Result<(), Error> {
    let mut lines = Vec::new();
    for entry in store.list() {
        let colour = entry.text_at(&["data", "colour"]).unwrap_or_default();
        lines.push(format!("{} is {colour}", entry.key().name()));
    }
    lines.sort();
    writeln!(out, "{}", lines.join(", "))?;
    Ok(())
}
