//! The persistent volume controller: binds claims and volumes, and reclaims released volumes.
//!
//! A key with a namespace is a claim, one without is a volume. One worker syncs both, so two claims
//! never bind the same volume, and after each write it waits until the cache has it.

mod bind;
mod claim;
mod expand;
mod index;
mod legacy;
mod matching;
mod names;
mod reclaim;
mod save;
mod volume;

pub(crate) use expand::start as start_expander;

use std::sync::Arc;
use std::time::Duration;

use mizzen_component_helpers::pod_state::is_terminal;
use mizzen_sdk::controller::Context;
use mizzen_sdk::dynamic::DeleteOptions;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES};
use mizzen_sdk::write::{ignore_not_found, is_already_exists};
use mizzen_sdk::{Key, Object};
use tokio::time::sleep;

use crate::{Action, Controller, ControllerContext, Error, Reconcile, pod_index};

/// How often waiting claims and volumes are enqueued.
const RESYNC: Duration = Duration::from_secs(15);
/// The namespace of recycler pods.
const RECYCLERS: &str = "default";

struct PersistentVolumeController {
    context: ControllerContext,
    claims: Informer<Object>,
    volumes: Informer<Object>,
    classes: Informer<Object>,
    pods: Informer<Object>,
    queue: Queue<Key>,
}

pub(crate) fn start(context: &ControllerContext) -> Controller {
    let context = context
        .named("persistent-volume-binder")
        .with_event_source("persistentvolume-controller");
    let binder = Arc::new(PersistentVolumeController {
        queue: Queue::new("volumes"),
        claims: context.informer(&PERSISTENT_VOLUME_CLAIMS),
        volumes: context.informer(&PERSISTENT_VOLUMES),
        classes: context.informer(&STORAGE_CLASSES),
        pods: context.informer(&PODS),
        context: context.clone(),
    });
    binder.register();
    Controller::for_keys(&context)
        .queue(binder.queue.clone())
        .reconcile(binder.clone())
        .with_task(resync(binder))
}

async fn resync(binder: Arc<PersistentVolumeController>) {
    loop {
        sleep(RESYNC).await;
        binder.resync();
    }
}

impl Reconcile for PersistentVolumeController {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        match key.namespace() {
            "" => self.sync_volume(key).await?,
            _ => self.sync_claim(key).await?,
        }
        Ok(Action::done())
    }
}

impl PersistentVolumeController {
    async fn sync_claim(&self, key: &Key) -> Result<(), Error> {
        let Some(claim) = self.claims.lister().by_key(key)? else {
            return Ok(());
        };
        let claim = match legacy::migrate_claim(&claim) {
            Some(migrated) => Arc::new(self.save_claim(&migrated).await?),
            None => claim,
        };
        match claim::plan_claim(&claim, &self.claim_context(&claim)?) {
            claim::ClaimBindingPlan::Bind(volume) => self.bind(&claim, &volume).await,
            claim::ClaimBindingPlan::Pending(note) => {
                note.into_iter()
                    .for_each(|note| self.record_claim_event(&claim, note));
                self.set_claim_phase(&claim, "Pending").await.map(drop)
            }
            claim::ClaimBindingPlan::Lost(note) => self.mark_claim_lost(&claim, note).await,
            claim::ClaimBindingPlan::AssignClass(name) => self
                .save_claim(&bind::with_class(&claim, &name))
                .await
                .map(drop),
            claim::ClaimBindingPlan::Provision(provisioner) => {
                self.provision(&claim, &provisioner).await
            }
            claim::ClaimBindingPlan::RecordEvent(note) => {
                self.record_claim_event(&claim, note);
                Ok(())
            }
        }
    }

