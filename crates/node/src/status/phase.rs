//! The phase of a pod, by the kubelet's rules (upstream: getPhase).

use mizzen_value::Value;

use crate::pod::{ContainerState, PodStage, PodState, spec};
use crate::runtime::{ContainerPhase, ContainerRole};

/// The phase of a pod. Kubernetes: a terminal phase never changes.
pub(crate) fn phase(pod: &PodState, object: &Value) -> &'static str {
    let known = object["status"]["phase"].str();
    if let Some(over) = ["Succeeded", "Failed"]
        .into_iter()
        .find(|over| *over == known)
    {
        return over;
    }
    let count = ContainerCounts::from_pod(pod, object);
    match (&pod.failure, pod.stage) {
        (Some(_), PodStage::Finished) => "Failed",
        (None, PodStage::Finished) if count.all_succeeded() => "Succeeded",
        (None, PodStage::Finished) => "Failed",
        _ if count.is_pending(pod) => "Pending",
        // If all containers have stopped, one will be restarted, or the pod is about to finish.
        _ if count.running > 0 || count.stopped > 0 => "Running",
        _ => "Pending",
    }
}

/// The number of containers by state.
#[derive(Debug, Default)]
struct ContainerCounts {
    /// Init containers that have neither completed nor failed.
    before: usize,
    /// Sidecars that have not started.
    beside: usize,
    waiting: usize,
    running: usize,
    stopped: usize,
    succeeded: usize,
    failed_before: usize,
}

impl ContainerCounts {
    fn from_pod(pod: &PodState, object: &Value) -> ContainerCounts {
        let mut count = ContainerCounts::default();
        for container in &pod.containers {
            match container.role {
                ContainerRole::Init => count.init(container),
                ContainerRole::Sidecar => {
                    count.sidecar(container, spec::container(object, &container.name))
                }
                ContainerRole::Regular => count.regular(container),
                ContainerRole::Ephemeral => {}
            }
        }
        count
    }

    fn init(&mut self, container: &ContainerState) {
        match container.end().or(container.last.as_ref()) {
            Some(end) if end.code == 0 => {}
            Some(_) if !container.is_running() => self.failed_before += 1,
            _ => self.before += 1,
        }
    }

    fn sidecar(&mut self, container: &ContainerState, spec: &Value) {
        match &container.state {
            Some(ContainerPhase::Running { .. }) => {
                self.running += 1;
                self.beside += usize::from(!container.has_started(spec));
            }
            None | Some(ContainerPhase::Creating) if container.last.is_none() => {
                self.beside += 1;
                self.waiting += 1;
            }
            _ => {}
        }
    }

    fn regular(&mut self, container: &ContainerState) {
        match &container.state {
            Some(ContainerPhase::Running { .. }) => self.running += 1,
            None | Some(ContainerPhase::Creating) if container.last.is_none() => self.waiting += 1,
            _ => {
                self.stopped += 1;
                let code = container
                    .end()
                    .or(container.last.as_ref())
                    .map(|end| end.code);
                self.succeeded += usize::from(code == Some(0));
            }
        }
    }

    fn is_pending(&self, pod: &PodState) -> bool {
        let has_begun = pod.containers.iter().any(|container| {
            container.role == ContainerRole::Regular
                && !matches!(container.state, None | Some(ContainerPhase::Creating))
        });
        self.before > 0 || self.beside > 0 && !has_begun || self.waiting > 0
    }

    fn all_succeeded(&self) -> bool {
        self.failed_before == 0 && self.stopped > 0 && self.stopped == self.succeeded
    }
}
