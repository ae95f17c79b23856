//! The thread of the sequencer, which may block on the disk without blocking an async runtime.

use parking_lot::Mutex;
use std::thread::{self, JoinHandle};

use tokio::sync::{mpsc, oneshot, watch};

use crate::WriteError;
use crate::sequencer::{Outcome, Sequencer, SequencerRequest};

/// How many transactions may wait for the sequencer; more callers wait before it.
const QUEUE: usize = 1024;

/// A request, and where its answer goes.
type Errand = (SequencerRequest, oneshot::Sender<Outcome>);

/// The sequencer's thread.
pub(crate) struct SequencerThread {
    queue: Mutex<Option<mpsc::Sender<Errand>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    done: watch::Receiver<()>,
}

impl SequencerThread {
    pub(crate) fn start(mut sequencer: Sequencer) -> SequencerThread {
        let (queue, mut errands) = mpsc::channel::<Errand>(QUEUE);
        let (alive, done) = watch::channel(());
        let work = move || {
            let mut waiting = Vec::with_capacity(QUEUE);
            while errands.blocking_recv_many(&mut waiting, QUEUE) > 0 {
                gather(&mut errands, &mut waiting);
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

    pub(crate) async fn request(&self, request: SequencerRequest) -> Outcome {
        let queue = self.queue.lock().clone().ok_or(WriteError::Closed)?;
        let (to, response) = oneshot::channel();
        queue
            .send((request, to))
            .await
            .map_err(|_| WriteError::Closed)?;
        response.await.unwrap_or(Err(WriteError::Closed))
    }

    pub(crate) async fn close(&self) {
        self.queue.lock().take();
        // Fails as soon as the thread has let go of the journal.
        let _ = self.done.clone().changed().await;
    }
}

/// Yields once to let more writers enqueue: on an idle machine this costs nothing, on a busy one more writes share a sync.
fn gather(errands: &mut mpsc::Receiver<Errand>, waiting: &mut Vec<Errand>) {
    let mut n_before = 0;
    while waiting.len() > n_before && waiting.len() < QUEUE {
        n_before = waiting.len();
        thread::yield_now();
        while waiting.len() < QUEUE
            && let Ok(errand) = errands.try_recv()
        {
            waiting.push(errand);
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
