//! Compaction: how long the past can be read.
//!
//! Kubernetes: every interval the revision of the interval before is compacted (storage/etcd3/compact.go), so a revision,
//! and a continue token that names it, is good for one to two intervals. Reading a revision does not keep it.

use std::time::Duration;

use crate::Registry;

impl Registry {
    /// Compacts once every `interval`, for ever; with an interval of zero never.
    pub async fn compact_periodically(&self, interval: Duration) {
        if interval.is_zero() {
            return;
        }
        let mut previous = None;
        loop {
            tokio::time::sleep(interval).await;
            // Nothing is compacted at first: the past may be an interval old.
            if let Some(revision) = previous.replace(self.store.revision()) {
                self.store.compact_history(revision).await;
            }
        }
    }
}