    /// Collects what the decision for a claim depends on.
    fn claim_context(&self, claim: &Object) -> Result<claim::ClaimContext, Error> {
        let class = self.classes.lister().get(names::class(claim))?;
        let is_free = claim["spec"]["volumeName"].str().is_empty();
        let best = match is_free {
            true => matching::find_matching_volume(
                claim,
                &self.candidates(claim)?,
                claim::is_delayed(class.as_deref()),
            )
            .cloned(),
            false => None,
        };
        let default_class = match names::has_class(claim) {
            true => None,
            false => {
                let classes = self.classes.lister().list()?;
                claim::default_class(classes.iter().map(Arc::as_ref))
                    .map(|class| class.name().to_string())
            }
        };
        let pods = pod_index::pods_using_claim(&self.pods, &claim.key().to_string())?;
        Ok(claim::ClaimContext {
            named: self
                .volumes
                .lister()
                .get(claim["spec"]["volumeName"].str())?,
            best,
            class,
            default_class,
            waiting_pods: claim::unscheduled_pods(pods.iter().map(Arc::as_ref)),
        })
    }

    async fn bind(&self, claim: &Object, volume: &Object) -> Result<(), Error> {
        let volume = match bind::bind_volume_to_claim(volume, claim) {
            Some(bound) => self.save_volume(&bound).await?,
            None => volume.clone(),
        };
        let volume = self
            .set_volume_phase(&volume, "Bound", "")
            .await?
            .unwrap_or(volume);
        let claim = match bind::bind_claim_to_volume(claim, &volume) {
            Some(bound) => self.save_claim(&bound).await?,
            None => claim.clone(),
        };
        if let Some(bound) = bind::claim_bound(&claim, &volume) {
            self.save_claim_status(&bound).await?;
        }
        Ok(())
    }

    async fn mark_claim_lost(&self, claim: &Object, note: Note) -> Result<(), Error> {
        if claim["status"]["phase"].str() != "Lost" {
            self.set_claim_phase(claim, "Lost").await?;
            self.record_claim_event(claim, note);
        }
        Ok(())
    }

    async fn provision(&self, claim: &Object, provisioner: &str) -> Result<(), Error> {
        if let Some(annotated) = bind::for_provisioner(claim, provisioner) {
            self.save_claim(&annotated).await?;
        }
        self.record_claim_event(claim, claim::provisioning(provisioner));
        Ok(())
    }

    async fn sync_volume(&self, key: &Key) -> Result<(), Error> {
        let Some(volume) = self.volumes.lister().by_key(key)? else {
            return Ok(());
        };
        let volume = match legacy::migrate_volume(&volume) {
            Some(migrated) => Arc::new(self.save_volume(&migrated).await?),
            None => volume,
        };
        let claim = self.claim_of(&volume).await?;
        match volume::plan_volume(&volume, claim.as_ref()) {
            volume::VolumePlan::Phase(phase) => {
                self.set_volume_phase(&volume, phase, "").await.map(drop)
            }
            volume::VolumePlan::Release => self.reclaim_volume(&volume).await,
            volume::VolumePlan::EnqueueClaim => {
                self.queue.add(Key::new(
                    volume["spec"]["claimRef"]["namespace"].str(),
                    volume["spec"]["claimRef"]["name"].str(),
                ));
                Ok(())
            }
            volume::VolumePlan::Mismatch {
                of_volume,
                of_claim,
            } => {
                let note = |message: &str| Note::warning("VolumeMismatch", "", message);
                self.record_volume_event(&volume, note(&of_volume));
                claim
                    .iter()
                    .for_each(|claim| self.record_claim_event(claim, note(&of_claim)));
                Ok(())
            }
            volume::VolumePlan::Unbind => self.unbind_volume(&volume).await,
        }
    }

    /// The claim of a volume's claimRef, if its uid matches. Before it counts as deleted, the
    /// server is asked: the cache may not have it yet.
    async fn claim_of(&self, volume: &Object) -> Result<Option<Object>, Error> {
        let reference = &volume["spec"]["claimRef"];
        if reference["uid"].str().is_empty() {
            return Ok(None);
        }
        let key = Key::new(reference["namespace"].str(), reference["name"].str());
        let is_it = |claim: &Object| claim.uid() == reference["uid"].str();
        if let Some(claim) = self
            .claims
            .lister()
            .by_key(&key)?
            .filter(|claim| is_it(claim))
        {
            return Ok(Some(Object::clone(&claim)));
        }
        if matches!(volume["status"]["phase"].str(), "Released" | "Failed") {
            return Ok(None);
        }
        Ok(self
            .context
            .api
            .find(&PERSISTENT_VOLUME_CLAIMS, &key)
            .await?
            .filter(is_it))
    }

