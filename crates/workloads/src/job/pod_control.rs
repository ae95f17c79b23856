//! Creates and deletes the pods of a job.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mizzen_sdk::Object;
use mizzen_sdk::controller::{Error, slow_start_batch};
use mizzen_sdk::write::is_namespace_terminating;

use super::facts::is_tracked;
use super::metrics::SyncAction;
use super::plan::JobPlan;
use super::pod::new_pod;
use super::progress::JobProgress;
use super::remove_tracking_finalizer;
use super::track::set_unless_empty;
use super::writes::JobWrites;
use crate::common::pod::is_ready;
use crate::common::pod_control::PodControl;
use mizzen_value::Value;

/// The pods of a job after a sync created and deleted some.
#[derive(Debug)]
pub(super) struct ManagedPods {
    pub n_active: i64,
    pub n_ready: i64,
    pub n_terminating: i64,
    /// How long to wait before more are created.
    pub requeue_after: Option<Duration>,
    pub failure: Option<Error>,
    pub action: SyncAction,
}

impl ManagedPods {
    /// Nothing was created or deleted.
    pub(super) fn unchanged(progress: &JobProgress) -> ManagedPods {
        ManagedPods {
            n_active: progress.active.len() as i64,
            n_ready: progress.n_ready,
            n_terminating: progress.n_terminating,
            requeue_after: None,
            failure: None,
            action: SyncAction::Reconciling,
        }
    }

    pub(super) fn set_counts(&self, status: &mut Value) {
        set_unless_empty(status, "active", self.n_active);
        status.set("ready", self.n_ready);
        status.set("terminating", self.n_terminating);
    }

    /// The same after deletions.
    fn after_deletions(mut self, outcomes: Vec<(Arc<Object>, Result<(), Error>)>) -> ManagedPods {
        for (pod, outcome) in outcomes {
            match outcome {
                Ok(()) => {
                    self.n_active -= 1;
                    self.n_terminating += 1;
                    self.n_ready -= i64::from(is_ready(&pod));
                }
                Err(error) => self.failure = Some(error),
            }
        }
        self
    }
}

/// Creates and deletes the pods of one job.
pub(super) struct JobPodControl<'a> {
    pub owner: PodControl<'a>,
    pub writes: &'a JobWrites,
    pub progress: &'a JobProgress,
}

impl JobPodControl<'_> {
    /// Deletes all active pods. Their finalizers stay until they are counted.
    pub(super) async fn delete_active_pods(&self) -> ManagedPods {
        let delete = async |pod: &Arc<Object>| {
            let outcome = self.owner.delete(&pod.key()).await.map(drop);
            (pod.clone(), outcome)
        };
        let outcomes = join_all(self.progress.active.iter().map(delete)).await;
        ManagedPods::unchanged(self.progress).after_deletions(outcomes)
    }

    pub(super) async fn apply_plan(&self, plan: JobPlan) -> ManagedPods {
        let nothing = ManagedPods::unchanged(self.progress);
        match plan {
            JobPlan::Keep => ManagedPods {
                action: SyncAction::Tracking,
                ..nothing
            },
            JobPlan::Wait(wait) => ManagedPods {
                requeue_after: Some(wait),
                action: SyncAction::PodsCreated,
                ..nothing
            },
            JobPlan::Delete(pods) => {
                let deletions = pods.into_iter().map(|pod| self.delete_uncounted(pod));
                ManagedPods {
                    action: SyncAction::PodsDeleted,
                    ..nothing.after_deletions(join_all(deletions).await)
                }
            }
            JobPlan::Create(indexes) => ManagedPods {
                action: SyncAction::PodsCreated,
                ..self.create_pods(indexes, nothing).await
            },
        }
    }

    /// Deletes a pod and its finalizer, so that it is not counted.
    async fn delete_uncounted(&self, pod: Arc<Object>) -> (Arc<Object>, Result<(), Error>) {
        let delete = async || {
            if is_tracked(&pod) {
                let released = remove_tracking_finalizer(self.owner.context, &pod).await?;
                released.iter().for_each(|pod| self.record_write(pod));
            }
            self.owner.delete(&pod.key()).await.map(drop)
        };
        let outcome = delete().await;
        (pod, outcome)
    }

    async fn create_pods(&self, indexes: Vec<Option<i64>>, before: ManagedPods) -> ManagedPods {
        let (n_wanted, mut next) = (indexes.len(), indexes.into_iter());
        let (n_made, outcome) = slow_start_batch(n_wanted, || {
            let pod = new_pod(self.owner.owner, self.progress, next.next().flatten());
            async move {
                let made = self.owner.create(&pod).await?;
                self.record_write(&made);
                Ok(())
            }
        })
        .await;
        let failure = outcome
            .err()
            .filter(|error| !is_namespace_terminating(error))
            .map(Error::Api);
        ManagedPods {
            n_active: before.n_active + n_made as i64,
            failure,
            ..before
        }
    }

    fn record_write(&self, pod: &Object) {
        self.writes.note_pod(&self.owner.owner.key(), pod);
    }
}
