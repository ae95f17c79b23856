//! Leader election with a Lease.
//!
//! ```
//! # use mizzen_apiserver::User;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
//! # let system = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"kube-system"}}"#)?;
//! # mizzen_sdk::dynamic::DynamicClient::new(client.clone()).create(&mizzen_sdk::resource::NAMESPACES, &system).await?;
//! use mizzen_sdk::election::{Election, Options};
//!
//! let election = Election::new(client, "kube-system", "my-controller", Options::new("host-1"))?;
//! let done = election.lead(async { "work, until the lease is lost" }).await;
//! assert!(done.is_some()); // None if the lease was lost
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An observer follows the state of the election:
//!
//! ```
//! # use mizzen_apiserver::User;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
//! # use mizzen_sdk::{election::{Election, Options}, metrics::Families};
//! # let election = Election::new(client, "default", "my-controller", Options::new("host-1"))?;
//! let mut observer = election.observe();
//! tokio::spawn(election.lead(std::future::pending::<()>()));
//! while !observer.changed().await.leading {}
//! assert_eq!(observer.state().leader, "host-1");
//! println!("{}", Families::of(&[&observer]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The leader renews its lease; a candidate acquires it when it has not changed for its duration.
//! Each process measures with its own clock from when it observed a change, never against a time in
//! the lease. So clock skew does not matter, only clock drift.
//!
//! Invariant: a leader stops before another can lead, as long as no clock runs faster than another
//! by more than [`Options::tolerated_drift`]. It gives up `renew_deadline` after it *began* the
//! last successful renewal, while another candidate waits `lease_duration` from when it *observed*
//! that renewal, which is later.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::{Client, Error};
use mizzen_metrics::{Collector, Families};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use crate::clock::{self, Clock, Rng};
use crate::event::{Note, Recorder, reference};
use crate::rbac::RbacRule;
use crate::write::message;

/// Whether the process with this identity is known to have ended.
///
/// ```
/// use std::sync::Arc;
/// use mizzen_sdk::election::{HasEnded, Options};
///
/// let has_ended: HasEnded = Arc::new(|identity| identity.starts_with("my-host_")); // a former process
/// let options = Options { has_ended, ..Options::new("my-host_2") };
/// assert!((options.has_ended)("my-host_1"));
/// ```
pub type HasEnded = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The configuration of an election.
///
/// ```
/// use std::time::Duration;
/// use mizzen_sdk::election::Options;
///
/// let options = Options { lease_duration: Duration::from_secs(60), ..Options::new("host-1") };
/// assert!(options.check().is_ok());
/// assert!(options.tolerated_drift() > 0.7);
/// ```
#[derive(Clone)]
pub struct Options {
    /// The identity of this candidate; it must be unique.
    pub identity: String,
    /// How long candidates wait for a lease that is not renewed.
    pub lease_duration: Duration,
    /// How long a leader retries a renewal before it gives up.
    pub renew_deadline: Duration,
    /// The interval between attempts.
    pub retry_period: Duration,
    /// Release the lease when the work is done, so that the next leader need not wait.
    pub release: bool,
    /// The wall clock, for times in the lease.
    pub clock: Clock,
    /// The random source of the jitter.
    pub rng: Rng,
    /// Holders whose lease can be acquired at once; by default none.
    pub has_ended: HasEnded,
    /// Records changes of the leader as Events of the lease.
    pub recorder: Option<Recorder>,
}

impl Options {
    /// client-go's defaults: 15 s, renewed within 10 s, retried every 2 s, released at the end.
    pub fn new(identity: impl Into<String>) -> Options {
        Options {
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release: true,
            clock: clock::wall_clock(),
            rng: clock::rng(),
            has_ended: Arc::new(|_| false),
            recorder: None,
        }
    }

    /// The clock drift up to which two candidates cannot lead at once: with `d` as the drift, the
    /// leader's deadline of `renew_deadline * (1 + d)` must come before `lease_duration * (1 - d)`.
    pub fn tolerated_drift(&self) -> f64 {
        let (lease, renew) = (
            self.lease_duration.as_secs_f64(),
            self.renew_deadline.as_secs_f64(),
        );
        (lease - renew) / (lease + renew)
    }

