//! Which of several replicas works: the flags of leader election.

use std::time::Duration;

use clap::{ArgAction, Args};
use mizzen_value::{Value, value};

use super::lead::LeadError;
use super::server::duration;
use crate::election::Lease;

/// The arguments of leader election.
#[derive(Args)]
pub(super) struct LeaderElectionArgs {
    /// Work while holding the lease, so that of several one works; --leader-elect=false works without it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = true, action = ArgAction::Set, conflicts_with = "no_leader_elect")]
    leader_elect: bool,
    /// The same as --leader-elect=false
    #[arg(long)]
    no_leader_elect: bool,
    /// How long candidates wait before they take over a lease that is not renewed
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    leader_elect_lease_duration: Duration,
    /// How long the leader tries to renew its lease before it stops
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    leader_elect_renew_deadline: Duration,
    /// How long to wait between tries to take or renew the lease
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    leader_elect_retry_period: Duration,
    /// The kind of the lock
    #[arg(long, value_name = "KIND", default_value = "leases", value_parser = ["leases"], hide = true)]
    leader_elect_resource_lock: String,
    /// The name of the lease [default: kube-controller-manager or kube-scheduler]
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_name: Option<String>,
    /// The namespace of the lease
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    leader_elect_resource_namespace: String,
}

impl LeaderElectionArgs {
    /// The lease to hold, which is `usual` where nothing else is said; none to work without one.
    pub(super) fn lease(&self, usual: Lease) -> Result<Option<Lease>, LeadError> {
        if !self.leader_elect || self.no_leader_elect {
            return Ok(None);
        }
        let mut lease = usual;
        lease
            .namespace
            .clone_from(&self.leader_elect_resource_namespace);
        if let Some(name) = &self.leader_elect_resource_name {
            lease.name.clone_from(name);
        }
        lease.lease_duration = self.leader_elect_lease_duration;
        lease.renew_deadline = self.leader_elect_renew_deadline;
        lease.retry_period = self.leader_elect_retry_period;
        let refuse = |why: String| LeadError::Configuration {
            file: "--leader-elect-lease-duration".into(),
            why,
        };
        lease.check().map_err(|error| refuse(error.to_string()))?;
        Ok(Some(lease))
    }

    /// The settings, as a LeaderElectionConfiguration has them.
    pub(super) fn configuration(&self, lease: Option<&Lease>) -> Value {
        let Some(Lease {
            namespace,
            name,
            lease_duration,
            renew_deadline,
            retry_period,
            ..
        }) = lease
        else {
            return value!({"leaderElect": false});
        };
        let seconds = |duration: &Duration| format!("{}s", duration.as_secs_f64());
        value!({
            "leaderElect": true,
            "leaseDuration": (seconds(lease_duration)),
            "renewDeadline": (seconds(renew_deadline)),
            "retryPeriod": (seconds(retry_period)),
            "resourceLock": "leases",
            "resourceName": (name.clone()),
            "resourceNamespace": (namespace.clone()),
        })
    }
}
