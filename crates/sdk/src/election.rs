//! Who of several leads? Whoever holds a Lease.
//!
//! ```
//! # use mizzen_apiserver::User;
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # let client = kube::Client::new(mizzen_controlplane::in_memory().await.in_process(User::master("me"), "me"), "default");
//! # let system = mizzen_sdk::Object::parse(br#"{"metadata":{"name":"kube-system"}}"#)?;
//! # mizzen_sdk::api::Api::new(client.clone()).create(&mizzen_sdk::resource::NAMESPACES, &system).await?;
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
//! Others may watch how it stands:
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
//! A leader renews its lease; one who waits takes it when it has not changed for as long as it lasts. Each measures
//! with its own clock from when it saw something, never against a time that another wrote: how far clocks
//! are apart does not matter, only how differently they run.
//!
//! Invariant: a leader stops before another can lead, as long as no clock runs faster than another by more than
//! [`Options::tolerated_drift`]: it gives up `renew_deadline` after it *began* the last renewal that worked, while
//! another waits `lease_duration` from when it *saw* that renewal, which is later.

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

use crate::event::{Note, Recorder, reference};
use crate::seam::{self, Chance, Clock};
use crate::write::message;

/// Whether the holder of this identity is known not to live any more.
pub type HasEnded = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// How an election is held.
#[derive(Clone)]
pub struct Options {
    /// Who stands for election; no two may use the same.
    pub identity: String,
    /// How long those who wait leave a lease alone that nobody renews.
    pub lease_duration: Duration,
    /// How long a leader tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// How long to wait between tries.
    pub retry_period: Duration,
    /// Give the lease back when the work is done, so that the next need not wait.
    pub release: bool,
    /// What time it is, for those who read the lease.
    pub clock: Clock,
    /// Sets tries apart.
    pub chance: Chance,
    /// Whose lease need not be waited for; nobody's unless something is said.
    pub has_ended: HasEnded,
    /// Tells people, as events of the lease, who leads and who does no longer.
    pub recorder: Option<Recorder>,
}

impl Options {
    /// 15 s, renewed within 10 s, tried every 2 s, given back at the end.
    pub fn new(identity: impl Into<String>) -> Options {
        Options {
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release: true,
            clock: seam::wall_clock(),
            chance: seam::chance(),
            has_ended: Arc::new(|_| false),
            recorder: None,
        }
    }

    /// By which share clocks may run differently before two could lead at once: with `d` as the drift, the leader's
    /// deadline of `renew_deadline * (1 + d)` must come before `lease_duration * (1 - d)`.
    pub fn tolerated_drift(&self) -> f64 {
        let (lease, renew) = (
            self.lease_duration.as_secs_f64(),
            self.renew_deadline.as_secs_f64(),
        );
        (lease - renew) / (lease + renew)
    }

    /// Whether an election can be held like this.
    pub fn check(&self) -> Result<(), SetupError> {
        if self.identity.is_empty() {
            return Err(SetupError::Nobody);
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

/// Tries are up to this much further apart, so that those who wait do not all try at once.
const JITTER: f64 = 1.2;

/// Why no election can be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// Nobody stands for election.
    #[error("the identity is empty")]
    Nobody,
    /// A leader would give up after another could have taken over.
    #[error("the lease must last a second, and longer than the leader tries to renew it")]
    LeaseTooShort,
    /// A leader would give up before it tried a second time.
    #[error("the leader must try to renew for longer than it waits between two tries")]
    DeadlineTooShort,
}

/// Somebody who stands for election.
pub struct Election {
    leases: Api<Lease>,
    name: String,
    options: Options,
    seen: Option<Seen>,
    state: Arc<watch::Sender<State>>,
}

/// A lease as it was seen last, and when it last changed.
struct Seen {
    lease: Lease,
    changed: Instant,
}

/// How an election stands, for whoever watches it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    /// Who leads, as far as is known; empty if nobody does.
    pub leader: String,
    /// Whether we do.
    pub leading: bool,
    /// Why the last try to take or renew the lease failed; empty if it did not.
    pub trouble: String,
    /// When the lease was renewed last by us.
    renewed: Option<Instant>,
}

/// How an election stands. Cheap to clone.
#[derive(Clone)]
pub struct Observer {
    state: watch::Receiver<State>,
    name: String,
    lease_duration: Duration,
}

impl Observer {
    /// How it stands.
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Waits until another leads, or we do, or nobody, or there is other trouble than before.
    pub async fn changed(&mut self) -> State {
        // When the election is over nothing changes any more.
        if self.state.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.state.borrow_and_update().clone()
    }

