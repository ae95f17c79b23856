//! The engine on disk: a sequencer on a thread of its own, which may block without blocking an async runtime.

use parking_lot::Mutex;
use std::thread::{self, JoinHandle};

use tokio::sync::{mpsc, oneshot, watch};

use crate::encryption::{self, MaybeEncryptor};
use crate::engine::{BoxFuture, CommitResult};
use crate::sequencer::{PreparedWrite, Sequencer, SequencerRequest};
use crate::{Engine, Record, Write, WriteError, WriteOperation};

/// Keeps everything in memory, and a journal of it on disk.
pub(crate) struct DiskEngine {
    thread: SequencerThread,
    encryptor: MaybeEncryptor,
}

impl DiskEngine {
    pub(crate) fn start(sequencer: Sequencer, encryptor: MaybeEncryptor) -> DiskEngine {
        DiskEngine {
            thread: SequencerThread::start(sequencer),
            encryptor,
        }
    }

    /// Encrypts records. Done by the task of the caller, so that writers encrypt in parallel.
    fn prepare(&self, write: Write) -> Result<PreparedWrite, WriteError> {
        let encrypted = match (&self.encryptor, &write.change) {
            (Some(encryptor), WriteOperation::Put(draft)) => {
                encryption::encrypt_draft(&**encryptor, write.space.name(), &write.key, draft)?
            }
            _ => None,
        };
        Ok(PreparedWrite { write, encrypted })
    }
}

impl Engine for DiskEngine {
    fn commit(&self, writes: Vec<Write>) -> BoxFuture<'_, CommitResult> {
        Box::pin(async move {
            let prepared = writes.into_iter().map(|write| self.prepare(write));
            let prepared = prepared.collect::<Result<_, _>>()?;
            self.thread
                .request(SequencerRequest::Commit(prepared))
                .await
        })
    }

    fn expire(&self, now: u64) -> BoxFuture<'_, Result<usize, WriteError>> {
        Box::pin(async move {
            let mut n_expired = 0;
            loop {
                let round = self.thread.request(SequencerRequest::Expire(now)).await?;
                n_expired += round.len();
                if round.is_empty() {
                    return Ok(n_expired);
                }
            }
        })
    }

    fn is_stale(&self, space: &str, record: &Record) -> bool {
        self.encryptor
            .as_ref()
            .is_some_and(|encryptor| encryptor.mark(space) != record.mark())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.thread.close())
    }
}

/// How many transactions may wait for the sequencer; more callers wait before it.
const QUEUE: usize = 1024;

/// How often the sequencer yields for more writers before it writes.
const MAX_YIELDS: usize = 4;

/// A request, and where its answer goes.
type Errand = (SequencerRequest, oneshot::Sender<CommitResult>);

/// The sequencer's thread.
struct SequencerThread {
    queue: Mutex<Option<mpsc::Sender<Errand>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    done: watch::Receiver<()>,
}

impl SequencerThread {
    fn start(mut sequencer: Sequencer) -> SequencerThread {
        let (queue, mut errands) = mpsc::channel::<Errand>(QUEUE);
        let (alive, done) = watch::channel(());
        let work = move || {
            let mut waiting = Vec::with_capacity(QUEUE);
            while errands.blocking_recv_many(&mut waiting, QUEUE) > 0 {
                gather(&mut errands, &mut waiting, thread::yield_now);
                // A caller that was dropped does not need the outcome.
                sequencer.run(waiting.drain(..), |to, outcome| drop(to.send(outcome)));
            }
            drop(sequencer);
            drop(alive);
        };
        let thread = thread::Builder::new()
            .name("store".into())
            .spawn(work)
            .expect("a thread can be started");
        SequencerThread {
            queue: Mutex::new(Some(queue)),
            thread: Mutex::new(Some(thread)),
            done,
        }
    }

    async fn request(&self, request: SequencerRequest) -> CommitResult {
        let queue = self.queue.lock().clone().ok_or(WriteError::Closed)?;
        let (to, response) = oneshot::channel();
        queue
            .send((request, to))
            .await
            .map_err(|_| WriteError::Closed)?;
        response.await.unwrap_or(Err(WriteError::Closed))
    }

    async fn close(&self) {
        self.queue.lock().take();
        // Fails as soon as the thread has let go of the journal.
        let _ = self.done.clone().changed().await;
    }
}

/// Yields to let more writers enqueue, as long as they do and a few times at most: on an idle machine this costs nothing, on
/// a busy one more writes share a sync. Each yield may cost a time slice of another thread, which the first writer waits for.
fn gather(
    errands: &mut mpsc::Receiver<Errand>,
    waiting: &mut Vec<Errand>,
    mut yield_now: impl FnMut(),
) {
    for _ in 0..MAX_YIELDS {
        let n_before = waiting.len();
        yield_now();
        while waiting.len() < QUEUE
            && let Ok(errand) = errands.try_recv()
        {
            waiting.push(errand);
        }
        if waiting.len() == n_before || waiting.len() == QUEUE {
            break;
        }
    }
}

impl Drop for SequencerThread {
    fn drop(&mut self) {
        self.queue.lock().take();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errand() -> Errand {
        (SequencerRequest::Expire(0), oneshot::channel().0)
    }

    /// Gathers while each yield lets `n_writers` enqueue. Returns how many were gathered and how often it yielded.
    fn gather_from(n_writers: usize) -> (usize, usize) {
        let (queue, mut errands) = mpsc::channel(2 * QUEUE);
        let (mut waiting, mut n_yields) = (vec![errand()], 0);
        gather(&mut errands, &mut waiting, || {
            n_yields += 1;
            (0..n_writers).for_each(|_| queue.try_send(errand()).unwrap());
        });
        (waiting.len(), n_yields)
    }

    #[test]
    fn a_steady_stream_of_writers_does_not_hold_up_the_first_one() {
        assert_eq!(gather_from(1), (1 + MAX_YIELDS, MAX_YIELDS));
    }

    #[test]
    fn a_single_writer_waits_for_one_yield() {
        assert_eq!(gather_from(0), (1, 1));
    }

    #[test]
    fn no_more_writers_are_gathered_than_fit_in_the_queue() {
        assert_eq!(gather_from(QUEUE), (QUEUE, 1));
    }
}
