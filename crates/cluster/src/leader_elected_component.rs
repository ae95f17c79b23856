//! A part beside the server that works while it holds its lease: it takes part again when it has lost it.

use std::convert::Infallible;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kube::Client;
use mizzen_apiserver::HealthCheck;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::election::{Candidate, Lease, Standing};

/// What a part does while it holds the lease, until it is dropped. It says when it knows all that there is; why it cannot
/// work if it does not.
pub(crate) type Work =
    Box<dyn Fn(Settled) -> BoxFuture<'static, Result<Infallible, String>> + Send + Sync>;

/// Tells that a part is as far as it can be for now.
#[derive(Clone)]
pub(crate) struct Settled(watch::Sender<Option<Result<(), String>>>);

impl Settled {
    /// It works, or waits for another.
    pub(crate) fn now(&self) {
        self.0
            .send_if_modified(|state| state.is_none() && state.replace(Ok(())).is_none());
    }
}

/// A part that works, or waits until it may.
pub(crate) struct Seat {
    settled: watch::Receiver<Option<Result<(), String>>>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Seat {
    /// Lets a part take part in the election of its lease.
    pub(crate) fn take(client: Client, candidate: Candidate, lease: Lease, work: Work) -> Seat {
        let (settled, state) = watch::channel(None);
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(keep(
            client,
            candidate,
            lease,
            work,
            Settled(settled),
            stopped,
        ));
        Seat {
            settled: state,
            stop,
            task,
        }
    }

    /// Waits until it works, or is known to have to wait; the error is why it cannot work.
    pub(crate) async fn settled(&self) -> Result<(), String> {
        let mut settled = self.settled.clone();
        let state = settled.wait_for(Option::is_some).await;
        state.ok().and_then(|state| state.clone()).unwrap_or(Ok(()))
    }

    /// Whether it works or waits for another, as the component of this name in `componentstatuses`.
    pub(crate) fn health(&self, component: &'static str) -> Arc<dyn HealthCheck> {
        let settled = self.settled.clone();
        Arc::new(SeatHealth { component, settled })
    }

    /// Ends the work and gives the lease back.
    pub(crate) async fn leave(self) {
        self.stop.send_replace(true);
        let _ = self.task.await;
    }
}

/// The health of a part beside the server. One that waits for its lease is healthy.
#[derive(Debug)]
struct SeatHealth {
    component: &'static str,
    settled: watch::Receiver<Option<Result<(), String>>>,
}

impl HealthCheck for SeatHealth {
    fn name(&self) -> &str {
        self.component
    }

    fn check(&self) -> mizzen_registry::Future<'_, Result<(), String>> {
        let state = self.settled.borrow().clone();
        let result = state.unwrap_or_else(|| Err("it has not started yet".into()));
        Box::pin(async { result })
    }
}