    async fn reclaim_volume(&self, volume: &Object) -> Result<(), Error> {
        let is_known = matches!(volume["status"]["phase"].str(), "Released" | "Failed");
        let released = match is_known {
            true => None,
            false => self.set_volume_phase(volume, "Released", "").await?,
        };
        let volume = released.as_ref().unwrap_or(volume);
        match reclaim::plan_reclaim(volume) {
            reclaim::ReclaimPlan::Keep => Ok(()),
            reclaim::ReclaimPlan::Delete => self.delete_volume(volume).await,
            reclaim::ReclaimPlan::Fail { reason, message } => {
                self.mark_volume_failed(volume, reason, message).await
            }
            reclaim::ReclaimPlan::Recycle => self.recycle_volume(volume).await,
        }
    }

    async fn mark_volume_failed(
        &self,
        volume: &Object,
        reason: &str,
        message: String,
    ) -> Result<(), Error> {
        if let Some(failed) = self.set_volume_phase(volume, "Failed", &message).await? {
            self.record_volume_event(&failed, Note::warning(reason, "", message));
        }
        Ok(())
    }

    async fn delete_volume(&self, volume: &Object) -> Result<(), Error> {
        if volume.has_finalizer(legacy::CONTROLLER_FINALIZER) {
            let mut free = volume.clone();
            free.entry("metadata")
                .entry("finalizers")
                .make_list()
                .retain(|one| one.str() != legacy::CONTROLLER_FINALIZER);
            self.save_volume(&free).await?;
        }
        if volume.is_terminating() {
            return Ok(());
        }
        let options = DeleteOptions {
            uid: Some(volume.uid()),
            ..DeleteOptions::default()
        };
        Ok(ignore_not_found(
            self.context
                .api
                .delete(&PERSISTENT_VOLUMES, &volume.key(), &options)
                .await,
        )?)
    }

    /// Recycles a volume by a pod; the events of that pod enqueue the volume.
    async fn recycle_volume(&self, volume: &Object) -> Result<(), Error> {
        let key = Key::new(RECYCLERS, reclaim::recycler_name(volume.name()));
        let Some(pod) = self.pods.lister().by_key(&key)? else {
            return self.start_recycler(volume).await;
        };
        let Some(outcome) = reclaim::recycler_outcome(&pod) else {
            return Ok(());
        };
        if pod.is_terminating() {
            return Ok(());
        }
        match outcome {
            Ok(()) => {
                self.record_volume_event(
                    volume,
                    Note::normal("VolumeRecycled", "", "Volume recycled"),
                );
                self.unbind_volume(volume).await?;
            }
            Err(message) => {
                self.mark_volume_failed(volume, "VolumeFailedRecycle", message)
                    .await?
            }
        }
        Ok(ignore_not_found(
            self.context
                .api
                .delete(&PODS, &key, &DeleteOptions::default())
                .await,
        )?)
    }

    async fn start_recycler(&self, volume: &Object) -> Result<(), Error> {
        let claim = names::claim_key(volume).unwrap_or_default();
        let users = pod_index::pods_using_claim(&self.pods, &claim)?;
        let users: Vec<String> = users
            .iter()
            .filter(|pod| !is_terminal(pod))
            .map(|pod| pod.key().to_string())
            .collect();
        // A claim of the same name with another volume is another claim: these pods use that one.
        if !users.is_empty()
            && self
                .claims
                .store()
                .get(&claim.parse().unwrap_or_default())
                .is_none()
        {
            let message = format!("Volume is used by pods: {}", users.join(","));
            self.record_volume_event(volume, Note::normal("VolumeFailedRecycle", "", message));
            return Ok(());
        }
        let Some(pod) = reclaim::recycler_pod(volume) else {
            return Ok(());
        };
        match self.context.api.create(&PODS, &pod).await {
            Err(error) if !is_already_exists(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn unbind_volume(&self, volume: &Object) -> Result<(), Error> {
        let unbound = self.save_volume(&bind::unbind_volume(volume)).await?;
        self.set_volume_phase(&unbound, "Available", "")
            .await
            .map(drop)
    }
}
