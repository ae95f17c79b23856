//! RestartAllContainers: a restart rule of one container restarts the whole pod in place.
//!
//! Running containers are stopped, then all containers start over, init containers first.

use mizzen_value::{Str, Value};

use super::{ContainerState, PodState, SyncContext, spec};
use crate::runtime::{ContainerRole, Termination};

/// The termination reason of containers that the rule stopped.
const REASON: &str = "RestartingAllContainers";
const MESSAGE: &str = "The container is removed because RestartAllContainers in place";

impl PodState {
    /// Whether a container has exited with a code for which a rule restarts all containers.
    pub(super) fn must_restart_all(&self, pod: &Value) -> bool {
        let triggers_restart = |container: &ContainerState| {
            let spec = spec::container(pod, &container.name);
            !container.is_replaced
                && container
                    .end()
                    .is_some_and(|end| spec::restarts_all(spec, end.code))
        };
        self.containers.iter().any(|container| {
            container.role != ContainerRole::Ephemeral && triggers_restart(container)
        })
    }

    /// Stops what runs; once nothing does, resets all containers. Returns true if something was
    /// done.
    pub(super) fn keep_restarting_all(&mut self, sync: &mut SyncContext) -> bool {
        let kill = sync.now + spec::grace(sync.pod);
        let ours = |container: &&mut ContainerState| container.role != ContainerRole::Ephemeral;
        for container in self.containers.iter_mut().filter(ours) {
            container.cancel();
            if container.is_running() {
                container.stop(kill, format!("Stopping container {}", container.name), sync);
            }
        }
        let is_over = !self
            .containers
            .iter()
            .any(|container| container.role != ContainerRole::Ephemeral && container.is_alive());
        if is_over {
            self.containers
                .iter_mut()
                .filter(ours)
                .for_each(ContainerState::reset);
            self.is_restarting_all = false;
        }
        is_over
    }
}

impl ContainerState {
    /// Resets a container to its state before the first start, but for the restart count.
    fn reset(&mut self) {
        if self.n_starts == 0 {
            return;
        }
        let end = self.end().cloned();
        self.state = None;
        self.last = Some(Termination {
            started: end.as_ref().and_then(|end| end.started),
            finished: end.and_then(|end| end.finished),
            code: 137,
            reason: Str::new_static(REASON),
            message: Str::new_static(MESSAGE),
        });
    }
}
