//! Resizes of running containers, and of the cgroup of their pod.
//!
//! While containers get their limits, one after the other, the cgroup of the pod has room for both
//! the old and the new ones. It gets its own limits when none of them has to be resized any more.

use std::sync::Arc;
use std::time::Duration;

use mizzen_component_helpers::pod_state::quality_of_service;
use mizzen_cri::messages::UpdateContainerResourcesRequest;
use mizzen_value::Value;
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::container::ContainerCell;
use super::{CriNode, resources};
use crate::pod::resources::of_container;
use crate::runtime::ResizeProgress;

/// How long a failed resize waits before it is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// The latest resize of a container or of a pod, if there was one.
#[derive(Default)]
pub(super) struct LatestResize {
    resize: Mutex<Option<Resize>>,
    /// The turns of resizes, one of which may still go on when the next one begins.
    turns: tokio::sync::Mutex<()>,
}

struct Resize {
    wanted: Value,
    progress: ResizeProgress,
}

impl LatestResize {
    /// The progress of a resize, which is over once it is done. `None` if it begins now, instead of
    /// another one.
    fn begin(&self, wanted: &Value) -> Option<ResizeProgress> {
        let mut latest = self.resize.lock();
        let known = latest.as_ref().filter(|it| it.wanted == *wanted);
        if let Some(progress) = known.map(|it| it.progress.clone()) {
            if progress == ResizeProgress::Done {
                *latest = None;
            }
            return Some(progress);
        }
        *latest = Some(Resize {
            wanted: wanted.clone(),
            progress: ResizeProgress::InProgress,
        });
        None
    }

    /// Whether no other resize has begun since.
    fn is_current(&self, wanted: &Value) -> bool {
        let latest = self.resize.lock();
        latest.as_ref().is_some_and(|it| it.wanted == *wanted)
    }

    fn note(&self, wanted: &Value, progress: ResizeProgress) {
        let mut latest = self.resize.lock();
        if let Some(resize) = latest.as_mut().filter(|it| it.wanted == *wanted) {
            resize.progress = progress;
        }
    }
}

/// What is resized.
enum Target {
    Container(Arc<ContainerCell>, Value),
    Pod(Arc<LatestResize>),
}

impl Target {
    fn latest(&self) -> &LatestResize {
        match self {
            Target::Container(cell, _) => &cell.resize,
            Target::Pod(latest) => latest,
        }
    }
}

impl CriNode {
    /// Begins the resize of a running container, or goes on with it.
    pub(super) fn resize_container(
        self: &Arc<Self>,
        cell: &Arc<ContainerCell>,
        pod: &Value,
        container: &Value,
    ) -> ResizeProgress {
        let target = Target::Container(cell.clone(), container.clone());
        self.resize(target, of_container(pod, container), pod)
    }

    /// Begins the resize of the cgroup of a pod, or goes on with it.
    pub(super) fn resize_pod(self: &Arc<Self>, pod: &Value) -> ResizeProgress {
        let latest = {
            let pods = self.pods.lock();
            let record = pods.get(pod["metadata"]["uid"].str());
            record.map(|record| record.resize.clone())
        };
        let Some(latest) = latest else {
            return ResizeProgress::Done;
        };
        // It depends on the containers, too.
        let spec = &pod["spec"];
        let lists = [
            &spec["resources"],
            &spec["containers"],
            &spec["initContainers"],
        ];
        let wanted = Value::List(lists.map(Value::clone).into());
        self.resize(Target::Pod(latest), wanted, pod)
    }

    fn resize(self: &Arc<Self>, target: Target, wanted: Value, pod: &Value) -> ResizeProgress {
        match target.latest().begin(&wanted) {
            Some(progress) => progress,
            None => {
                tokio::spawn(self.clone().keep_resizing(target, wanted, pod.clone()));
                ResizeProgress::InProgress
            }
        }
    }

