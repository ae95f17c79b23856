//! A resize of a pod, once the node has allocated it: running containers get their resources, then
//! the cgroup of the pod gets its limits.
//!
//! Kubernetes: pkg/kubelet/allocation, pkg/kubelet/events/resize.go.

use mizzen_sdk::event::Note;
use mizzen_value::{Map, Str, Value, json, value};

use super::{ContainerState, PodEvent, PodState, SyncContext, spec};
use crate::runtime::ResizeProgress;

/// A resize that is in progress.
#[derive(Debug, Clone, PartialEq)]
pub struct PodResize {
    /// The generation of the pod with which it began.
    pub generation: i64,
    /// Why it has failed, which is tried again.
    pub error: Option<String>,
}

/// A resize that is deferred.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingResize {
    /// The generation of the pod that is wanted.
    pub generation: i64,
    /// Why.
    pub message: String,
}

impl PodState {
    /// Begins a resize that the node has allocated.
    pub(crate) fn begin_resize(&mut self, pod: &Value) -> PodEvent {
        let generation = pod["metadata"]["generation"].int();
        self.resize = Some(PodResize {
            generation,
            error: None,
        });
        event("ResizeStarted", "started", pod, (generation, ""))
    }

    /// Defers a resize; an Event if that is new.
    pub(crate) fn defer_resize(
        &mut self,
        before: Option<PendingResize>,
        message: String,
        pod: &Value,
    ) -> Option<PodEvent> {
        let generation = pod["metadata"]["generation"].int();
        let is_new = before.is_none_or(|before| before.generation != generation);
        let deferred = || event("ResizeDeferred", "Deferred", pod, (generation, &message));
        let deferred = is_new.then(deferred);
        self.resize_pending = Some(PendingResize {
            generation,
            message,
        });
        deferred
    }

    /// Resizes the pod once its containers are resized, and records the end or an error.
    pub(super) fn follow_resize(&mut self, sync: &mut SyncContext) {
        let Some(before) = self.resize.take() else {
            return;
        };
        let generation = before.generation;
        match self.resize_progress(sync) {
            ResizeProgress::Done => {
                self.resources = sync.pod["spec"]["resources"].clone();
                let done = event("ResizeCompleted", "completed", sync.pod, (generation, ""));
                sync.events.push(done);
            }
            ResizeProgress::InProgress => self.resize = Some(before),
            ResizeProgress::Failed(error) => {
                if before.error.as_ref() != Some(&error) {
                    let failed = event("ResizeError", "error", sync.pod, (generation, &error));
                    sync.events.push(failed);
                }
                self.resize = Some(PodResize {
                    generation,
                    error: Some(error),
                });
            }
        }
    }

    fn resize_progress(&self, sync: &SyncContext) -> ResizeProgress {
        let of = |container: &ContainerState| {
            let spec = spec::container(sync.pod, &container.name);
            container.resize_progress(sync.pod, spec)
        };
        let progress = self.containers.iter().filter_map(of);
        // An error counts for more than what still goes on.
        let most = progress.max_by_key(|it| matches!(it, ResizeProgress::Failed(_)));
        most.unwrap_or_else(|| sync.runtime.resize_pod(sync.pod))
    }

    /// The pod with the resources that it has, while those of `pod` are not set yet.
    pub(crate) fn with_actual_resources(&self, pod: &Value) -> Value {
        let mut actual = pod.clone();
        let spec = actual.entry("spec");
        spec.set("resources", self.resources.clone());
        for list in ["containers", "initContainers"] {
            if spec[list].list().is_empty() {
                continue;
            }
            for container in spec.entry(list).list_mut() {
                let name = container["name"].str();
                let mut known = self.containers.iter();
                let known = known.find(|known| known.name == name && known.is_running());
                if let Some(known) = known {
                    container.set("resources", known.resources.clone());
                }
            }
        }
        actual
    }
}

/// An Event with all resources of a pod, and an error if it is not empty.
fn event(
    reason: &'static str,
    what: &str,
    pod: &Value,
    (generation, error): (i64, &str),
) -> PodEvent {
    let mut summary = Value::object();
    for list in ["initContainers", "containers"] {
        let containers = pod["spec"][list].list().iter().map(summarize);
        let containers: Vec<Value> = containers.collect();
        if !containers.is_empty() {
            summary.set(list, containers);
        }
    }
    summary.set("generation", generation);
    if !error.is_empty() {
        summary.set("error", error);
    }
    let message = format!("Pod resize {what}: {}", json::to_string(&summary));
    let note = match reason {
        "ResizeDeferred" | "ResizeError" => Note::warning(reason, "", message),
        _ => Note::normal(reason, "", message),
    };
    PodEvent {
        path: String::new(),
        note,
    }
}

/// A container with its resources, in the order of upstream's JSON.
fn summarize(container: &Value) -> Value {
    let mut resources = Value::object();
    for list in ["limits", "requests"] {
        let amounts = container["resources"][list].entries();
        let mut amounts: Vec<(Str, Value)> = amounts
            .map(|(name, amount)| (name.into(), amount.clone()))
            .collect();
        amounts.sort_by(|one, other| one.0.cmp(&other.0));
        if !amounts.is_empty() {
            resources.set(list, Value::Map(amounts.into_iter().collect::<Map>()));
        }
    }
    value!({ "name": (container["name"].clone()), "resources": resources })
}
