//! Where events go: the API server, or a log.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event as CoreEvent, EventSource};
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use serde_json::json;
use tokio::time::sleep;

use super::correlate::Told;
use crate::write::is_already_exists;

/// How often a failed event is sent again.
const TRIES: usize = 12;
/// Of how many events it is remembered that they were written.
const REMEMBERED: usize = 4096;
/// How many bytes of a message the server takes.
const LONGEST_MESSAGE: usize = 1024;
/// How long to wait between tries.
const WAIT: Duration = Duration::from_secs(10);

/// Takes events.
pub trait Sink: Send {
    /// Takes one. It does not fail: what cannot be sent is lost.
    fn send<'a>(&'a mut self, told: &'a Told) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
}

/// Writes events to the log.
#[derive(Debug, Clone, Copy, Default)]
pub struct LogSink;

impl Sink for LogSink {
    fn send<'a>(&'a mut self, told: &'a Told) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let (note, regarding) = (&told.occurrence.note, &told.occurrence.regarding);
        tracing::info!(
            object = regarding.name,
            namespace = regarding.namespace,
            kind = regarding.kind,
            r#type = note.severity.as_str(),
            reason = note.reason,
            count = told.count,
            "{}",
            note.message
        );
        Box::pin(std::future::ready(()))
    }
}

/// In which form events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Core,
    Events,
}

/// Writes events to the API server.
pub struct ApiSink {
    /// The way to the API for an instance of whoever reports.
    client_of: Box<dyn Fn(&str) -> Client + Send + Sync>,
    form: Form,
    /// The events that are known to be there.
    written: HashSet<String>,
}

impl ApiSink {
    /// Writes them as events.k8s.io/v1 has them.
    pub fn new(client: Client) -> ApiSink {
        ApiSink::of(Form::Events, move |_| client.clone())
    }

    /// Writes them as v1 has them, with a count.
    pub fn core(client: Client) -> ApiSink {
        ApiSink::core_of(move |_| client.clone())
    }

    /// The same, each event through the client of the instance that reports it.
    pub fn core_of(client_of: impl Fn(&str) -> Client + Send + Sync + 'static) -> ApiSink {
        ApiSink::of(Form::Core, client_of)
    }

    fn of(form: Form, client_of: impl Fn(&str) -> Client + Send + Sync + 'static) -> ApiSink {
        ApiSink {
            client_of: Box::new(client_of),
            form,
            written: HashSet::new(),
        }
    }

    fn client(&self, told: &Told) -> Client {
        (self.client_of)(&told.occurrence.instance)
    }

    async fn write(&mut self, told: &Told) -> Result<(), Error> {
        if told.count > 1 && self.written.contains(&told.name) {
            match self.count(told).await {
                // It has lived as long as events do: tell it anew.
                Err(Error::Api(status)) if status.code == 404 => {}
                outcome => return outcome,
            }
        }
        match self.create(told).await {
            // It was written after all, or longer ago than we remember.
            Err(error) if told.count > 1 && is_already_exists(&error) => self.count(told).await?,
            outcome => outcome?,
        }
        self.remember(&told.name);
        Ok(())
    }

    fn remember(&mut self, name: &str) {
        if self.written.len() >= REMEMBERED {
            self.written.clear();
        }
        self.written.insert(name.into());
    }

    async fn create(&self, told: &Told) -> Result<(), Error> {
        let (client, namespace, params) =
            (self.client(told), namespace(told), PostParams::default());
        match self.form {
            Form::Core => Api::namespaced(client, namespace)
                .create(&params, &core_event(told))
                .await
                .map(drop),
            Form::Events => Api::namespaced(client, namespace)
                .create(&params, &event(told))
                .await
                .map(drop),
        }
    }

