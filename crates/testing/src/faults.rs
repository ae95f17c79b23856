//! Faults between components and the API server: which ones, and when.
//!
//! A fault is injected at a [`Site`]: the n-th request of a kind by one component. With random faults the choice is a
//! function of the seed and the site, so that one fault more or less does not move all other ones; a planned schedule names
//! sites itself. Exploration runs the first, shrinks what was injected, and replays it as the second.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mizzen_value::json;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::random::hash;
use crate::steps::StepLog;

/// The component of faults that hit the whole cluster.
const CLUSTER: &str = "cluster";
/// The site of any write of a component.
const ANY_WRITE: &str = "WRITE";

/// A fault. It is injected at a [`Site`].
///
/// ```
/// use mizzen_testing::Fault;
///
/// assert_eq!(Fault::Kill.to_string(), "is applied, and the component is killed");
/// assert_eq!(Fault::DropEvent { event: 2 }.to_string(), "loses event 2");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A watch request is answered with 410 Gone: the client must list again.
    Expired,
    /// A watch ends after this many events.
    CutWatch {
        /// The number of events.
        after: u32,
    },
    /// An event of a watch is not delivered.
    DropEvent {
        /// The event, counted from 0.
        event: u32,
    },
    /// An event of a watch, and those behind it, are delivered later.
    DelayEvent {
        /// The event, counted from 0.
        event: u32,
        /// The delay.
        millis: u32,
    },
    /// An event of a watch is delivered twice.
    RepeatEvent {
        /// The event, counted from 0.
        event: u32,
    },
    /// A list is answered with an older state, as a lagging watch cache does. Only lists that allow it
    /// (`resourceVersion=0`) are.
    StaleList {
        /// How many revisions it is behind.
        behind: u32,
    },
    /// A write is rejected with 409 Conflict. It is not applied.
    Conflict,
    /// A request is rejected with 503 Service Unavailable. It is not applied.
    Unavailable,
    /// A write is applied, and answered with 500 or 409.
    LostAnswer {
        /// The status code of the answer.
        code: u16,
    },
    /// A request is answered late.
    Slow {
        /// The delay.
        millis: u32,
    },
    /// An admission or conversion webhook answers late: beyond its `timeoutSeconds` the API server does not wait for it.
    SlowWebhook {
        /// The delay.
        millis: u32,
    },
    /// An admission or conversion webhook is dead: connections to it are refused.
    DeadWebhook,
    /// The component is killed after the write was applied, before it sees the answer. It starts again with empty caches.
    Kill,
    /// All components are killed and start again with empty caches.
    RestartAll,
    /// The wall clock is set.
    ClockStep {
        /// By how many seconds, back if it is negative.
        seconds: i32,
    },
    /// The nodes are lost: they neither run pods nor renew their leases.
    LoseNodes {
        /// For how long.
        seconds: u32,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Fault::Expired => f.write_str("gets 410 Gone"),
            Fault::CutWatch { after } => write!(f, "is cut after {after} events"),
            Fault::DropEvent { event } => write!(f, "loses event {event}"),
            Fault::DelayEvent { event, millis } => {
                write!(f, "gets event {event} {millis} ms late")
            }
            Fault::RepeatEvent { event } => write!(f, "gets event {event} twice"),
            Fault::StaleList { behind } => write!(f, "sees a state {behind} revisions old"),
            Fault::Conflict => f.write_str("gets 409 Conflict, not applied"),
            Fault::Unavailable => f.write_str("gets 503, not applied"),
            Fault::LostAnswer { code } => write!(f, "is applied and answered {code}"),
            Fault::Slow { millis } => write!(f, "is answered {millis} ms late"),
            Fault::SlowWebhook { millis } => write!(f, "is answered {millis} ms late"),
            Fault::DeadWebhook => f.write_str("is refused: connection refused"),
            Fault::Kill => f.write_str("is applied, and the component is killed"),
            Fault::RestartAll => f.write_str("all components are killed and restarted"),
            Fault::ClockStep { seconds } => write!(f, "the wall clock is set by {seconds:+} s"),
            Fault::LoseNodes { seconds } => write!(f, "the nodes are lost for {seconds} s"),
        }
    }
}

