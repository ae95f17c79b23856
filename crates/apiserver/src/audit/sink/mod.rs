//! Where do events go? To a file, to another server; at once, or when there are enough of them.

mod buffer;
mod log;
#[cfg(test)]
mod tests;
mod throttle;
mod webhook;

pub use log::{Format, LogFile};
pub use webhook::WebhookSetup;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mizzen_registry::Registry;
use tokio::time::timeout;

use super::counters::{Counters, Place};
use super::event::Told;
use super::policy::Level;
use buffer::Buffer;
use log::Log;
use webhook::Webhook;

/// How long a request waits for a server that is told of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// When events are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Later, some together; the request does not wait.
    Batch,
    /// At once; the request waits, and goes on if it cannot be done.
    Blocking,
    /// At once; the request waits, and is refused if it cannot be said that it has come.
    BlockingStrict,
}

/// How events are gathered before they are told.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
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
    pub mode: Mode,
    /// How they are gathered, if they are.
    pub batch: Batch,
    /// How large they may be, if that is limited.
    pub truncation: Option<Truncation>,
}

/// One who is told. Cheap to clone.
#[derive(Clone)]
pub(super) struct Sink(Arc<Inner>);

struct Inner {
    mode: Mode,
    truncation: Option<Truncation>,
    end: Arc<End>,
    /// There if events are gathered.
    buffer: Option<Buffer>,
    counters: Arc<Counters>,
}

/// Where events end.
enum End {
    Log(Log),
    Webhook(Webhook),
}

impl Sink {
    /// A file.
    pub(super) fn log(file: LogFile, registry: &Registry, counters: &Arc<Counters>) -> Sink {
        let delivery = file.delivery.clone();
        Sink::new(End::Log(Log::new(file, registry)), delivery, counters)
    }

    /// Another server.
    pub(super) fn webhook(
        setup: WebhookSetup,
        registry: &Registry,
        counters: &Arc<Counters>,
    ) -> Sink {
        let delivery = setup.delivery.clone();
        Sink::new(
            End::Webhook(Webhook::new(setup, registry)),
            delivery,
            counters,
        )
    }

    fn new(end: End, delivery: Delivery, counters: &Arc<Counters>) -> Sink {
        let Delivery {
            mode,
            batch,
            truncation,
        } = delivery;
        let end = Arc::new(end);
        let largest = truncation.map(|truncation| truncation.batch);
        let buffer = (mode == Mode::Batch).then(|| Buffer::new(batch, largest, &end, counters));
        Sink(Arc::new(Inner {
            mode,
            truncation,
            end,
            buffer,
            counters: counters.clone(),
        }))
    }

    /// Whether a request must not go on if it cannot be said here that it has come.
    fn is_strict(&self) -> bool {
        self.0.mode == Mode::BlockingStrict
    }

    /// An event as it is told here; none if it is too large.
    pub(super) fn text(&self, told: Told) -> Option<Bytes> {
        let text = self.0.end.text(told);
        let Some(largest) = self.0.truncation.map(|truncation| truncation.event) else {
            return Some(text);
        };
        if text.len() <= largest {
            return Some(text);
        }
        let text = match told.event.level >= Level::Request {
            true => self.0.end.text(Told {
                truncated: true,
                ..told
            }),
            false => text,
        };
        if text.len() > largest {
            self.0.counters.lost(
                Place::Truncation,
                1,
                "event is too large even after truncating",
            );
            return None;
        }
        Some(text)
    }

    /// Tells an event; whether a request may go on.
    pub(super) async fn take(&self, text: Bytes) -> bool {
        if let Some(buffer) = &self.0.buffer {
            buffer.offer(text);
            return true;
        }
        self.tell(text).await || !self.is_strict()
    }

    /// Tells an event at once; whether that worked. What takes too long goes on without who waits for it.
    async fn tell(&self, text: Bytes) -> bool {
        let Inner { end, counters, .. } = &*self.0;
        if let End::Log(log) = &**end {
            return log.tell(&[text], counters);
        }
        let (end, counters) = (end.clone(), counters.clone());
        let sending = tokio::spawn(async move { end.tell(&[text], &counters).await });
        matches!(timeout(PATIENCE, sending).await, Ok(Ok(true)))
    }

    /// Tells an event for somebody who cannot wait.
    pub(super) fn take_soon(&self, text: Bytes) {
        match (&self.0.buffer, &*self.0.end) {
            (Some(buffer), _) => buffer.offer(text),
            (None, End::Log(log)) => {
                log.tell(&[text], &self.0.counters);
            }
            (None, End::Webhook(_)) => {
                let sink = self.clone();
                // Whoever leaves while the runtime ends has nobody to tell it to.
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move { sink.take(text).await });
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

impl End {
    fn text(&self, told: Told) -> Bytes {
        match self {
            End::Log(log) => log.text(told),
            End::Webhook(_) => told.json(false).into(),
        }
    }

    /// Tells events together; whether that worked. If not, they are counted as lost.
    async fn tell(&self, texts: &[Bytes], counters: &Counters) -> bool {
        match self {
            End::Log(log) => log.tell(texts, counters),
            End::Webhook(webhook) => webhook.tell(texts, counters).await,
        }
    }

    /// Whether several can be under way at once.
    fn is_slow(&self) -> bool {
        matches!(self, End::Webhook(_))
    }
}
