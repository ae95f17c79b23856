//! Sinks of events: the API server, or the log.

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

use super::correlate::CorrelatedEvent;
use crate::write::is_already_exists;

/// The number of attempts to send an event.
const TRIES: usize = 12;
/// The most names of written events that are remembered.
const REMEMBERED: usize = 4096;
/// The most bytes of a message.
const LONGEST_MESSAGE: usize = 1024;
/// The interval between attempts.
const WAIT: Duration = Duration::from_secs(10);

/// A destination of events.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use std::pin::Pin;
/// use mizzen_sdk::event::{Broadcaster, CorrelatedEvent, Sink};
///
/// struct Print;
///
/// impl Sink for Print {
///     fn send<'a>(&'a mut self, event: &'a CorrelatedEvent) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
///         Box::pin(async move { println!("{}: {}", event.name, event.occurrence.note.message) })
///     }
/// }
///
/// let broadcaster = Broadcaster::new(vec![Box::new(Print)]);
/// # broadcaster.stop().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Sink: Send {
    /// Sends one event. It does not fail: what cannot be sent is lost.
    fn send<'a>(
        &'a mut self,
        correlated: &'a CorrelatedEvent,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
}

/// Writes events to the log.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use mizzen_sdk::event::{Broadcaster, LogSink};
///
/// let broadcaster = Broadcaster::new(vec![Box::new(LogSink)]);
/// # broadcaster.stop().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct LogSink;

impl Sink for LogSink {
    fn send<'a>(
        &'a mut self,
        correlated: &'a CorrelatedEvent,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        let (note, regarding) = (
            &correlated.occurrence.note,
            &correlated.occurrence.regarding,
        );
        tracing::info!(
            object = regarding.name,
            namespace = regarding.namespace,
            kind = regarding.kind,
            r#type = note.severity.as_str(),
            reason = note.reason,
            count = correlated.count,
            "{}",
            note.message
        );
        Box::pin(std::future::ready(()))
    }
}

/// The API of written events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventApi {
    Core,
    Events,
}

/// Writes events to the API server.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::event::{ApiSink, Broadcaster, LogSink};
///
/// let broadcaster = Broadcaster::new(vec![Box::new(ApiSink::new(client)), Box::new(LogSink)]);
/// # broadcaster.stop().await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ApiSink {
    /// Makes the client of a reporting instance.
    client_of: Box<dyn Fn(&str) -> Client + Send + Sync>,
    form: EventApi,
    /// The names of written events.
    written: HashSet<String>,
}

impl ApiSink {
    /// Writes events.k8s.io/v1 Events.
    pub fn new(client: Client) -> ApiSink {
        ApiSink::of(EventApi::Events, move |_| client.clone())
    }

    /// Writes v1 Events, with a count.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::event::{ApiSink, Broadcaster};
    ///
    /// let broadcaster = Broadcaster::new(vec![Box::new(ApiSink::core(client))]);
    /// # broadcaster.stop().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn core(client: Client) -> ApiSink {
        ApiSink::core_of(move |_| client.clone())
    }

    /// Writes v1 Events, each with the client of its reporting instance.
    ///
    /// ```
    /// # use mizzen_apiserver::User;
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
    /// use mizzen_sdk::event::{ApiSink, Broadcaster};
    ///
    /// // Each instance may write its events as a user of its own.
    /// let broadcaster = Broadcaster::new(vec![Box::new(ApiSink::core_of(move |_instance| client.clone()))]);
    /// # broadcaster.stop().await;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn core_of(client_of: impl Fn(&str) -> Client + Send + Sync + 'static) -> ApiSink {
        ApiSink::of(EventApi::Core, client_of)
    }

    fn of(form: EventApi, client_of: impl Fn(&str) -> Client + Send + Sync + 'static) -> ApiSink {
        ApiSink {
            client_of: Box::new(client_of),
            form,
            written: HashSet::new(),
        }
    }

    fn client(&self, correlated: &CorrelatedEvent) -> Client {
        (self.client_of)(&correlated.occurrence.instance)
    }

    async fn write(&mut self, correlated: &CorrelatedEvent) -> Result<(), Error> {
        if correlated.count > 1 && self.written.contains(&correlated.name) {
            match self.count(correlated).await {
                // Its TTL has passed: create it again.
                Err(Error::Api(status)) if status.code == 404 => {}
                outcome => return outcome,
            }
        }
        match self.create(correlated).await {
            // It was written before, or longer ago than is remembered.
            Err(error) if correlated.count > 1 && is_already_exists(&error) => {
                self.count(correlated).await?
            }
            outcome => outcome?,
        }
        self.remember(&correlated.name);
        Ok(())
    }

    fn remember(&mut self, name: &str) {
        if self.written.len() >= REMEMBERED {
            self.written.clear();
        }
        self.written.insert(name.into());
    }

    async fn create(&self, correlated: &CorrelatedEvent) -> Result<(), Error> {
        let (client, namespace, params) = (
            self.client(correlated),
            namespace(correlated),
            PostParams::default(),
        );
        match self.form {
            EventApi::Core => Api::namespaced(client, namespace)
                .create(&params, &core_event(correlated))
                .await
                .map(drop),
            EventApi::Events => Api::namespaced(client, namespace)
                .create(&params, &event(correlated))
                .await
                .map(drop),
        }
    }

    async fn count(&self, correlated: &CorrelatedEvent) -> Result<(), Error> {
        let (client, namespace) = (self.client(correlated), namespace(correlated));
        let now = correlated.occurrence.at;
        let patch = match self.form {
            EventApi::Core => json!({
                "count": correlated.count,
                "lastTimestamp": Time(now),
                "message": message(correlated),
            }),
            EventApi::Events => {
                json!({"series": {"count": correlated.count, "lastObservedTime": MicroTime(now)}})
            }
        };
        let (patch, params) = (Patch::Merge(patch), PatchParams::default());
        match self.form {
            EventApi::Core => Api::<CoreEvent>::namespaced(client, namespace)
                .patch(&correlated.name, &params, &patch)
                .await
                .map(drop),
            EventApi::Events => Api::<Event>::namespaced(client, namespace)
                .patch(&correlated.name, &params, &patch)
                .await
                .map(drop),
        }
    }
}

