//! The loop: hear what happened, try the next pod.

use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_sdk::api::Api;
use mizzen_sdk::cache::Lister;
use mizzen_sdk::event::Severity;
use mizzen_sdk::resource::NODES;
use mizzen_sdk::seam::{Chance, Clock};
use mizzen_value::Str;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{Instant, sleep_until};
use tracing::Instrument as _;

use crate::HashMap;
use crate::bind::Bind;
use crate::cache::Slot;
use crate::cycle::{
    Diagnosis, Prepared, check_with_nominated, filter, how_many, pick, prepare, rank,
};
use crate::extender::Extender;
use crate::inbox::Letter;
use crate::meter::{Levels, Meter, Outcome};
use crate::model::Pod;
use crate::plugin::Names;
use crate::profile::Profile;
use crate::queue::{Queue, Waiting};
use crate::report::{Condition, Report, Reports};
use crate::reserve::{self, Doer, Step};
use crate::run::Options;
use crate::tell::{Herald, Note, Told};
use crate::world::World;

/// How many pods are tried before others have a turn.
const TURN: u32 = 8;
/// How often it is noted how much there is of everything.
const NOTE_EVERY: Duration = Duration::from_secs(1);
/// How many pods may be on their way to their nodes.
const MOST_IN_FLIGHT: usize = 512;

/// What the loop has.
pub(crate) struct Scheduler {
    pub world: World,
    pub queue: Queue,
    pub profiles: HashMap<Str, Arc<Profile>>,
    pub extenders: Arc<[Extender]>,
    /// Nodes as the API has them, for extenders.
    pub nodes: Lister<Object>,
    /// Pods that are being bound.
    pub flight: HashMap<Str, Flight>,
    doer: Doer,
    /// Where the next search begins.
    start: usize,
    pub api: Api,
    pub clock: Clock,
    pub chance: Chance,
    pub herald: Herald,
    pub told: Told,
    pub reports: Reports,
    pub sender: Sender<Letter>,
    pub meter: Meter,
    pub is_synced: bool,
    noted: Option<Instant>,
    /// Pods for which others were just let go.
    pub holding: Vec<Str>,
}

/// A pod that is being bound.
pub(crate) struct Flight {
    pub waiting: Waiting,
    /// When the attempt began that found its node.
    pub began: Instant,
    /// What is done for it first.
    pub steps: Vec<Step>,
}

/// Why a pod has no node.
pub(crate) enum Failure {
    /// There are no nodes.
    NoNodes,
    /// None fits; in `nominate` is what becomes of the node that is nominated for it.
    Unfit {
        diagnosis: Diagnosis,
        nominate: Option<Str>,
    },
    /// Something went wrong.
    Error(String),
}

impl Scheduler {
    pub(crate) fn new(
        options: &Options,
        extenders: Vec<Extender>,
        sender: Sender<Letter>,
        meter: Meter,
    ) -> Scheduler {
        let Options {
            api,
            clock,
            chance,
            host,
            configuration,
            ..
        } = options.clone();
        Scheduler {
            world: World::default(),
            queue: Queue::new(configuration.delays),
            profiles: configuration
                .profiles
                .iter()
                .map(|one| (one.name.clone(), one.clone()))
                .collect(),
            extenders: extenders.into(),
            nodes: options.informers.objects(&NODES).lister(),
            flight: HashMap::default(),
            doer: Doer::new(api.clone(), options.clock.clone(), &options.informers),
            start: 0,
            herald: Herald::new(api.clone(), clock.clone(), host.into()),
            told: Told::default(),
            reports: Reports::new(api.clone(), clock.clone(), sender.clone()),
            api,
            clock,
            chance,
            sender,
            meter,
            is_synced: false,
            noted: None,
            holding: Vec::new(),
        }
    }

    /// Schedules until nobody is there any more.
    pub(crate) async fn run(mut self, mut inbox: Receiver<Letter>) {
        let mut n_tried = 0;
        loop {
            while let Ok(letter) = inbox.try_recv() {
                self.take_in(letter);
            }
            self.flush();
            if let Some(waiting) = self.next() {
                self.try_one(waiting).await;
                n_tried += 1;
                if n_tried % TURN == 0 {
                    tokio::task::yield_now().await;
                }
                continue;
            }
            self.note_levels();
            tokio::select! {
                letter = inbox.recv() => match letter {
                    Some(letter) => self.take_in(letter),
                    None => return,
                },
                () = sleep_until(self.queue.next_deadline()) => self.told.prune(&self.herald),
            }
        }
    }