    /// Validates the durations and the identity.
    pub fn check(&self) -> Result<(), SetupError> {
        if self.identity.is_empty() {
            return Err(SetupError::EmptyIdentity);
        }
        if self.lease_duration <= self.renew_deadline
            || self.lease_duration < Duration::from_secs(1)
        {
            return Err(SetupError::LeaseTooShort);
        }
        if self.renew_deadline <= self.retry_period.mul_f64(JITTER) || self.retry_period.is_zero() {
            return Err(SetupError::DeadlineTooShort);
        }
        Ok(())
    }
}

/// What a candidate needs, in the namespace of its Lease: it creates the Lease, reads it and renews it.
///
/// ```
/// use mizzen_sdk::election;
///
/// assert_eq!(election::rules("my-controller").len(), 2);
/// ```
pub fn rules(lease: &str) -> Vec<RbacRule> {
    let leases = |verbs: &[&str]| {
        RbacRule::new("coordination.k8s.io", ["leases"], verbs.iter().copied()).namespaced()
    };
    // A creation names no object that a rule could be restricted to.
    vec![
        leases(&["create"]),
        leases(&["get", "update"]).names([lease]),
    ]
}

/// Attempts are up to this factor further apart, so that candidates do not all try at once.
const JITTER: f64 = 1.2;

/// Why an election cannot be configured.
///
/// ```
/// use mizzen_sdk::election::{Options, SetupError};
///
/// assert_eq!(Options::new("").check(), Err(SetupError::EmptyIdentity));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// The identity is empty.
    #[error("the identity is empty")]
    EmptyIdentity,
    /// A leader would give up after another could have acquired the lease.
    #[error("the lease must last a second, and longer than the leader tries to renew it")]
    LeaseTooShort,
    /// A leader would give up before its second attempt.
    #[error("the leader must try to renew for longer than it waits between two tries")]
    DeadlineTooShort,
}

/// A candidate.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use mizzen_sdk::election::{Election, Options};
///
/// let election = Election::new(client, "default", "my-controller", Options::new("host-1"))?;
/// let observer = election.observe();
/// let done = election.lead(async move { observer.state().leader }).await;
/// assert_eq!(done.as_deref(), Some("host-1"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Election {
    leases: Api<Lease>,
    name: String,
    options: Options,
    seen: Option<ObservedLease>,
    state: Arc<watch::Sender<State>>,
}

/// The observed lease, and when it last changed.
struct ObservedLease {
    lease: Lease,
    changed: Instant,
}

/// The state of an election.
///
/// ```
/// use mizzen_sdk::election::State;
///
/// let state = State::default();
/// assert!(!state.leading && state.leader.is_empty() && state.trouble.is_empty());
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// The identity of the leader, as far as it is known; empty if there is none.
    pub leader: String,
    /// Whether this candidate leads.
    pub leading: bool,
    /// The error of the last attempt; empty if it succeeded.
    pub trouble: String,
    /// When this candidate renewed the lease last.
    renewed: Option<Instant>,
}

/// Observes the state of an election. Cheap to clone.
///
/// ```
/// # use mizzen_apiserver::User;
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
/// use std::time::Duration;
/// use mizzen_sdk::election::{Election, Options};
///
/// let election = Election::new(client, "default", "my-controller", Options::new("host-1"))?;
/// let mut observer = election.observe();
/// assert!(!observer.state().leading);
/// tokio::spawn(election.lead(std::future::pending::<()>()));
/// while !observer.changed().await.leading {}
/// assert!(observer.is_healthy(Duration::ZERO));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Observer {
    state: watch::Receiver<State>,
    name: String,
    lease_duration: Duration,
}

impl Observer {
    /// The current state.
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Waits until the leader or the error changes.
    pub async fn changed(&mut self) -> State {
        // After the election nothing changes any more.
        if self.state.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.state.borrow_and_update().clone()
    }

    /// A health check: false if the leader has not renewed its lease for its duration plus
    /// `tolerance`.
    pub fn is_healthy(&self, tolerance: Duration) -> bool {
        let state = self.state.borrow();
        let overdue = |renewed: Instant| renewed.elapsed() > self.lease_duration + tolerance;
        !(state.leading && state.renewed.is_some_and(overdue))
    }
}

