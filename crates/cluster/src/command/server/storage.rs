//! The etcd of envtest, compaction, and the life of events.

use std::time::Duration;

use clap::Args;

use super::duration;

/// The arguments of storage.
#[derive(Args, Clone)]
pub(crate) struct StorageArgs {
    /// Store objects in the data directory of the etcd of `mizzen envtest` at one of these URLs; other etcd servers are not
    /// supported
    #[arg(long, value_name = "URL,…", value_delimiter = ',', conflicts_with_all = ["data_dir", "in_memory"])]
    pub etcd_servers: Vec<String>,
    /// Whether writes are acknowledged before they are on disk. That etcd says so.
    #[arg(skip)]
    pub unsafe_no_fsync: bool,
    /// Compact revisions older than this interval, at this interval; 0 never compacts. Continue tokens and exact resource
    /// versions are valid for one to two intervals
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m0s")]
    pub etcd_compaction_interval: Duration,
    /// Delete events this long after their last write; 0 keeps them
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h0m0s")]
    pub event_ttl: Duration,
}