    fn next(&mut self) -> Option<Waiting> {
        // Those that wait for volumes may wait long, and hold up nobody.
        let n_quick = self
            .flight
            .values()
            .filter(|flight| flight.steps.is_empty());
        let may = self.is_synced
            && (self.flight.len() < MOST_IN_FLIGHT || n_quick.count() < MOST_IN_FLIGHT);
        if may { self.queue.pop() } else { None }
    }

    fn note_levels(&mut self) {
        if self.noted.is_some_and(|noted| noted.elapsed() < NOTE_EVERY) {
            return;
        }
        self.noted = Some(Instant::now());
        let cache = &self.world.cache;
        self.meter.levels(Levels {
            depths: self.queue.depths(),
            n_nodes: cache.order().len(),
            n_pods: cache.n_pods(),
            n_assumed: self.flight.len(),
            dropped_events: self.herald.dropped(),
            rejected: self.queue.rejected(),
        });
    }

    /// Tries to place one pod.
    async fn try_one(&mut self, waiting: Waiting) {
        let began = Instant::now();
        let Some(profile) = self.profiles.get(&waiting.pod.scheduler).cloned() else {
            return;
        };
        if waiting.pod.is_going {
            let Pod {
                namespace, name, ..
            } = &*waiting.pod;
            let text = format!("skip schedule deleting pod: {namespace}/{name}");
            return self.tell_failure(&profile, &waiting.pod, text);
        }
        self.world.cache.refresh();
        let span = tracing::debug_span!(
            "reconcile",
            controller = "kube-scheduler",
            key = %waiting.pod.key(),
            outcome = tracing::field::Empty,
        );
        let found = self.find(&profile, &waiting.pod).instrument(span.clone());
        match found.await {
            Ok((slot, steps)) => {
                self.meter.algorithm(began.elapsed());
                span.record("outcome", Outcome::Scheduled.as_str());
                self.place(&profile, (waiting, began), slot, steps);
            }
            Err(failure) => {
                let outcome = if matches!(failure, Failure::Error(_)) {
                    Outcome::Error
                } else {
                    Outcome::Unschedulable
                };
                self.meter.attempt(outcome, &profile.name, began.elapsed());
                span.record("outcome", outcome.as_str());
                self.fail(&profile, waiting, failure);
            }
        }
        let duration_us = began.elapsed().as_micros() as u64;
        span.in_scope(|| tracing::debug!(duration_us, "scheduling attempt is over"));
    }

    /// The best node for a pod.
    async fn find(
        &mut self,
        profile: &Profile,
        pod: &Arc<Pod>,
    ) -> Result<(Slot, Vec<Step>), Failure> {
        let n_nodes = self.world.cache.order().len();
        if n_nodes == 0 {
            return Err(Failure::NoNodes);
        }
        let mut diagnosis = Diagnosis::default();
        let prepared =
            prepare(profile, pod, &mut self.world, &mut diagnosis).map_err(Failure::Error)?;
        let mut feasible = Vec::new();
        if diagnosis.before.is_empty() {
            feasible = self
                .feasible(profile, pod, &prepared, &mut diagnosis)
                .await
                .map_err(Failure::Error)?;
        }
        let slot = match feasible.as_slice() {
            [] => return Err(self.make_room(profile, pod, &prepared, diagnosis).await),
            [only] => *only,
            nodes => {
                let mut scores = rank(profile, pod, &mut self.world, nodes);
                self.consult_scores(pod, nodes, &mut scores).await;
                pick(nodes, &scores, &self.chance).ok_or(Failure::NoNodes)?
            }
        };
        let steps = prepared
            .reserve(self.world.cache.node(slot), &self.world)
            .map_err(Failure::Error)?;
        Ok((slot, steps))
    }

