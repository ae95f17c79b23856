//! Audit backends: a log file or a webhook, blocking or batched.

mod buffer;
mod log;
#[cfg(test)]
mod tests;
mod throttle;
mod webhook;

pub use log::{AuditLogFormat, LogFile};
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

/// How long a request waits for a webhook.
const PATIENCE: Duration = Duration::from_secs(60);

/// When events are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryMode {
    /// Buffered and in batches; requests do not wait.
    Batch,
    /// At once; the request waits, and proceeds if it fails.
    Blocking,
    /// At once; the request waits, and is rejected if RequestReceived cannot be stored.
    BlockingStrict,
}

/// Options of batches.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchOptions {
    /// The capacity of the buffer; more events are lost.
    pub buffer: usize,
    /// The maximum number of events in a batch.
    pub size: usize,
    /// The maximum age of a batch.
    pub wait: Duration,
    /// The rate limit of batches, if there is one.
    pub throttle: Option<Throttle>,
}

/// A rate limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throttle {
    /// Batches per second.
    pub rate: f32,
    /// The burst.
    pub burst: usize,
}

/// Size limits, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    /// Of one event. A larger one is delivered without objects, and is lost if it is still too
    /// large.
    pub event: usize,
    /// Of one batch.
    pub batch: usize,
}

/// How events are delivered.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// When events are delivered.
    pub mode: DeliveryMode,
    /// Options of batches, for the mode Batch.
    pub batch: BatchOptions,
    /// Size limits, if there are any.
    pub truncation: Option<Truncation>,
}

/// A backend and its delivery. Cheap to clone.
#[derive(Clone)]
pub(super) struct AuditSink(Arc<SinkState>);

struct SinkState {
    mode: DeliveryMode,
    truncation: Option<Truncation>,
    backend: Arc<Backend>,
    /// In the mode Batch.
    buffer: Option<Buffer>,
    counters: Arc<AuditMetrics>,
}

/// Where events go.
enum Backend {
    Log(AuditLog),
    Webhook(AuditWebhook),
}

impl AuditSink {
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

    fn new(backend: Backend, delivery: Delivery, counters: &Arc<AuditMetrics>) -> AuditSink {
        let Delivery {
            mode,
            batch,
            truncation,
        } = delivery;
        let backend = Arc::new(backend);
        let largest = truncation.map(|truncation| truncation.batch);
        let buffer =
            (mode == DeliveryMode::Batch).then(|| Buffer::new(batch, largest, &backend, counters));
        AuditSink(Arc::new(SinkState {
            mode,
            truncation,
            backend,
            buffer,
            counters: counters.clone(),
        }))
    }

    /// Whether a request must be rejected if RequestReceived cannot be stored here.
    fn is_strict(&self) -> bool {
        self.0.mode == DeliveryMode::BlockingStrict
    }

    /// The serialized event; none if it is too large.
    pub(super) fn serialize(&self, event: StagedEvent) -> Option<Bytes> {
        let text = self.0.backend.serialize(event);
        let Some(largest) = self.0.truncation.map(|truncation| truncation.event) else {
            return Some(text);
        };
        if text.len() <= largest {
            return Some(text);
        }
        let text = match event.event.level >= AuditLevel::Request {
            true => self.0.backend.serialize(StagedEvent {
                truncated: true,
                ..event
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

    /// Delivers an event. Returns whether the request may proceed.
    pub(super) async fn deliver(&self, text: Bytes) -> bool {
        if let Some(buffer) = &self.0.buffer {
            buffer.enqueue(text);
            return true;
        }
        self.deliver_now(text).await || !self.is_strict()
    }

    /// Delivers an event at once. Returns whether it was stored. After a time-out the delivery
    /// continues in the background.
    async fn deliver_now(&self, text: Bytes) -> bool {
        let SinkState {
            backend, counters, ..
        } = &*self.0;
        if let Backend::Log(log) = &**backend {
            return log.write_all(&[text], counters);
        }
        let (backend, counters) = (backend.clone(), counters.clone());
        let sending = tokio::spawn(async move { backend.send(&[text], &counters).await });
        matches!(timeout(PATIENCE, sending).await, Ok(Ok(true)))
    }

    /// Delivers an event without waiting.
    pub(super) fn deliver_in_background(&self, text: Bytes) {
        match (&self.0.buffer, &*self.0.backend) {
            (Some(buffer), _) => buffer.enqueue(text),
            (None, Backend::Log(log)) => {
                log.write_all(&[text], &self.0.counters);
            }
            (None, Backend::Webhook(_)) => {
                let sink = self.clone();
                // Without a runtime the server has ended.
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move { sink.deliver(text).await });
                }
            }
        }
    }

    /// Flushes the buffer.
    pub(super) async fn close(&self) {
        if let Some(buffer) = &self.0.buffer {
            buffer.close().await;
        }
    }
}

impl Backend {
    fn serialize(&self, event: StagedEvent) -> Bytes {
        match self {
            Backend::Log(log) => log.serialize(event),
            Backend::Webhook(_) => event.json(false).into(),
        }
    }

    /// Sends events together. Returns whether that succeeded; otherwise they are counted as errors.
    async fn send(&self, texts: &[Bytes], counters: &AuditMetrics) -> bool {
        match self {
            Backend::Log(log) => log.write_all(texts, counters),
            Backend::Webhook(webhook) => webhook.send(texts, counters).await,
        }
    }

    /// Whether several batches may be sent at once.
    fn is_remote(&self) -> bool {
        matches!(self, Backend::Webhook(_))
    }
}
