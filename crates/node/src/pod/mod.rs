//! How does a pod live on a node? From its first container to its last, whatever the runtime.
//!
//! A [`Pod`] is what the agent remembers between two looks; everything else is read from the object. [`Pod::advance`]
//! sees what became of containers, does what is to be done now, and says when to look again.
//!
//! Invariant: pure but for the runtime it is given: time comes in, notes for people come out.

mod held;
pub mod inputs;
mod probe;
mod pull;
mod renew;
mod restore;
pub mod spec;
pub mod supply;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mizzen_kinds::pod_state::is_terminal;
use mizzen_sdk::event::Note;
use mizzen_value::{Str, Value};

pub use held::Held;
use inputs::{Inputs, NodeContext, Sources, has_volatile_variables, known_mounts};
use supply::{Found, Need, Supply};

use crate::moment::{Moment, earlier, from_value, seconds};
use crate::runtime::{ContainerRuntime, Role, State};

/// How often something can follow from something else at one moment.
const MOST_STEPS: usize = 1000;

/// A pod on a node.
pub struct Pod {
    /// Its containers, in the order of the specification.
    pub containers: Vec<Held>,
    /// Where it is in its life.
    pub stage: Stage,
    /// Why it failed as a whole, if it did.
    pub verdict: Option<Verdict>,
    /// Its address, once it has one.
    pub address: Str,
    /// When the node took it over.
    pub began: Moment,
    /// Whether all its containers are made to start over.
    pub is_renewed: bool,
    /// Its deletionTimestamp and when that is, on the monotonic clock: read once, so that it survives a step of the wall clock.
    deletion: Option<(Str, Moment)>,
    /// What it needs of the API, if it needs anything.
    pub supply: Option<Box<Supply>>,
}

/// Where a pod is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Its containers run, or will.
    Active,
    /// Its containers are made to end.
    Ending {
        /// Since when.
        since: Moment,
    },
    /// Nothing of it runs any more.
    Finished,
}

/// Why a pod failed as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// In one word.
    pub reason: Str,
    /// For people.
    pub message: String,
    /// Whether it never came to life here.
    pub rejected: bool,
}

/// One look at a pod.
pub struct Turn<'a> {
    /// The pod as the API has it.
    pub pod: &'a Value,
    /// When it is looked at.
    pub now: Moment,
    /// Who runs containers.
    pub runtime: &'a dyn ContainerRuntime,
    /// What the node adds to its containers.
    pub node: NodeContext<'a>,
    /// What people are told.
    pub notes: Vec<Told>,
    ending: bool,
    /// The pod's address.
    address: Str,
}

/// What people are told of a pod, or of one of its containers.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// The container, as a path into the pod; empty for the pod.
    pub path: String,
    /// What is told.
    pub note: Note,
}

impl<'a> Turn<'a> {
    /// A look at `pod` on `node`, `now`.
    pub fn new(
        pod: &'a Value,
        now: Moment,
        runtime: &'a dyn ContainerRuntime,
        node: NodeContext<'a>,
    ) -> Turn<'a> {
        Turn {
            pod,
            now,
            runtime,
            node,
            notes: Vec::new(),
            ending: false,
            address: Str::default(),
        }
    }

    fn sources<'b>(&'b self, supply: Option<&'b Supply>) -> Sources<'b> {
        static NOTHING: BTreeMap<Need, Found> = BTreeMap::new();
        let found = supply.map_or(&NOTHING, |supply| &supply.found);
        Sources {
            pod: self.pod,
            pod_ip: &self.address,
            node: self.node,
            services: self.node.services(),
            found,
        }
    }

    /// What a container that starts now gets, unless its specification says it all. What all containers get is held once.
    fn inputs(&self, container: &Value, supply: Option<&Supply>) -> Option<Arc<Inputs>> {
        if !wants_inputs(self.pod, container, self.runtime) {
            return self.node.common.cloned();
        }
        let sources = self.sources(supply);
        let variables = has_volatile_variables(container).then(|| sources.variables(container));
        let files = match reads_files(self.pod, container, self.runtime) {
            true => vec![(Moment::default(), sources.files(container))],
            false => Vec::new(),
        };
        Some(Arc::new(Inputs {
            variables,
            files,
            services: self.node.services().to_vec(),
            stdin: Vec::new(),
        }))
    }

    fn tell(&mut self, held: &Held, note: Note) {
        let list = match held.role {
            Role::Init | Role::Sidecar => "initContainers",
            Role::Regular => "containers",
            Role::Ephemeral => "ephemeralContainers",
        };
        self.notes.push(Told {
            path: format!("spec.{list}{{{}}}", held.name),
            note,
        });
    }
}

impl Pod {
    /// A pod that comes to the node now, or that was here before the agent was restarted.
    pub fn new(pod: &Value, now: Moment, runtime: &dyn ContainerRuntime) -> Pod {
        restore::pod(pod, now, runtime)
    }

