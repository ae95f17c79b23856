//! The event handlers of jobs and pods.

use mizzen_object::select::LabelSelector;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use super::SYNC_BATCH_PERIOD;
use super::facts::is_tracked;
use crate::common::controller_index;

/// Registers handlers. Jobs go to `queue`, pods without an active job to `orphans`.
pub(super) fn register(
    jobs: &Informer<Object>,
    pods: &Informer<Object>,
    todo: &Queue<Key>,
    orphans: &Queue<Key>,
) {
    let handlers = JobEventHandlers {
        jobs: jobs.clone(),
        pods: pods.clone(),
        todo: todo.clone(),
        orphans: orphans.clone(),
    };
    jobs.add_handler({
        let handlers = handlers.clone();
        move |event: Event<Object>| handlers.on_job_event(&event)
    });
    pods.add_handler(move |event: Event<Object>| handlers.on_pod_event(&event));
}

#[derive(Clone)]
struct JobEventHandlers {
    jobs: Informer<Object>,
    pods: Informer<Object>,
    todo: Queue<Key>,
    orphans: Queue<Key>,
}

impl JobEventHandlers {
    fn on_job_event(&self, event: &Event<Object>) {
        let key = event.key().clone();
        match event {
            Event::Added { .. } => self.todo.add(key),
            Event::Updated { old, new } if generation(old) == generation(new) => {
                self.todo.add_after(key, SYNC_BATCH_PERIOD)
            }
            Event::Updated { .. } => self.todo.add(key),
            Event::Deleted { last, .. } => {
                controller_index::controlled_by(&self.pods, last.uid())
                    .iter()
                    .for_each(|pod| self.orphans.add(pod.key().clone()));
                self.todo.add(key);
            }
        }
    }

    fn on_pod_event(&self, event: &Event<Object>) {
        let Ok(pod) = event.object().object() else {
            return;
        };
        let before = match event {
            Event::Updated { old, .. } => old.object().ok(),
            _ => None,
        };
        let job = controlling_job(&pod);
        job.iter()
            .chain(&before.as_ref().and_then(|before| controlling_job(before)))
            .for_each(|key| self.enqueue_batched(key));
        let is_orphan = pod.controller().is_none();
        if is_tracked(&pod) && (is_orphan || pod.is_terminating()) {
            self.orphans.add(pod.key());
        }
        let claims = |pod: &Object| (pod["metadata"]["labels"].clone(), pod.owners().to_vec());
        let is_new = before.is_none_or(|before| claims(&before) != claims(&pod));
        if is_orphan && is_new && !matches!(event, Event::Deleted { .. }) {
            self.matching_jobs(&pod)
                .iter()
                .for_each(|key| self.enqueue_batched(key));
        }
    }

    fn enqueue_batched(&self, job: &Key) {
        self.todo.add_after(job.clone(), SYNC_BATCH_PERIOD);
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
