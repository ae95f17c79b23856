//! The retries of a runtime, for simulations.
//!
//! A simulation on virtual time has come to rest when nothing happens and nothing will be retried
//! soon. Queues are made anywhere, also in programs that the simulation does not know, so that they
//! report retries to the thread that they run on. Virtual times of two runtimes cannot be compared:
//! a thread has the retries of the runtime that asked last.

use std::cell::RefCell;
use std::collections::BTreeSet;

use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

/// When the retries of a runtime are due.
struct Retries {
    runtime: Id,
    due: BTreeSet<Instant>,
}

thread_local! {
    static RETRIES: RefCell<Option<Retries>> = const { RefCell::new(None) };
}

/// The identity of the runtime of the current task.
fn current() -> Option<Id> {
    Handle::try_current().ok().map(|handle| handle.id())
}

/// Tracks the retries of this thread and runtime from now on, for [`next_retry`]: of a
/// single-threaded runtime these are all. Does nothing outside of a runtime.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use mizzen_sdk::queue::{Queue, next_retry, track_retries};
/// use tokio::time::{Instant, sleep_until};
///
/// track_retries();
/// let queue = Queue::new("pods");
/// queue.add_rate_limited("default/web");
/// let due = next_retry().unwrap();
/// assert!(due > Instant::now());
/// sleep_until(due).await;
/// assert_eq!(next_retry(), None);
/// # });
/// ```
pub fn track_retries() {
    let Some(runtime) = current() else { return };
    RETRIES.with_borrow_mut(|retries| {
        if retries
            .as_ref()
            .is_none_or(|known| known.runtime != runtime)
        {
            let due = BTreeSet::new();
            *retries = Some(Retries { runtime, due });
        }
    });
}

/// When the next retry is due; none if there is none, or they are not [tracked](track_retries). Its
/// key may be handed out before, for another reason.
///
/// ```
/// assert_eq!(mizzen_sdk::queue::next_retry(), None);
/// ```
pub fn next_retry() -> Option<Instant> {
    let (runtime, now) = (current()?, Instant::now());
    RETRIES.with_borrow(|retries| {
        let retries = retries.as_ref().filter(|known| known.runtime == runtime)?;
        retries.due.iter().find(|due| **due > now).copied()
    })
}

/// Reports a retry. Work queues report theirs; this is for a component with a queue of its own.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// use std::time::Duration;
/// use mizzen_sdk::queue::{next_retry, report_retry, track_retries};
/// use tokio::time::Instant;
///
/// track_retries();
/// let due = Instant::now() + Duration::from_secs(3);
/// report_retry(due);
/// assert_eq!(next_retry(), Some(due));
/// # });
/// ```
pub fn report_retry(due: Instant) {
    RETRIES.with_borrow_mut(|retries| {
        let Some(retries) = retries else { return };
        if current() == Some(retries.runtime) {
            let now = Instant::now();
            while retries.due.first().is_some_and(|past| *past <= now) {
                retries.due.pop_first();
            }
            retries.due.insert(due);
        }
    });
}
