//! A delta FIFO: what happened to each object, in order, for a reader that keeps a store.

use std::io::Write;

use clients::{Error, Shirts};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, Config};
use mizzen_sdk::cache::{Store, Version};
use mizzen_sdk::fifo::{Delta, DeltaFifo};
use mizzen_sdk::watch::{ListWatch, Reflector};

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Outside of a cluster from the kubeconfig, inside from the service account of the pod.
    let config = Config::infer().await?;
    run(Client::try_from(config)?, &mut std::io::stdout()).await
}

/// Reflects ConfigMaps into a FIFO and pops their deltas.
pub(crate) async fn run(client: Client, out: &mut impl Write) -> Result<(), Error> {
    let shirts = Shirts::new(client.clone(), "delta-fifo");
    let created = shirts.create("red").await?;

    let mut source: ListWatch<ConfigMap> = ListWatch::all(client);
    source.labels = Some(shirts.selector());
    let store = Store::new();
    let fifo = DeltaFifo::new(store.clone()); // KnownObjects
    let task = tokio::spawn(Reflector::new(source, fifo.clone()).run());

    pop_until(created, &fifo, &store, out).await?;
    pop_until(shirts.create("blue").await?, &fifo, &store, out).await?;
    pop_until(shirts.dye("red", "pink").await?, &fifo, &store, out).await?;
    shirts.delete("red").await?;
    // A later write: its delta comes after the deletion.
    pop_until(shirts.dye("blue", "navy").await?, &fifo, &store, out).await?;

    task.abort();
    shirts.delete_all().await?;
    Ok(())
}

/// Applies deltas to the store until it has a version.
async fn pop_until(
    version: Version,
    fifo: &DeltaFifo<ConfigMap>,
    store: &Store<ConfigMap>,
    out: &mut impl Write,
) -> Result<(), Error> {
    while store.version() < version {
        // Up to ten objects, each with all its deltas since it was popped last.
        let batch = fifo.pop(10).await.ok_or("the queue was closed")?;
        for delta in batch.deltas.iter().flatten() {
            let (name, key) = (describe(delta), delta.entry().key());
            writeln!(out, "{name}: {}", key.name())?;
            if delta.is_gone() {
                store.remove(key);
            } else {
                store.insert(delta.entry().clone());
            }
        }
        store.advance(batch.version);
    }
    Ok(())
}

/// The DeltaType.
fn describe(delta: &Delta<ConfigMap>) -> &'static str {
    match delta {
        Delta::Added(_) => "Added",
        Delta::Updated(_) => "Updated",
        Delta::Deleted(_) => "Deleted",
        Delta::Lost(_) => "Deleted, final state unknown",
        Delta::Replaced(_) => "Replaced",
        Delta::Sync(_) => "Sync",
    }
}
