//! The state of a component, and its health checks.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mizzen_apiserver::HealthCheck;
use mizzen_metrics::Registry;
use mizzen_registry::BoxFuture;
use mizzen_sdk::election::Observer;
use tokio::sync::watch;

/// How long after its expiry a lease may be renewed before the leader is unhealthy. Kubernetes: `leaderElectionTimeout`.
const TOLERANCE: Duration = Duration::from_secs(20);

/// The state of a component. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ComponentStatus(Arc<ComponentState>);

struct ComponentState {
    election: OnceLock<Observer>,
    metrics: Registry,
    resource_metrics: Registry,
    synced: watch::Sender<bool>,
    stopping: watch::Sender<bool>,
}

impl Default for ComponentStatus {
    fn default() -> ComponentStatus {
        let (synced, stopping) = (watch::Sender::new(false), watch::Sender::new(false));
        ComponentStatus(Arc::new(ComponentState {
            election: OnceLock::new(),
            metrics: Registry::default(),
            resource_metrics: Registry::default(),
            synced,
            stopping,
        }))
    }
}

impl std::fmt::Debug for ComponentStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ComponentStatus")
    }
}

impl ComponentStatus {
    /// Sets the election to report.
    pub(crate) fn observe(&self, election: Observer) {
        let _ = self.0.election.set(election);
    }

    /// The registry of `/metrics`.
    pub(crate) fn metrics(&self) -> &Registry {
        &self.0.metrics
    }

    /// The registry of `/metrics/resources`, which the scheduler has.
    pub(crate) fn resource_metrics(&self) -> &Registry {
        &self.0.resource_metrics
    }

    /// Reports that the caches are synced.
    pub(crate) fn set_synced(&self) {
        self.0.synced.send_replace(true);
    }

    /// Reports that the component stops.
    pub(crate) fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    /// Waits until the component stops.
    pub(crate) fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut stopping = self.0.stopping.subscribe();
        let state = self.0.clone();
        async move {
            let _ = stopping.wait_for(|stopping| *stopping).await;
            drop(state);
        }
    }
}

/// Fails when the leader has neither renewed its lease in time nor stopped.
#[derive(Debug)]
pub(crate) struct LeaderElectionCheck {
    /// The component.
    pub status: ComponentStatus,
    /// The name of the lease.
    pub lease: String,
}

impl HealthCheck for LeaderElectionCheck {
    fn name(&self) -> &str {
        "leaderElection"
    }

    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        let election = self.status.0.election.get();
        let is_healthy = election.is_none_or(|election| election.is_healthy(TOLERANCE));
        let result = match is_healthy {
            true => Ok(()),
            false => Err(format!(
                "failed election to renew leadership on lease {}",
                self.lease
            )),
        };
        Box::pin(async { result })
    }
}

/// Fails once the component stops.
#[derive(Debug)]
pub(crate) struct ShutdownCheck(pub ComponentStatus);

impl HealthCheck for ShutdownCheck {
    fn name(&self) -> &str {
        "shutdown"
    }

    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        let is_stopping = *self.0.0.stopping.borrow();
        let result = if is_stopping {
            Err("process is shutting down".into())
        } else {
            Ok(())
        };
        Box::pin(async { result })
    }
}

/// Fails until the caches of the scheduler are synced.
#[derive(Debug)]
pub(crate) struct SyncedCheck(pub ComponentStatus);

impl HealthCheck for SyncedCheck {
    fn name(&self) -> &str {
        "sched-handler-sync"
    }

    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        let is_synced = *self.0.0.synced.borrow();
        let result = if is_synced {
            Ok(())
        } else {
            Err("handlers are not fully synchronized".into())
        };
        Box::pin(async { result })
    }
}

/// Never fails. Kubernetes: `NamedPingChecker`.
#[derive(Debug)]
pub(crate) struct Ping(pub String);

impl HealthCheck for Ping {
    fn name(&self) -> &str {
        &self.0
    }

    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }
}
