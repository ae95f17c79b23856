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

use mizzen_object::select::LabelSelector;
use mizzen_sdk::controller::{
    Action, Context, Controller, ControllerRefManager, Error, LastWrites, Reconcile, dynamic,
    index_controllers, resource_version_changed,
};
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{DEPLOYMENTS, PODS, REPLICA_SETS};
use mizzen_sdk::write::is_namespace_terminating;
use mizzen_sdk::{Key, Object};

use replica_sets::{ReplicaSets, Set};
use rollout::Rollout;

/// Upstream's default of `--concurrent-deployment-syncs`.
const WORKERS: usize = 5;

/// The controller.
struct Deployments {
    context: Context,
    deployments: Informer<Object>,
    sets: Informer<Object>,
    pods: Informer<Object>,
    written: LastWrites,
}

/// Creates the Deployment controller.
pub fn start(context: &Context) -> Controller {
    let context = context.named("deployment-controller");
    let deployments = context.informer(&DEPLOYMENTS);
    let sets = context.informer(&REPLICA_SETS);
    let pods = context.informer(&PODS);
    index_controllers(&sets);
    index_controllers(&pods);
    let deleted_pods = event_handlers::on_pod_deleted(&deployments, &sets);
    Controller::for_kind(&context, &DEPLOYMENTS)
        .owns_selected(
            dynamic(&REPLICA_SETS).filter(resource_version_changed()),
            event_handlers::selector,
        )
        .watches_events(&PODS, deleted_pods)
        .queue_name("deployment")
        .workers(WORKERS)
        .reconcile(Deployments {
            context,
            deployments,
            sets,
            pods,
            written: LastWrites::default(),
        })
}

impl Reconcile for Deployments {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        match self.sync_deployment(key).await {
            // Nothing can be created in a terminating namespace.
            Err(Error::Api(error)) if is_namespace_terminating(&error) => Ok(Action::done()),
            outcome => outcome,
        }
    }
}

impl Deployments {
    async fn sync_deployment(&self, key: &Key) -> Result<Action, Error> {
        let Some(entry) = self.deployments.store().get(key) else {
            self.written.forget(key);
            return Ok(Action::done());
        };
        if !self.written.is_seen(&entry) {
            return Ok(Action::done());
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
        ControllerRefManager::new(&self.context.api, (deployment, &DEPLOYMENTS), &REPLICA_SETS)
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
        Ok(Action::done())
    }

    fn record_event(&self, deployment: &Object, note: Note) {
        self.context.record_event(&DEPLOYMENTS, deployment, note);
    }

    /// Writes a deployment's status and annotations; returns the stored object.
    async fn update_status(&self, deployment: &Object) -> Result<Object, Error> {
        let api = &self.context.api;
        let written = api.update_status(&DEPLOYMENTS, deployment).await?;
        self.written.record(&written);
        Ok(written)
    }
}