    async fn count(&self, told: &Told) -> Result<(), Error> {
        let (client, namespace) = (self.client(told), namespace(told));
        let now = told.occurrence.at;
        let patch = match self.form {
            Form::Core => json!({
                "count": told.count,
                "lastTimestamp": Time(now),
                "message": message(told),
            }),
            Form::Events => {
                json!({"series": {"count": told.count, "lastObservedTime": MicroTime(now)}})
            }
        };
        let (patch, params) = (Patch::Merge(patch), PatchParams::default());
        match self.form {
            Form::Core => Api::<CoreEvent>::namespaced(client, namespace)
                .patch(&told.name, &params, &patch)
                .await
                .map(drop),
            Form::Events => Api::<Event>::namespaced(client, namespace)
                .patch(&told.name, &params, &patch)
                .await
                .map(drop),
        }
    }
}

impl Sink for ApiSink {
    fn send<'a>(&'a mut self, told: &'a Told) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            for _ in 0..TRIES {
                match self.write(told).await {
                    Ok(()) => return,
                    // What the server refuses it will refuse again.
                    Err(Error::Api(status)) if status.code < 500 && status.code != 429 => {
                        tracing::debug!(message = status.message, "an event was refused");
                        return;
                    }
                    Err(error) => tracing::debug!(%error, "an event could not be sent"),
                }
                sleep(WAIT).await;
            }
        })
    }
}

/// Events live beside what they are about; those about objects in no namespace in `default`.
fn namespace(told: &Told) -> &str {
    told.occurrence
        .regarding
        .namespace
        .as_deref()
        .filter(|namespace| !namespace.is_empty())
        .unwrap_or("default")
}

fn metadata(told: &Told) -> ObjectMeta {
    ObjectMeta {
        name: Some(told.name.clone()),
        namespace: Some(namespace(told).into()),
        annotations: Some(told.occurrence.note.annotations.clone())
            .filter(|notes| !notes.is_empty()),
        ..ObjectMeta::default()
    }
}

/// As much of the message as the server takes: better a part of it than nothing.
fn message(told: &Told) -> String {
    let message = &told.occurrence.note.message;
    if message.len() <= LONGEST_MESSAGE {
        return message.clone();
    }
    let end = (0..LONGEST_MESSAGE - 2)
        .rev()
        .find(|end| message.is_char_boundary(*end))
        .unwrap_or_default();
    format!("{}...", &message[..end])
}

fn event(told: &Told) -> Event {
    let occurrence = &told.occurrence;
    let series = EventSeries {
        count: told.count as i32,
        last_observed_time: MicroTime(occurrence.at),
    };
    Event {
        metadata: metadata(told),
        event_time: Some(MicroTime(told.first)),
        reporting_controller: Some(occurrence.controller.clone()),
        reporting_instance: Some(occurrence.instance.clone()),
        action: Some(occurrence.note.action.clone()),
        reason: Some(occurrence.note.reason.clone()),
        regarding: Some(occurrence.regarding.clone()),
        related: occurrence.note.related.clone(),
        note: Some(message(told)),
        type_: Some(occurrence.note.severity.as_str().into()),
        series: (told.count > 1).then_some(series),
        ..Event::default()
    }
}

fn core_event(told: &Told) -> CoreEvent {
    let occurrence = &told.occurrence;
    // Kubernetes: who reports is said in the source alone where many events are one.
    let reporter = |name: &String| {
        Some(if told.combined {
            String::new()
        } else {
            name.clone()
        })
    };
    CoreEvent {
        metadata: metadata(told),
        involved_object: occurrence.regarding.clone(),
        related: occurrence.note.related.clone(),
        reason: Some(occurrence.note.reason.clone()),
        message: Some(message(told)),
        source: Some(EventSource {
            component: Some(occurrence.controller.clone()),
            host: Some(occurrence.instance.clone()).filter(|instance| !instance.is_empty()),
        }),
        first_timestamp: Some(Time(told.first)),
        last_timestamp: Some(Time(occurrence.at)),
        count: Some(told.count as i32),
        type_: Some(occurrence.note.severity.as_str().into()),
        reporting_component: reporter(&occurrence.controller),
        reporting_instance: reporter(&occurrence.instance),
        ..CoreEvent::default()
    }
}