impl Sink for ApiSink {
    fn send<'a>(
        &'a mut self,
        correlated: &'a CorrelatedEvent,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
        Box::pin(async move {
            for _ in 0..TRIES {
                match self.write(correlated).await {
                    Ok(()) => return,
                    // A rejected event will be rejected again.
                    Err(Error::Api(status)) if status.code < 500 && status.code != 429 => {
                        tracing::debug!(message = status.message, "the server rejected an event");
                        return;
                    }
                    Err(error) => tracing::debug!(%error, "cannot send an event, retrying"),
                }
                sleep(WAIT).await;
            }
        })
    }
}

/// Events are in the namespace of their object; those about cluster-scoped objects in `default`.
fn namespace(correlated: &CorrelatedEvent) -> &str {
    correlated
        .occurrence
        .regarding
        .namespace
        .as_deref()
        .filter(|namespace| !namespace.is_empty())
        .unwrap_or("default")
}

fn metadata(correlated: &CorrelatedEvent) -> ObjectMeta {
    ObjectMeta {
        name: Some(correlated.name.clone()),
        namespace: Some(namespace(correlated).into()),
        annotations: Some(correlated.occurrence.note.annotations.clone())
            .filter(|notes| !notes.is_empty()),
        ..ObjectMeta::default()
    }
}

/// The message, truncated to what the server accepts.
fn message(correlated: &CorrelatedEvent) -> String {
    let message = &correlated.occurrence.note.message;
    if message.len() <= LONGEST_MESSAGE {
        return message.clone();
    }
    let end = (0..LONGEST_MESSAGE - 2)
        .rev()
        .find(|end| message.is_char_boundary(*end))
        .unwrap_or_default();
    format!("{}...", &message[..end])
}

fn event(correlated: &CorrelatedEvent) -> Event {
    let occurrence = &correlated.occurrence;
    let series = EventSeries {
        count: correlated.count as i32,
        last_observed_time: MicroTime(occurrence.at),
    };
    Event {
        metadata: metadata(correlated),
        event_time: Some(MicroTime(correlated.first)),
        reporting_controller: Some(occurrence.controller.clone()),
        reporting_instance: Some(occurrence.instance.clone()),
        action: Some(occurrence.note.action.clone()),
        reason: Some(occurrence.note.reason.clone()),
        regarding: Some(occurrence.regarding.clone()),
        related: occurrence.note.related.clone(),
        note: Some(message(correlated)),
        type_: Some(occurrence.note.severity.as_str().into()),
        series: (correlated.count > 1).then_some(series),
        ..Event::default()
    }
}

fn core_event(correlated: &CorrelatedEvent) -> CoreEvent {
    let occurrence = &correlated.occurrence;
    // Kubernetes: an aggregated event has its reporter in the source alone.
    let reporter = |name: &String| {
        Some(if correlated.combined {
            String::new()
        } else {
            name.clone()
        })
    };
    CoreEvent {
        metadata: metadata(correlated),
        involved_object: occurrence.regarding.clone(),
        related: occurrence.note.related.clone(),
        reason: Some(occurrence.note.reason.clone()),
        message: Some(message(correlated)),
        source: Some(EventSource {
            component: Some(occurrence.controller.clone()),
            host: Some(occurrence.instance.clone()).filter(|instance| !instance.is_empty()),
        }),
        first_timestamp: Some(Time(correlated.first)),
        last_timestamp: Some(Time(occurrence.at)),
        count: Some(correlated.count as i32),
        type_: Some(occurrence.note.severity.as_str().into()),
        reporting_component: reporter(&occurrence.controller),
        reporting_instance: reporter(&occurrence.instance),
        ..CoreEvent::default()
    }
}
