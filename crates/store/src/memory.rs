//! The engine in memory: a sequencer without a journal, called directly, so that a test on one thread is deterministic.

use std::future;

use parking_lot::Mutex;

use crate::engine::{BoxFuture, CommitResult};
use crate::sequencer::{PreparedWrite, Sequencer, SequencerRequest};
use crate::{Engine, Write, WriteError};

/// Keeps everything in memory. The sequencer is gone once the store is closed.
pub(crate) struct MemoryEngine(Mutex<Option<Sequencer>>);

impl MemoryEngine {
    pub(crate) fn new(sequencer: Sequencer) -> MemoryEngine {
        MemoryEngine(Mutex::new(Some(sequencer)))
    }

    fn request(&self, request: SequencerRequest) -> CommitResult {
        let mut result = Err(WriteError::Closed);
        if let Some(sequencer) = &mut *self.0.lock() {
            sequencer.run([(request, ())], |(), outcome| result = outcome);
        }
        result
    }
}

impl Engine for MemoryEngine {
    fn commit(&self, writes: Vec<Write>) -> BoxFuture<'_, CommitResult> {
        let plain = |write| PreparedWrite {
            write,
            encrypted: None,
        };
        let prepared = writes.into_iter().map(plain).collect();
        Box::pin(future::ready(
            self.request(SequencerRequest::Commit(prepared)),
        ))
    }

    fn expire(&self, now: u64) -> BoxFuture<'_, Result<usize, WriteError>> {
        let mut n_expired = 0;
        loop {
            match self.request(SequencerRequest::Expire(now)) {
                Ok(round) if round.is_empty() => {
                    return Box::pin(future::ready(Ok(n_expired)));
                }
                Ok(round) => n_expired += round.len(),
                Err(error) => return Box::pin(future::ready(Err(error))),
            }
        }
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        drop(self.0.lock().take());
        Box::pin(future::ready(()))
    }
}
