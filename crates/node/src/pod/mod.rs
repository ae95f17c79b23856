//! The life cycle of a pod on a node, whatever the runtime.
//!
//! A [`PodState`] is the state that the agent keeps between two syncs; everything else is read from
//! the object. [`PodState::advance`] updates the containers, does what is due, and returns when to
//! sync again.
//!
//! Invariant: pure but for the runtime: time comes in, Events come out.

mod addresses;
pub mod claims;
mod container;
pub mod env_file;
mod image_volumes;
pub mod inputs;
mod probe;
mod pull;
pub mod references;
mod resize;
pub(crate) mod resources;
mod restart_all;
mod restore;
mod sandbox;
pub mod spec;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mizzen_component_helpers::pod_state::is_terminal;
use mizzen_sdk::event::Note;
use mizzen_value::{Str, Value};

pub use addresses::PodAddresses;
pub use container::ContainerState;
use image_volumes::ImageVolumes;
use inputs::{
    InputSources, Inputs, NO_VARIABLES, NodeContext, Variables, VolumeContents,
    has_volatile_variables, known_mounts,
};
use references::{Found, ObjectKey, ReferencedObjects};
pub use resize::{PendingResize, PodResize};

use crate::eviction::Eviction;
use crate::moment::{Moment, earlier, seconds};
use crate::runtime::{ContainerPhase, ContainerRole, ContainerRuntime};
use crate::shutdown;

/// Kubernetes: the least grace period of a pod (pod_workers.go, `calculateEffectiveGracePeriod`).
const LEAST_GRACE: Duration = Duration::from_secs(1);
/// The most consecutive steps at one moment.
const MOST_STEPS: usize = 1000;

/// The state of a pod on a node.
pub struct PodState {
    /// Its containers, in the order of the specification.
    pub containers: Vec<ContainerState>,
    /// The stage of its life cycle.
    pub stage: PodStage,
    /// Why the pod failed as a whole, if it did.
    pub failure: Option<PodFailure>,
    /// The resources of the pod as a whole that its cgroup has.
    pub resources: Value,
    /// Its resize, while it is in progress.
    pub resize: Option<PodResize>,
    /// Its resize, while it is deferred.
    pub resize_pending: Option<PendingResize>,
    /// How the node ends it before its time, if it does.
    pub eviction: Option<PodEviction>,
    /// Its pod IPs, once it has any.
    pub addresses: PodAddresses,
    /// Whether it has a sandbox in which containers can start; `None` if the runtime makes none.
    pub has_sandbox: Option<bool>,
    /// Whether its containers have run, or may have, in a sandbox without which they start over.
    needs_old_sandbox: bool,
    /// When the node accepted it.
    pub began: Moment,
    /// Whether all its containers are being restarted.
    pub is_restarting_all: bool,
    /// The grace period of its deletion, in seconds, as it was last seen.
    deletion_grace: Option<i64>,
    /// The ConfigMaps and Secrets that it references, if any.
    pub referenced: Option<Box<ReferencedObjects>>,
    /// The pulls of its volumes that are images.
    image_volumes: ImageVolumes,
}

/// The stage of a pod's life cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodStage {
    /// Its containers run, or will.
    Active,
    /// Its containers are being stopped.
    Ending {
        /// When they are killed; it only becomes sooner.
        kill: Moment,
    },
    /// No container runs any more.
    Finished,
}

/// Why a pod failed as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct PodFailure {
    /// The reason.
    pub reason: Str,
    /// The message.
    pub message: String,
    /// Whether it was rejected at admission.
    pub rejected: bool,
}

/// How a node ends a pod before its time: by an eviction, or because it shuts down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodEviction {
    /// Its grace period.
    pub grace: Duration,
    /// Whether it has the condition DisruptionTarget.
    pub is_disruption: bool,
}

/// One sync of a pod.
pub struct SyncContext<'a> {
    /// The pod as the API has it.
    pub pod: &'a Value,
    /// The time of the sync.
    pub now: Moment,
    /// The container runtime.
    pub runtime: &'a dyn ContainerRuntime,
    /// What the node adds to its containers.
    pub node: NodeContext<'a>,
    /// The Events to record.
    pub events: Vec<PodEvent>,
    ending: bool,
    /// The pod's IPs.
    addresses: PodAddresses,
    /// The pulls of the pod's image volumes, while its containers are synced.
    image_volumes: ImageVolumes,
}

/// An Event about a pod, or one of its containers.
#[derive(Debug, Clone, PartialEq)]
pub struct PodEvent {
    /// The field path of the container; empty for the pod.
    pub path: String,
    /// The Event.
    pub note: Note,
}

