//! In which phase is a pod? The kubelet's rules, from what its containers do.

use mizzen_value::Value;

use crate::pod::{Held, Pod, Stage, spec};
use crate::runtime::{Role, State};

/// The phase of a pod. Kubernetes: once it is over it stays so.
pub(crate) fn phase(pod: &Pod, object: &Value) -> &'static str {
    let known = object["status"]["phase"].str();
    if let Some(over) = ["Succeeded", "Failed"]
        .into_iter()
        .find(|over| *over == known)
    {
        return over;
    }
    match (&pod.verdict, pod.stage) {
        (Some(_), Stage::Finished) => "Failed",
        (None, Stage::Finished) if Count::of(pod, object).all_succeeded() => "Succeeded",
        (None, Stage::Finished) => "Failed",
        _ => living(pod, object),
    }
}

/// The phase of a pod of which something may still run.
fn living(pod: &Pod, object: &Value) -> &'static str {
    let count = Count::of(pod, object);
    if count.is_pending(pod) {
        return "Pending";
    }
    match count {
        Count { running: 1.., .. } => "Running",
        // Everything has ended, and something will be started again, or be made to end first.
        Count { stopped: 1.., .. } => "Running",
        _ => "Pending",
    }
}

/// How many containers do what.
#[derive(Debug, Default)]
struct Count {
    /// Init containers that have not completed, and did not fail either.
    before: usize,
    /// Sidecars that have not started.
    beside: usize,
    waiting: usize,
    running: usize,
    stopped: usize,
    succeeded: usize,
    failed_before: usize,
}

impl Count {
    fn of(pod: &Pod, object: &Value) -> Count {
        let mut count = Count::default();
        for held in &pod.containers {
            match held.role {
                Role::Init => count.init(held),
                Role::Sidecar => count.sidecar(held, spec::container(object, &held.name)),
                Role::Regular => count.regular(held),
                Role::Ephemeral => {}
            }
        }
        count
    }

    fn init(&mut self, held: &Held) {
        match held.end().or(held.last.as_ref()) {
            Some(end) if end.code == 0 => {}
            Some(_) if !held.is_running() => self.failed_before += 1,
            _ => self.before += 1,
        }
    }

    fn sidecar(&mut self, held: &Held, spec: &Value) {
        match &held.state {
            Some(State::Running { .. }) => {
                self.running += 1;
                self.beside += usize::from(!held.has_started(spec));
            }
            None | Some(State::Creating) if held.last.is_none() => {
                self.beside += 1;
                self.waiting += 1;
            }
            _ => {}
        }
    }

    fn regular(&mut self, held: &Held) {
        match &held.state {
            Some(State::Running { .. }) => self.running += 1,
            None | Some(State::Creating) if held.last.is_none() => self.waiting += 1,
            _ => {
                self.stopped += 1;
                let code = held.end().or(held.last.as_ref()).map(|end| end.code);
                self.succeeded += usize::from(code == Some(0));
            }
        }
    }

    fn is_pending(&self, pod: &Pod) -> bool {
        let has_begun = pod.containers.iter().any(|held| {
            held.role == Role::Regular && !matches!(held.state, None | Some(State::Creating))
        });
        self.before > 0 || self.beside > 0 && !has_begun || self.waiting > 0
    }

    fn all_succeeded(&self) -> bool {
        self.failed_before == 0 && self.stopped > 0 && self.stopped == self.succeeded
    }
}
