//! Waits until the cache has a write, so that a controller does not repeat it.
//!
//! The server has acknowledged the write, so its event will arrive.

use std::time::Duration;

use tokio::time::timeout;

use super::shared::Informer;
use crate::cache::{Entry, Version};
use crate::object::Object;

impl Informer<Object> {
    /// Waits until the cache has an object as it was written.
    pub async fn wait_for_write(&self, object: &Object) {
        let version = Version::parse(object.version());
        self.wait_for(&object.key(), version).await;
    }

    /// The same for at most `limit`; whether the cache has it.
    pub async fn has_write_within(&self, limit: Duration, object: &Object) -> bool {
        timeout(limit, self.wait_for_write(object)).await.is_ok()
    }

    /// Waits until the cache has the object's deletionTimestamp, or not the object.
    pub async fn wait_for_deletion(&self, object: &Object) {
        let is_deleted = |known: Option<Entry<Object>>| {
            let known = known.filter(|known| known.uid() == object.uid());
            known.is_none_or(|known| known.object().is_ok_and(|known| known.is_terminating()))
        };
        self.wait_until(&object.key(), is_deleted).await;
    }
}
