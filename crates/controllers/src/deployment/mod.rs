//! The Deployment controller: replaces the pods of one template by those of another.

mod condition;
mod event_handlers;
mod new_replica_set;
mod proportional_scaling;
mod replica_sets;
mod revision;
mod rollback;
mod rolling;
mod rollout;
mod status;

use std::sync::Arc;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{DEPLOYMENTS, PODS, REPLICA_SETS};
use mizzen_sdk::{Key, Object};

use crate::common::api_errors::is_namespace_terminating;
use crate::common::controller_index;
use crate::common::controller_ref_manager::ControllerRefManager;
use crate::common::read_your_writes::LastWrites;
use crate::{Action, Controller, ControllerContext, Error, Reconcile};
use event_handlers::DeploymentEventHandlers;
use replica_sets::{ReplicaSets, Set};
use rollout::Rollout;

/// Upstream's default of `--concurrent-deployment-syncs`.
const WORKERS: usize = 5;

/// The controller.
struct Deployments {
    context: ControllerContext,
    deployments: Informer<Object>,
    sets: Informer<Object>,
    pods: Informer<Object>,
    written: LastWrites,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context.named("deployment-controller");
    let queue = context.queue("deployment");
    let deployments = context.informer(&DEPLOYMENTS);
    let sets = context.informer(&REPLICA_SETS);
    let pods = context.informer(&PODS);
    controller_index::add_controller_index(&sets);
    controller_index::add_controller_index(&pods);
    DeploymentEventHandlers {
        deployments: deployments.clone(),
        sets: sets.clone(),
        queue: queue.clone(),
    }
    .register(&pods);
    let written = LastWrites::default();
    let reconciler = Deployments {
        context,
        deployments,
        sets,
        pods,
        written,
    };
    Controller::new(queue, WORKERS, Arc::new(reconciler))
}

impl Reconcile for Deployments {
    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        match self.sync_deployment(key).await {
            // Nothing can be created in a terminating namespace.
            Err(Error::Api(error)) if is_namespace_terminating(&error) => Ok(Action::AwaitChange),
            outcome => outcome,
        }
    }
}

impl Deployments {
    async fn sync_deployment(&self, key: &Key) -> Result<Action, Error> {
        let Some(entry) = self.deployments.store().get(key) else {
            self.written.forget(key);
            return Ok(Action::AwaitChange);
        };
        if !self.written.is_seen(&entry) {
            return Ok(Action::AwaitChange);
        }
        let deployment = entry.read()?;
        let Some(selector) = event_handlers::selector(&deployment) else {
            return self.reject_empty_selector(deployment).await;
        };
        let sets = self.claim_replica_sets(&deployment, &selector).await?;
        let sets = ReplicaSets::from_deployment(&deployment, sets);
        Rollout {
            all: self,
            deployment,
            sets,
        }
        .sync()
        .await
    }

    async fn claim_replica_sets(
        &self,
        deployment: &Object,
        selector: &LabelSelector,
    ) -> Result<Vec<Set>, Error> {
        let matches = |set: &Object| selector.matches(|label| set.label(label));
        ControllerRefManager::new(&self.context, (deployment, &DEPLOYMENTS), &REPLICA_SETS)
            .claim_candidates(&self.sets, matches)
            .await
    }

    /// A deployment that selects everything would claim all pods.
    async fn reject_empty_selector(&self, mut deployment: Object) -> Result<Action, Error> {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        self.record_event(&deployment, Note::warning("SelectingAll", "", message));
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
        Ok(Action::AwaitChange)
    }

    fn record_event(&self, deployment: &Object, note: Note) {
        self.context.record_event(&DEPLOYMENTS, deployment, note);
    }

    /// Writes a deployment's status and annotations; returns the stored object.
    async fn update_status(&self, deployment: &Object) -> Result<Object, Error> {
        let api = &self.context.api;
        let written = api.update_status(&DEPLOYMENTS, deployment).await?;
        self.written.note(&written);
        Ok(written)
    }
}
