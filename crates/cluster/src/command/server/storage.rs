//! Compaction, and the life of events.

use std::time::Duration;

use clap::Args;

use super::duration;

/// The arguments of storage.
#[derive(Args, Clone)]
pub(crate) struct StorageArgs {
    /// Compact revisions older than this interval, at this interval; 0 never compacts. Continue tokens and exact resource
    /// versions are valid for one to two intervals
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m0s")]
    pub etcd_compaction_interval: Duration,
    /// Delete events this long after their last write; 0 keeps them
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h0m0s")]
    pub event_ttl: Duration,
}