/// Where a fault is injected.
///
/// ```
/// use mizzen_testing::Site;
///
/// let site = Site { actor: "scheduler".into(), request: "POST pods/binding".into(), nth: 2 };
/// assert_eq!(site.to_string(), "POST pods/binding #2");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Site {
    /// The component, as in [`Step::actor`](crate::Step::actor).
    pub actor: Arc<str>,
    /// The requests: method, or `WATCH` or `LIST`, and resource: `PATCH pods/status`. Calls of a webhook by the component
    /// `apiserver` are `WEBHOOK` with host and path: `WEBHOOK shop.default.svc/validate`. `WRITE` is any write of the
    /// component; random faults do not use it.
    pub request: String,
    /// Which of them, counted from 1.
    pub nth: u32,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} #{}", self.request, self.nth)
    }
}

/// How often faults occur, in percent of the requests, events or seconds that they can hit.
///
/// ```
/// use mizzen_testing::FaultRates;
///
/// let only_conflicts = FaultRates { conflict: 30, ..FaultRates::none() };
/// assert_eq!(only_conflicts.kill, 0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultRates {
    /// Watches that are answered with 410.
    pub expired: u8,
    /// Watches that are cut within 40 events.
    pub cut_watch: u8,
    /// Events that are dropped.
    pub drop_event: u8,
    /// Events that are late.
    pub delay_event: u8,
    /// Events that are delivered twice.
    pub repeat_event: u8,
    /// Lists with `resourceVersion=0` that are stale.
    pub stale_list: u8,
    /// Writes that get a conflict.
    pub conflict: u8,
    /// Requests that get 503.
    pub unavailable: u8,
    /// Writes whose answer is lost.
    pub lost_answer: u8,
    /// Requests that are slow.
    pub slow: u8,
    /// Writes after which the component is killed.
    pub kill: u8,
    /// Seconds in which all components are restarted.
    pub restart_all: u8,
    /// Seconds in which the wall clock is set.
    pub clock_step: u8,
    /// Seconds in which the nodes are lost.
    pub lose_nodes: u8,
    /// Calls of webhooks that are answered late, by up to 40 seconds. Calls on behalf of the test's own clients are not
    /// hit.
    pub slow_webhook: u8,
    /// Calls of webhooks that are refused, with the same exception.
    pub dead_webhook: u8,
}

impl FaultRates {
    /// No faults.
    ///
    /// ```
    /// use mizzen_testing::FaultRates;
    ///
    /// let dead_webhooks = FaultRates { dead_webhook: 50, ..FaultRates::none() };
    /// assert_eq!(dead_webhooks.restart_all, 0);
    /// ```
    pub const fn none() -> FaultRates {
        FaultRates {
            expired: 0,
            cut_watch: 0,
            drop_event: 0,
            delay_event: 0,
            repeat_event: 0,
            stale_list: 0,
            conflict: 0,
            unavailable: 0,
            lost_answer: 0,
            slow: 0,
            kill: 0,
            restart_all: 0,
            clock_step: 0,
            lose_nodes: 0,
            slow_webhook: 0,
            dead_webhook: 0,
        }
    }
}

/// What a controller must survive: everything but steps of the wall clock, lost nodes and failing webhooks, which change
/// what happens: with `failurePolicy: Ignore` an object is admitted that its webhook would have changed or rejected.
impl Default for FaultRates {
    fn default() -> FaultRates {
        FaultRates {
            expired: 10,
            cut_watch: 50,
            drop_event: 10,
            delay_event: 10,
            repeat_event: 10,
            stale_list: 20,
            conflict: 5,
            unavailable: 5,
            lost_answer: 10,
            slow: 5,
            kill: 2,
            restart_all: 3,
            ..FaultRates::none()
        }
    }
}

