//! How is a whole pod started over in its place? A rule of one container asks for it when that container ends.
//!
//! Everything that runs is ended, what was is forgotten but for that it was, and init containers begin anew.

use mizzen_value::{Str, Value};

use super::{Held, Pod, Turn, spec};
use crate::runtime::{End, Role};

/// Why containers ended that a neighbour's rule has ended.
const REASON: &str = "RestartingAllContainers";
const MESSAGE: &str = "The container is removed because RestartAllContainers in place";

impl Pod {
    /// Whether a container has ended for which a rule says that all must start over.
    pub(super) fn must_renew(&self, pod: &Value) -> bool {
        let asks = |held: &Held| {
            let spec = spec::container(pod, &held.name);
            !held.is_replaced
                && held
                    .end()
                    .is_some_and(|end| spec::restarts_all(spec, end.code))
        };
        self.containers
            .iter()
            .any(|held| held.role != Role::Ephemeral && asks(held))
    }

    /// Ends what runs; once nothing does, all containers are as new. Whether something was done.
    pub(super) fn keep_renewing(&mut self, turn: &mut Turn) -> bool {
        let kill = turn.now + spec::grace(turn.pod);
        let ours = |held: &&mut Held| held.role != Role::Ephemeral;
        for held in self.containers.iter_mut().filter(ours) {
            held.give_up();
            if held.is_running() {
                held.stop(kill, format!("Stopping container {}", held.name), turn);
            }
        }
        let is_over = !self
            .containers
            .iter()
            .any(|held| held.role != Role::Ephemeral && held.is_running());
        if is_over {
            self.containers.iter_mut().filter(ours).for_each(forget);
            self.is_renewed = false;
        }
        is_over
    }
}

/// Lets a container be one that was never started, but for how often it was.
fn forget(held: &mut Held) {
    if held.n_starts == 0 {
        return;
    }
    let end = held.end().cloned();
    held.state = None;
    held.last = Some(End {
        started: end.as_ref().and_then(|end| end.started),
        finished: end.and_then(|end| end.finished),
        code: 137,
        reason: Str::new_static(REASON),
        message: Str::new_static(MESSAGE),
    });
}
