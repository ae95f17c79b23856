//! A place in the server: while it is held, a request waits or is answered.

use std::sync::Arc;

use tokio::sync::oneshot::Receiver;
use tokio::time::{Instant, timeout_at};

use super::entry::RequestKey;
use super::priority_level::PriorityLevel;
use super::server_concurrency::RequestClass;

/// Resolves when a request that waits may go.
pub(super) type Wait = Receiver<()>;

/// A place of one request. It is given back when this is dropped, wherever the request is by then.
pub(crate) struct SeatLease {
    level: Arc<PriorityLevel>,
    key: Option<RequestKey>,
    class: RequestClass,
}

impl SeatLease {
    pub(super) fn new(
        room: Arc<PriorityLevel>,
        key: RequestKey,
        standing: RequestClass,
    ) -> SeatLease {
        SeatLease {
            level: room,
            key: Some(key),
            class: standing,
        }
    }

    /// Waits to be let in, at most until `until`. Returns whether it was.
    pub(super) async fn wait(&mut self, wait: Wait, until: Instant) -> bool {
        let is_told = timeout_at(until, wait).await.is_ok();
        if !is_told
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
