//! The buffer of a batching sink: a bounded queue, and a task that sends batches.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};

use super::throttle::BatchThrottle;
use super::{Backend, BatchOptions};
use crate::counters::{AuditMetrics, AuditPlugin};

/// The maximum number of concurrent batches to a webhook. Upstream has no limit.
const MAX_UNDER_WAY: usize = 64;
/// The time limit of the flush at shutdown.
const FLUSH: Duration = Duration::from_secs(30);

/// The queue. Its task starts with the first event.
pub(super) struct Buffer {
    batch: BatchOptions,
    /// The maximum size of a batch in bytes.
    max_batch_bytes: Option<usize>,
    backend: Arc<Backend>,
    counters: Arc<AuditMetrics>,
    state: Mutex<BufferState>,
}

enum BufferState {
    Idle,
    Running(Sender<Bytes>, JoinHandle<()>),
    Closed,
}

impl Buffer {
    pub(super) fn new(
        batch: BatchOptions,
        largest: Option<usize>,
        backend: &Arc<Backend>,
        counters: &Arc<AuditMetrics>,
    ) -> Buffer {
        let (backend, counters) = (backend.clone(), counters.clone());
        Buffer {
            batch,
            max_batch_bytes: largest,
            backend,
            counters,
            state: Mutex::new(BufferState::Idle),
        }
    }

    /// Enqueues an event. It is lost if the queue is full.
    pub(super) fn enqueue(&self, text: Bytes) {
        let mut state = self.state.lock();
        if matches!(*state, BufferState::Idle) {
            *state = self.start();
        }
        let problem = match &*state {
            BufferState::Running(sender, _) => match sender.try_send(text) {
                Ok(()) => return,
                Err(TrySendError::Full(_)) => "audit buffer queue blocked",
                Err(TrySendError::Closed(_)) => "audit backend shut down",
            },
            _ => "audit backend shut down",
        };
        self.counters.record_errors(AuditPlugin::Buffer, 1, problem);
    }

    fn start(&self) -> BufferState {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return BufferState::Closed;
        };
        let (sender, receiver) = channel(self.batch.buffer.max(1));
        let teller = BatchSender {
            batch: self.batch.clone(),
            largest: self.max_batch_bytes.unwrap_or(usize::MAX),
            backend: self.backend.clone(),
            counters: self.counters.clone(),
            under_way: JoinSet::new(),
        };
        BufferState::Running(sender, runtime.spawn(teller.run(receiver)))
    }

    /// Flushes the queue and closes it.
    pub(super) async fn close(&self) {
        let state = {
            let mut state = self.state.lock();
            std::mem::replace(&mut *state, BufferState::Closed)
        };
        let BufferState::Running(sender, task) = state else {
            return;
        };
        drop(sender);
        let stop = task.abort_handle();
        if timeout(FLUSH, task).await.is_err() {
            stop.abort();
            self.counters.record_errors(
                AuditPlugin::Buffer,
                0,
                "what was buffered could not be told before the server stopped",
            );
        }
    }
}

/// Sends batches from the queue.
struct BatchSender {
    batch: BatchOptions,
    largest: usize,
    backend: Arc<Backend>,
    counters: Arc<AuditMetrics>,
    under_way: JoinSet<()>,
}

impl BatchSender {
    async fn run(mut self, mut queue: Receiver<Bytes>) {
        let mut throttle = self.batch.throttle.map(BatchThrottle::new);
        loop {
            let (events, more) = self.collect_batch(&mut queue).await;
            for part in split_batch(events, self.largest) {
                if let Some(throttle) = &mut throttle {
                    throttle.acquire().await;
                }
                self.send(part).await;
            }
            if !more {
                break;
            }
        }
        while self.under_way.join_next().await.is_some() {}
    }

    /// The next batch, and whether more events may come.
    async fn collect_batch(&self, queue: &mut Receiver<Bytes>) -> (Vec<Bytes>, bool) {
        let until = Instant::now() + self.batch.wait;
        let mut events = Vec::new();
        while events.len() < self.batch.size {
            let next = match self.batch.size {
                1 => queue.recv().await,
                _ => match timeout_at(until, queue.recv()).await {
                    Ok(next) => next,
                    Err(_) => break,
                },
            };
            match next {
                Some(event) => events.push(event),
                None => return (events, false),
            }
        }
        (events, true)
    }

    /// Sends a batch; to a webhook without waiting, up to the limit of concurrent batches.
    async fn send(&mut self, events: Vec<Bytes>) {
        if !self.backend.is_remote() {
            self.backend.send(&events, &self.counters).await;
            return;
        }
        while self.under_way.try_join_next().is_some() {}
        if self.under_way.len() >= MAX_UNDER_WAY {
            self.under_way.join_next().await;
        }
        let (backend, counters) = (self.backend.clone(), self.counters.clone());
        self.under_way.spawn(async move {
            backend.send(&events, &counters).await;
        });
    }
}

/// Splits a batch so that no part has more than `largest` bytes, unless it is a single event.
fn split_batch(events: Vec<Bytes>, largest: usize) -> Vec<Vec<Bytes>> {
    let (mut parts, mut size) = (Vec::<Vec<Bytes>>::new(), 0);
    for event in events {
        size += event.len();
        match parts.last_mut() {
            Some(part) if size <= largest => part.push(event),
            _ => {
                size = event.len();
                parts.push(vec![event]);
            }
        }
    }
    parts
}
