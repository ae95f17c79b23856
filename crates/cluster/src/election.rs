//! Leader election by a Lease, for components in the server's process and for those that run alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use mizzen_apiserver::clock::SystemRandom;
use mizzen_metrics::Registry;
use mizzen_sdk::election::{Election, HasEnded, Observer, Options, SetupError};
use mizzen_sdk::event::{ApiSink, Broadcaster};
use mizzen_value::clock::uuid;
use tokio::time::timeout;

use crate::log::print_error;

/// The namespace of the leases.
pub(crate) const NAMESPACE: &str = "kube-system";
/// How long to wait for the last events to be sent.
const EVENT_TIMEOUT: Duration = Duration::from_secs(1);

/// The Lease that the leader holds.
#[derive(Debug, Clone)]
pub(crate) struct ComponentLease {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The component, for log lines.
    pub component: &'static str,
    /// The reporting component of its events.
    reporter: &'static str,
    /// How long candidates wait before they take a lease that is not renewed.
    pub lease_duration: Duration,
    /// How long the leader retries to renew it before it stops leading.
    pub renew_deadline: Duration,
    /// The time between attempts to acquire or renew it.
    pub retry_period: Duration,
}

impl ComponentLease {
    /// The lease of the controllers. Kubernetes: the names of leases and reporters are upstream's.
    pub(crate) fn for_controllers() -> ComponentLease {
        ComponentLease::new(
            "kube-controller-manager",
            "controllers",
            "kube-controller-manager",
        )
    }

    /// The lease of the scheduler.
    pub(crate) fn for_scheduler() -> ComponentLease {
        ComponentLease::new("kube-scheduler", "scheduler", "default-scheduler")
    }

    /// The lease of the nodes with this prefix. It is renewed less often than the other leases.
    pub(crate) fn for_nodes(prefix: &str) -> ComponentLease {
        let lease = ComponentLease::new(
            &format!("{prefix}-nodes.mizzen.dev"),
            "nodes",
            "mizzen-node",
        );
        ComponentLease {
            retry_period: Duration::from_secs(5),
            ..lease
        }
    }

    /// A lease with upstream's default times.
    fn new(name: &str, component: &'static str, reporter: &'static str) -> ComponentLease {
        let Options {
            lease_duration,
            renew_deadline,
            retry_period,
            ..
        } = Options::new(name);
        let (namespace, name) = (NAMESPACE.into(), name.into());
        ComponentLease {
            namespace,
            name,
            component,
            reporter,
            lease_duration,
            renew_deadline,
            retry_period,
        }
    }

    /// Rejects times with which no election is safe.
    pub(crate) fn check(&self) -> Result<(), SetupError> {
        self.options("candidate").check()
    }

    fn options(&self, identity: &str) -> Options {
        Options {
            lease_duration: self.lease_duration,
            renew_deadline: self.renew_deadline,
            retry_period: self.retry_period,
            ..Options::new(identity)
        }
    }
}

/// A candidate of elections.
#[derive(Clone)]
pub(crate) struct LeaderCandidate {
    identity: String,
    has_ended: HasEnded,
    /// The registry for the metrics of elections.
    metrics: Registry,
}

impl LeaderCandidate {
    /// A process. Kubernetes: the identity has a UUID, so no two processes share one.
    pub(crate) fn for_process() -> LeaderCandidate {
        LeaderCandidate {
            identity: identity(&uuid(&SystemRandom)),
            has_ended: Arc::new(|_| false),
            metrics: Registry::default(),
        }
    }

    /// The process that serves the data of the cluster with this UID. The data directory is locked, so the previous process
    /// cannot be running; its lease is taken over at once.
    pub(crate) fn for_cluster(uid: &str) -> LeaderCandidate {
        let suffix = format!("_{uid}");
        LeaderCandidate {
            identity: identity(uid),
            has_ended: Arc::new(move |holder| holder.ends_with(&suffix)),
            metrics: Registry::default(),
        }
    }

    /// Registers the metrics of elections in `metrics`.
    pub(crate) fn with_metrics(self, metrics: &Registry) -> LeaderCandidate {
        LeaderCandidate {
            metrics: metrics.clone(),
            ..self
        }
    }

