//! Leases by which records expire, shared by records of a keyspace that expire at about the same time.
//!
//! Kubernetes: one lease for at most a thousand records within `--lease-reuse-duration-seconds`, with as much on top of the
//! time that was asked for; each resource has leases of its own (storage/etcd3/lease_manager.go). The records of one have
//! the same time to live.

use std::sync::Arc;
use std::time::Duration;

use mizzen_store::WriteError;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::{EtcdMetrics, rejected};
use crate::client::Client;
use crate::messages::LeaseGrantRequest;

/// How many records share a lease.
const MAX_RECORDS: usize = 1000;

/// The leases of a keyspace.
pub(super) struct Leases {
    client: Client,
    reuse: Duration,
    metrics: Arc<EtcdMetrics>,
    last: Mutex<Option<Lease>>,
}

struct Lease {
    id: i64,
    expires: Instant,
    n_records: usize,
}

impl Leases {
    pub(super) fn new(client: Client, reuse: Duration, metrics: Arc<EtcdMetrics>) -> Leases {
        Leases {
            client,
            reuse,
            metrics,
            last: Mutex::default(),
        }
    }

    /// A lease that lasts for `seconds` at least. Those who need a new one wait for each other, but no longer than for a
    /// call.
    pub(super) async fn get(&self, seconds: u64) -> Result<i64, WriteError> {
        let limit = self.client.call_timeout();
        let granted = timeout(limit, self.get_or_grant(seconds)).await;
        granted.unwrap_or_else(|_| {
            Err(WriteError::Remote {
                message: "context deadline exceeded: no lease was granted".into(),
                is_known: true,
            })
        })
    }

    /// Does not share a lease any more that etcd does not know.
    pub(super) async fn forget(&self, id: i64) {
        let mut last = self.last.lock().await;
        if last.as_ref().is_some_and(|lease| lease.id == id) {
            *last = None;
        }
    }

    async fn get_or_grant(&self, seconds: u64) -> Result<i64, WriteError> {
        let mut last = self.last.lock().await;
        let now = Instant::now();
        let needed = now + Duration::from_secs(seconds);
        if let Some(lease) = &mut *last
            && lease.n_records < MAX_RECORDS
            && needed <= lease.expires
            && lease.expires <= needed + self.extra(seconds)
        {
            lease.n_records += 1;
            return Ok(lease.id);
        }
        let granted = seconds + self.extra(seconds).as_secs();
        let request = LeaseGrantRequest {
            ttl: i64::try_from(granted).unwrap_or(i64::MAX),
            id: 0,
        };
        let lease = self.client.lease_grant(request).await.map_err(rejected)?;
        if let Some(last) = &*last {
            self.metrics.lease_ended(last.n_records);
        }
        *last = Some(Lease {
            id: lease.id,
            expires: now + Duration::from_secs(granted),
            n_records: 1,
        });
        Ok(lease.id)
    }

    /// How much longer than asked for a lease may last: at most a twentieth, so that short times stay short.
    fn extra(&self, seconds: u64) -> Duration {
        self.reuse.min(Duration::from_secs(seconds / 20))
    }
}