    /// A pod that the node does not take.
    pub fn rejected(reason: &str, message: String, now: Moment) -> Pod {
        let verdict = Verdict {
            reason: reason.into(),
            message,
            rejected: true,
        };
        Pod {
            containers: Vec::new(),
            stage: Stage::Finished,
            verdict: Some(verdict),
            address: Str::default(),
            began: now,
            is_renewed: false,
            deletion: None,
            supply: None,
        }
    }

    /// Does what is to be done now; when to look again, if nothing happens before.
    pub fn advance(&mut self, turn: &mut Turn) -> Option<Moment> {
        self.meet_newcomers(turn);
        self.note_deletion(turn);
        turn.address = match turn.pod["spec"]["hostNetwork"].bool() {
            true => turn.node.host_ip.into(),
            false => self.address.clone(),
        };
        self.follow_inputs(turn);
        for _ in 0..MOST_STEPS {
            self.judge(turn);
            turn.ending = self.stage != Stage::Active;
            let acted = self.look_around(turn)
                | match self.stage {
                    Stage::Active if self.is_renewed => self.keep_renewing(turn),
                    Stage::Active => self.keep_running(turn),
                    Stage::Ending { since } => self.keep_ending(since, turn),
                    Stage::Finished => false,
                };
            if !acted {
                break;
            }
        }
        self.wakes_at(turn)
    }

    /// Gives running containers what has been read for them.
    fn follow_inputs(&mut self, turn: &mut Turn) {
        let mut follows = false;
        for held in &mut self.containers {
            held.attach(self.supply.as_deref(), turn);
            follows |= held.follow_files(self.supply.as_deref(), turn);
        }
        if let Some(supply) = self.supply.as_deref_mut().filter(|_| follows) {
            supply.keep_fresh();
        }
    }

    /// Containers that were added to the pod while it lives.
    fn meet_newcomers(&mut self, turn: &Turn) {
        if self.stage == Stage::Finished {
            return;
        }
        let before = self.containers.len();
        for (role, container) in spec::containers(turn.pod).skip(before) {
            self.containers
                .push(Held::new(container["name"].str(), role));
        }
        if self.containers.len() > before
            && let Some(later) = Supply::of(turn.pod, turn.now, turn.runtime)
        {
            match &mut self.supply {
                Some(supply) => supply.add(*later),
                None => self.supply = Some(later),
            }
        }
    }

    /// Reads the deletionTimestamp when it is new.
    fn note_deletion(&mut self, turn: &Turn) {
        let text = &turn.pod["metadata"]["deletionTimestamp"];
        if self
            .deletion
            .as_ref()
            .is_none_or(|(known, _)| known.as_str() != text.str())
        {
            self.deletion = from_value(text, turn.now).map(|at| (text.str().into(), at));
        }
    }

    /// Whether the pod must end, and why.
    fn judge(&mut self, turn: &mut Turn) {
        if self.stage != Stage::Active {
            return;
        }
        if self
            .deadline(turn.pod)
            .is_some_and(|deadline| deadline <= turn.now)
        {
            let message = "Pod was active on the node longer than the specified deadline";
            let note = Note::normal("DeadlineExceeded", "", message);
            turn.notes.push(Told {
                path: String::new(),
                note,
            });
            let reason = Str::new_static("DeadlineExceeded");
            self.verdict = Some(Verdict {
                reason,
                message: message.into(),
                rejected: false,
            });
        }
        let is_going = !turn.pod["metadata"]["deletionTimestamp"].is_null();
        let is_over = is_terminal(turn.pod);
        if self.verdict.is_some() || is_going || is_over || self.is_done(turn.pod) {
            self.stage = Stage::Ending { since: turn.now };
            self.containers.iter_mut().for_each(Held::give_up);
            self.is_renewed = false;
        } else if self.must_renew(turn.pod) {
            self.is_renewed = true;
        }
    }

    fn deadline(&self, pod: &Value) -> Option<Moment> {
        let limit = &pod["spec"]["activeDeadlineSeconds"];
        (!limit.is_null()).then(|| self.began + seconds(limit))
    }

    /// Whether there is nothing left to run: everything that counts has ended for good.
    fn is_done(&self, pod: &Value) -> bool {
        let for_good = |held: &Held| {
            let spec = spec::container(pod, &held.name);
            let end = held.end().filter(|_| !held.is_replaced);
            end.filter(|end| !spec::restarts(pod, spec, held.role, end.code))
                .map(|end| end.code)
        };
        let of = |role: Role| self.containers.iter().filter(move |held| held.role == role);
        let has_failed = of(Role::Init).any(|held| for_good(held).is_some_and(|code| code != 0));
        has_failed
            || of(Role::Regular).count() > 0
                && of(Role::Regular).all(|held| for_good(held).is_some())
    }

