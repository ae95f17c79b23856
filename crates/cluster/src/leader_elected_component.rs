//! A component in the server's process that runs while it holds its lease. After it has lost the lease it is a candidate
//! again.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kube::Client;
use mizzen_apiserver::HealthCheck;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::election::{ComponentLease, ElectionChange, ElectionTerm, LeaderCandidate};

/// Runs a component while it leads, until it is dropped. It reports its readiness once its caches are synced. The error is
/// why it cannot run.
pub(crate) type LeaderTask =
    Box<dyn Fn(Readiness) -> BoxFuture<'static, Result<Infallible, String>> + Send + Sync>;

/// Whether a component is ready: it runs, or waits for its lease. The error is why it cannot run.
type ReadinessState = Option<Result<(), String>>;

/// Reports that a component is ready.
#[derive(Clone)]
pub(crate) struct Readiness(watch::Sender<ReadinessState>);

impl Readiness {
    /// The component runs, or waits for its lease.
    pub(crate) fn set_ready(&self) {
        self.0
            .send_if_modified(|state| state.is_none() && state.replace(Ok(())).is_none());
    }
}

/// A component that runs, or waits for its lease.
pub(crate) struct LeaderElectedComponent {
    readiness: watch::Receiver<ReadinessState>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl LeaderElectedComponent {
    /// Starts a candidate for `lease` that runs `run` while it leads.
    pub(crate) fn start(
        client: Client,
        candidate: LeaderCandidate,
        lease: ComponentLease,
        run: LeaderTask,
    ) -> LeaderElectedComponent {
        let (sender, readiness) = watch::channel(None);
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(async move {
            let stop = async move {
                // Dropping the component stops it, too.
                let _ = stopped.clone().wait_for(|stopped| *stopped).await;
            };
            let (stop, readiness) = (stop.boxed().shared(), Readiness(sender));
            loop {
                let term = ElectionTerm {
                    client: client.clone(),
                    lease: &lease,
                };
                let on_change = |change| {
                    if let ElectionChange::Standby(standby) = change {
                        standby.print(&lease);
                        readiness.set_ready();
                    }
                };
                let work = run(readiness.clone());
                match candidate.lead(term, stop.clone(), on_change, work).await {
                    None => tracing::warn!(
                        namespace = lease.namespace,
                        lease = lease.name,
                        component = lease.component,
                        "lost the lease, the component has stopped and is a candidate again"
                    ),
                    Some(Some(Err(error))) => {
                        tracing::error!(error, component = lease.component, "component cannot run");
                        readiness.0.send_replace(Some(Err(error)));
                        return;
                    }
                    Some(_) => return,
                }
            }
        });
        LeaderElectedComponent {
            readiness,
            stop,
            task,
        }
    }

    /// Waits until it runs or waits for its lease. The error is why it cannot run.
    pub(crate) async fn wait_until_ready(&self) -> Result<(), String> {
        let mut readiness = self.readiness.clone();
        let state = readiness.wait_for(Option::is_some).await;
        state.ok().and_then(|state| state.clone()).unwrap_or(Ok(()))
    }

    /// Its health, as the component of this name in `componentstatuses`.
    pub(crate) fn health(&self, component: &'static str) -> Arc<dyn HealthCheck> {
        let readiness = self.readiness.clone();
        Arc::new(LeaderElectedHealth {
            component,
            readiness,
        })
    }

    /// Stops it and releases its lease.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        let _ = self.task.await;
    }
}

/// The health of a leader-elected component. One that waits for its lease is healthy.
#[derive(Debug)]
struct LeaderElectedHealth {
    component: &'static str,
    readiness: watch::Receiver<ReadinessState>,
}

impl HealthCheck for LeaderElectedHealth {
    fn name(&self) -> &str {
        self.component
    }

    fn check(&self) -> mizzen_registry::BoxFuture<'_, Result<(), String>> {
        let state = self.readiness.borrow().clone();
        let result = state.unwrap_or_else(|| Err("it has not started yet".into()));
        Box::pin(async { result })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use http::Method;
    use mizzen_apiserver::{Server, User};
    use mizzen_value::{Value, value};
    use tokio::time::{Instant, sleep};

    use super::*;
    use mizzen_bootstrap::loopback_client;

    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler";

    /// A server, and how many components run.
    struct Rig {
        server: Server,
        running: Arc<AtomicUsize>,
    }

