//! The flags of leader election.

use std::time::Duration;

use clap::{ArgAction, Args};
use mizzen_value::{Value, value};

use super::lead::LeadError;
use super::server::duration;
use crate::election::ComponentLease;

/// The arguments of leader election.
#[derive(Args)]
pub(super) struct LeaderElectionArgs {
    /// Run only while holding the lease, so that one of several replicas runs; false runs without a lease
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = true, action = ArgAction::Set, conflicts_with = "no_leader_elect")]
    leader_elect: bool,
    /// The same as --leader-elect=false
    #[arg(long)]
    no_leader_elect: bool,
    /// Take over a lease that was not renewed for this long
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    leader_elect_lease_duration: Duration,
    /// Stop leading if the lease cannot be renewed for this long
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    leader_elect_renew_deadline: Duration,
    /// Wait this long between attempts to acquire or renew the lease
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    leader_elect_retry_period: Duration,
    /// Use this kind of lock
    #[arg(long, value_name = "KIND", default_value = "leases", value_parser = ["leases"], hide = true)]
    leader_elect_resource_lock: String,
    /// Use the lease of this name [default: kube-controller-manager or kube-scheduler]
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_name: Option<String>,
    /// Use the lease in this namespace
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    leader_elect_resource_namespace: String,
}

impl LeaderElectionArgs {
    /// The lease: `lease` with the values of flags; none without leader election.
    pub(super) fn lease(
        &self,
        mut lease: ComponentLease,
    ) -> Result<Option<ComponentLease>, LeadError> {
        if !self.leader_elect || self.no_leader_elect {
            return Ok(None);
        }
        lease
            .namespace
            .clone_from(&self.leader_elect_resource_namespace);
        if let Some(name) = &self.leader_elect_resource_name {
            lease.name.clone_from(name);
        }
        lease.lease_duration = self.leader_elect_lease_duration;
        lease.renew_deadline = self.leader_elect_renew_deadline;
        lease.retry_period = self.leader_elect_retry_period;
        let invalid = |why: String| LeadError::Configuration {
            file: "--leader-elect-lease-duration".into(),
            why,
        };
        lease.check().map_err(|error| invalid(error.to_string()))?;
        Ok(Some(lease))
    }

    /// The LeaderElectionConfiguration.
    pub(super) fn configuration(&self, lease: Option<&ComponentLease>) -> Value {
        let Some(ComponentLease {
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