    /// A health check: a leader that has not renewed its lease for as long as that lasts, and `tolerance` more, hangs.
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

/// Where an attempt led.
enum Attempt {
    Held,
    HeldByAnother,
}

impl Election {
    /// Stands for election on the Lease `name` in `namespace`.
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

    /// Tells how the election stands.
    pub fn observe(&self) -> Observer {
        let (state, name) = (self.state.subscribe(), self.name.clone());
        Observer {
            state,
            name,
            lease_duration: self.options.lease_duration,
        }
    }

    /// Waits to be elected, then works until the work is done or the lease is lost: then the work is dropped, before
    /// another can lead. None if it was lost.
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

    /// Waits until the lease is ours; when the try began that made it so.
    async fn acquire(&mut self) -> Instant {
        loop {
            let began = Instant::now();
            match timeout_at(began + self.options.renew_deadline, self.attempt()).await {
                Ok(Ok(Attempt::Held)) => {
                    self.record("became leader");
                    return began;
                }
                Ok(Ok(Attempt::HeldByAnother)) => self.stumble(String::new()),
                Ok(Err(error)) => self.stumble(message(&error)),
                Err(_) => self.stumble("acquiring the lease took too long".into()),
            }
            sleep(self.retry_after()).await;
        }
    }

    /// Renews the lease until that fails for too long, or another has it.
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
                Ok(Ok(Attempt::Held)) => held = began,
                Ok(Ok(Attempt::HeldByAnother)) | Err(_) => return,
                Ok(Err(error)) => self.stumble(message(&error)),
            }
        }
    }

    /// Lets those who watch know what went wrong.
    fn stumble(&self, trouble: String) {
        if !trouble.is_empty() {
            tracing::debug!(
                trouble,
                name = self.name,
                "could not take or renew the lease"
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

    /// Takes or renews the lease, if it is ours to take.
    async fn attempt(&mut self) -> Result<Attempt, Error> {
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
            return Ok(Attempt::HeldByAnother);
        }
        let lease = self.draft(self.seen.as_ref().map(|seen| &seen.lease));
        let stored = self
            .leases
            .replace(&self.name, &PostParams::default(), &lease)
            .await?;
        Ok(self.note(stored))
    }

    /// Renews the lease without a look at it, if it is ours and nobody has touched it.
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

    /// Remembers a lease, and when it was first seen like this.
    fn see(&mut self, lease: Lease) {
        let same = |seen: &Seen| seen.lease.spec == lease.spec;
        let changed = self
            .seen
            .as_ref()
            .filter(|seen| same(seen))
            .map_or_else(Instant::now, |seen| seen.changed);
        let leader = holder(&lease).to_string();
        self.seen = Some(Seen { lease, changed });
        self.state.send_if_modified(|state| {
            std::mem::replace(&mut state.leader, leader.clone()) != leader
        });
    }

    /// Whether the lease is ours, nobody's, of somebody who has ended, or was not renewed for as long as it lasts.
    fn is_free(&self) -> bool {
        self.seen.as_ref().is_none_or(|seen| {
            let holder = holder(&seen.lease);
            holder.is_empty()
                || holder == self.options.identity
                || (self.options.has_ended)(holder)
                || seen.changed.elapsed() >= self.lasts(&seen.lease)
        })
    }

    /// How long a lease lasts: what its holder says, and no less than what we were told.
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

    fn note(&mut self, lease: Lease) -> Attempt {
        self.see(lease);
        self.state.send_modify(|state| {
            state.leading = true;
            state.trouble.clear();
            state.renewed = Some(Instant::now());
        });
        Attempt::Held
    }

    /// The lease as we would hold it.
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

    /// Gives the lease back, so that another can take it at once.
    async fn release(&mut self) {
        let Some(Seen { mut lease, .. }) = self.seen.take() else {
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
            tracing::debug!(
                name = self.name,
                "could not give the lease back; it runs out by itself"
            );
        }
    }

    fn retry_after(&self) -> Duration {
        self.options
            .retry_period
            .mul_f64(1.0 + (JITTER - 1.0) * (self.options.chance)())
    }
}

fn holder(lease: &Lease) -> &str {
    lease
        .spec
        .as_ref()
        .and_then(|spec| spec.holder_identity.as_deref())
        .unwrap_or_default()
}
