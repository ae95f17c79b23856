//! A lease of seats: the request waits or executes while it is held.

use std::sync::Arc;

use tokio::sync::oneshot::Receiver;
use tokio::time::{Instant, timeout_at};

use super::entry::RequestKey;
use super::priority_level::PriorityLevel;
use super::server_concurrency::RequestClass;

/// Resolves when a waiting request is dispatched.
pub(super) type Wait = Receiver<()>;

/// The seats of one request, released on drop.
pub(crate) struct SeatLease {
    level: Arc<PriorityLevel>,
    key: Option<RequestKey>,
    class: RequestClass,
}

impl SeatLease {
    pub(super) fn new(
        level: Arc<PriorityLevel>,
        key: RequestKey,
        class: RequestClass,
    ) -> SeatLease {
        SeatLease {
            level,
            key: Some(key),
            class,
        }
    }

    /// Waits for the dispatch, at most until `until`. Returns whether the request was dispatched.
    pub(super) async fn wait(&mut self, wait: Wait, until: Instant) -> bool {
        let is_dispatched = timeout_at(until, wait).await.is_ok();
        if !is_dispatched
            && self
                .key
                .is_some_and(|key| self.level.time_out(key, self.class))
        {
            self.key = None;
            return false;
        }
        self.class = self.level.start_executing(self.class);
        true
    }
}

impl Drop for SeatLease {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.level.finish(key, self.class);
        }
    }
}