/// A fault and its site.
///
/// ```
/// use mizzen_testing::{Fault, Injection, Site};
///
/// let site = Site { actor: "scheduler".into(), request: "POST pods/binding".into(), nth: 2 };
/// let injection = Injection { site, fault: Fault::Conflict };
/// assert_eq!(injection.to_string(), "scheduler: POST pods/binding #2 gets 409 Conflict, not applied");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Injection {
    /// Where.
    pub site: Site,
    /// What.
    pub fault: Fault,
}

impl fmt::Display for Injection {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match &*self.site.actor {
            CLUSTER => write!(f, "second {}: {}", self.site.nth, self.fault),
            actor => write!(f, "{actor}: {} {}", self.site, self.fault),
        }
    }
}

/// Which faults are injected.
#[derive(Debug, Clone)]
pub(crate) enum FaultSource {
    /// By chance.
    Random { seed: u64, rates: FaultRates },
    /// These alone.
    Planned(HashMap<Site, Vec<Fault>>),
}

impl FaultSource {
    pub(crate) fn planned(injections: impl IntoIterator<Item = Injection>) -> FaultSource {
        let mut planned: HashMap<Site, Vec<Fault>> = HashMap::new();
        for Injection { site, fault } in injections {
            planned.entry(site).or_default().push(fault);
        }
        FaultSource::Planned(planned)
    }
}

/// The faults of a cluster. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Faults {
    state: Arc<Mutex<FaultState>>,
    is_on: Arc<watch::Sender<bool>>,
    steps: StepLog,
}

#[derive(Debug)]
struct FaultState {
    source: FaultSource,
    counts: HashMap<(Arc<str>, String), u32>,
    injected: Vec<Injection>,
}

/// What kind of request a site is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Write,
    Watch,
    /// A list with `resourceVersion=0`.
    CachedList,
    Read,
}

impl Faults {
    pub(crate) fn new(source: FaultSource, steps: StepLog) -> Faults {
        let state = FaultState {
            source,
            counts: HashMap::new(),
            injected: Vec::new(),
        };
        Faults {
            state: Arc::new(Mutex::new(state)),
            is_on: Arc::default(),
            steps,
        }
    }

    pub(crate) fn set_on(&self, is_on: bool) {
        self.is_on.send_replace(is_on);
    }

    pub(crate) fn is_on(&self) -> bool {
        *self.is_on.borrow()
    }

