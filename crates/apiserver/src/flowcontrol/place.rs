//! A place in the server: while it is held, a request waits or is answered.

use std::sync::Arc;

use tokio::sync::oneshot::Receiver;
use tokio::time::{Instant, timeout_at};

use super::entry::Key;
use super::house::Standing;
use super::room::Room;

/// Resolves when a request that waits may go.
pub(super) type Wait = Receiver<()>;

/// A place of one request. It is given back when this is dropped, wherever the request is by then.
pub(crate) struct Place {
    room: Arc<Room>,
    key: Option<Key>,
    standing: Standing,
}

impl Place {
    pub(super) fn new(room: Arc<Room>, key: Key, standing: Standing) -> Place {
        Place {
            room,
            key: Some(key),
            standing,
        }
    }

    /// Waits to be let in, at most until `until`. Returns whether it was.
    pub(super) async fn wait(&mut self, wait: Wait, until: Instant) -> bool {
        let is_told = timeout_at(until, wait).await.is_ok();
        if !is_told
            && self
                .key
                .is_some_and(|key| self.room.time_out(key, self.standing))
        {
            self.key = None;
            return false;
        }
        self.standing = self.room.go(self.standing);
        true
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.room.leave(key, self.standing);
        }
    }
}
