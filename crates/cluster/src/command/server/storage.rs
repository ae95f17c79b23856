//! Where objects are stored: etcd, compaction, and the life of events.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use mizzen_apiserver::clock::WallClock;
use mizzen_etcd::client::ConfigError;
use mizzen_etcd::{EngineOptions, EtcdMetrics};
use mizzen_registry::{Codec, Store};

use super::{EtcdArgs, duration};

/// The arguments of storage.
#[derive(Args, Clone)]
pub(crate) struct StorageArgs {
    #[command(flatten)]
    pub etcd: EtcdArgs,
    /// Whether that is the etcd of `mizzen envtest`: objects are in its data directory.
    #[arg(skip)]
    pub is_envtest: bool,
    /// Whether writes are acknowledged before they are on disk. That etcd says so.
    #[arg(skip)]
    pub unsafe_no_fsync: bool,
    /// Fail the check etcd of /livez, /readyz and /healthz if etcd does not answer within this time; 0 is 2s
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2s")]
    pub etcd_healthcheck_timeout: Duration,
    /// Fail the check etcd-readiness of /readyz if etcd does not answer within this time; 0 is 2s
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "2s")]
    pub etcd_readycheck_timeout: Duration,
    /// Ask etcd for its size, a metric, at this interval; 0 never asks. Has no effect without --etcd-servers
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "30s")]
    pub etcd_db_metric_poll_interval: Duration,
    /// Share a lease of etcd between objects that expire within this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub lease_reuse_duration_seconds: u64,
    /// Give up if etcd cannot be read within this time at start
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1m0s")]
    pub storage_initialization_timeout: Duration,
    /// Compact revisions older than this interval, at this interval; 0 never compacts. Continue tokens and exact resource
    /// versions are valid for one to two intervals
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5m0s")]
    pub etcd_compaction_interval: Duration,
    /// Delete events this long after their last write; 0 keeps them
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "1h0m0s")]
    pub event_ttl: Duration,
}

impl StorageArgs {
    /// Whether objects are stored in an etcd cluster.
    pub(crate) fn uses_etcd(&self) -> bool {
        self.etcd.is_given() && !self.is_envtest
    }

    /// The store in etcd. Must be called within a tokio runtime.
    pub(crate) fn etcd_store(
        &self,
        codec: Arc<dyn Codec>,
        metrics: Arc<EtcdMetrics>,
    ) -> Result<Store, ConfigError> {
        self.etcd.store(EngineOptions {
            metrics,
            lease_reuse: Duration::from_secs(self.lease_reuse_duration_seconds),
            health_timeout: or_default(self.etcd_healthcheck_timeout),
            readiness_timeout: or_default(self.etcd_readycheck_timeout),
            size_interval: self.etcd_db_metric_poll_interval,
            ..EngineOptions::new(codec, Arc::new(WallClock))
        })
    }
}

/// Kubernetes: a time of 0 is the default of both checks (storagebackend/factory/etcd3.go).
fn or_default(timeout: Duration) -> Duration {
    match timeout.is_zero() {
        true => Duration::from_secs(2),
        false => timeout,
    }
}
