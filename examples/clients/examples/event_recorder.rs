//! An event recorder: events of an object, as `kubectl describe` shows them.

use std::io::Write;

use clients::{Error, Shirts};
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use kube::{Client, Config, ResourceExt as _};
use mizzen_sdk::event::{ApiSink, Broadcaster, LogSink, Note, reference};

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Outside of a cluster from the kubeconfig, inside from the service account of the pod.
    let config = Config::infer().await?;
    run(Client::try_from(config)?, &mut std::io::stdout()).await
}

/// Records events of a ConfigMap and reads them back.
pub(crate) async fn run(client: Client, out: &mut impl Write) -> Result<(), Error> {
    let shirts = Shirts::new(client.clone(), "event-recorder");
    shirts.create("red").await?;
    let shirt = shirts.api.get("event-recorder-red").await?;

    // StartRecordingToSink, StartStructuredLogging
    let api = ApiSink::core(client.clone());
    let broadcaster = Broadcaster::new(vec![Box::new(api), Box::new(LogSink)]);
    let recorder = broadcaster.recorder("example.com/clients", "clients-0");
    let regarding = reference(&shirt, &());
    recorder.record(&regarding, Note::normal("Dyed", "Dye", "The shirt is red"));
    for _ in 0..3 {
        let note = Note::warning("Faded", "Wash", "The shirt was washed too hot");
        recorder.record(&regarding, note); // repetitions are counted in one Event
    }
    broadcaster.stop().await; // sends what is queued

    let events: Api<Event> = Api::default_namespaced(client);
    let uid = shirt.uid().unwrap_or_default();
    let of_shirt = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
    for event in events.list(&of_shirt).await? {
        let reason = event.reason.unwrap_or_default();
        let message = event.message.unwrap_or_default();
        let count = event.count.unwrap_or(1);
        let severity = event.type_.unwrap_or_default();
        writeln!(out, "{severity} {reason} x{count}: {message}")?;
    }
    shirts.delete_all().await?;
    Ok(())
}
