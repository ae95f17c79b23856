//! A work queue: keys that are deduplicated, processed by workers, and retried with back-off.
//!
//! `mizzen_sdk::controller` has this loop, with workers that survive panics and a graceful stop.

use std::io::Write;

use clients::{Error, Shirts};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, Config};
use mizzen_sdk::Key;
use mizzen_sdk::cache::Lister;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::watch::ListWatch;

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Outside of a cluster from the kubeconfig, inside from the service account of the pod.
    let config = Config::infer().await?;
    run(Client::try_from(config)?, &mut std::io::stdout()).await
}

/// The controller of client-go's example, without its frame.
pub(crate) async fn run(client: Client, out: &mut impl Write) -> Result<(), Error> {
    let shirts = Shirts::new(client.clone(), "work-queue");
    for shirt in ["blue", "green", "red"] {
        shirts.create(shirt).await?;
    }

    let queue: Queue<Key> = Queue::new("shirts");
    let mut source: ListWatch<ConfigMap> = ListWatch::all(client);
    source.labels = Some(shirts.selector());
    let informer = Informer::new(source);
    let added = queue.clone();
    let handler = informer.add_handler(move |event: Event<ConfigMap>| {
        added.add(event.key().clone()); // a key, not an object: the worker reads the latest state
    });
    informer.start();
    handler.wait_for_sync().await;
    writeln!(out, "{} keys are queued", queue.len())?;

    let lister = informer.lister();
    let mut n_synced = 0;
    while let Some(key) = queue.get().await {
        match sync(&lister, &key, queue.num_requeues(&key)) {
            Ok(line) => {
                writeln!(out, "{line}")?;
                queue.forget(&key); // the next failure starts with the shortest back-off again
                n_synced += 1;
            }
            Err(error) => {
                writeln!(out, "{}: {error}, requeued", key.name())?;
                queue.add_rate_limited(key.clone());
            }
        }
        queue.done(&key);
        if n_synced == 3 {
            queue.shut_down();
        }
    }

    informer.stop();
    shirts.delete_all().await?;
    Ok(())
}

/// The work. A red shirt fails at the first attempt.
fn sync(lister: &Lister<ConfigMap>, key: &Key, n_requeues: usize) -> Result<String, Error> {
    let Some(shirt) = lister.by_key(key)? else {
        return Ok(format!("{} is deleted", key.name()));
    };
    let colour = shirt.data.as_ref().and_then(|data| data.get("colour"));
    if colour.is_some_and(|colour| colour == "red") && n_requeues == 0 {
        return Err("the dye is not dry".into());
    }
    Ok(format!("{}: synced, {n_requeues} retries", key.name()))
}