    impl Rig {
        async fn new() -> Rig {
            let rig = Rig {
                server: mizzen_controlplane::in_memory().await,
                running: Arc::default(),
            };
            rig.call(
                Method::POST,
                "/api/v1/namespaces",
                &value!({ "metadata": { "name": "kube-system" } }),
            )
            .await;
            rig
        }

        async fn call(&self, method: Method, path: &str, body: &Value) -> Value {
            let client =
                loopback_client::LoopbackClient::new(&self.server, loopback_client::KUBE_APISERVER);
            client
                .call(method, path, Some(body).filter(|body| !body.is_null()))
                .await
                .unwrap()
                .1
        }

        /// The holder of the lease.
        async fn holder(&self) -> String {
            self.call(Method::GET, LEASE, &Value::Null).await["spec"]["holderIdentity"]
                .str()
                .into()
        }

        /// Sets the holder of the lease.
        async fn set_holder(&self, holder: &str) {
            let mut lease = self.call(Method::GET, LEASE, &Value::Null).await;
            lease.entry("spec").set("holderIdentity", holder);
            self.call(Method::PUT, LEASE, &lease).await;
        }

        fn start(&self, candidate: LeaderCandidate) -> LeaderElectedComponent {
            let client = Client::new(self.server.in_process(User::master("me"), "me"), "default");
            let running = self.running.clone();
            let run: LeaderTask = Box::new(move |readiness| {
                let running = running.clone();
                Box::pin(async move {
                    let _guard = RunningGuard::new(running);
                    readiness.set_ready();
                    std::future::pending().await
                })
            });
            LeaderElectedComponent::start(client, candidate, ComponentLease::for_scheduler(), run)
        }

        fn n_running(&self) -> usize {
            self.running.load(Ordering::Relaxed)
        }
    }

    struct RunningGuard(Arc<AtomicUsize>);

    impl RunningGuard {
        fn new(running: Arc<AtomicUsize>) -> RunningGuard {
            running.fetch_add(1, Ordering::Relaxed);
            RunningGuard(running)
        }
    }

    impl Drop for RunningGuard {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_component_that_lost_its_lease_stops_and_is_a_candidate_again() {
        let rig = Rig::new().await;
        let component = rig.start(LeaderCandidate::for_cluster("one"));
        component.wait_until_ready().await.unwrap();
        let first = rig.holder().await;
        assert!(first.ends_with("_one"), "{first}");
        assert_eq!(rig.n_running(), 1);
        rig.set_holder("thief").await;
        sleep(Duration::from_secs(3)).await;
        assert_eq!((rig.n_running(), rig.holder().await.as_str()), (0, "thief"));
        sleep(Duration::from_secs(20)).await;
        assert_eq!((rig.n_running(), rig.holder().await), (1, first));
        component.stop().await;
        assert_eq!((rig.n_running(), rig.holder().await.as_str()), (0, ""));
    }

    #[tokio::test(start_paused = true)]
    async fn one_of_two_candidates_leads_and_both_are_ready() {
        let rig = Rig::new().await;
        let (one, other) = (
            rig.start(LeaderCandidate::for_cluster("one")),
            rig.start(LeaderCandidate::for_process()),
        );
        one.wait_until_ready().await.unwrap();
        other.wait_until_ready().await.unwrap();
        for _ in 0..60 {
            assert_eq!(rig.n_running(), 1);
            sleep(Duration::from_secs(1)).await;
        }
        one.stop().await;
        sleep(Duration::from_secs(3)).await;
        assert_eq!(rig.n_running(), 1, "a released lease is acquired");
        other.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_of_the_previous_process_with_the_same_data_is_taken_over_at_once() {
        let rig = Rig::new().await;
        let killed = rig.start(LeaderCandidate::for_cluster("one"));
        killed.wait_until_ready().await.unwrap();
        killed.task.abort();
        let _ = killed.task.await;
        let (began, next) = (
            Instant::now(),
            rig.start(LeaderCandidate::for_cluster("one")),
        );
        next.wait_until_ready().await.unwrap();
        assert_eq!((rig.n_running(), began.elapsed().as_secs()), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_component_without_access_to_its_lease_is_ready_and_does_not_run() {
        let rig = Rig {
            server: mizzen_controlplane::in_memory().await,
            running: Arc::default(),
        };
        let component = rig.start(LeaderCandidate::for_cluster("one"));
        component.wait_until_ready().await.unwrap();
        assert_eq!(rig.n_running(), 0);
    }
}