    /// Watches whether faults are on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<bool> {
        self.is_on.subscribe()
    }

    /// Adds a fault to a planned schedule, and switches faults on.
    pub(crate) fn plan(&self, Injection { site, fault }: Injection) {
        self.set_on(true);
        let mut state = self.state.lock();
        match &mut state.source {
            FaultSource::Planned(planned) => planned.entry(site).or_default().push(fault),
            source => *source = FaultSource::planned([Injection { site, fault }]),
        }
    }

    /// What was injected, in order.
    pub(crate) fn injected(&self) -> Vec<Injection> {
        self.state.lock().injected.clone()
    }

    /// The site of the next request of this kind; none while faults are off.
    pub(crate) fn next_site(&self, actor: &Arc<str>, request: &str) -> Option<Site> {
        if !self.is_on() {
            return None;
        }
        let mut state = self.state.lock();
        let count = state
            .counts
            .entry((actor.clone(), request.into()))
            .or_default();
        *count += 1;
        let nth = *count;
        Some(Site {
            actor: actor.clone(),
            request: request.into(),
            nth,
        })
    }

    /// The faults of a request. `name` is that of its object; empty if it has none.
    pub(crate) fn on_request(&self, site: &Site, kind: RequestKind, name: &str) -> Vec<Fault> {
        let mut faults = self.inject(
            site,
            || name.to_owned(),
            |source| match source {
                FaultSource::Planned(planned) => {
                    let planned = planned.get(site).into_iter().flatten();
                    planned.filter(|fault| !fault.is_event()).copied().collect()
                }
                FaultSource::Random { seed, rates } => random_faults(*seed, rates, site, kind),
            },
        );
        if kind == RequestKind::Write
            && let Some(write) = self.next_site(&site.actor, ANY_WRITE)
        {
            let object = || format!("{} {name}", site.request).trim_end().to_owned();
            faults.extend(self.inject(&write, object, |source| match source {
                FaultSource::Planned(planned) => planned.get(&write).cloned().unwrap_or_default(),
                FaultSource::Random { .. } => Vec::new(),
            }));
        }
        faults
    }

    /// The fault of an event of a watch. `line` is the event as it is sent.
    pub(crate) fn on_event(&self, site: &Site, event: u32, line: &[u8]) -> Option<Fault> {
        let described = || {
            let change = json::parse(line).unwrap_or_default();
            let name = change["object"]["metadata"]["name"].str();
            format!("{} {name}", change["type"].str())
        };
        let faults = self.inject(site, described, |source| match source {
            FaultSource::Planned(planned) => {
                let mut planned = planned.get(site).into_iter().flatten();
                let found = planned.find(|fault| fault.event() == Some(event));
                found.copied().into_iter().collect()
            }
            FaultSource::Random { seed, rates } => {
                let roll = hash(*seed, &format!("{}/{site}/event {event}", site.actor));
                let millis = 10 + (roll >> 32) as u32 % 5_000;
                let choices = [
                    (rates.drop_event, Fault::DropEvent { event }),
                    (rates.delay_event, Fault::DelayEvent { event, millis }),
                    (rates.repeat_event, Fault::RepeatEvent { event }),
                ];
                choose(roll, &choices).into_iter().collect()
            }
        });
        faults.first().copied()
    }

    /// The fault of a call of a webhook. Random faults do not hit calls on behalf of the test.
    pub(crate) fn on_webhook(&self, site: &Site, is_for_test: bool) -> Option<Fault> {
        let faults = self.inject(site, String::new, |source| match source {
            FaultSource::Planned(planned) => planned.get(site).cloned().unwrap_or_default(),
            FaultSource::Random { .. } if is_for_test => Vec::new(),
            FaultSource::Random { seed, rates } => {
                let roll = hash(*seed, &format!("{}/{site}", site.actor));
                let millis = 10 + (roll >> 32) as u32 % 40_000;
                let choices = [
                    (rates.dead_webhook, Fault::DeadWebhook),
                    (rates.slow_webhook, Fault::SlowWebhook { millis }),
                ];
                choose(roll, &choices).into_iter().collect()
            }
        });
        faults.first().copied()
    }

    /// The fault of a second.
    pub(crate) fn on_second(&self) -> Option<Fault> {
        let site = self.next_site(&CLUSTER.into(), "second")?;
        let faults = self.inject(&site, String::new, |source| match source {
            FaultSource::Planned(planned) => planned.get(&site).cloned().unwrap_or_default(),
            FaultSource::Random { seed, rates } => {
                let roll = hash(*seed, &format!("{site}"));
                let size = (roll >> 32) as u32;
                let seconds = if size.is_multiple_of(2) {
                    3_600
                } else {
                    -3_600
                };
                let lost = 10 + size % 120;
                let choices = [
                    (rates.restart_all, Fault::RestartAll),
                    (rates.clock_step, Fault::ClockStep { seconds }),
                    (rates.lose_nodes, Fault::LoseNodes { seconds: lost }),
                ];
                choose(roll, &choices).into_iter().collect()
            }
        });
        faults.first().copied()
    }

    /// Chooses the faults of a site, and records them with the object that they hit.
    fn inject(
        &self,
        site: &Site,
        object: impl Fn() -> String,
        choose: impl FnOnce(&FaultSource) -> Vec<Fault>,
    ) -> Vec<Fault> {
        if !self.is_on() {
            return Vec::new();
        }
        let mut state = self.state.lock();
        let faults = choose(&state.source);
        for fault in &faults {
            let injection = Injection {
                site: site.clone(),
                fault: *fault,
            };
            let object = match object().as_str() {
                "" => String::new(),
                object => format!(" ({object})"),
            };
            self.steps
                .record_fault(&site.actor, format!("{site}{object} {fault}"));
            state.injected.push(injection);
        }
        faults
    }
}