async fn keep(
    client: Client,
    candidate: Candidate,
    lease: Lease,
    work: Work,
    settled: Settled,
    stopped: watch::Receiver<bool>,
) {
    let stop = async move {
        // Whoever drops the seat wants no more of it either.
        let _ = stopped.clone().wait_for(|stopped| *stopped).await;
    };
    let stop = stop.boxed().shared();
    loop {
        let tell = |standing: Standing| {
            standing.say(&lease);
            settled.now();
        };
        let term = candidate.lead(
            client.clone(),
            &lease,
            stop.clone(),
            tell,
            |_| {},
            work(settled.clone()),
        );
        match term.await {
            None => tracing::warn!(
                "lost the lease {}/{}: {} stopped, and will take part again",
                lease.namespace,
                lease.name,
                lease.what
            ),
            Some(Some(Err(why))) => {
                tracing::error!(why, "{} cannot work", lease.what);
                settled.0.send_replace(Some(Err(why)));
                return;
            }
            Some(_) => return,
        }
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
    use crate::itself;

    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler";

    /// A server, and how many work at the moment.
    struct Rig {
        server: Server,
        working: Arc<AtomicUsize>,
    }

    impl Rig {
        async fn new() -> Rig {
            let rig = Rig {
                server: Server::in_memory().await,
                working: Arc::default(),
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
            let client = itself::Client::new(&self.server, itself::KUBE_APISERVER);
            client
                .call(method, path, Some(body).filter(|body| !body.is_null()))
                .await
                .unwrap()
                .1
        }

        /// Who holds the lease.
        async fn holder(&self) -> String {
            self.call(Method::GET, LEASE, &Value::Null).await["spec"]["holderIdentity"]
                .str()
                .into()
        }

        /// Lets somebody else have the lease.
        async fn give_to(&self, holder: &str) {
            let mut lease = self.call(Method::GET, LEASE, &Value::Null).await;
            lease.entry("spec").set("holderIdentity", holder);
            self.call(Method::PUT, LEASE, &lease).await;
        }

        fn take(&self, candidate: Candidate) -> Seat {
            let client = Client::new(self.server.in_process(User::master("me"), "me"), "default");
            let working = self.working.clone();
            let work: Work = Box::new(move |settled| {
                let working = working.clone();
                Box::pin(async move {
                    let _at_work = AtWork::new(working);
                    settled.now();
                    std::future::pending().await
                })
            });
            Seat::take(client, candidate, Lease::of_scheduler(), work)
        }

        fn n_working(&self) -> usize {
            self.working.load(Ordering::Relaxed)
        }
    }

    struct AtWork(Arc<AtomicUsize>);

    impl AtWork {
        fn new(working: Arc<AtomicUsize>) -> AtWork {
            working.fetch_add(1, Ordering::Relaxed);
            AtWork(working)
        }
    }

    impl Drop for AtWork {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_lost_the_lease_rests_and_takes_part_again() {
        let rig = Rig::new().await;
        let seat = rig.take(Candidate::of_cluster("one"));
        seat.settled().await.unwrap();
        let first = rig.holder().await;
        assert!(first.ends_with("_one"), "{first}");
        assert_eq!(rig.n_working(), 1);
        rig.give_to("thief").await;
        sleep(Duration::from_secs(3)).await;
        assert_eq!((rig.n_working(), rig.holder().await.as_str()), (0, "thief"));
        sleep(Duration::from_secs(20)).await;
        assert_eq!((rig.n_working(), rig.holder().await), (1, first));
        seat.leave().await;
        assert_eq!((rig.n_working(), rig.holder().await.as_str()), (0, ""));
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_one_works_and_the_other_waits_without_holding_anybody_up() {
        let rig = Rig::new().await;
        let (one, other) = (
            rig.take(Candidate::of_cluster("one")),
            rig.take(Candidate::of_process()),
        );
        one.settled().await.unwrap();
        other.settled().await.unwrap();
        for _ in 0..60 {
            assert_eq!(rig.n_working(), 1);
            sleep(Duration::from_secs(1)).await;
        }
        one.leave().await;
        sleep(Duration::from_secs(3)).await;
        assert_eq!(rig.n_working(), 1, "what was given back is taken");
        other.leave().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_of_the_last_process_with_the_same_data_is_taken_at_once() {
        let rig = Rig::new().await;
        let killed = rig.take(Candidate::of_cluster("one"));
        killed.settled().await.unwrap();
        killed.task.abort();
        let _ = killed.task.await;
        let (began, next) = (Instant::now(), rig.take(Candidate::of_cluster("one")));
        next.settled().await.unwrap();
        assert_eq!((rig.n_working(), began.elapsed().as_secs()), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_cannot_ask_for_the_lease_holds_nobody_up() {
        let rig = Rig {
            server: Server::in_memory().await,
            working: Arc::default(),
        };
        let seat = rig.take(Candidate::of_cluster("one"));
        seat.settled().await.unwrap();
        assert_eq!(rig.n_working(), 0);
    }
}