    /// Tries until it succeeds, unless another resize follows or what is resized has ended.
    async fn keep_resizing(self: Arc<Self>, target: Target, wanted: Value, pod: Value) {
        let uid = pod["metadata"]["uid"].str();
        loop {
            let turn = target.latest().turns.lock().await;
            if !target.latest().is_current(&wanted) {
                return;
            }
            let tried = match &target {
                Target::Container(cell, spec) => {
                    let id = cell.state.lock().id.clone();
                    self.try_resize_container(&id, &pod, spec).await
                }
                Target::Pod(_) => self.try_resize_pod(&pod).await,
            };
            let progress = match tried {
                Ok(()) => ResizeProgress::Done,
                Err(error) => ResizeProgress::Failed(error),
            };
            let is_done = progress == ResizeProgress::Done;
            target.latest().note(&wanted, progress);
            drop(turn);
            self.wake_pod(uid);
            let has_ended = match &target {
                Target::Container(cell, _) => !cell.state.lock().phase.is_running(),
                Target::Pod(_) => !self.pods.lock().contains_key(uid),
            };
            if is_done || has_ended {
                return;
            }
            sleep(RETRY).await;
        }
    }

    async fn try_resize_container(
        self: &Arc<Self>,
        id: &str,
        pod: &Value,
        spec: &Value,
    ) -> Result<(), String> {
        let limits = resources::of_container(pod, spec, self.machine);
        let container = Some((id, spec["name"].str(), limits.memory_limit_in_bytes));
        self.check_memory_decrease(pod, container).await?;
        self.limit_pod(pod, true).await?;
        let update = UpdateContainerResourcesRequest {
            container_id: id.into(),
            linux: Some(limits),
        };
        let updated = self.client.call(update).await;
        updated.map(drop).map_err(|error| error.message)
    }

    async fn try_resize_pod(self: &Arc<Self>, pod: &Value) -> Result<(), String> {
        self.check_memory_decrease(pod, None).await?;
        self.limit_pod(pod, false).await
    }

    /// Kubernetes: a memory limit is not set below what is used, which would kill containers
    /// (kuberuntime_manager.go, `validateMemoryResizeAction`). `container` is its ID, its name and its
    /// limit.
    async fn check_memory_decrease(
        self: &Arc<Self>,
        pod: &Value,
        container: Option<(&str, &str, i64)>,
    ) -> Result<(), String> {
        let uid = pod["metadata"]["uid"].str();
        let of_pod = self.cgroups.pod_path(quality_of_service(pod), uid);
        let mut limits = Vec::new();
        if let Some(wanted) = resources::of_pod(pod).memory {
            limits.push(("pod".to_owned(), None, wanted));
        }
        if let Some((id, name, wanted)) = container {
            limits.push((format!("container {name:?}"), Some(id.to_owned()), wanted));
        }
        let node = self.clone();
        let check = move || {
            let errors = limits.into_iter().filter_map(|(what, id, wanted)| {
                let path = match id {
                    None => Some(of_pod.clone()),
                    Some(id) => node.cgroups.container_path(&of_pod, &id),
                };
                let memory = node.cgroups.measure(&path?)?.memory;
                resources::refuse_decrease(&what, &memory, wanted)
            });
            errors.collect::<Vec<String>>()
        };
        let errors = spawn_blocking(check).await;
        match errors.map_err(|error| error.to_string())?.as_slice() {
            [] => Ok(()),
            [one] => Err(format!("cannot decrease memory limits: {one}")),
            several => Err(format!(
                "cannot decrease memory limits: [{}]",
                several.join(", ")
            )),
        }
    }

    /// Sets the limits of the cgroup of a pod. With `keeps_more`, those that it has stay where they are
    /// more.
    pub(super) async fn limit_pod(
        self: &Arc<Self>,
        pod: &Value,
        keeps_more: bool,
    ) -> Result<(), String> {
        let (node, pod) = (self.clone(), pod.clone());
        let limited = spawn_blocking(move || node.cgroups.update_pod(&pod, keeps_more)).await;
        match limited {
            Ok(limited) => limited.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}