    /// Runs `work` while leading, until the lease is lost, `stop` resolves, or `work` ends; in the last two cases the lease
    /// is released. None if it was lost, `Some(None)` if it was stopped. `on_change` is called
    /// when the election starts and while another process leads.
    pub(crate) async fn lead<T>(
        &self,
        ElectionTerm { client, lease }: ElectionTerm<'_>,
        stop: impl Future<Output = ()> + Clone,
        mut on_change: impl FnMut(ElectionChange),
        work: impl Future<Output = T>,
    ) -> Option<Option<T>> {
        let broadcaster = Broadcaster::new(vec![Box::new(ApiSink::core(client.clone()))]);
        let options = Options {
            has_ended: self.has_ended.clone(),
            recorder: Some(broadcaster.recorder(lease.reporter, "")),
            ..lease.options(&self.identity)
        };
        let election = Election::new(client, &lease.namespace, &lease.name, options)
            .expect("the times of the lease were checked");
        on_change(ElectionChange::Started(election.observe()));
        let leadership = Arc::new(election.observe());
        self.metrics.register(&leadership);
        let is_leading = AtomicBool::new(false);
        // `stop` ends the work, so that the lease is released.
        let work = async {
            is_leading.store(true, Ordering::Relaxed);
            tokio::select! { outcome = work => Some(outcome), () = stop.clone() => None }
        };
        let stopped_on_standby = async {
            stop.clone().await;
            if is_leading.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        let mut observer = election.observe();
        let observe = async {
            loop {
                let state = observer.changed().await;
                match state.leader {
                    _ if state.leading => {}
                    _ if !state.trouble.is_empty() => {
                        on_change(ElectionChange::Standby(Standby::Unknown(state.trouble)))
                    }
                    leader if !leader.is_empty() && leader != self.identity => {
                        on_change(ElectionChange::Standby(Standby::Waiting(leader)))
                    }
                    _ => {}
                }
            }
        };
        let outcome = tokio::select! {
            outcome = election.lead(work) => outcome,
            () = stopped_on_standby => Some(None),
            () = observe => None,
        };
        // Events that are not sent in time are dropped.
        let _ = timeout(EVENT_TIMEOUT, broadcaster.stop()).await;
        outcome
    }
}

/// The client and the lease of an election.
pub(crate) struct ElectionTerm<'a> {
    pub client: Client,
    pub lease: &'a ComponentLease,
}

/// What a candidate is notified of.
pub(crate) enum ElectionChange {
    /// The election has started.
    Started(Observer),
    /// This process does not lead.
    Standby(Standby),
}

/// Why a candidate does not lead.
pub(crate) enum Standby {
    /// Another process leads: its identity.
    Waiting(String),
    /// The lease cannot be read or written, for this reason.
    Unknown(String),
}

impl Standby {
    /// Prints it on standard error.
    pub(crate) fn print(&self, lease: &ComponentLease) {
        let ComponentLease {
            namespace,
            name,
            component,
            ..
        } = lease;
        match self {
            Standby::Waiting(leader) => {
                print_error!(
                    "{component}: waiting for the lease {namespace}/{name}, held by {leader}"
                )
            }
            Standby::Unknown(why) => {
                print_error!(
                    "{component}: waiting for the lease {namespace}/{name}, which is unavailable: {why}"
                )
            }
        }
    }
}

/// The identity of a process: its host and an ID.
fn identity(id: &str) -> String {
    let host = nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .unwrap_or_default();
    format!("{host}_{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_have_different_identities() {
        let (one, other) = (
            LeaderCandidate::for_process(),
            LeaderCandidate::for_process(),
        );
        assert_ne!(one.identity, other.identity);
        assert!(!(one.has_ended)(&other.identity));
    }

    #[test]
    fn the_previous_process_with_the_same_data_has_ended() {
        let now = LeaderCandidate::for_cluster("7d9d3d5e");
        for (holder, has_ended) in [
            ("old-host_7d9d3d5e", true),
            ("old-host_1d9d3d5e", false),
            ("", false),
        ] {
            assert_eq!((now.has_ended)(holder), has_ended, "{holder}");
        }
    }
}
