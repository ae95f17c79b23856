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
            // Nothing is compacted at first: the past may be an interval old. Servers that share a store begin to count
            // intervals then; the store has the revision that is compacted next.
            let revision = previous.replace(self.store.revision());
            if self.store.is_shared() || revision.is_some() {
                self.store
                    .compact_history(revision.unwrap_or_default())
                    .await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mizzen_store::{
        BoxFuture, CommitResult, Engine, Revision, Store, WindowLimits, Write, WriteError,
    };
    use tokio::sync::mpsc;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::clock::{CountingRandom, VirtualClock};

    /// An engine that tells when it compacts.
    struct CompactionRecorder {
        is_shared: bool,
        compacted: mpsc::Sender<Instant>,
    }

    impl Engine for CompactionRecorder {
        fn is_shared(&self) -> bool {
            self.is_shared
        }

        fn commit(&self, _writes: Vec<Write>) -> BoxFuture<'_, CommitResult> {
            Box::pin(std::future::ready(Err(WriteError::Closed)))
        }

        fn expire(&self, _now: u64) -> BoxFuture<'_, Result<usize, WriteError>> {
            Box::pin(std::future::ready(Ok(0)))
        }

        fn compact(&self, _revision: Revision) -> BoxFuture<'_, ()> {
            self.compacted.try_send(Instant::now()).unwrap();
            Box::pin(std::future::ready(()))
        }

        fn close(&self) -> BoxFuture<'_, ()> {
            Box::pin(std::future::ready(()))
        }
    }

    /// The seconds after which an engine compacts, if it does every ten.
    async fn rounds(is_shared: bool) -> Vec<u64> {
        let (compacted, mut rounds) = mpsc::channel(8);
        let engine = CompactionRecorder {
            is_shared,
            compacted,
        };
        let store = Store::with_engine(Box::new(engine), WindowLimits::default());
        let (clock, random) = (VirtualClock::starting_at(0), CountingRandom::default());
        let registry = Registry::new(store, Arc::new(clock), Arc::new(random));
        let began = Instant::now();
        let compaction = registry.compact_periodically(Duration::from_secs(10));
        timeout(Duration::from_secs(35), compaction)
            .await
            .unwrap_err();
        let mut seconds = Vec::new();
        while let Ok(at) = rounds.try_recv() {
            seconds.push((at - began).as_secs());
        }
        seconds
    }

    /// Kubernetes: the first round writes the key of the agreement, the second one compacts (storage/etcd3/compact.go).
    #[tokio::test(start_paused = true)]
    async fn servers_that_share_a_store_agree_from_the_first_interval_on() {
        assert_eq!(rounds(true).await, [10, 20, 30]);
        assert_eq!(rounds(false).await, [20, 30]);
    }
}