impl<'a> SyncContext<'a> {
    /// A sync of `pod` on `node` at `now`.
    pub fn new(
        pod: &'a Value,
        now: Moment,
        runtime: &'a dyn ContainerRuntime,
        node: NodeContext<'a>,
    ) -> SyncContext<'a> {
        SyncContext {
            pod,
            now,
            runtime,
            node,
            events: Vec::new(),
            ending: false,
            addresses: PodAddresses::default(),
            image_volumes: ImageVolumes::default(),
        }
    }

    fn sources<'b>(&'b self, referenced: Option<&'b ReferencedObjects>) -> InputSources<'b> {
        static NOTHING: BTreeMap<ObjectKey, Found> = BTreeMap::new();
        let found = referenced.map_or(&NOTHING, |referenced| &referenced.found);
        InputSources {
            pod: self.pod,
            pod_ips: &self.addresses,
            node: self.node,
            services: self.node.services(),
            found,
            from_files: &NO_VARIABLES,
        }
    }

    /// The inputs of a container that starts now, unless its specification says it all. Shared
    /// inputs are held once.
    fn inputs(
        &self,
        container: &Value,
        referenced: Option<&ReferencedObjects>,
        from_files: &Variables,
    ) -> Option<Arc<Inputs>> {
        if self.runtime.runs_processes() {
            let sources = InputSources {
                from_files,
                ..self.sources(referenced)
            };
            let variables = sources.variables(container);
            return Some(Arc::new(Inputs {
                variables: Some(variables),
                ..Inputs::default()
            }));
        }
        if !needs_inputs(self.pod, container, self.runtime) {
            return self.node.common.cloned();
        }
        let sources = self.sources(referenced);
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

    /// The files of the pod's volumes.
    fn volumes(&self, referenced: Option<&ReferencedObjects>) -> VolumeContents {
        self.sources(referenced).volumes()
    }

    fn record(&mut self, container: &ContainerState, note: Note) {
        let list = match container.role {
            ContainerRole::Init | ContainerRole::Sidecar => "initContainers",
            ContainerRole::Regular => "containers",
            ContainerRole::Ephemeral => "ephemeralContainers",
        };
        self.events.push(PodEvent {
            path: format!("spec.{list}{{{}}}", container.name),
            note,
        });
    }
}

impl PodState {
    /// A new pod, or one that was here before the agent restarted.
    pub fn new(pod: &Value, now: Moment, runtime: &dyn ContainerRuntime) -> PodState {
        restore::pod(pod, now, runtime)
    }

    /// A pod that was rejected at admission.
    pub fn rejected(reason: &str, message: String, now: Moment) -> PodState {
        let failure = PodFailure {
            reason: reason.into(),
            message,
            rejected: true,
        };
        PodState {
            containers: Vec::new(),
            stage: PodStage::Finished,
            failure: Some(failure),
            resources: Value::Null,
            resize: None,
            resize_pending: None,
            eviction: None,
            addresses: PodAddresses::default(),
            has_sandbox: None,
            needs_old_sandbox: false,
            began: now,
            is_restarting_all: false,
            deletion_grace: None,
            referenced: None,
            image_volumes: ImageVolumes::default(),
        }
    }

    /// Ends the pod, because the node has evicted it; false if it has ended.
    pub(crate) fn evict(&mut self, eviction: Eviction, pod: &Value, now: Moment) -> bool {
        let cause = PodFailure {
            reason: Str::new_static("Evicted"),
            message: eviction.message,
            rejected: false,
        };
        self.end_early(eviction.grace, eviction.is_disruption, cause, pod, now)
    }

    /// Ends the pod within `grace`, because the node shuts down; false if it has ended.
    pub(crate) fn shut_down(&mut self, grace: Duration, pod: &Value, now: Moment) -> bool {
        let [reason, message] = shutdown::TERMINATION;
        let cause = PodFailure {
            reason: Str::new_static(reason),
            message: message.into(),
            rejected: false,
        };
        self.end_early(grace, true, cause, pod, now)
    }