    /// The nodes on which a pod may be: the one that is nominated for it, or enough to choose from.
    async fn feasible(
        &mut self,
        profile: &Profile,
        pod: &Pod,
        prepared: &Prepared,
        diagnosis: &mut Diagnosis,
    ) -> Result<Vec<Slot>, String> {
        if let Some(slot) = self.nominated_slot(pod, prepared) {
            let left = self.consult_nodes(pod, vec![slot], diagnosis).await;
            if let Ok([slot]) = left.as_deref() {
                return Ok(vec![*slot]);
            }
        }
        let (world, nominated) = (&self.world, &self.queue.nominated);
        let n_nodes = world.cache.order().len();
        let n_looked_at = prepared.only.as_ref().map_or(n_nodes, Vec::len);
        let asks = |extender: &Extender| {
            !extender.options.filter.is_empty() || !extender.options.prioritize.is_empty()
        };
        let is_one_enough = profile.scores.is_empty() && !self.extenders.iter().any(asks);
        let enough = if is_one_enough {
            1
        } else {
            how_many(profile.share, n_looked_at)
        };
        let feasible = filter(
            prepared,
            pod,
            world,
            nominated,
            (self.start, enough),
            diagnosis,
        )?;
        self.start = (self.start + feasible.len() + diagnosis.refusals.len()) % n_nodes;
        self.consult_nodes(pod, feasible, diagnosis).await
    }

    /// The node that is nominated for a pod, if it may be there.
    fn nominated_slot(&self, pod: &Pod, prepared: &Prepared) -> Option<Slot> {
        let node = self.world.cache.find(&pod.nominated)?;
        let allowed = prepared
            .only
            .as_ref()
            .is_none_or(|only| only.contains(&node.slot));
        let nominated = &self.queue.nominated;
        let refusal = check_with_nominated(prepared, pod, node, &self.world, nominated);
        (allowed && refusal.is_none()).then_some(node.slot)
    }

    /// Assumes that a pod is on a node, and lets it be bound.
    fn place(
        &mut self,
        profile: &Profile,
        (waiting, began): (Waiting, Instant),
        slot: Slot,
        steps: Vec<Step>,
    ) {
        let pod = waiting.pod.clone();
        let node = self.world.cache.node(slot).name().clone();
        self.world.cache.assume(pod.clone(), slot);
        self.queue.nominated.remove(&pod.uid);
        reserve::assume(&steps, &mut self.world);
        self.flight.insert(
            pod.uid.clone(),
            Flight {
                waiting,
                began,
                steps: steps.clone(),
            },
        );
        let bind = Bind {
            api: self.api.clone(),
            herald: self.herald.clone(),
            sender: self.sender.clone(),
            scheduler: profile.name.clone(),
            pod,
            node,
            steps,
            doer: self.doer.clone(),
            extenders: self.extenders.clone(),
        };
        tokio::spawn(bind.run());
    }

    /// Puts a pod back, and says why.
    pub(crate) fn fail(&mut self, profile: &Profile, waiting: Waiting, failure: Failure) {
        let n_nodes = self.world.cache.order().len();
        let (reason, message, rejectors, nominate) = match failure {
            Failure::NoNodes => {
                let message = "no nodes available to schedule pods".to_string();
                (
                    "Unschedulable",
                    message,
                    Names::default(),
                    Some(Str::default()),
                )
            }
            Failure::Unfit {
                diagnosis,
                nominate,
            } => (
                "Unschedulable",
                diagnosis.text(n_nodes),
                diagnosis.rejectors,
                nominate,
            ),
            Failure::Error(message) => (
                "SchedulerError",
                message,
                Names::default(),
                Some(Str::default()),
            ),
        };
        let pod = waiting.pod.clone();
        self.queue.fail(waiting, rejectors);
        self.queue.nominated.add(&pod, nominate.as_ref());
        for uid in std::mem::take(&mut self.holding) {
            self.queue.hold(&uid);
        }
        self.tell_failure(profile, &pod, message.clone());
        self.reports.send(Report {
            pod,
            condition: Some(Condition { reason, message }),
            nominated: nominate,
        });
    }

    fn tell_failure(&mut self, profile: &Profile, pod: &Pod, text: String) {
        let note = Note {
            severity: Severity::Warning,
            reason: "FailedScheduling",
            action: "Scheduling",
            text,
        };
        self.herald.tell(&mut self.told, &profile.name, pod, note);
    }
}
