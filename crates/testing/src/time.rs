//! Time: settling, advancing, waiting for a condition.

use std::fmt::{Debug, Display};
use std::time::Duration;

use mizzen_registry::Revision;
use mizzen_sdk::queue::next_retry;
use mizzen_value::clock::Clock as _;
use mizzen_value::json;
use serde::de::DeserializeOwned;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::Cluster;
use crate::diff::changes_between;

/// How long nothing may be written until a cluster on virtual time counts as settled. Longer than the delays with which
/// loops batch and retry at first, and shorter than their periods.
const QUIET: Duration = Duration::from_secs(1);
/// How long nothing may be written until a cluster counts as settled although something is retried. A controller that
/// cannot succeed is retried for ever.
const HOPELESS: Duration = Duration::from_secs(30);
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

/// What a condition of [`Cluster::until`] returns: whether it holds, or what was seen instead.
///
/// ```
/// use mizzen_testing::Condition as _;
///
/// assert_eq!(true.unmet(), None);
/// assert_eq!(Err("2 pods").unmet(), Some("2 pods".to_owned()));
/// ```
pub trait Condition {
    /// What was seen, if the condition does not hold; may be empty.
    fn unmet(self) -> Option<String>;
}

impl Condition for bool {
    fn unmet(self) -> Option<String> {
        (!self).then(String::new)
    }
}

impl<E: Display> Condition for Result<(), E> {
    fn unmet(self) -> Option<String> {
        self.err().map(|seen| seen.to_string())
    }
}

impl Cluster {
    /// Waits until nothing more can happen: all tasks are idle, so queues are empty and watches are delivered; no request is
    /// open, no event is late, no killed component is away; no work queue of `mizzen_sdk` and no pod of the scheduler waits
    /// for a retry; and the timers of the next second change nothing. Periodic work and `requeue_after` are for
    /// [`advance`](Cluster::advance), and so are retries that are due in more than half a minute, or that changed nothing for
    /// so long.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::Pod;
    /// use mizzen_testing::{Cluster, assert_status};
    ///
    /// let cluster = Cluster::start().await;
    /// cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}").await;
    /// cluster.settle().await;
    /// assert_status!(cluster, Pod, "p", {"phase": "Running"});
    /// # }
    /// ```
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
        let (mut revision, mut last_write) = (self.store().revision(), began);
        loop {
            // On virtual time this returns when all tasks are idle, after all timers until then have fired.
            sleep(quiet).await;
            let now = self.store().revision();
            if now != revision {
                (revision, last_write) = (now, Instant::now());
            } else if self.n_in_flight() == 0 {
                match next_retry().filter(|_| self.is_virtual()) {
                    Some(due) if due <= last_write + HOPELESS => sleep_until(due).await,
                    _ => return,
                }
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
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use std::time::Duration;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// cluster.apply("
    /// apiVersion: batch/v1
    /// kind: CronJob
    /// metadata: {name: hourly}
    /// spec:
    ///   schedule: '@hourly'
    ///   jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}
    /// ").await;
    /// cluster.advance(Duration::from_secs(2 * 3600)).await;
    /// let is_job = |step: &mizzen_testing::Step| step.object.starts_with("jobs/hourly-") && step.what == "created";
    /// assert_eq!(cluster.steps().iter().filter(|step| is_job(step)).count(), 2);
    /// # }
    /// ```
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

    /// The wall clock, in seconds since 1970.
    pub fn now(&self) -> i64 {
        self.clock().now().0
    }

    /// Waits until a condition holds, and evaluates it after every write and every second. It returns a `bool`, or a
    /// `Result` whose error says what was seen instead; a failure shows the last one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::Node;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::builder().nodes(3).start().await;
    /// cluster.until("three nodes are registered", async || cluster.list::<Node>().await.len() == 3).await;
    /// cluster.until("three nodes are registered", async || match cluster.list::<Node>().await.len() {
    ///     3 => Ok(()),
    ///     n => Err(format!("{n} nodes")),
    /// }).await;
    /// # }
    /// ```
    ///
    /// # Panics
    /// If it does not hold within ten minutes of virtual time, or 30 seconds of real time, with what was seen and the last
    /// steps.
    pub async fn until<C: Condition>(&self, what: &str, condition: impl AsyncFn() -> C) {
        if let Err(seen) = self.wait_for(&condition).await {
            let seen = match seen.as_str() {
                "" => String::new(),
                seen => format!("; last seen: {seen}"),
            };
            panic!(
                "it did not become true that {what}{seen}; the last steps:\n{}",
                self.last_steps(LAST_STEPS)
            );
        }
    }

    /// Waits until an object exists that fulfils a condition, and returns it. `name` is as in [`get`](Cluster::get).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use k8s_openapi::api::core::v1::Pod;
    /// use mizzen_testing::Cluster;
    ///
    /// let cluster = Cluster::start().await;
    /// cluster.apply("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}}").await;
    /// let pod = cluster.until_object("p", |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())).await;
    /// assert_eq!(pod.spec.unwrap().node_name.as_deref(), Some("node-0"));
    /// # }
    /// ```
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
        if self.wait_for(&holds).await.is_ok()
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

    /// Waits until a condition holds; fails with what was seen last.
    async fn wait_for<C: Condition>(&self, condition: &impl AsyncFn() -> C) -> Result<(), String> {
        let (patience, interval) = match self.is_virtual() {
            true => (PATIENCE, QUIET),
            false => (REAL_PATIENCE, REAL_QUIET),
        };
        let end = Instant::now() + patience;
        loop {
            let next = Revision(self.store().revision().0 + 1);
            let Some(seen) = condition().await.unmet() else {
                return Ok(());
            };
            if Instant::now() >= end {
                return Err(seen);
            }
            // What a condition reads outside the cluster is seen after a second.
            let _ = timeout(interval, self.store().reached(next)).await;
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
