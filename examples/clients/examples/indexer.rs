//! An indexer: cached objects by the value of a field, a label, or what a function returns.

use std::io::Write;
use std::sync::Arc;

use clients::{Error, Shirts};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, Config};
use mizzen_sdk::cache::{Entry, by_field};
use mizzen_sdk::informer::Informer;
use mizzen_sdk::watch::ListWatch;

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Outside of a cluster from the kubeconfig, inside from the service account of the pod.
    let config = Config::infer().await?;
    run(Client::try_from(config)?, &mut std::io::stdout()).await
}

/// Indexes ConfigMaps by colour and by the length of their name.
pub(crate) async fn run(client: Client, out: &mut impl Write) -> Result<(), Error> {
    let shirts = Shirts::new(client.clone(), "indexer");
    for (shirt, colour) in [("long", "red"), ("short", "red"), ("old", "blue")] {
        shirts.dye(shirt, colour).await?;
    }

    let mut source: ListWatch<ConfigMap> = ListWatch::all(client);
    source.labels = Some(shirts.selector());
    let informer = Informer::new(source);
    informer.add_index("colour", by_field("data.colour"));
    let length = |entry: &Entry<ConfigMap>| vec![entry.key().name().len().to_string()];
    informer.add_index("length", Arc::new(length)); // an IndexFunc
    informer.start();
    informer.wait_for_sync().await;

    let store = informer.store();
    for (index, value) in [("colour", "red"), ("colour", "blue"), ("length", "12")] {
        let found = store
            .by_index(index, value)
            .ok_or("there is no such index")?;
        let mut names: Vec<&str> = found.iter().map(|entry| entry.key().name()).collect();
        names.sort_unstable();
        writeln!(out, "{index}={value}: {}", names.join(", "))?;
    }
    // ListIndexFuncValues
    let snapshot = store.snapshot();
    let values = snapshot.index_values("colour").into_iter().flatten();
    let mut values: Vec<&str> = values.collect();
    values.sort_unstable();
    writeln!(out, "values of colour: {}", values.join(", "))?;

    informer.stop();
    shirts.delete_all().await?;
    Ok(())
}
