//! A shared informer factory: one cache and one watch per kind, with any number of handlers.

use std::io::Write;
use std::time::Duration;

use clients::{Error, Shirts};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Client, Config};
use mizzen_sdk::informer::{Event, Factory, FactoryOptions, Options};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Outside of a cluster from the kubeconfig, inside from the service account of the pod.
    let config = Config::infer().await?;
    run(Client::try_from(config)?, &mut std::io::stdout()).await
}

/// Follows Namespaces and the ConfigMaps of one namespace.
pub(crate) async fn run(client: Client, out: &mut impl Write) -> Result<(), Error> {
    let shirts = Shirts::new(client.clone(), "informer-factory");
    shirts.create("red").await?;

    let resync = Some(Duration::from_secs(600)); // defaultResync
    let options = FactoryOptions {
        namespaces: vec![client.default_namespace().to_owned()], // WithNamespace
        informer: Options {
            resync,
            ..Options::default()
        },
        ..FactoryOptions::default()
    };
    let factory = Factory::with(client, options);
    let namespaces = factory.informer::<Namespace>();
    let configs = factory.informer_of::<ConfigMap>(&(), |source| {
        source.labels = Some(shirts.selector());
    });

    // A handler must not block: it sends what it has seen.
    let (sender, mut events) = mpsc::channel(100);
    configs.add_handler(move |event: Event<ConfigMap>| {
        let line = match event {
            Event::Added { object, initial } => {
                format!("added {}, initially: {initial}", object.key().name())
            }
            Event::Updated { new, .. } => format!("updated {}", new.key().name()),
            Event::Deleted { last, .. } => format!("deleted {}", last.key().name()),
        };
        let _ = sender.try_send(line); // the program may have ended
    });
    factory.start();
    factory.wait_for_sync().await;
    let default = namespaces.lister().get("default")?;
    writeln!(out, "namespace default exists: {}", default.is_some())?;

    shirts.create("blue").await?;
    shirts.dye("red", "pink").await?;
    shirts.delete("red").await?;
    for _ in 0..4 {
        let line = events.recv().await.ok_or("the handler was removed")?;
        writeln!(out, "{line}")?;
    }

    factory.stop();
    shirts.delete_all().await?;
    Ok(())
}
