//! The sandbox of a pod, in which its containers run. If it is lost, such as by a restart of the
//! machine, all containers start over in a new one, init containers first.

use mizzen_sdk::event::Note;
use mizzen_value::Value;

use super::{ContainerState, PodAddresses, PodEvent, PodState, SyncContext, spec};
use crate::runtime::{ContainerPhase, ContainerRole, SandboxState};

impl PodState {
    /// Ensures that there is a sandbox.
    pub(super) fn sandbox_ready(&mut self, sync: &mut SyncContext) -> bool {
        if self.has_lost_sandbox(sync) && !self.start_over(sync) {
            return false;
        }
        let state = {
            let volumes = || sync.volumes(self.referenced.as_deref());
            sync.runtime.sandbox(sync.pod, &volumes)
        };
        let events = sync.runtime.take_events(sync.pod).into_iter();
        sync.events.extend(events.map(|note| PodEvent {
            path: String::new(),
            note,
        }));
        match state {
            SandboxState::Pending => false,
            SandboxState::Ready { addresses: None } => true,
            SandboxState::Ready {
                addresses: Some(addresses),
            } => {
                self.addresses = PodAddresses::of_sandbox(&addresses, sync.node.host_ip);
                if !sync.pod["spec"]["hostNetwork"].bool() {
                    sync.addresses = self.addresses.clone();
                }
                self.has_sandbox = Some(true);
                self.needs_old_sandbox = true;
                true
            }
        }
    }

    /// Whether the sandbox in which its containers were has ended.
    fn has_lost_sandbox(&self, sync: &SyncContext) -> bool {
        self.needs_old_sandbox && !sync.runtime.has_sandbox(sync.pod)
    }

    /// Stops what still runs and resets init containers; false if there must be no new sandbox, or
    /// not yet. Kubernetes: kuberuntime_manager.go, `computePodActions`.
    fn start_over(&mut self, sync: &mut SyncContext) -> bool {
        self.has_sandbox = Some(false);
        let kill = sync.now + spec::grace(sync.pod);
        for container in &mut self.containers {
            container.cancel();
            if container.is_running() {
                container.stop(kill, format!("Stopping container {}", container.name), sync);
            }
        }
        let is_alive = self.containers.iter().any(ContainerState::is_alive);
        if is_alive || !self.may_start_over(sync.pod) {
            return false;
        }
        let message = "Pod sandbox changed, it will be killed and re-created.";
        sync.events.push(PodEvent {
            path: String::new(),
            note: Note::normal("SandboxChanged", "", message),
        });
        for container in &mut self.containers {
            if matches!(container.role, ContainerRole::Init | ContainerRole::Sidecar) {
                container.forget_run();
            }
        }
        self.needs_old_sandbox = false;
        true
    }

    /// Whether containers of the pod may start once more. Kubernetes: with the policy Never a pod
    /// stays as it is once it has a container.
    fn may_start_over(&self, pod: &Value) -> bool {
        let has_containers = self.containers.iter().any(|it| it.n_starts > 0);
        !has_containers || pod["spec"]["restartPolicy"].str() != "Never"
    }
}

impl ContainerState {
    /// Returns an init container to its state before the first start, but for the restart count.
    pub(super) fn forget_run(&mut self) {
        if let Some(ContainerPhase::Ended(end)) = self.state.take() {
            self.last = Some(end);
        }
    }
}
