//! One container of a pod through all its lives: when is it started, started again, and how is it made to end?

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mizzen_sdk::event::Note;
use mizzen_value::time::duration_text;
use mizzen_value::{Str, Value};

use super::inputs::{Inputs, NO_INPUTS};
use super::probe::{Asked, Findings, Probes, output};
use super::pull::Pull;
use super::spec;
use super::supply::{Lack, Supply};
use super::{Turn, wants_inputs};
use crate::moment::{Moment, earlier};
use crate::runtime::terminal::MAX_INPUT;
use crate::runtime::{Container, End, Probe, Role, Sight, State, Wish};

/// How long it takes until somebody notices that a container ended: its end is seen before it is started again.
const NOTICE: Duration = Duration::from_millis(100);
/// Kubernetes: how long a container that keeps ending must wait, at first and at most (kubelet.go).
const FIRST_WAIT: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// A container and its history.
pub struct Held {
    /// Its name.
    pub name: Str,
    /// What it is to the pod.
    pub role: Role,
    /// How often it was started.
    pub n_starts: u32,
    /// The image of its latest life.
    pub image: Str,
    /// What it does; none before it is started for the first time.
    pub state: Option<State>,
    /// How the life before this one ended.
    pub last: Option<End>,
    /// Why it is not started again yet.
    pub back_off: Option<String>,
    /// Why its image is not there.
    pub pull: Option<Box<Pull>>,
    /// Why it cannot be made.
    pub lack: Option<Box<Lack>>,
    /// Whether it can be used, as far as the runtime knows.
    usable: bool,
    wait: Option<Wait>,
    pub(super) probes: Probes,
    pub(super) body: Option<Box<dyn Container>>,
    /// What its present life got; none if the specification says it all.
    pub inputs: Option<Arc<Inputs>>,
    /// What the life before got.
    pub last_inputs: Option<Arc<Inputs>>,
    is_told_to_stop: bool,
    /// Whether it is stopped to be started with its new image.
    pub(super) is_replaced: bool,
    pub(super) changes_at: Option<Moment>,
}

/// How long a container that ended must wait, and since when that counts.
#[derive(Debug, Clone, Copy)]
struct Wait {
    time: Duration,
    since: Moment,
}

impl Held {
    /// A container that was never started.
    pub fn new(name: &str, role: Role) -> Held {
        Held {
            name: name.into(),
            role,
            n_starts: 0,
            image: Str::default(),
            state: None,
            last: None,
            back_off: None,
            pull: None,
            lack: None,
            usable: false,
            wait: None,
            probes: Probes::default(),
            body: None,
            inputs: None,
            last_inputs: None,
            is_told_to_stop: false,
            is_replaced: false,
            changes_at: None,
        }
    }

    /// How often it was started again.
    pub fn n_restarts(&self) -> u32 {
        // Who is to start over has been restarted already, as far as people count.
        if self.state.is_none() {
            self.n_starts
        } else {
            self.n_starts.saturating_sub(1)
        }
    }

    /// Whether it runs.
    pub fn is_running(&self) -> bool {
        matches!(self.state, Some(State::Running { .. }))
    }

    /// How it ended, if it did.
    pub fn end(&self) -> Option<&End> {
        match &self.state {
            Some(State::Ended(end)) => Some(end),
            _ => None,
        }
    }

    /// Whether it runs and has started, as far as its probe knows.
    pub fn has_started(&self, spec: &Value) -> bool {
        self.is_running() && self.probes.has_started(spec)
    }

    /// Whether it can be used.
    pub fn is_ready(&self, spec: &Value) -> bool {
        match self.role {
            Role::Init => self.end().is_some_and(|end| end.code == 0),
            _ => self.has_started(spec) && self.probes.is_ready(spec).unwrap_or(self.usable),
        }
    }

    /// The id under which the runtime knows its `n`th life, counted from 1.
    pub fn id(&self, pod: &Value, scheme: &str, n: u32) -> String {
        let uid = pod["metadata"]["uid"].str().replace('-', "");
        format!(
            "{scheme}://{uid:0>32}{:016x}{n:016x}",
            crate::digest(&self.name)
        )
    }

