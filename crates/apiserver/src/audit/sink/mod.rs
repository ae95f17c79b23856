//! Where do events go? To a file, to another server; at once, or when there are enough of them.

mod buffer;
mod log;
#[cfg(test)]
mod tests;
mod throttle;
mod webhook;

pub use log::{LogFile, LogFormat};
pub use webhook::AuditWebhookOptions;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mizzen_registry::Registry;
use tokio::time::timeout;

use super::counters::{AuditMetrics, AuditPlugin};
use super::event::StagedEvent;
use super::policy::AuditLevel;
use buffer::Buffer;
use log::AuditLog;
use webhook::AuditWebhook;

/// How long a request waits for a server that is told of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// When events are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryMode {
    /// Later, some together; the request does not wait.
    Batch,
    /// At once; the request waits, and goes on if it cannot be done.
    Blocking,
    /// At once; the request waits, and is refused if it cannot be said that it has come.
    BlockingStrict,
}

/// How events are gathered before they are told.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchOptions {
    /// How many may wait; more are lost.
    pub buffer: usize,
    /// How many are told together.
    pub size: usize,
    /// How long one waits for others.
    pub wait: Duration,
    /// How often some are told, if that is limited.
    pub throttle: Option<Throttle>,
}

/// How often something may be done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throttle {
    /// So many times a second.
    pub rate: f32,
    /// So many times at once, after a rest.
    pub burst: usize,
}

/// How large what is told may be, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    /// One event. A larger one is told without objects, and is lost if it is too large even so.
    pub event: usize,
    /// Events that are told together.
    pub batch: usize,
}

/// How events reach where they go.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// When they are told.
    pub mode: DeliveryMode,
    /// How they are gathered, if they are.
    pub batch: BatchOptions,
    /// How large they may be, if that is limited.
    pub truncation: Option<Truncation>,
}

/// One who is told. Cheap to clone.
#[derive(Clone)]
pub(super) struct AuditSink(Arc<SinkState>);

struct SinkState {
    mode: DeliveryMode,
    truncation: Option<Truncation>,
    backend: Arc<Backend>,
    /// There if events are gathered.
    buffer: Option<Buffer>,
    counters: Arc<AuditMetrics>,
}

/// Where events end.
enum Backend {
    Log(AuditLog),
    Webhook(AuditWebhook),
}

impl AuditSink {
    /// A file.
    pub(super) fn log(
        file: LogFile,
        registry: &Registry,
        counters: &Arc<AuditMetrics>,
    ) -> AuditSink {
        let delivery = file.delivery.clone();
        AuditSink::new(
            Backend::Log(AuditLog::new(file, registry)),
            delivery,
            counters,
        )
    }

    /// Another server.
    pub(super) fn webhook(
        setup: AuditWebhookOptions,
        registry: &Registry,
        counters: &Arc<AuditMetrics>,
    ) -> AuditSink {
        let delivery = setup.delivery.clone();
        AuditSink::new(
            Backend::Webhook(AuditWebhook::new(setup, registry)),
            delivery,
            counters,
        )
    }

    fn new(end: Backend, delivery: Delivery, counters: &Arc<AuditMetrics>) -> AuditSink {
        let Delivery {
            mode,
            batch,
            truncation,
        } = delivery;
        let end = Arc::new(end);
        let largest = truncation.map(|truncation| truncation.batch);
        let buffer =
            (mode == DeliveryMode::Batch).then(|| Buffer::new(batch, largest, &end, counters));
        AuditSink(Arc::new(SinkState {
            mode,
            truncation,
            backend: end,
            buffer,
            counters: counters.clone(),
        }))
    }

    /// Whether a request must not go on if it cannot be said here that it has come.
    fn is_strict(&self) -> bool {
        self.0.mode == DeliveryMode::BlockingStrict
    }

    /// An event as it is told here; none if it is too large.
    pub(super) fn serialize(&self, told: StagedEvent) -> Option<Bytes> {
        let text = self.0.backend.serialize(told);
        let Some(largest) = self.0.truncation.map(|truncation| truncation.event) else {
            return Some(text);
        };
        if text.len() <= largest {
            return Some(text);
        }
        let text = match told.event.level >= AuditLevel::Request {
            true => self.0.backend.serialize(StagedEvent {
                truncated: true,
                ..told
            }),
            false => text,
        };
        if text.len() > largest {
            self.0.counters.record_errors(
                AuditPlugin::Truncation,
                1,
                "event is too large even after truncating",
            );
            return None;
        }
        Some(text)
    }

    /// Tells an event; whether a request may go on.
    pub(super) async fn deliver(&self, text: Bytes) -> bool {
        if let Some(buffer) = &self.0.buffer {
            buffer.enqueue(text);
            return true;
        }
        self.deliver_now(text).await || !self.is_strict()
    }

    /// Tells an event at once; whether that worked. What takes too long goes on without who waits for it.
    async fn deliver_now(&self, text: Bytes) -> bool {
        let SinkState {
            backend: end,
            counters,
            ..
        } = &*self.0;
        if let Backend::Log(log) = &**end {
            return log.write_all(&[text], counters);
        }
        let (end, counters) = (end.clone(), counters.clone());
        let sending = tokio::spawn(async move { end.send(&[text], &counters).await });
        matches!(timeout(PATIENCE, sending).await, Ok(Ok(true)))
    }

    /// Tells an event for somebody who cannot wait.
    pub(super) fn deliver_in_background(&self, text: Bytes) {
        match (&self.0.buffer, &*self.0.backend) {
            (Some(buffer), _) => buffer.enqueue(text),
            (None, Backend::Log(log)) => {
                log.write_all(&[text], &self.0.counters);
            }
            (None, Backend::Webhook(_)) => {
                let sink = self.clone();
                // Whoever leaves while the runtime ends has nobody to tell it to.
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move { sink.deliver(text).await });
                }
            }
        }
    }

    /// Tells what waits.
    pub(super) async fn close(&self) {
        if let Some(buffer) = &self.0.buffer {
            buffer.close().await;
        }
    }
}

impl Backend {
    fn serialize(&self, told: StagedEvent) -> Bytes {
        match self {
            Backend::Log(log) => log.serialize(told),
            Backend::Webhook(_) => told.json(false).into(),
        }
    }

    /// Tells events together; whether that worked. If not, they are counted as lost.
    async fn send(&self, texts: &[Bytes], counters: &AuditMetrics) -> bool {
        match self {
            Backend::Log(log) => log.write_all(texts, counters),
            Backend::Webhook(webhook) => webhook.send(texts, counters).await,
        }
    }

    /// Whether several can be under way at once.
    fn is_remote(&self) -> bool {
        matches!(self, Backend::Webhook(_))
    }
}
