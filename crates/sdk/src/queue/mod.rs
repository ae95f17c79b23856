//! The work queue: each key once.
//!
//! Keys are added as often as they change, and handed out one at a time. A key that is added twice
//! before a worker gets it is handed out once; a key that is added while a worker has it is handed
//! out again when that worker is done, never to two workers at the same time.
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
//! Invariant: an added key is handed out at least once after it was added, unless the queue was
//! shut down before. Invariant: no key is with two workers.

mod delayed;
mod limit;
mod metrics;
mod ready;
mod retries;
mod state;

pub use limit::{Exponential, FastSlow, Jittered, Limiter, MaxOf, TokenBucket};
pub use metrics::Metrics;
pub use retries::{next_retry, report_retry, track_retries};

use parking_lot::{Mutex, MutexGuard};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use mizzen_metrics::{Collector, Families};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::{Instant, sleep_until};

use state::State;

/// The options of a queue.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use std::time::Duration;
/// use mizzen_sdk::queue::{Exponential, Options, Queue};
///
/// let limiter = Exponential::new(Duration::from_secs(1), Duration::from_secs(60));
/// let queue: Queue<String> = Queue::with(Options { limiter: Box::new(limiter), ..Options::new("pods") });
/// # drop(queue);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Options<T> {
    /// Its name in metrics.
    pub name: String,
    /// The rate limiter of failed keys.
    pub limiter: Box<dyn Limiter<T>>,
    /// How long a key must wait to equal one whose priority is higher by one. So every key is
    /// handed out eventually.
    pub aging: Duration,
}

impl<T: Eq + Hash + Clone + Send + Sync + 'static> Options<T> {
    /// client-go's defaults: failures wait 5 ms, doubled each time, up to 1,000 s, and all together
    /// at most 10 a second after a burst of 100.
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

/// A work queue. Clones share the queue.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
/// use std::time::Duration;
/// use mizzen_sdk::queue::Queue;
///
/// let queue = Queue::new("pods");
/// queue.add_after("later", Duration::from_secs(60));
/// queue.add("now");
/// queue.add_with_priority("urgent", 10);
/// for expected in ["urgent", "now", "later"] {
///     assert_eq!(queue.get().await, Some(expected));
///     queue.done(&expected);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Queue<T>(Arc<QueueInner<T>>);

struct QueueInner<T> {
    name: String,
    state: Mutex<State<T>>,
    limiter: Box<dyn Limiter<T>>,
    /// Notified when a key can be taken, or when a delayed one becomes the first.
    ready: Notify,
    /// Notified when the queue is shut down and empty.
    drained: Notify,
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Queue<T> {
        Queue(self.0.clone())
    }
}

impl<T: Eq + Hash + Clone + Send + Sync + 'static> Queue<T> {
    /// A queue with the default options.
    pub fn new(name: impl Into<String>) -> Queue<T> {
        Queue::with(Options::new(name))
    }

    /// A queue with options.
    pub fn with(options: Options<T>) -> Queue<T> {
        Queue(Arc::new(QueueInner {
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

    /// Adds a key that is handed out before those of lower priority. A queued key keeps the higher
    /// of its priorities.
    pub fn add_with_priority(&self, key: T, priority: i32) {
        let added = self.lock().add(key, priority, Instant::now());
        if added {
            self.0.ready.notify_one();
        }
    }

    /// Adds a key after `delay`. If it is delayed already, the earlier time counts.
    pub fn add_after(&self, key: T, delay: Duration) {
        let sooner = {
            let mut state = self.lock();
            if state.is_closed() {
                return;
            }
            // Kubernetes: every AddAfter counts, whatever its delay (client-go's
            // delaying_queue.go).
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

    /// Adds a failed key again, when its rate limiter allows it.
    pub fn add_rate_limited(&self, key: T) {
        let delay = self.0.limiter.when(&key);
        report_retry(Instant::now() + delay);
        self.add_after(key, delay);
    }

    /// Resets the failures of a key.
    pub fn forget(&self, key: &T) {
        self.0.limiter.forget(key);
    }

    /// The number of failures of a key.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
    /// use mizzen_sdk::queue::Queue;
    ///
    /// let queue = Queue::new("pods");
    /// queue.add_rate_limited("web");
    /// assert_eq!(queue.num_requeues(&"web"), 1);
    /// queue.forget(&"web");
    /// assert_eq!(queue.num_requeues(&"web"), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn num_requeues(&self, key: &T) -> usize {
        self.0.limiter.failures(key)
    }

    /// The next key; waits for one. `None` after the queue was shut down and emptied. The worker
    /// must call [`done`](Queue::done) afterwards.
    pub async fn get(&self) -> Option<T> {
        loop {
            let woken = self.0.ready.notified();
            let due = match self.try_get() {
                NextKey::Key(key) => return Some(key),
                NextKey::Closed => return None,
                NextKey::Nothing { due } => due,
            };
            match due {
                Some(due) => self.watch_clock(due, woken).await,
                None => woken.await,
            }
        }
    }

    /// Waits until a delayed key is due, or for a notification. One waiting worker does this; when
    /// an earlier key arrives, the notified worker does.
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

    fn try_get(&self) -> NextKey<T> {
        let mut state = self.lock();
        let next = state.take(Instant::now());
        if matches!(next, NextKey::Key(_)) && state.has_more() {
            self.0.ready.notify_one();
        }
        next
    }

    /// Ends the work on a key. If it was added meanwhile, it can be taken again.
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

    /// Accepts no more keys. Workers get the queued ones, including delayed keys that are due, and
    /// then `None`. Delayed keys that are not due are dropped.
    pub fn shut_down(&self) {
        self.lock().close();
        self.0.ready.notify_waiters();
        self.0.drained.notify_waiters();
    }

    /// Accepts no more keys, and waits until workers are done with all queued keys. A key that is
    /// added while it is worked on is handed out once more.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
    /// use mizzen_sdk::queue::Queue;
    ///
    /// let queue = Queue::new("pods");
    /// queue.add("web");
    /// let worker = queue.clone();
    /// tokio::spawn(async move {
    ///     while let Some(key) = worker.get().await {
    ///         worker.done(&key);
    ///     }
    /// });
    /// queue.shut_down_with_drain().await; // "web" was worked on
    /// assert!(queue.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?.block_on(async {
    /// use mizzen_sdk::queue::Queue;
    ///
    /// let queue: Queue<&str> = Queue::new("pods");
    /// assert!(!queue.is_shut_down());
    /// queue.shut_down();
    /// assert!(queue.is_shut_down());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_shut_down(&self) -> bool {
        self.lock().is_closed()
    }

    /// The number of keys that could be taken now, including delayed keys that are due.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether no key could be taken now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The current metrics.
    pub fn metrics(&self) -> Metrics {
        self.lock().measure(Instant::now())
    }

    /// Its name in metrics.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The state, with every due delayed key enqueued: workers, `len`, metrics and shutdown see the
    /// queue as of now, whether or not a worker watches the clock.
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

/// The result of a request for a key.
enum NextKey<T> {
    Key(T),
    /// Nothing yet. `due` is when the worker that watches the clock must wake.
    Nothing {
        due: Option<Instant>,
    },
    Closed,
}

/// The worker that watches the clock for all. If it is dropped, another takes over.
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