    /// Sees how it is.
    pub fn observe(&mut self, turn: &mut Turn) {
        let Some(body) = &self.body else { return };
        let Sight {
            state,
            usable,
            changes_at,
        } = body.look(turn.now);
        (self.usable, self.changes_at) = (usable, changes_at);
        let was = self.state.replace(state);
        if self.is_running() && was == Some(State::Creating) {
            turn.tell(self, Note::normal("Started", "", "Container started"));
        }
        if self.end().is_some() {
            self.body = None;
        }
    }

    /// Starts it if it should run and may; whether something was done.
    pub fn keep_running(&mut self, supply: Option<&mut Supply>, turn: &mut Turn) -> bool {
        let spec = spec::container(turn.pod, &self.name);
        if self.state.is_none() {
            return self.make(spec, supply, turn);
        }
        match &self.state {
            Some(State::Running { .. }) if self.must_be_replaced(spec) => {
                self.replace(turn);
                true
            }
            Some(State::Ended(_)) if self.is_replaced => self.make(spec, supply, turn),
            Some(State::Ended(end)) if spec::restarts(turn.pod, spec, self.role, end.code) => {
                let finished = end.finished.unwrap_or(turn.now);
                self.restart(spec, finished, supply, turn)
            }
            _ => false,
        }
    }

    /// Whether it has another image than its specification.
    fn is_changed(&self, spec: &Value) -> bool {
        self.n_starts > 0 && self.image != spec["image"].str()
    }

    /// Kubernetes: containers that run on are replaced, and a sidecar only once it has started (kuberuntime_manager.go,
    /// `computePodActions`; kuberuntime_container.go, `computeInitContainerActions`).
    fn must_be_replaced(&self, spec: &Value) -> bool {
        let may_be = match self.role {
            Role::Regular => true,
            Role::Sidecar => self.has_started(spec),
            Role::Init | Role::Ephemeral => false,
        };
        may_be && self.is_changed(spec) && !self.is_told_to_stop
    }

    /// Stops it; once it has ended it is started with its new image, whatever the restart policy.
    fn replace(&mut self, turn: &mut Turn) {
        let said = match self.role {
            Role::Sidecar => format!("Init container {} definition changed", self.name),
            _ => format!(
                "Container {} definition changed, will be restarted",
                self.name
            ),
        };
        self.is_replaced = true;
        self.stop(turn.now + spec::grace(turn.pod), said, turn);
    }

    /// Starts it if everything is there that it needs.
    fn make(&mut self, spec: &Value, mut supply: Option<&mut Supply>, turn: &mut Turn) -> bool {
        // What was pulled once stays on the node.
        let is_pulled = self.n_starts > 0 && !self.is_changed(spec);
        let has_image = is_pulled || self.has_image(spec, turn);
        let has_all = has_image && self.has_environment(spec, supply.as_deref_mut(), turn);
        if has_all {
            self.start(spec, supply.as_deref(), turn);
        }
        has_all
    }

    fn restart(
        &mut self,
        spec: &Value,
        finished: Moment,
        supply: Option<&mut Supply>,
        turn: &mut Turn,
    ) -> bool {
        // Kubernetes: another image has a back-off of its own (kuberuntime/helpers.go, `GetBackoffKey`).
        let wait = self
            .wait
            .filter(|wait| !wait.is_over(finished) && !self.is_changed(spec));
        let waits = wait.map(|wait| wait.time);
        let due = finished + waits.unwrap_or_default().max(NOTICE);
        if turn.now >= due {
            return self.make(spec, supply, turn);
        }
        let seen = turn.now >= finished + NOTICE;
        if let Some(wait) = waits.filter(|_| seen && self.back_off.is_none()) {
            let (name, pod) = (&self.name, spec::show(turn.pod));
            let wait = duration_text(wait.as_nanos() as i64);
            let said = format!("Back-off restarting failed container {name} in pod {pod}");
            self.back_off = Some(format!(
                "back-off {wait} restarting failed container={name} pod={pod}"
            ));
            turn.tell(self, Note::warning("BackOff", "", said));
        }
        self.changes_at = Some(if seen || waits.is_none() {
            due
        } else {
            finished + NOTICE
        });
        false
    }