    /// Ends the pod within `grace`. A pod that ends already gets no more time than before, and keeps
    /// the cause that it has. Kubernetes: pod_workers.go, `calculateEffectiveGracePeriod`.
    fn end_early(
        &mut self,
        grace: Duration,
        is_disruption: bool,
        cause: PodFailure,
        pod: &Value,
        now: Moment,
    ) -> bool {
        let grace = grace.max(LEAST_GRACE);
        match &mut self.stage {
            PodStage::Active => {}
            PodStage::Ending { kill } => *kill = (*kill).min(now + grace),
            PodStage::Finished => return false,
        }
        let runs = self.stage == PodStage::Active
            || self.containers.iter().any(ContainerState::is_running);
        let is_cause = runs && self.failure.is_none();
        if is_cause {
            self.failure = Some(cause);
        }
        let before = self
            .eviction
            .map_or_else(|| spec::grace(pod), |it| it.grace);
        let was_disruption = self.eviction.is_some_and(|it| it.is_disruption);
        self.eviction = Some(PodEviction {
            grace: before.min(grace),
            is_disruption: (is_cause && is_disruption) || was_disruption,
        });
        true
    }

    /// Whether the node has ended or rejected the pod, because it shuts down.
    pub(crate) fn is_shut_down(&self) -> bool {
        let failure = self.failure.as_ref();
        failure.is_some_and(|failure| shutdown::is_cause(&failure.reason))
    }

    /// Does what is due; returns when to sync again, if nothing happens before.
    pub fn advance(&mut self, sync: &mut SyncContext) -> Option<Moment> {
        self.adopt_new_containers(sync);
        sync.addresses = match sync.pod["spec"]["hostNetwork"].bool() {
            true => sync.node.host_ip.into(),
            false => self.addresses.clone(),
        };
        self.update_inputs(sync);
        for _ in 0..MOST_STEPS {
            self.check_termination(sync);
            self.note_deletion(sync);
            sync.ending = self.stage != PodStage::Active;
            let acted = self.observe_containers(sync)
                | match self.stage {
                    PodStage::Active if self.is_restarting_all => self.keep_restarting_all(sync),
                    PodStage::Active => self.keep_running(sync),
                    PodStage::Ending { kill } => self.stop_containers(kill, sync),
                    PodStage::Finished => false,
                };
            if !acted {
                break;
            }
        }
        self.next_sync(sync)
    }

    /// Passes new inputs to running containers.
    fn update_inputs(&mut self, sync: &mut SyncContext) {
        if let Some(referenced) = self.referenced.as_deref_mut() {
            referenced.note_metadata(sync.pod, sync.now);
        }
        let mut follows = false;
        for container in &mut self.containers {
            container.attach(self.referenced.as_deref(), sync);
            follows |= container.follow_files(self.referenced.as_deref(), sync);
        }
        follows |= self.update_volumes(sync);
        if let Some(referenced) = self.referenced.as_deref_mut().filter(|_| follows) {
            referenced.keep_fresh();
        }
    }

    /// Passes the current files of volumes to a runtime with processes; true if the objects of
    /// which they are made may change.
    fn update_volumes(&self, sync: &SyncContext) -> bool {
        let has_begun = self.containers.iter().any(|it| it.n_starts > 0);
        if !has_begun || !sync.runtime.runs_processes() || self.stage != PodStage::Active {
            return false;
        }
        let referenced = self.referenced.as_deref();
        if referenced.is_none_or(|referenced| referenced.has_volumes(sync.pod)) {
            sync.runtime
                .update_volumes(sync.pod, sync.volumes(referenced));
        }
        referenced.is_some()
    }

    /// Adds containers that were added to the pod, such as ephemeral ones.
    fn adopt_new_containers(&mut self, sync: &SyncContext) {
        if self.stage == PodStage::Finished {
            return;
        }
        let before = self.containers.len();
        for (role, container) in spec::containers(sync.pod).skip(before) {
            self.containers
                .push(ContainerState::new(container["name"].str(), role));
        }
        if self.containers.len() > before
            && let Some(later) = ReferencedObjects::from_pod(sync.pod, sync.now, sync.runtime)
        {
            match &mut self.referenced {
                Some(referenced) => referenced.add(*later),
                None => self.referenced = Some(later),
            }
        }
    }

    /// Reads a new grace period of the deletion. Kubernetes: it counts from now, whatever the
    /// deletionTimestamp, and only a shorter one has an effect (pod_workers.go,
    /// `calculateEffectiveGracePeriod`).
    fn note_deletion(&mut self, sync: &SyncContext) {
        let grace = sync.pod["metadata"]["deletionGracePeriodSeconds"].as_int();
        if self.deletion_grace == grace {
            return;
        }
        self.deletion_grace = grace;
        if let PodStage::Ending { kill } = &mut self.stage {
            *kill = (*kill).min(sync.now + spec::grace(sync.pod));
        }
    }

