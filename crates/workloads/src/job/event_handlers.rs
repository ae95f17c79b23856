//! The event handlers of jobs and pods.

use std::sync::Arc;

use mizzen_component_helpers::pod_state::is_terminal;
use mizzen_object::select::LabelSelector;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::controller::controlled_by;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use super::SYNC_BATCH_PERIOD;
use super::facts::is_tracked;
use super::metrics::JobMetrics;

/// Jobs go to the queue of the controller, pods without an active job to `orphans`.
#[derive(Clone)]
pub(super) struct JobEventHandlers {
    pub jobs: Informer<Object>,
    pub pods: Informer<Object>,
    pub orphans: Queue<Key>,
    pub metrics: Arc<JobMetrics>,
}

impl JobEventHandlers {
    pub(super) fn on_job_event(&self, event: &Event<Object>, todo: &Queue<Key>) {
        let key = event.key().clone();
        match event {
            Event::Added { .. } => todo.add(key),
            Event::Updated { old, new } if generation(old) == generation(new) => {
                todo.add_after(key, SYNC_BATCH_PERIOD)
            }
            Event::Updated { .. } => todo.add(key),
            Event::Deleted { last, .. } => {
                controlled_by(&self.pods, last.uid())
                    .iter()
                    .for_each(|pod| self.orphans.add(pod.key().clone()));
                todo.add(key);
            }
        }
    }

    pub(super) fn on_pod_event(&self, event: &Event<Object>, todo: &Queue<Key>) {
        let Ok(pod) = event.object().object() else {
            return;
        };
        let before = match event {
            Event::Updated { old, .. } => old.object().ok(),
            _ => None,
        };
        let is_counted = |pod: &Object| is_tracked(pod) && is_terminal(pod);
        let was_counted = match event {
            Event::Deleted { .. } => is_counted(&pod),
            _ => before.as_deref().is_some_and(is_counted),
        };
        let is_counted = !matches!(event, Event::Deleted { .. }) && is_counted(&pod);
        if was_counted != is_counted {
            self.metrics.count_tracking_finalizer(is_counted);
        }
        let job = controlling_job(&pod);
        job.iter()
            .chain(&before.as_ref().and_then(|before| controlling_job(before)))
            .for_each(|key| enqueue_batched(key, todo));
        let is_orphan = pod.controller().is_none();
        if is_tracked(&pod) && (is_orphan || pod.is_terminating()) {
            self.orphans.add(pod.key());
        }
        let claims = |pod: &Object| (pod["metadata"]["labels"].clone(), pod.owners().to_vec());
        let is_new = before.is_none_or(|before| claims(&before) != claims(&pod));
        if is_orphan && is_new && !matches!(event, Event::Deleted { .. }) {
            self.matching_jobs(&pod)
                .iter()
                .for_each(|key| enqueue_batched(key, todo));
        }
    }

    /// The jobs that may adopt a pod.
    fn matching_jobs(&self, pod: &Object) -> Vec<Key> {
        let wants = |job: &Object| {
            let selector = LabelSelector::from_value(&job["spec"]["selector"])
                .filter(|selector| !selector.is_empty());
            selector.is_some_and(|selector| selector.matches(|label| pod.label(label)))
        };
        let jobs = self
            .jobs
            .lister()
            .namespaced(pod.namespace())
            .list()
            .unwrap_or_default();
        jobs.iter()
            .filter(|job| wants(job))
            .map(|job| job.key())
            .collect()
    }
}

fn enqueue_batched(job: &Key, todo: &Queue<Key>) {
    todo.add_after(job.clone(), SYNC_BATCH_PERIOD);
}

/// The job that controls a pod.
fn controlling_job(pod: &Object) -> Option<Key> {
    let is_job = |owner: &&Value| owner["kind"].str() == "Job";
    pod.controller()
        .filter(is_job)
        .map(|owner| Key::new(pod.namespace(), owner["name"].str()))
}

fn generation(job: &Entry<Object>) -> i64 {
    job.object()
        .map_or(0, |job| job["metadata"]["generation"].int())
}
