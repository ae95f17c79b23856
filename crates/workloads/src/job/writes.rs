//! Read-your-writes for jobs and their pods.
//!
//! A sync that does not see the pods of the sync before would create them again. So it waits until
//! both caches have the last writes.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

use mizzen_sdk::cache::Version;
use mizzen_sdk::controller::Error;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::{Key, Object};
use tokio::time::timeout;

/// How long a worker waits before it takes another job.
const PATIENCE: Duration = Duration::from_secs(5);

/// The last written resourceVersion of the job and of its pods, by job.
#[derive(Default)]
pub(super) struct JobWrites(Mutex<HashMap<Key, (Version, Version)>>);

impl JobWrites {
    /// Records a write of the job.
    pub(super) fn note_job(&self, key: &Key, job: &Object) {
        let newest = Version::parse(job.version());
        self.change(key, |(jobs, _)| *jobs = newest.max(*jobs));
    }

    /// Records a write of one of its pods.
    pub(super) fn note_pod(&self, key: &Key, pod: &Object) {
        let newest = Version::parse(pod.version());
        self.change(key, |(_, pods)| *pods = newest.max(*pods));
    }

    fn change(&self, key: &Key, change: impl FnOnce(&mut (Version, Version))) {
        change(self.0.lock().entry(key.clone()).or_default());
    }

    /// Forgets a deleted job.
    pub(super) fn forget(&self, key: &Key) {
        self.0.lock().remove(key);
    }

    /// Waits until the caches have the last writes for a job.
    pub(super) async fn wait(
        &self,
        key: &Key,
        jobs: &Informer<Object>,
        pods: &Informer<Object>,
    ) -> Result<(), Error> {
        let Some((job, pod)) = self.0.lock().get(key).copied() else {
            return Ok(());
        };
        let both = async {
            jobs.store().wait_for(job).await;
            pods.store().wait_for(pod).await;
        };
        timeout(PATIENCE, both)
            .await
            .map_err(|_| Error::other("the caches are behind"))
    }
}