    fn start(&mut self, spec: &Value, supply: Option<&Supply>, turn: &mut Turn) {
        if let Some(end) = self.end() {
            let finished = end.finished.unwrap_or(turn.now);
            self.last = Some(end.clone());
            let is_changed = self.is_changed(spec);
            self.wait = (!is_changed).then(|| Wait::next(self.wait, finished, turn.now));
        }
        self.image = spec["image"].str().into();
        self.is_replaced = false;
        self.last_inputs = self.inputs.take();
        self.inputs = turn.inputs(spec, supply);
        let wish = self.wish(spec, self.n_starts, None, turn);
        self.body = Some(turn.runtime.start(&wish, turn.now));
        self.n_starts += 1;
        self.state = Some(State::Creating);
        self.back_off = None;
        self.is_told_to_stop = false;
        self.probes = Probes::default();
        turn.tell(self, pulled(spec));
        turn.tell(self, Note::normal("Created", "", "Container created"));
    }

    /// What the runtime is asked for.
    fn wish<'a>(
        &'a self,
        container: &'a Value,
        n_restarts: u32,
        since: Option<Moment>,
        turn: &Turn<'a>,
    ) -> Wish<'a> {
        let inputs = self.inputs.as_deref().unwrap_or(&NO_INPUTS);
        Wish {
            pod: turn.pod,
            container,
            role: self.role,
            n_restarts,
            since,
            inputs,
            node: turn.node,
        }
    }

    /// Finds the container that ran before the agent was restarted, once its inputs are known.
    pub(super) fn attach(&mut self, supply: Option<&Supply>, turn: &mut Turn) {
        let Some(State::Running { since }) = self.state else {
            return;
        };
        let spec = spec::container(turn.pod, &self.name);
        let is_unread = supply.is_some_and(|supply| !supply.is_read());
        if self.body.is_some() || is_unread && wants_inputs(turn.pod, spec, turn.runtime) {
            return;
        }
        self.inputs = turn.inputs(spec, supply);
        self.last_inputs = self.inputs.clone();
        let wish = self.wish(spec, self.n_restarts(), Some(since), turn);
        self.body = Some(turn.runtime.start(&wish, turn.now));
    }

    /// Lets the files of a running container follow what they are made of; whether it has files that may change.
    pub(super) fn follow_files(&mut self, supply: Option<&Supply>, turn: &Turn) -> bool {
        let Some(State::Running { since }) = self.state else {
            return false;
        };
        let Some((_, before)) = self.inputs.as_ref().and_then(|inputs| inputs.files.last()) else {
            return false;
        };
        if supply.is_some_and(|supply| !supply.has_volumes(turn.pod)) {
            return true;
        }
        let spec = spec::container(turn.pod, &self.name);
        let files = turn.sources(supply).changed_files(spec, before);
        if files != *before {
            Arc::make_mut(self.inputs.get_or_insert_default()).update_files(files, turn.now);
            self.update(since, turn);
        }
        true
    }

    /// Takes what was typed into its stdin; none closes it. What nothing reads is dropped.
    pub(crate) fn receive(&mut self, data: Option<Bytes>, turn: &Turn) -> Result<(), String> {
        let Some(State::Running { since }) = self.state else {
            return Ok(());
        };
        let inputs = Arc::make_mut(self.inputs.get_or_insert_default());
        let typed = inputs.stdin.iter().filter_map(|(_, data)| data.as_ref());
        let size: usize = typed.chain(&data).map(Bytes::len).sum();
        if size > MAX_INPUT {
            return Err(format!(
                "the input of a simulated container is limited to {MAX_INPUT} bytes"
            ));
        }
        inputs.stdin.push((turn.now, data));
        self.update(since, turn);
        Ok(())
    }

    /// Tells the container of its new inputs.
    fn update(&mut self, since: Moment, turn: &Turn) {
        let spec = spec::container(turn.pod, &self.name);
        let mut body = self.body.take();
        if let Some(body) = &mut body {
            body.update(&self.wish(spec, self.n_restarts(), Some(since), turn));
        }
        self.body = body;
    }

    /// Asks its probes; whether something was done.
    pub fn probe(&mut self, turn: &mut Turn) -> bool {
        let Some(State::Running { since }) = self.state else {
            return false;
        };
        let Some(body) = &self.body else { return false };
        let spec = spec::container(turn.pod, &self.name);
        let mut probes = std::mem::take(&mut self.probes);
        let asked = Asked {
            wish: self.wish(spec, self.n_restarts(), Some(since), turn),
            body: body.as_ref(),
            since,
            ending: turn.ending || self.is_told_to_stop,
        };
        let Findings {
            failed,
            fatal,
            wake,
        } = probes.ask(&asked, turn.now);
        self.probes = probes;
        self.changes_at = earlier(self.changes_at, wake);
        for (probe, said) in failed {
            let usual = || output(&spec[spec::field(probe)], &turn.address);
            let said = format!("{probe:?} probe failed: {}", said.unwrap_or_else(usual));
            turn.tell(self, Note::warning("Unhealthy", "", said));
        }
        match fatal.filter(|_| !self.is_told_to_stop) {
            Some(probe) => {
                self.kill_unhealthy(spec, probe, turn);
                true
            }
            None => false,
        }
    }

    fn kill_unhealthy(&mut self, spec: &Value, probe: Probe, turn: &mut Turn) {
        let what = if self.role == Role::Sidecar {
            "Init container"
        } else {
            "Container"
        };
        let which = if probe == Probe::Startup {
            "startup"
        } else {
            "liveness"
        };
        let mut said = format!("{what} {} failed {which} probe", self.name);
        if self.role == Role::Regular && spec::restarts(turn.pod, spec, self.role, 137) {
            said += ", will be restarted";
        }
        let grace = spec::grace_after(turn.pod, spec, probe);
        self.stop(turn.now + grace, said, turn);
    }

    /// Tells it to stop, and ends it at `kill`.
    pub fn stop(&mut self, kill: Moment, said: String, turn: &mut Turn) {
        let Some(body) = &mut self.body else { return };
        let spec = spec::container(turn.pod, &self.name);
        let ask = (turn.now + spec::pre_stop(spec)).min(kill);
        body.stop(ask, kill);
        if !self.is_told_to_stop {
            self.is_told_to_stop = true;
            turn.tell(self, Note::normal("Killing", "", said));
        }
        self.observe(turn);
    }

    /// Gives up what is not there yet, and what was to be done.
    pub fn give_up(&mut self) {
        self.back_off = None;
        self.pull = None;
        self.lack = None;
        self.is_replaced = false;
        if self.state == Some(State::Creating) {
            self.body = None;
            self.n_starts -= 1;
            self.state = self.last.take().map(State::Ended);
        }
        if self.body.is_none() {
            self.changes_at = None;
        }
    }

    /// Lets it be one of which nobody knows how it ended.
    pub fn lose(&mut self) {
        self.body = None;
        self.state = Some(State::Ended(End {
            started: None,
            finished: None,
            code: 137,
            reason: Str::new_static("ContainerStatusUnknown"),
            message: Str::new_static(
                "The container could not be located when the pod was terminated",
            ),
        }));
    }

    /// When to look at it again.
    pub fn wakes_at(&self) -> Option<Moment> {
        self.changes_at
    }
}

/// That a container's image is there.
pub(super) fn pulled(spec: &Value) -> Note {
    let image = spec["image"].str();
    Note::normal(
        "Pulled",
        "",
        format!("Container image {image:?} already present on machine"),
    )
}

impl Wait {
    /// Kubernetes: who ran well for long enough begins anew (client-go, util/flowcontrol/backoff.go).
    fn is_over(&self, finished: Moment) -> bool {
        finished.saturating_since(self.since) > LONGEST_WAIT * 2
    }

    fn next(before: Option<Wait>, finished: Moment, now: Moment) -> Wait {
        let time = match before.filter(|wait| !wait.is_over(finished)) {
            Some(wait) => (wait.time * 2).min(LONGEST_WAIT),
            None => FIRST_WAIT,
        };
        Wait { time, since: now }
    }
}
