//! Have the caches seen what was written for a job?
//!
//! A round that does not see the pods of the one before would make them again. So a round begins when both caches are
//! as new as what the last one wrote.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::time::Duration;

use mizzen_sdk::cache::Version;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::{Key, Object};
use tokio::time::timeout;

use crate::Error;

/// How long a worker waits before it looks after another job.
const PATIENCE: Duration = Duration::from_secs(5);

/// The newest version of jobs and of pods that was written for each job.
#[derive(Default)]
pub(super) struct Writes(Mutex<HashMap<Key, (Version, Version)>>);

impl Writes {
    /// Notes that a job was written.
    pub(super) fn note_job(&self, key: &Key, job: &Object) {
        let newest = Version::parse(job.version());
        self.change(key, |(jobs, _)| *jobs = newest.max(*jobs));
    }

    /// Notes that a pod was written for a job.
    pub(super) fn note_pod(&self, key: &Key, pod: &Object) {
        let newest = Version::parse(pod.version());
        self.change(key, |(_, pods)| *pods = newest.max(*pods));
    }

    fn change(&self, key: &Key, change: impl FnOnce(&mut (Version, Version))) {
        change(self.lock().entry(key.clone()).or_default());
    }

    /// Forgets a job that is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// Waits until the caches have seen what was written for a job.
    pub(super) async fn wait(
        &self,
        key: &Key,
        jobs: &Informer<Object>,
        pods: &Informer<Object>,
    ) -> Result<(), Error> {
        let Some((job, pod)) = self.lock().get(key).copied() else {
            return Ok(());
        };
        let both = async {
            jobs.store().wait_for(job).await;
            pods.store().wait_for(pod).await;
        };
        timeout(PATIENCE, both)
            .await
            .map_err(|_| Error::Other("the caches are behind".into()))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, (Version, Version)>> {
        self.0.lock()
    }
}