    /// Decides whether the pod must end, and why.
    fn check_termination(&mut self, sync: &mut SyncContext) {
        if self.stage != PodStage::Active {
            return;
        }
        if self
            .deadline(sync.pod)
            .is_some_and(|deadline| deadline <= sync.now)
        {
            let message = "Pod was active on the node longer than the specified deadline";
            let note = Note::normal("DeadlineExceeded", "", message);
            sync.events.push(PodEvent {
                path: String::new(),
                note,
            });
            let reason = Str::new_static("DeadlineExceeded");
            self.failure = Some(PodFailure {
                reason,
                message: message.into(),
                rejected: false,
            });
        }
        let is_going = !sync.pod["metadata"]["deletionTimestamp"].is_null();
        let is_over = is_terminal(sync.pod);
        // What has ended for good starts again with the others. Kubernetes: `ShouldAllContainersRestart`
        // (container/helpers.go).
        let restarts_all = self.is_restarting_all || self.must_restart_all(sync.pod);
        let is_done = !restarts_all && self.is_done(sync.pod);
        if self.failure.is_some() || is_going || is_over || is_done {
            let evicted = self.eviction.map(|eviction| eviction.grace);
            let grace = evicted.unwrap_or_else(|| spec::grace(sync.pod));
            self.stage = PodStage::Ending {
                kill: sync.now + grace,
            };
            self.containers.iter_mut().for_each(ContainerState::cancel);
            self.is_restarting_all = false;
        } else {
            self.is_restarting_all = restarts_all;
        }
    }

    fn deadline(&self, pod: &Value) -> Option<Moment> {
        let limit = &pod["spec"]["activeDeadlineSeconds"];
        (!limit.is_null()).then(|| self.began + seconds(limit))
    }

    /// Whether all containers that count have ended for good.
    fn is_done(&self, pod: &Value) -> bool {
        let for_good = |container: &ContainerState| {
            let spec = spec::container(pod, &container.name);
            let end = container.end().filter(|_| !container.is_replaced);
            end.filter(|end| !spec::restarts(pod, spec, container.role, end.code))
                .map(|end| end.code)
        };
        let of = |role: ContainerRole| {
            self.containers
                .iter()
                .filter(move |container| container.role == role)
        };
        let has_failed = of(ContainerRole::Init)
            .any(|container| for_good(container).is_some_and(|code| code != 0));
        has_failed
            || of(ContainerRole::Regular).count() > 0
                && of(ContainerRole::Regular).all(|container| for_good(container).is_some())
    }

    fn observe_containers(&mut self, sync: &mut SyncContext) -> bool {
        let mut acted = false;
        for container in &mut self.containers {
            container.observe(sync);
            acted |= container.probe(sync);
        }
        acted
    }

    /// Starts what should run: init containers until each has completed, then the regular ones.
    /// Ephemeral containers wait for none of them, because with them an init container is debugged.
    /// Kubernetes: a container starts once the one before it has its image, runs, and has run its
    /// postStart hook (kuberuntime_manager.go, `SyncPod`). A simulated start takes no time.
    fn keep_running(&mut self, sync: &mut SyncContext) -> bool {
        // A pod that has just ended needs no new sandbox.
        if self.is_done(sync.pod) {
            return true;
        }
        if !self.volumes_ready(sync) || !self.sandbox_ready(sync) {
            return false;
        }
        sync.image_volumes = std::mem::take(&mut self.image_volumes);
        let acted = self.start_in_order(true, sync) | self.start_in_order(false, sync);
        self.image_volumes = std::mem::take(&mut sync.image_volumes);
        self.follow_resize(sync);
        acted || self.is_done(sync.pod)
    }

    /// Starts the ephemeral containers, or the regular ones after the init containers; true if
    /// something was done.
    fn start_in_order(&mut self, is_ephemeral: bool, sync: &mut SyncContext) -> bool {
        let mut acted = false;
        let has_begun = self.has_initialized();
        let containers = self.containers.iter_mut();
        for container in
            containers.filter(|it| (it.role == ContainerRole::Ephemeral) == is_ephemeral)
        {
            acted |= container.ensure_running(self.referenced.as_deref_mut(), sync);
            let may_go_on = match container.role {
                ContainerRole::Init => container.is_ready(&Value::Null),
                ContainerRole::Sidecar => {
                    has_begun || container.has_started(spec::container(sync.pod, &container.name))
                }
                _ => true,
            };
            if !may_go_on || sync.runtime.runs_processes() && container.is_starting() {
                break;
            }
        }
        acted
    }

