//! Who lets a pod go whose job is gone or over? Otherwise its finalizer would keep it forever.

use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::JOBS;
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;

use super::facts::{self, is_tracked};
use super::release;
use crate::{After, Context, Error, Reconcile};

/// Takes the finalizers from pods that nobody counts any more.
pub(super) struct Orphans {
    pub context: Context,
    pub jobs: Informer<Object>,
    pub pods: Informer<Object>,
}

impl Reconcile for Orphans {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        let Some(pod) = self.pods.lister().by_key(key)? else {
            return Ok(After::Done);
        };
        if is_tracked(&pod) && self.is_uncounted(&pod).await? {
            release(&self.context, &pod).await?;
        }
        Ok(After::Done)
    }
}

impl Orphans {
    /// Whether nobody will count a pod.
    async fn is_uncounted(&self, pod: &Object) -> Result<bool, Error> {
        let Some(owner) = pod.controller() else {
            return Ok(true);
        };
        if owner["kind"].str() != "Job" || owner["apiVersion"].str() != JOBS.api_version() {
            return Ok(false);
        }
        let counts =
            |job: &Object| facts::is_managed_elsewhere(job) || facts::finished(job).is_none();
        Ok(!self.job(pod, owner).await?.is_some_and(|job| counts(&job)))
    }

    /// The job of a pod. A cache that does not know it may be behind; then the server is asked.
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
