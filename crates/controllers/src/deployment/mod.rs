//! Pods of one template replace those of another, at the pace that a deployment allows.

mod condition;
mod new_set;
mod proportion;
mod revision;
mod rollback;
mod rolling;
mod rollout;
mod sets;
mod status;
mod wake;

use std::sync::Arc;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{DEPLOYMENTS, PODS, REPLICA_SETS};
use mizzen_sdk::{Key, Object};

use crate::common::claim::Claim;
use crate::common::failure::is_namespace_going;
use crate::common::fresh::Written;
use crate::common::owned;
use crate::{After, Context, Error, Reconcile, Work};
use rollout::Rollout;
use sets::{Set, Sets};
use wake::Wake;

/// How many deployments are worked on at the same time.
const WORKERS: usize = 5;

/// The loop.
struct Deployments {
    context: Context,
    deployments: Informer<Object>,
    sets: Informer<Object>,
    pods: Informer<Object>,
    written: Written,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context.named("deployment-controller");
    let queue = context.queue("deployment");
    let (deployments, sets) = (context.follow(&DEPLOYMENTS), context.follow(&REPLICA_SETS));
    let pods = context.follow(&PODS);
    owned::index(&sets);
    owned::index(&pods);
    Wake {
        deployments: deployments.clone(),
        sets: sets.clone(),
        queue: queue.clone(),
    }
    .listen(&pods);
    let written = Written::default();
    Work::new(
        queue,
        WORKERS,
        Arc::new(Deployments {
            context,
            deployments,
            sets,
            pods,
            written,
        }),
    )
}

impl Reconcile for Deployments {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        match self.step(key).await {
            // Nothing can be made any more, and everything will be gone soon.
            Err(Error::Api(error)) if is_namespace_going(&error) => Ok(After::Done),
            outcome => outcome,
        }
    }
}

impl Deployments {
    async fn step(&self, key: &Key) -> Result<After, Error> {
        let Some(entry) = self.deployments.store().get(key) else {
            self.written.forget(key);
            return Ok(After::Done);
        };
        if !self.written.is_seen(&entry) {
            return Ok(After::Done);
        }
        let deployment = entry.read()?;
        let Some(selector) = wake::selector(&deployment) else {
            return self.refuse(deployment).await;
        };
        let sets = self.claim(&deployment, &selector).await?;
        let sets = Sets::of(&deployment, sets);
        Rollout {
            all: self,
            deployment,
            sets,
        }
        .step()
        .await
    }

    async fn claim(
        &self,
        deployment: &Object,
        selector: &LabelSelector,
    ) -> Result<Vec<Set>, Error> {
        let candidates = owned::read(owned::candidates(&self.sets, deployment))?;
        let (owner_kind, kind) = (&DEPLOYMENTS, &REPLICA_SETS);
        let claim = Claim {
            context: &self.context,
            owner: deployment,
            owner_kind,
            kind,
            finalizers: &[],
        };
        claim
            .claim(candidates, |set| selector.matches(|name| set.label(name)))
            .await
    }

    /// A deployment that selects everything would take everybody's pods.
    async fn refuse(&self, mut deployment: Object) -> Result<After, Error> {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        self.tell(&deployment, Note::warning("SelectingAll", "", message));
        let generation = deployment["metadata"]["generation"].int();
        if deployment["status"]["observedGeneration"].int() < generation {
            deployment
                .entry("status")
                .set("observedGeneration", generation);
            self.context
                .api
                .update_status(&DEPLOYMENTS, &deployment)
                .await?;
        }
        Ok(After::Done)
    }

    fn tell(&self, deployment: &Object, note: Note) {
        self.context.record(&DEPLOYMENTS, deployment, note);
    }

    /// Writes a deployment's status and annotations; what comes back is what is to be changed next.
    async fn write(&self, deployment: &Object) -> Result<Object, Error> {
        let written = self
            .context
            .api
            .update_status(&DEPLOYMENTS, deployment)
            .await?;
        self.written.note(&written);
        Ok(written)
    }
}
