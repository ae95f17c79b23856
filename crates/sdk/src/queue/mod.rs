//! What is to be done next, each thing once: a work queue.
//!
//! Keys go in as often as anything happens to them, and come out one at a time. A key that is added twice
//! before somebody takes it comes out once; a key that is added while somebody works on it comes out again
//! when he is done, never to two workers at the same time.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! use mizzen_sdk::queue::Queue;
//!
//! let queue = Queue::new("pods");
//! queue.add("default/web");
//! queue.add("default/web");
//! assert_eq!(queue.get().await, Some("default/web"));
//! queue.add_rate_limited("default/web"); // it failed: once more, later
//! queue.done(&"default/web");
//! assert_eq!(queue.get().await, Some("default/web"));
//! queue.forget(&"default/web"); // it worked: forget that it ever failed
//! queue.done(&"default/web");
//! queue.shut_down();
//! assert_eq!(queue.get().await, None);
//! # });
//! ```
//!
//! Invariant: what was added is handed out at least once after it was added, unless the queue was shut down
//! before. Invariant: no key is with two workers.

mod delayed;
mod limit;
mod metrics;
mod ready;
mod state;

pub use limit::{Exponential, FastSlow, Jittered, Limiter, MaxOf, TokenBucket};
pub use metrics::Metrics;

use parking_lot::{Mutex, MutexGuard};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use mizzen_metrics::{Collector, Families};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep_until};

use state::State;

/// How a queue is set up.
pub struct Options<T> {
    /// Its name in metrics.
    pub name: String,
    /// How long a key that failed waits.
    pub limiter: Box<dyn Limiter<T>>,
    /// How long a key must wait until it counts as much as one whose priority is higher by one. Thus
    /// whatever waits long enough is next, and nothing starves.
    pub aging: Duration,
}

impl<T: Eq + Hash + Clone + Send + Sync + 'static> Options<T> {
    /// What most controllers want: failures wait 5 ms, twice as long each time, up to 1,000 s, and all of
    /// them together no more than 10 a second after the first 100.
    pub fn new(name: impl Into<String>) -> Options<T> {
        let limiters: Vec<Box<dyn Limiter<T>>> = vec![
            Box::new(Exponential::new(
                Duration::from_millis(5),
                Duration::from_secs(1000),
            )),
            Box::new(TokenBucket::new(10.0, 100)),
        ];
        Options {
            name: name.into(),
            limiter: Box::new(MaxOf(limiters)),
            aging: Duration::from_secs(1),
        }
    }
}

/// A queue of keys. Clones are the same queue.
pub struct Queue<T>(Arc<Inner<T>>);

struct Inner<T> {
    name: String,
    state: Mutex<State<T>>,
    limiter: Box<dyn Limiter<T>>,
    /// Told when a key can be taken, or when a delayed one is due before the others.
    ready: Notify,
    /// Told when nothing is left to be done after the queue was shut down.
    drained: Notify,
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Queue<T> {
        Queue(self.0.clone())
    }
}

