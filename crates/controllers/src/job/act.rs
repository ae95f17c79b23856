//! Making and deleting the pods of a job.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use mizzen_sdk::Object;

use super::facts::is_tracked;
use super::plan::Plan;
use super::pod::draft;
use super::progress::Progress;
use super::release;
use super::writes::Writes;
use crate::Error;
use crate::common::batch::slow_start;
use crate::common::failure::is_namespace_going;
use crate::common::pod::is_ready;
use crate::common::pods::Owner;

/// What a round did to pods, and how many there are afterwards.
#[derive(Debug)]
pub(super) struct Acted {
    /// How many are active.
    pub n_active: i64,
    /// How many of them are ready.
    pub n_ready: i64,
    /// How many are on their way out.
    pub n_terminating: i64,
    /// How long to wait for more.
    pub wait: Option<Duration>,
    /// What went wrong.
    pub failure: Option<Error>,
}

impl Acted {
    /// What is there if nothing was done.
    pub(super) fn nothing(progress: &Progress) -> Acted {
        Acted {
            n_active: progress.active.len() as i64,
            n_ready: progress.n_ready,
            n_terminating: progress.n_terminating,
            wait: None,
            failure: None,
        }
    }

    /// The same after deletions, with their outcomes.
    fn without(mut self, outcomes: Vec<(Arc<Object>, Result<(), Error>)>) -> Acted {
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

/// Acts for one job.
pub(super) struct Actor<'a> {
    /// The job.
    pub owner: Owner<'a>,
    /// Where writes are noted.
    pub writes: &'a Writes,
    /// How far it is.
    pub progress: &'a Progress,
}

impl Actor<'_> {
    /// Deletes all active pods. They stay until their finalizers go, so that their end is counted.
    pub(super) async fn stop(&self) -> Acted {
        let delete = async |pod: &Arc<Object>| {
            let outcome = self.owner.delete(&pod.key()).await.map(drop);
            (pod.clone(), outcome)
        };
        let outcomes = join_all(self.progress.active.iter().map(delete)).await;
        Acted::nothing(self.progress).without(outcomes)
    }

    /// Does what is planned.
    pub(super) async fn carry_out(&self, plan: Plan) -> Acted {
        let nothing = Acted::nothing(self.progress);
        match plan {
            Plan::Keep => nothing,
            Plan::Wait(wait) => Acted {
                wait: Some(wait),
                ..nothing
            },
            Plan::Delete(pods) => {
                nothing.without(join_all(pods.into_iter().map(|pod| self.discard(pod))).await)
            }
            Plan::Create(indexes) => self.create(indexes, nothing).await,
        }
    }

    /// Deletes a pod whose end does not count.
    async fn discard(&self, pod: Arc<Object>) -> (Arc<Object>, Result<(), Error>) {
        let delete = async || {
            if is_tracked(&pod) {
                let released = release(self.owner.context, &pod).await?;
                released.iter().for_each(|pod| self.note(pod));
            }
            self.owner.delete(&pod.key()).await.map(drop)
        };
        let outcome = delete().await;
        (pod, outcome)
    }

    async fn create(&self, indexes: Vec<Option<i64>>, before: Acted) -> Acted {
        let (n_wanted, mut next) = (indexes.len(), indexes.into_iter());
        let (n_made, outcome) = slow_start(n_wanted, || {
            let pod = draft(self.owner.object, self.progress, next.next().flatten());
            async move {
                let made = self.owner.create(&pod).await?;
                self.note(&made);
                Ok(())
            }
        })
        .await;
        let failure = outcome
            .err()
            .filter(|error| !is_namespace_going(error))
            .map(Error::Api);
        Acted {
            n_active: before.n_active + n_made as i64,
            failure,
            ..before
        }
    }

    fn note(&self, pod: &Object) {
        self.writes.note_pod(&self.owner.object.key(), pod);
    }
}