impl Collector for Observer {
    fn collect(&self, families: &mut Families) {
        families
            .gauge(
                "leader_election_master_status",
                "Whether this process leads: 1, or 0 while it waits.",
            )
            .add(
                &[("name", &*self.name)],
                u8::from(self.state.borrow().leading),
            );
    }
}

/// The result of an attempt.
enum AcquireResult {
    Held,
    HeldByAnother,
}

impl Election {
    /// A candidate for the Lease `name` in `namespace`.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        options: Options,
    ) -> Result<Election, SetupError> {
        options.check()?;
        Ok(Election {
            leases: Api::namespaced(client, namespace),
            name: name.into(),
            options,
            seen: None,
            state: Arc::new(watch::Sender::default()),
        })
    }

    /// An observer of the election.
    pub fn observe(&self) -> Observer {
        let (state, name) = (self.state.subscribe(), self.name.clone());
        Observer {
            state,
            name,
            lease_duration: self.options.lease_duration,
        }
    }

    /// Waits to be elected, then runs `work` until it is done or the lease is lost. Then the work
    /// is dropped, before another candidate can lead. `None` if the lease was lost.
    pub async fn lead<T>(mut self, work: impl Future<Output = T>) -> Option<T> {
        let elected = self.acquire().await;
        let mut work = pin!(work);
        let outcome = tokio::select! {
            biased;
            () = self.renew(elected) => None,
            outcome = &mut work => Some(outcome),
        };
        self.stand_down();
        self.record("stopped leading");
        if outcome.is_some() && self.options.release {
            self.release().await;
        }
        outcome
    }

    /// Waits until the lease is acquired; returns when the successful attempt began.
    async fn acquire(&mut self) -> Instant {
        loop {
            let began = Instant::now();
            match timeout_at(began + self.options.renew_deadline, self.attempt()).await {
                Ok(Ok(AcquireResult::Held)) => {
                    self.record("became leader");
                    return began;
                }
                Ok(Ok(AcquireResult::HeldByAnother)) => self.on_failure(String::new()),
                Ok(Err(error)) => self.on_failure(message(&error)),
                Err(_) => self.on_failure("acquiring the lease took too long".into()),
            }
            sleep(self.retry_after()).await;
        }
    }

    /// Renews the lease until that fails for too long, or another candidate holds it.
    async fn renew(&mut self, mut held: Instant) {
        loop {
            let deadline = held + self.options.renew_deadline;
            if timeout_at(deadline, sleep(self.options.retry_period))
                .await
                .is_err()
            {
                return;
            }
            let began = Instant::now();
            match timeout_at(deadline, self.attempt()).await {
                Ok(Ok(AcquireResult::Held)) => held = began,
                Ok(Ok(AcquireResult::HeldByAnother)) | Err(_) => return,
                Ok(Err(error)) => self.on_failure(message(&error)),
            }
        }
    }

    /// Publishes the error of an attempt.
    fn on_failure(&self, trouble: String) {
        if !trouble.is_empty() {
            tracing::debug!(
                trouble,
                name = self.name,
                "cannot acquire or renew the lease"
            );
        }
        self.state.send_if_modified(|state| {
            std::mem::replace(&mut state.trouble, trouble.clone()) != trouble
        });
    }

    /// Kubernetes: tools/leaderelection/resourcelock/leaselock.go.
    fn record(&self, what: &str) {
        if let (Some(recorder), Some(seen)) = (&self.options.recorder, &self.seen) {
            let text = format!("{} {what}", self.options.identity);
            recorder.record(
                &reference(&seen.lease, &()),
                Note::normal("LeaderElection", "", text),
            );
        }
    }

    /// Acquires or renews the lease, if it is available.
    async fn attempt(&mut self) -> Result<AcquireResult, Error> {
        if let Some(renewed) = self.renew_as_seen().await {
            return Ok(self.note(renewed));
        }
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            let lease = self.draft(None);
            let made = self.leases.create(&PostParams::default(), &lease).await?;
            return Ok(self.note(made));
        };
        self.see(lease);
        if !self.is_free() {
            return Ok(AcquireResult::HeldByAnother);
        }
        let lease = self.draft(self.seen.as_ref().map(|seen| &seen.lease));
        let stored = self
            .leases
            .replace(&self.name, &PostParams::default(), &lease)
            .await?;
        Ok(self.note(stored))
    }

    /// Renews the lease as it was observed, without reading it.
    async fn renew_as_seen(&self) -> Option<Lease> {
        let seen = self
            .seen
            .as_ref()
            .filter(|seen| holder(&seen.lease) == self.options.identity)?;
        self.leases
            .replace(
                &self.name,
                &PostParams::default(),
                &self.draft(Some(&seen.lease)),
            )
            .await
            .ok()
    }

    /// Stores the observed lease, and when it last changed.
    fn see(&mut self, lease: Lease) {
        let same = |seen: &ObservedLease| seen.lease.spec == lease.spec;
        let changed = self
            .seen
            .as_ref()
            .filter(|seen| same(seen))
            .map_or_else(Instant::now, |seen| seen.changed);
        let leader = holder(&lease).to_string();
        self.seen = Some(ObservedLease { lease, changed });
        self.state.send_if_modified(|state| {
            std::mem::replace(&mut state.leader, leader.clone()) != leader
        });
    }

    /// Whether the lease is ours, released, held by a process that has ended, or expired.
    fn is_free(&self) -> bool {
        self.seen.as_ref().is_none_or(|seen| {
            let holder = holder(&seen.lease);
            holder.is_empty()
                || holder == self.options.identity
                || (self.options.has_ended)(holder)
                || seen.changed.elapsed() >= self.lasts(&seen.lease)
        })
    }

    /// The duration of a lease: that of its holder, and no less than ours.
    fn lasts(&self, lease: &Lease) -> Duration {
        let seconds = lease
            .spec
            .as_ref()
            .and_then(|spec| spec.lease_duration_seconds)
            .unwrap_or_default();
        self.options.lease_duration.max(Duration::from_secs(
            u64::try_from(seconds).unwrap_or_default(),
        ))
    }

    fn note(&mut self, lease: Lease) -> AcquireResult {
        self.see(lease);
        self.state.send_modify(|state| {
            state.leading = true;
            state.trouble.clear();
            state.renewed = Some(Instant::now());
        });
        AcquireResult::Held
    }

    /// The lease with this candidate as its holder.
    fn draft(&self, old: Option<&Lease>) -> Lease {
        let now = Some(MicroTime((self.options.clock)()));
        let mut lease = old.cloned().unwrap_or_else(|| Lease {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                ..ObjectMeta::default()
            },
            spec: None,
        });
        let ours = holder(&lease) == self.options.identity;
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if !ours {
            spec.lease_transitions = old
                .map(|_| spec.lease_transitions.unwrap_or_default() + 1)
                .or(Some(0));
            spec.acquire_time = now.clone();
        }
        spec.holder_identity = Some(self.options.identity.clone());
        spec.lease_duration_seconds = i32::try_from(self.options.lease_duration.as_secs()).ok();
        spec.renew_time = now;
        lease
    }

    fn stand_down(&self) {
        self.state.send_modify(|state| state.leading = false);
    }

    /// Releases the lease, so that another candidate can acquire it at once.
    async fn release(&mut self) {
        let Some(ObservedLease { mut lease, .. }) = self.seen.take() else {
            return;
        };
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime((self.options.clock)()));
        let params = PostParams::default();
        let released = self.leases.replace(&self.name, &params, &lease);
        let deadline = Instant::now() + self.options.renew_deadline;
        if !matches!(timeout_at(deadline, released).await, Ok(Ok(_))) {
            tracing::debug!(name = self.name, "cannot release the lease, it will expire");
        }
    }

    fn retry_after(&self) -> Duration {
        self.options
            .retry_period
            .mul_f64(1.0 + (JITTER - 1.0) * (self.options.rng)())
    }
}

fn holder(lease: &Lease) -> &str {
    lease
        .spec
        .as_ref()
        .and_then(|spec| spec.holder_identity.as_deref())
        .unwrap_or_default()
}