impl<T: Eq + Hash + Clone + Send + Sync + 'static> Queue<T> {
    /// A queue as most controllers want it.
    pub fn new(name: impl Into<String>) -> Queue<T> {
        Queue::with(Options::new(name))
    }

    /// A queue of one's own making.
    pub fn with(options: Options<T>) -> Queue<T> {
        Queue(Arc::new(Inner {
            name: options.name.clone(),
            state: Mutex::new(State::new(options.name, options.aging)),
            limiter: options.limiter,
            ready: Notify::new(),
            drained: Notify::new(),
        }))
    }

    /// Adds a key.
    pub fn add(&self, key: T) {
        self.add_with_priority(key, 0);
    }

    /// Adds a key that is handed out before those of lower priority. A key that waits already keeps the higher
    /// of its priorities.
    pub fn add_with_priority(&self, key: T, priority: i32) {
        let added = self.lock().add(key, priority, Instant::now());
        if added {
            self.0.ready.notify_one();
        }
    }

    /// Adds a key after `delay`. One that waits already comes at the earlier of both times.
    pub fn add_after(&self, key: T, delay: Duration) {
        let sooner = {
            let mut state = self.lock();
            if state.is_closed() {
                return;
            }
            // Kubernetes: every AddAfter counts, whatever its delay (client-go's delaying_queue.go).
            state.metrics.retries += 1;
            let now = Instant::now();
            if delay.is_zero() {
                state.add(key, 0, now)
            } else {
                state.delay(key, now + delay)
            }
        };
        if sooner {
            self.0.ready.notify_one();
        }
    }

    /// Adds a key again that failed, when its limiter lets it.
    pub fn add_rate_limited(&self, key: T) {
        let delay = self.0.limiter.when(&key);
        self.add_after(key, delay);
    }

    /// Forgets that a key ever failed.
    pub fn forget(&self, key: &T) {
        self.0.limiter.forget(key);
    }

    /// How often a key has failed.
    pub fn num_requeues(&self, key: &T) -> usize {
        self.0.limiter.failures(key)
    }

    /// The next key to be worked on; waits for one. `None` after the queue was shut down and what was in it is
    /// handed out. Whoever got a key says [`done`](Queue::done) afterwards.
    pub async fn get(&self) -> Option<T> {
        loop {
            let woken = self.0.ready.notified();
            let due = match self.try_get() {
                Next::Key(key) => return Some(key),
                Next::Closed => return None,
                Next::Nothing { due } => due,
            };
            match due {
                Some(due) => self.watch_clock(due, woken).await,
                None => woken.await,
            }
        }
    }

    /// Waits until a delayed key is due or something else happens. One of those who wait does this; when an earlier key
    /// comes, whoever is woken does.
    async fn watch_clock(&self, due: Instant, woken: Notified<'_>) {
        let mut watch = ClockWatch {
            queue: self,
            due,
            is_given_up: true,
        };
        tokio::select! {
            () = woken => {}
            () = sleep_until(due) => {}
        }
        watch.is_given_up = false;
    }

    fn try_get(&self) -> Next<T> {
        let mut state = self.lock();
        let next = state.take(Instant::now());
        if matches!(next, Next::Key(_)) && state.has_more() {
            self.0.ready.notify_one();
        }
        next
    }

    /// Says that the work on a key is over. If it was added meanwhile it can be taken again.
    pub fn done(&self, key: &T) {
        let mut state = self.lock();
        let again = state.done(key, Instant::now());
        let closed = state.is_closed();
        drop(state);
        if again {
            self.0.ready.notify_one();
        }
        if closed {
            self.0.ready.notify_waiters();
            self.0.drained.notify_waiters();
        }
    }

    /// Takes no more keys. Workers get what is left, delayed keys that are due included, and then `None`. Delayed
    /// keys that are not due yet are dropped.
    pub fn shut_down(&self) {
        self.lock().close();
        self.0.ready.notify_waiters();
        self.0.drained.notify_waiters();
    }

    /// Takes no more keys, and waits until workers are done with those that they have and those that are left.
    /// A key that is added while it is worked on is handed out once more.
    pub async fn shut_down_with_drain(&self) {
        self.shut_down();
        loop {
            let drained = self.0.drained.notified();
            if self.lock().is_drained() {
                return;
            }
            drained.await;
        }
    }

    /// Whether the queue was shut down.
    pub fn is_shut_down(&self) -> bool {
        self.lock().is_closed()
    }

    /// How many keys could be taken now, delayed keys that are due included.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no key could be taken now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What happened so far.
    pub fn metrics(&self) -> Metrics {
        self.lock().measure(Instant::now())
    }

    /// Its name in metrics.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The state, in which every delayed key that is due is enqueued: workers, `len`, metrics and shutdown all see
    /// the queue as of now, whether or not a worker watches the clock.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        let mut state = self.0.state.lock();
        state.enqueue_due(Instant::now());
        state
    }
}

impl<T: Eq + Hash + Clone + Send + Sync + 'static> Collector for Queue<T> {
    fn collect(&self, families: &mut Families) {
        self.metrics().collect(families);
    }
}

/// What a worker gets who asks.
enum Next<T> {
    Key(T),
    /// Nothing yet. `due` is when a delayed key is, for the one who watches the clock.
    Nothing {
        due: Option<Instant>,
    },
    Closed,
}

/// A worker who watches the clock for all. If he gives up, another takes over.
struct ClockWatch<'a, T: Eq + Hash + Clone + Send + Sync + 'static> {
    queue: &'a Queue<T>,
    due: Instant,
    is_given_up: bool,
}

impl<T: Eq + Hash + Clone + Send + Sync + 'static> Drop for ClockWatch<'_, T> {
    fn drop(&mut self) {
        self.queue.lock().end_watch(self.due);
        if self.is_given_up {
            self.queue.0.ready.notify_one();
        }
    }
}
