//! List and watch: the state at a version, then every change after it.

use std::io::Write;

use clients::{Error, Shirts};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, Config};
use mizzen_sdk::fifo::Delta;
use mizzen_sdk::watch::{ListWatch, WatchEvent};

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Outside of a cluster from the kubeconfig, inside from the service account of the pod.
    let config = Config::infer().await?;
    run(Client::try_from(config)?, &mut std::io::stdout()).await
}

/// Lists ConfigMaps and watches them from the version of the list.
pub(crate) async fn run(client: Client, out: &mut impl Write) -> Result<(), Error> {
    let shirts = Shirts::new(client.clone(), "list-and-watch");
    shirts.create("red").await?;

    let namespace = client.default_namespace().to_owned();
    let mut source: ListWatch<ConfigMap> = ListWatch::namespaced(client, &namespace);
    source.labels = Some(shirts.selector());
    let page = source.list("", "").await?;
    for entry in &page.entries {
        writeln!(out, "listed {}", entry.key())?;
    }

    // The server ends the watch after 60 s. A reflector would then resume it.
    let mut watch = source.watch(&page.version, 60).await?;
    shirts.dye("red", "pink").await?;
    shirts.create("blue").await?;
    shirts.delete("red").await?;
    shirts.delete("blue").await?;

    let mut n_deleted = 0;
    while let Some(event) = watch.next().await? {
        let (name, entry) = match event {
            WatchEvent::Delta(Delta::Added(entry)) => ("ADDED", entry),
            WatchEvent::Delta(Delta::Deleted(entry)) => ("DELETED", entry),
            WatchEvent::Delta(delta) => ("MODIFIED", delta.entry().clone()),
            WatchEvent::Bookmark { .. } => continue,
        };
        let config = entry.object()?;
        let colour = config.data.as_ref().and_then(|data| data.get("colour"));
        let colour = colour.map(String::as_str).unwrap_or_default();
        writeln!(out, "{name}: {} - {colour}", entry.key().name())?;
        n_deleted += usize::from(name == "DELETED");
        if n_deleted == 2 {
            break;
        }
    }
    Ok(())
}
