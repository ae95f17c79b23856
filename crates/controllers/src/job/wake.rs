//! What wakes the loop?

use mizzen_object::select::LabelSelector;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::informer::{Event, Informer};
use mizzen_sdk::queue::Queue;
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use super::GATHER;
use super::facts::is_tracked;
use crate::common::owned;

/// Listens to jobs and pods. Jobs are to be looked at, pods whose job is gone or over are to be let go.
pub(super) fn listen(
    jobs: &Informer<Object>,
    pods: &Informer<Object>,
    todo: &Queue<Key>,
    orphans: &Queue<Key>,
) {
    let wake = Wake {
        jobs: jobs.clone(),
        pods: pods.clone(),
        todo: todo.clone(),
        orphans: orphans.clone(),
    };
    jobs.add_handler({
        let wake = wake.clone();
        move |event: Event<Object>| wake.job_changed(&event)
    });
    pods.add_handler(move |event: Event<Object>| wake.pod_changed(&event));
}

#[derive(Clone)]
struct Wake {
    jobs: Informer<Object>,
    pods: Informer<Object>,
    todo: Queue<Key>,
    orphans: Queue<Key>,
}

impl Wake {
    fn job_changed(&self, event: &Event<Object>) {
        let key = event.key().clone();
        match event {
            Event::Added { .. } => self.todo.add(key),
            Event::Updated { old, new } if generation(old) == generation(new) => {
                self.todo.add_after(key, GATHER)
            }
            Event::Updated { .. } => self.todo.add(key),
            Event::Deleted { last, .. } => {
                owned::of(&self.pods, last.uid())
                    .iter()
                    .for_each(|pod| self.orphans.add(pod.key().clone()));
                self.todo.add(key);
            }
        }
    }

    fn pod_changed(&self, event: &Event<Object>) {
        let Ok(pod) = event.object().object() else {
            return;
        };
        let before = match event {
            Event::Updated { old, .. } => old.object().ok(),
            _ => None,
        };
        let job = job_of(&pod);
        job.iter()
            .chain(&before.as_ref().and_then(|before| job_of(before)))
            .for_each(|key| self.gather(key));
        let is_orphan = pod.controller().is_none();
        if is_tracked(&pod) && (is_orphan || pod.is_going()) {
            self.orphans.add(pod.key());
        }
        let claims = |pod: &Object| (pod["metadata"]["labels"].clone(), pod.owners().to_vec());
        let is_new = before.is_none_or(|before| claims(&before) != claims(&pod));
        if is_orphan && is_new && !matches!(event, Event::Deleted { .. }) {
            self.matching_jobs(&pod)
                .iter()
                .for_each(|key| self.gather(key));
        }
    }

    fn gather(&self, job: &Key) {
        self.todo.add_after(job.clone(), GATHER);
    }

    /// The jobs that might adopt a pod.
    fn matching_jobs(&self, pod: &Object) -> Vec<Key> {
        let wants = |job: &Object| {
            let selector =
                LabelSelector::of(&job["spec"]["selector"]).filter(|selector| !selector.is_empty());
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

/// The job that a pod says controls it.
fn job_of(pod: &Object) -> Option<Key> {
    let is_job = |owner: &&Value| owner["kind"].str() == "Job";
    pod.controller()
        .filter(is_job)
        .map(|owner| Key::new(pod.namespace(), owner["name"].str()))
}

fn generation(job: &Entry<Object>) -> i64 {
    job.object()
        .map_or(0, |job| job["metadata"]["generation"].int())
}