    /// Whether init containers and sidecars are over that regular containers wait for. Kubernetes:
    /// those that have ended may be of an older sandbox (kuberuntime_container.go,
    /// `computeInitContainerActions`).
    fn has_initialized(&self) -> bool {
        self.containers.iter().any(|container| {
            let runs = matches!(
                container.state,
                Some(ContainerPhase::Running { .. } | ContainerPhase::Creating)
            );
            container.role == ContainerRole::Regular && runs
        })
    }

    /// Stops what still runs. Kubernetes: all preStop hooks run at once; then a sidecar waits for the
    /// regular containers and for the sidecar after it, as long as there is time
    /// (kuberuntime_container.go, `killContainer`; kuberuntime_termination_order.go).
    fn stop_containers(&mut self, kill: Moment, sync: &mut SyncContext) -> bool {
        let has_time = sync.now < kill;
        let is_sidecar = |it: &ContainerState| it.role == ContainerRole::Sidecar;
        let (mut sidecars, mut others): (Vec<&mut ContainerState>, Vec<&mut ContainerState>) = self
            .containers
            .iter_mut()
            .partition(|container| is_sidecar(container));
        for container in &mut others {
            container.stop_for_good(kill, false, sync);
        }
        let regular_runs = others
            .iter()
            .any(|container| container.role == ContainerRole::Regular && container.is_alive());
        let mut next_runs = false;
        for container in sidecars.iter_mut().rev() {
            container.stop_for_good(kill, has_time && (regular_runs || next_runs), sync);
            next_runs = container.is_alive();
        }
        let is_alive = self.containers.iter().any(ContainerState::is_alive);
        let is_over = !is_alive && sync.runtime.stop_sandbox(sync.pod);
        if is_over {
            self.finish(sync.pod);
        }
        is_over
    }

    fn finish(&mut self, pod: &Value) {
        self.stage = PodStage::Finished;
        if self.was_initialized(pod) {
            let lost = |container: &&mut ContainerState| {
                container.role == ContainerRole::Regular && container.end().is_none()
            };
            self.containers
                .iter_mut()
                .filter(lost)
                .for_each(ContainerState::set_status_unknown);
        }
        let is_first = |container: &ContainerState| {
            matches!(container.role, ContainerRole::Init | ContainerRole::Sidecar)
        };
        let begun = self
            .containers
            .iter()
            .rposition(|container| is_first(container) && container.n_starts > 0)
            .unwrap_or(0);
        let lost =
            |container: &&mut ContainerState| is_first(container) && container.end().is_none();
        self.containers
            .iter_mut()
            .take(begun + 1)
            .filter(lost)
            .for_each(ContainerState::set_status_unknown);
    }

    /// Whether regular containers could have run.
    pub fn was_initialized(&self, pod: &Value) -> bool {
        let mut first = self.containers.iter().filter(|container| {
            matches!(container.role, ContainerRole::Init | ContainerRole::Sidecar)
        });
        let begun = self
            .containers
            .iter()
            .any(|container| container.role == ContainerRole::Regular && container.n_starts > 0);
        begun
            || first.all(|container| match container.role {
                ContainerRole::Init => container.is_ready(&Value::Null),
                _ => container.has_started(spec::container(pod, &container.name)),
            })
    }

    fn next_sync(&self, sync: &SyncContext) -> Option<Moment> {
        let containers = self
            .containers
            .iter()
            .filter_map(ContainerState::next_sync)
            .filter(|at| *at > sync.now)
            .min();
        match self.stage {
            PodStage::Active => earlier(
                containers,
                earlier(self.deadline(sync.pod), self.next_read()),
            ),
            PodStage::Ending { kill } => earlier(containers, self.next_kill(kill, sync)),
            PodStage::Finished => None,
        }
    }

    /// Sidecars that wait for their turn are killed at the end of the grace period.
    fn next_kill(&self, kill: Moment, sync: &SyncContext) -> Option<Moment> {
        let is_alive = self.containers.iter().any(ContainerState::is_alive);
        (kill > sync.now && is_alive).then_some(kill)
    }
}

/// Whether a container gets more than its specification says.
fn needs_inputs(pod: &Value, container: &Value, runtime: &dyn ContainerRuntime) -> bool {
    has_volatile_variables(container) || reads_files(pod, container, runtime)
}

fn reads_files(pod: &Value, container: &Value, runtime: &dyn ContainerRuntime) -> bool {
    known_mounts(pod, container).next().is_some() && runtime.reads_files(container)
}
