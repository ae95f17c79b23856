//! How long are superseded revisions and events kept?

use std::time::Duration;

use clap::Args;

use super::authentication::duration;

/// The arguments of storage.
#[derive(Args, Clone)]
pub(crate) struct StorageArgs {
    /// Compact every so often what was superseded one interval before; 0 never compacts. Continue tokens and exact
    /// resource versions are valid for one to two intervals
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m0s")]
    pub etcd_compaction_interval: Duration,
    /// Delete events this long after they were last written; 0 retains them
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h0m0s")]
    pub event_ttl: Duration,
}
