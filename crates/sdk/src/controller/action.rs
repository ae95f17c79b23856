//! What follows a reconcile.

use std::time::Duration;

/// What follows a successful reconcile.
///
/// ```
/// use std::time::Duration;
/// use mizzen_sdk::controller::Action;
///
/// assert_eq!(Action::done().delay(), None);
/// let soon = Action::requeue_after(Duration::from_secs(5));
/// assert_eq!(soon.delay(), Some(Duration::from_secs(5)));
/// assert_eq!(Action::after(None), Action::done());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Action(Option<Duration>);

impl Action {
    /// Nothing until an event enqueues the key.
    pub const fn done() -> Action {
        Action(None)
    }

    /// The key is requeued after this time.
    pub const fn requeue_after(delay: Duration) -> Action {
        Action(Some(delay))
    }

    /// Requeues if there is a delay.
    pub const fn after(delay: Option<Duration>) -> Action {
        Action(delay)
    }

    /// After which time the key is requeued.
    pub const fn delay(self) -> Option<Duration> {
        self.0
    }
}
