//! Time: settling, advancing, waiting for a condition.

use std::fmt::Debug;
use std::time::Duration;

use mizzen_registry::Revision;
use mizzen_value::json;
use serde::de::DeserializeOwned;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::{Instant, sleep, timeout};

use crate::Cluster;
use crate::diff::changes_between;

/// How long nothing may be written until a cluster on virtual time counts as settled. Longer than the delays with which
/// loops batch and retry at first, and shorter than their periods.
const QUIET: Duration = Duration::from_secs(1);
/// The same on real time.
const REAL_QUIET: Duration = Duration::from_millis(250);
/// How long a cluster may take to settle, and a condition to hold.
const PATIENCE: Duration = Duration::from_secs(600);
/// The same on real time.
const REAL_PATIENCE: Duration = Duration::from_secs(30);
/// How many steps a failure shows.
const LAST_STEPS: usize = 30;
/// How many states of an object a failure shows.
const LAST_STATES: usize = 8;

impl Cluster {
    /// Waits until nothing more can happen: all tasks are idle, no request is open, no event waits to be delivered, no
    /// timer is due, and nothing is written for a second of virtual time. Periodic work, back-off beyond a second and
    /// `requeue_after` are for [`advance`](Cluster::advance).
    ///
    /// On real time it waits until nothing is written for a quarter of a second.
    ///
    /// # Panics
    /// If the cluster does not settle within ten minutes of virtual time: some component writes again and again.
    pub async fn settle(&self) {
        let (quiet, patience) = match self.is_virtual() {
            true => (QUIET, PATIENCE),
            false => (REAL_QUIET, REAL_PATIENCE),
        };
        let began = Instant::now();
        loop {
            let before = self.store().revision();
            // On virtual time this returns when all tasks are idle, after all timers until then have fired.
            sleep(quiet).await;
            if self.store().revision() == before && self.n_in_flight() == 0 {
                return;
            }
            assert!(
                began.elapsed() < patience,
                "the cluster did not settle within {patience:?}; its last steps:\n{}",
                self.last_steps(LAST_STEPS)
            );
        }
    }

    /// Lets time pass. Every timer until then fires in its order, and nothing waits for real.
    ///
    /// # Panics
    /// On real time.
    pub async fn advance(&self, time: Duration) {
        assert!(
            self.is_virtual(),
            "time can be advanced only if it is virtual: in a single-threaded runtime, without Builder::real_time, \
             and before Cluster::kubeconfig"
        );
        sleep(time).await;
    }

    /// Waits until a condition holds, and evaluates it after every write.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::Node;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::builder().nodes(3).start().await;
    /// cluster.until("three nodes are registered", async || cluster.list::<Node>().await.len() == 3).await;
    /// # }
    /// ```
    ///
    /// # Panics
    /// If it does not hold within ten minutes of virtual time, or 30 seconds of real time, with the last steps.
    pub async fn until(&self, what: &str, condition: impl AsyncFn() -> bool) {
        if !self.holds(&condition).await {
            panic!(
                "it did not become true that {what}; the last steps:\n{}",
                self.last_steps(LAST_STEPS)
            );
        }
    }

    /// Waits until an object exists that fulfils a condition, and returns it. `name` is as in [`get`](Cluster::get).
    ///
    /// # Panics
    /// As [`until`](Cluster::until), with the states that the object had.
    pub async fn until_object<K>(&self, name: &str, condition: impl Fn(&K) -> bool) -> K
    where
        K: kube::Resource<DynamicType: Default> + DeserializeOwned + Clone + Debug,
        K::Scope: 'static,
    {
        let found = parking_lot::Mutex::new(None);
        let holds = async || {
            let object = self.find::<K>(name).await;
            let holds = object.as_ref().is_some_and(&condition);
            *found.lock() = object;
            holds
        };
        if self.holds(&holds).await
            && let Some(object) = found.into_inner()
        {
            return object;
        }
        let states = self.states::<K>(name).await;
        let from = states.len().saturating_sub(LAST_STATES);
        let mut shown = match states.first() {
            Some(_) => format!("it had {} states:\n", states.len()),
            None => "it never existed\n".to_owned(),
        };
        for idx in from.max(1)..states.len() {
            shown += &format!("  {}\n", changes_between(&states[idx - 1], &states[idx]));
        }
        if let Some(last) = states.last() {
            shown += &format!("its last status: {}\n", json::to_string(&last["status"]));
        }
        let kind = K::kind(&K::DynamicType::default()).into_owned();
        panic!(
            "{kind} {name} did not become what was expected; {shown}the last steps:\n{}",
            self.last_steps(LAST_STEPS)
        );
    }

    /// Whether a condition holds in time.
    async fn holds(&self, condition: &impl AsyncFn() -> bool) -> bool {
        let patience = match self.is_virtual() {
            true => PATIENCE,
            false => REAL_PATIENCE,
        };
        let end = Instant::now() + patience;
        loop {
            let next = Revision(self.store().revision().0 + 1);
            if condition().await {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if timeout(left, self.store().reached(next)).await.is_err() {
                return false;
            }
        }
    }
}

/// Pauses the clock of a single-threaded runtime. Returns whether it is paused now.
pub(crate) fn pause_if_possible() -> bool {
    if Handle::current().runtime_flavor() != RuntimeFlavor::CurrentThread {
        return false;
    }
    if !is_paused() {
        tokio::time::pause();
    }
    true
}

/// Whether the clock of the runtime is paused: it stands still while real time passes.
#[expect(
    clippy::disallowed_methods,
    reason = "real time is what the clock of the runtime is compared with"
)]
pub(crate) fn is_paused() -> bool {
    let (before, real) = (Instant::now(), std::time::Instant::now());
    while real.elapsed() < Duration::from_micros(5) {
        std::hint::spin_loop();
    }
    Instant::now() == before
}