impl Fault {
    /// The event that it hits.
    fn event(&self) -> Option<u32> {
        match self {
            Fault::DropEvent { event }
            | Fault::DelayEvent { event, .. }
            | Fault::RepeatEvent { event } => Some(*event),
            _ => None,
        }
    }

    fn is_event(&self) -> bool {
        self.event().is_some()
    }

    /// How late the answer is.
    pub(crate) fn delay(&self) -> Option<Duration> {
        match self {
            Fault::Slow { millis }
            | Fault::SlowWebhook { millis }
            | Fault::DelayEvent { millis, .. } => Some(Duration::from_millis(u64::from(*millis))),
            _ => None,
        }
    }
}

/// One of the choices by its percentage, or none.
fn choose(roll: u64, choices: &[(u8, Fault)]) -> Option<Fault> {
    let mut left = (roll % 100) as i64;
    choices.iter().find_map(|(percent, fault)| {
        left -= i64::from(*percent);
        (left < 0).then_some(*fault)
    })
}

fn random_faults(seed: u64, rates: &FaultRates, site: &Site, kind: RequestKind) -> Vec<Fault> {
    let roll = hash(seed, &format!("{}/{site}", site.actor));
    let size = (roll >> 32) as u32;
    let slow = Fault::Slow {
        millis: 10 + size % 20_000,
    };
    let code = if size.is_multiple_of(2) { 500 } else { 409 };
    let common = [(rates.unavailable, Fault::Unavailable), (rates.slow, slow)];
    let own: &[(u8, Fault)] = match kind {
        RequestKind::Write => &[
            (rates.conflict, Fault::Conflict),
            (rates.lost_answer, Fault::LostAnswer { code }),
            (rates.kill, Fault::Kill),
        ],
        RequestKind::Watch => &[
            (rates.expired, Fault::Expired),
            (rates.cut_watch, Fault::CutWatch { after: size % 40 }),
        ],
        RequestKind::CachedList => &[(
            rates.stale_list,
            Fault::StaleList {
                behind: 1 + size % 20,
            },
        )],
        RequestKind::Read => &[],
    };
    choose(roll, &[&common[..], own].concat())
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(nth: u32) -> Site {
        Site {
            actor: "deployment-controller".into(),
            request: "POST replicasets".into(),
            nth,
        }
    }

    #[tokio::test]
    async fn random_faults_depend_on_seed_and_site_alone() {
        let faults = |seed| {
            let rates = FaultRates::default();
            let all =
                (0..200).map(|nth| random_faults(seed, &rates, &site(nth), RequestKind::Write));
            all.collect::<Vec<_>>()
        };
        assert_eq!(faults(7), faults(7));
        assert_ne!(faults(7), faults(8));
        let n_faults = faults(7).iter().flatten().count();
        assert!((30..80).contains(&n_faults), "{n_faults} of 200 at 27 %");
    }

    #[tokio::test]
    async fn a_planned_schedule_injects_nothing_else() {
        let plan = Injection {
            site: site(2),
            fault: Fault::Conflict,
        };
        let faults = Faults::new(FaultSource::planned([plan.clone()]), StepLog::new());
        faults.set_on(true);
        for nth in 1..=3 {
            let next = faults
                .next_site(&site(nth).actor, "POST replicasets")
                .unwrap();
            let expected: &[Fault] = if nth == 2 { &[Fault::Conflict] } else { &[] };
            assert_eq!(faults.on_request(&next, RequestKind::Write, ""), expected);
        }
        assert_eq!(faults.injected(), [plan]);
    }
}
