//! Removes the tracking finalizer of pods whose job does not exist or is finished. Otherwise they
//! would never be deleted.

use mizzen_sdk::controller::{Action, Context, Error, Reconcile};
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::JOBS;
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use super::facts::{self, is_tracked};
use super::remove_tracking_finalizer;

/// Removes the finalizer of orphan pods.
pub(super) struct OrphanPods {
    pub context: Context,
    pub jobs: Informer<Object>,
    pub pods: Informer<Object>,
}

impl Reconcile for OrphanPods {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        let Some(pod) = self.pods.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        if is_tracked(&pod) && self.is_orphan(&pod).await? {
            remove_tracking_finalizer(&self.context, &pod).await?;
        }
        Ok(Action::done())
    }
}

impl OrphanPods {
    /// Whether no job will count a pod.
    async fn is_orphan(&self, pod: &Object) -> Result<bool, Error> {
        let Some(owner) = pod.controller() else {
            return Ok(true);
        };
        if owner["kind"].str() != "Job" || owner["apiVersion"].str() != JOBS.api_version() {
            return Ok(false);
        }
        let counts = |job: &Object| {
            facts::is_externally_managed(job) || facts::finished_condition(job).is_none()
        };
        Ok(!self.job(pod, owner).await?.is_some_and(|job| counts(&job)))
    }

    /// The job of a pod, from the cache or the server.
    async fn job(&self, pod: &Object, owner: &Value) -> Result<Option<Object>, Error> {
        let key = Key::new(pod.namespace(), owner["name"].str());
        let is_same = |job: &Object| job.uid() == owner["uid"].str();
        let known = self.jobs.lister().by_key(&key)?.filter(|job| is_same(job));
        match known {
            Some(job) => Ok(Some(Object::clone(&job))),
            None => Ok(self.context.api.find(&JOBS, &key).await?.filter(is_same)),
        }
    }
}