    fn look_around(&mut self, turn: &mut Turn) -> bool {
        let mut acted = false;
        for held in &mut self.containers {
            held.observe(turn);
            acted |= held.probe(turn);
        }
        acted
    }

    /// Starts what should run: init containers one after the other, then all others at once.
    fn keep_running(&mut self, turn: &mut Turn) -> bool {
        if !self.is_mounted(turn) {
            return false;
        }
        let mut acted = false;
        let has_begun = self
            .containers
            .iter()
            .any(|held| held.role == Role::Regular && held.n_starts > 0);
        for held in &mut self.containers {
            acted |= held.keep_running(self.supply.as_deref_mut(), turn);
            let may_go_on = match held.role {
                Role::Init => held.is_ready(&Value::Null),
                Role::Sidecar => {
                    has_begun || held.has_started(spec::container(turn.pod, &held.name))
                }
                _ => true,
            };
            if !may_go_on {
                break;
            }
        }
        acted || self.is_done(turn.pod)
    }

    /// Stops what still runs: regular containers first, then sidecars from the last to the first.
    fn keep_ending(&mut self, since: Moment, turn: &mut Turn) -> bool {
        let kill = self.killed_at(since, turn);
        let mut later_runs = false;
        let is_regular = |held: &Held| held.role != Role::Sidecar;
        let (mut regular, mut sidecars): (Vec<&mut Held>, Vec<&mut Held>) = self
            .containers
            .iter_mut()
            .partition(|held| is_regular(held));
        for held in regular.iter_mut().chain(sidecars.iter_mut().rev()) {
            let may_wait = held.role == Role::Sidecar && turn.now < kill;
            if held.is_running() && !(later_runs && may_wait) {
                held.stop(
                    kill.max(turn.now),
                    format!("Stopping container {}", held.name),
                    turn,
                );
            }
            later_runs |= held.is_running();
        }
        if !later_runs {
            self.finish(turn.pod);
        }
        !later_runs
    }

    /// When containers of a pod that ends are ended.
    fn killed_at(&self, since: Moment, turn: &Turn) -> Moment {
        let patience = since + spec::grace(turn.pod);
        // Who deletes again may be less patient.
        let deletion = self
            .deletion
            .as_ref()
            .map(|(_, at)| (*at).max(since + Duration::from_secs(2)));
        deletion.map_or(patience, |deletion| patience.min(deletion))
    }

    fn finish(&mut self, pod: &Value) {
        self.stage = Stage::Finished;
        if self.was_initialized(pod) {
            let lost = |held: &&mut Held| held.role == Role::Regular && held.end().is_none();
            self.containers.iter_mut().filter(lost).for_each(Held::lose);
        }
        let is_first = |held: &Held| matches!(held.role, Role::Init | Role::Sidecar);
        let begun = self
            .containers
            .iter()
            .rposition(|held| is_first(held) && held.n_starts > 0)
            .unwrap_or(0);
        let lost = |held: &&mut Held| is_first(held) && held.end().is_none();
        self.containers
            .iter_mut()
            .take(begun + 1)
            .filter(lost)
            .for_each(Held::lose);
    }

    /// Whether regular containers could have run.
    pub fn was_initialized(&self, pod: &Value) -> bool {
        let mut first = self
            .containers
            .iter()
            .filter(|held| matches!(held.role, Role::Init | Role::Sidecar));
        let begun = self
            .containers
            .iter()
            .any(|held| held.role == Role::Regular && held.n_starts > 0);
        begun
            || first.all(|held| match held.role {
                Role::Init => held.is_ready(&Value::Null),
                _ => held.has_started(spec::container(pod, &held.name)),
            })
    }

    fn wakes_at(&self, turn: &Turn) -> Option<Moment> {
        let containers = self
            .containers
            .iter()
            .filter_map(Held::wakes_at)
            .filter(|at| *at > turn.now)
            .min();
        match self.stage {
            Stage::Active => earlier(
                containers,
                earlier(self.deadline(turn.pod), self.reads_at()),
            ),
            Stage::Ending { since } => earlier(containers, self.kill_wakes_at(since, turn)),
            Stage::Finished => None,
        }
    }

    /// A sidecar whose turn does not come must not be forgotten.
    fn kill_wakes_at(&self, since: Moment, turn: &Turn) -> Option<Moment> {
        let is_alive =
            |held: &Held| matches!(held.state, Some(State::Running { .. } | State::Creating));
        let kill = self.killed_at(since, turn);
        (kill > turn.now && self.containers.iter().any(is_alive)).then_some(kill)
    }
}

/// Whether a container gets more than its specification says.
fn wants_inputs(pod: &Value, container: &Value, runtime: &dyn ContainerRuntime) -> bool {
    has_volatile_variables(container) || reads_files(pod, container, runtime)
}

fn reads_files(pod: &Value, container: &Value, runtime: &dyn ContainerRuntime) -> bool {
    known_mounts(pod, container).next().is_some() && runtime.reads_files(container)
}
