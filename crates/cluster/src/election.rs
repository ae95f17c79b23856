//! Of several that could work one does: whoever holds the lease. For those beside the server and those that run alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::Client;
use mizzen_apiserver::seams::SystemRandom;
use mizzen_metrics::Registry;
use mizzen_sdk::election::{Election, HasEnded, Observer, Options, SetupError};
use mizzen_sdk::event::{ApiSink, Broadcaster};
use mizzen_value::clock::uuid;
use tokio::time::timeout;

use crate::log::say;

/// Where the leases are.
pub(crate) const NAMESPACE: &str = "kube-system";
/// How long the last events may take to be told.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is held by whoever works.
#[derive(Debug, Clone)]
pub(crate) struct Lease {
    /// The namespace that it is in.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who works under it, for people.
    pub what: &'static str,
    /// Who tells events of it.
    reporter: &'static str,
    /// How long candidates leave a lease alone that is not renewed.
    pub lease_duration: Duration,
    /// How long the leader tries to renew it before it stops.
    pub renew_deadline: Duration,
    /// How long to wait between tries.
    pub retry_period: Duration,
}

impl Lease {
    /// That of the loops. Kubernetes: the names of leases and reporters are upstream's.
    pub(crate) fn of_loops() -> Lease {
        Lease::new(
            "kube-controller-manager",
            "the loops",
            "kube-controller-manager",
        )
    }

    /// That of the scheduler.
    pub(crate) fn of_scheduler() -> Lease {
        Lease::new("kube-scheduler", "the scheduler", "default-scheduler")
    }

    /// That of the nodes whose names begin alike. They are renewed more seldom than others, as nodes' own leases are.
    pub(crate) fn of_nodes(prefix: &str) -> Lease {
        let lease = Lease::new(
            &format!("{prefix}-nodes.mizzen.dev"),
            "the nodes",
            "mizzen-node",
        );
        Lease {
            retry_period: Duration::from_secs(5),
            ..lease
        }
    }

    /// Upstream's times.
    fn new(name: &str, what: &'static str, reporter: &'static str) -> Lease {
        let Options {
            lease_duration,
            renew_deadline,
            retry_period,
            ..
        } = Options::new(name);
        let (namespace, name) = (NAMESPACE.into(), name.into());
        Lease {
            namespace,
            name,
            what,
            reporter,
            lease_duration,
            renew_deadline,
            retry_period,
        }
    }

    /// Whether an election can be held with these times.
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

/// Somebody who would work.
#[derive(Clone)]
pub(crate) struct Candidate {
    identity: String,
    has_ended: HasEnded,
    /// Where elections show who leads.
    metrics: Registry,
}

impl Candidate {
    /// This process. Kubernetes: no two processes have the same identity, whatever their host and number are.
    pub(crate) fn of_process() -> Candidate {
        Candidate {
            identity: identity(&uuid(&SystemRandom)),
            has_ended: Arc::new(|_| false),
            metrics: Registry::default(),
        }
    }

    /// The process that serves the data of this cluster. No two do so at once, so whoever did before has ended.
    pub(crate) fn of_cluster(uid: &str) -> Candidate {
        let suffix = format!("_{uid}");
        Candidate {
            identity: identity(uid),
            has_ended: Arc::new(move |holder| holder.ends_with(&suffix)),
            metrics: Registry::default(),
        }
    }

    /// The same; its elections show there who leads.
    pub(crate) fn measured(self, metrics: &Registry) -> Candidate {
        Candidate {
            metrics: metrics.clone(),
            ..self
        }
    }

    /// Works as soon as nobody else does, until the lease is lost, or until told to `stop` or done: then the lease is
    /// given back. None if it was lost. `tell` hears how it stands, and `observe` gets what shows it.
    pub(crate) async fn lead<T>(
        &self,
        client: Client,
        lease: &Lease,
        stop: impl Future<Output = ()> + Clone,
        tell: impl FnMut(Standing),
        observe: impl FnOnce(Observer),
        work: impl Future<Output = T>,
    ) -> Option<Option<T>> {
        let broadcaster = Broadcaster::new(vec![Box::new(ApiSink::core(client.clone()))]);
        let options = Options {
            has_ended: self.has_ended.clone(),
            recorder: Some(broadcaster.recorder(lease.reporter, "")),
            ..lease.options(&self.identity)
        };
        let election = Election::new(client, &lease.namespace, &lease.name, options)
            .expect("the times of a lease are checked when it is made");
        observe(election.observe());
        let shown = Arc::new(election.observe());
        self.metrics.register(&shown);
        let is_leading = AtomicBool::new(false);
        // Being told to stop ends the work, so that the lease is given back.
        let work = async {
            is_leading.store(true, Ordering::Relaxed);
            tokio::select! { outcome = work => Some(outcome), () = stop.clone() => None }
        };
        let told_to_stop_waiting = async {
            stop.clone().await;
            if is_leading.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
        };
        let told = watch(election.observe(), self.identity.clone(), tell);
        let outcome = tokio::select! {
            outcome = election.lead(work) => outcome,
            () = told_to_stop_waiting => Some(None),
            () = told => None,
        };
        // Events that nobody takes are not worth waiting for.
        let _ = timeout(PATIENCE, broadcaster.stop()).await;
        outcome
    }
}

/// How it stands for one who does not lead.
pub(crate) enum Standing {
    /// Somebody else works.
    Waiting(String),
    /// It cannot be said who does.
    Unknown(String),
}

impl Standing {
    /// Says so.
    pub(crate) fn say(&self, lease: &Lease) {
        let Lease {
            namespace,
            name,
            what,
            ..
        } = lease;
        match self {
            Standing::Waiting(leader) => {
                say!("{what}: waiting for the lease {namespace}/{name}, which {leader} holds")
            }
            Standing::Unknown(why) => {
                say!("{what}: waiting for the lease {namespace}/{name}, which cannot be had: {why}")
            }
        }
    }
}

async fn watch(mut observer: Observer, identity: String, mut tell: impl FnMut(Standing)) {
    loop {
        let state = observer.changed().await;
        if state.leading {
            continue;
        }
        match state.leader {
            _ if !state.trouble.is_empty() => tell(Standing::Unknown(state.trouble)),
            leader if !leader.is_empty() && leader != identity => tell(Standing::Waiting(leader)),
            _ => {}
        }
    }
}

/// Kubernetes: a process is known by its host and a number of its own.
fn identity(number: &str) -> String {
    let host = nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .unwrap_or_default();
    format!("{host}_{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_processes_are_the_same() {
        let (one, other) = (Candidate::of_process(), Candidate::of_process());
        assert_ne!(one.identity, other.identity);
        assert!(!(one.has_ended)(&other.identity));
    }

    #[test]
    fn whoever_served_the_same_data_before_has_ended_wherever_it_ran() {
        let now = Candidate::of_cluster("7d9d3d5e");
        for (holder, has_ended) in [
            ("old-host_7d9d3d5e", true),
            ("old-host_1d9d3d5e", false),
            ("", false),
        ] {
            assert_eq!((now.has_ended)(holder), has_ended, "{holder}");
        }
    }
}
