//! Which volume is whose? Claims find volumes that fit, volumes learn when their claims are gone.
//!
//! A key with a namespace is a claim, one without is a volume. Both are worked on by one worker: two claims never reach
//! for the same volume at once, and after each write the worker waits until it sees it.

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

use mizzen_sdk::api::DeleteOptions;
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::queue::Queue;
use mizzen_sdk::resource::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES};
use mizzen_sdk::write::{is_already_exists, is_not_found};
use mizzen_sdk::{Key, Object};
use tokio::time::sleep;

use crate::common::pod::is_terminal;
use crate::{After, Context, Error, Reconcile, Work, pod_index};

/// How often whatever waits is looked at again.
const RESYNC: Duration = Duration::from_secs(15);
/// Where pods that empty volumes run.
const RECYCLERS: &str = "default";

struct Binder {
    context: Context,
    claims: Informer<Object>,
    volumes: Informer<Object>,
    classes: Informer<Object>,
    pods: Informer<Object>,
    queue: Queue<Key>,
}

/// Sets up the loop.
pub(crate) fn start(context: &Context) -> Work {
    let context = context
        .named("persistent-volume-binder")
        .recording_as("persistentvolume-controller");
    let binder = Arc::new(Binder {
        queue: context.queue("volumes"),
        claims: context.follow(&PERSISTENT_VOLUME_CLAIMS),
        volumes: context.follow(&PERSISTENT_VOLUMES),
        classes: context.follow(&STORAGE_CLASSES),
        pods: context.follow(&PODS),
        context,
    });
    binder.listen();
    Work::new(binder.queue.clone(), 1, binder.clone()).and(resync(binder))
}

async fn resync(binder: Arc<Binder>) {
    loop {
        sleep(RESYNC).await;
        binder.look_again();
    }
}

impl Reconcile for Binder {
    async fn reconcile(&self, key: &Key) -> Result<After, Error> {
        match key.namespace() {
            "" => self.volume(key).await?,
            _ => self.claim(key).await?,
        }
        Ok(After::Done)
    }
}

impl Binder {
    async fn claim(&self, key: &Key) -> Result<(), Error> {
        let Some(claim) = self.claims.lister().by_key(key)? else {
            return Ok(());
        };
        let claim = match legacy::claim(&claim) {
            Some(migrated) => Arc::new(self.save_claim(&migrated).await?),
            None => claim,
        };
        match claim::plan(&claim, &self.around(&claim)?) {
            claim::Plan::Bind(volume) => self.bind(&claim, &volume).await,
            claim::Plan::Pending(note) => {
                note.into_iter()
                    .for_each(|note| self.tell_of_claim(&claim, note));
                self.set_claim_phase(&claim, "Pending").await.map(drop)
            }
            claim::Plan::Lost(note) => self.lose(&claim, note).await,
            claim::Plan::AssignClass(name) => self
                .save_claim(&bind::with_class(&claim, &name))
                .await
                .map(drop),
            claim::Plan::Provision(provisioner) => self.provision(&claim, &provisioner).await,
            claim::Plan::Tell(note) => {
                self.tell_of_claim(&claim, note);
                Ok(())
            }
        }
    }

    /// What is known of the world around a claim.
    fn around(&self, claim: &Object) -> Result<claim::World, Error> {
        let class = self.classes.lister().get(names::class(claim))?;
        let is_free = claim["spec"]["volumeName"].str().is_empty();
        let best = match is_free {
            true => matching::best(
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
        let pods = pod_index::of_claim(&self.pods, &claim.key().to_string())?;
        Ok(claim::World {
            named: self
                .volumes
                .lister()
                .get(claim["spec"]["volumeName"].str())?,
            best,
            class,
            default_class,
            waiting_pods: claim::waiting(pods.iter().map(Arc::as_ref)),
        })
    }

    async fn bind(&self, claim: &Object, volume: &Object) -> Result<(), Error> {
        let volume = match bind::volume(volume, claim) {
            Some(bound) => self.save_volume(&bound).await?,
            None => volume.clone(),
        };
        let volume = self
            .set_volume_phase(&volume, "Bound", "")
            .await?
            .unwrap_or(volume);
        let claim = match bind::claim(claim, &volume) {
            Some(bound) => self.save_claim(&bound).await?,
            None => claim.clone(),
        };
        if let Some(bound) = bind::claim_bound(&claim, &volume) {
            self.save_claim_status(&bound).await?;
        }
        Ok(())
    }

    async fn lose(&self, claim: &Object, note: Note) -> Result<(), Error> {
        if claim["status"]["phase"].str() != "Lost" {
            self.set_claim_phase(claim, "Lost").await?;
            self.tell_of_claim(claim, note);
        }
        Ok(())
    }

    async fn provision(&self, claim: &Object, provisioner: &str) -> Result<(), Error> {
        if let Some(told) = bind::for_provisioner(claim, provisioner) {
            self.save_claim(&told).await?;
        }
        self.tell_of_claim(claim, claim::provisioning(provisioner));
        Ok(())
    }

    async fn volume(&self, key: &Key) -> Result<(), Error> {
        let Some(volume) = self.volumes.lister().by_key(key)? else {
            return Ok(());
        };
        let volume = match legacy::volume(&volume) {
            Some(migrated) => Arc::new(self.save_volume(&migrated).await?),
            None => volume,
        };
        let claim = self.claim_of(&volume).await?;
        match volume::plan(&volume, claim.as_ref()) {
            volume::Plan::Phase(phase) => self.set_volume_phase(&volume, phase, "").await.map(drop),
            volume::Plan::Release => self.release(&volume).await,
            volume::Plan::WakeClaim => {
                self.queue.add(Key::new(
                    volume["spec"]["claimRef"]["namespace"].str(),
                    volume["spec"]["claimRef"]["name"].str(),
                ));
                Ok(())
            }
            volume::Plan::Mismatch {
                of_volume,
                of_claim,
            } => {
                let note = |message: &str| Note::warning("VolumeMismatch", "", message);
                self.tell_of_volume(&volume, note(&of_volume));
                claim
                    .iter()
                    .for_each(|claim| self.tell_of_claim(claim, note(&of_claim)));
                Ok(())
            }
            volume::Plan::Unbind => self.unbind(&volume).await,
        }
    }

    /// The claim that a volume names, if it is the one that it was. Before it counts as gone the server is asked: our
    /// caches may not know it yet.
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

    async fn release(&self, volume: &Object) -> Result<(), Error> {
        let is_known = matches!(volume["status"]["phase"].str(), "Released" | "Failed");
        let released = match is_known {
            true => None,
            false => self.set_volume_phase(volume, "Released", "").await?,
        };
        let volume = released.as_ref().unwrap_or(volume);
        match reclaim::plan(volume) {
            reclaim::Plan::Keep => Ok(()),
            reclaim::Plan::Delete => self.delete(volume).await,
            reclaim::Plan::Fail { reason, message } => self.fail(volume, reason, message).await,
            reclaim::Plan::Recycle => self.recycle(volume).await,
        }
    }

    async fn fail(&self, volume: &Object, reason: &str, message: String) -> Result<(), Error> {
        if let Some(failed) = self.set_volume_phase(volume, "Failed", &message).await? {
            self.tell_of_volume(&failed, Note::warning(reason, "", message));
        }
        Ok(())
    }

    async fn delete(&self, volume: &Object) -> Result<(), Error> {
        if volume.has_finalizer(legacy::OURS) {
            let mut free = volume.clone();
            free.entry("metadata")
                .entry("finalizers")
                .make_list()
                .retain(|one| one.str() != legacy::OURS);
            self.save_volume(&free).await?;
        }
        if volume.is_going() {
            return Ok(());
        }
        let options = DeleteOptions {
            uid: Some(volume.uid()),
            ..DeleteOptions::default()
        };
        match self
            .context
            .api
            .delete(&PERSISTENT_VOLUMES, &volume.key(), &options)
            .await
        {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Lets a pod empty a volume; the volume is looked at again whenever that pod changes.
    async fn recycle(&self, volume: &Object) -> Result<(), Error> {
        let key = Key::new(RECYCLERS, reclaim::recycler_name(volume.name()));
        let Some(pod) = self.pods.lister().by_key(&key)? else {
            return self.start_recycler(volume).await;
        };
        let Some(outcome) = reclaim::outcome(&pod) else {
            return Ok(());
        };
        if pod.is_going() {
            return Ok(());
        }
        match outcome {
            Ok(()) => {
                self.tell_of_volume(
                    volume,
                    Note::normal("VolumeRecycled", "", "Volume recycled"),
                );
                self.unbind(volume).await?;
            }
            Err(message) => self.fail(volume, "VolumeFailedRecycle", message).await?,
        }
        match self
            .context
            .api
            .delete(&PODS, &key, &DeleteOptions::default())
            .await
        {
            Err(error) if !is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn start_recycler(&self, volume: &Object) -> Result<(), Error> {
        let claim = names::claim_key(volume).unwrap_or_default();
        let users = pod_index::of_claim(&self.pods, &claim)?;
        let users: Vec<String> = users
            .iter()
            .filter(|pod| !is_terminal(pod))
            .map(|pod| pod.key().to_string())
            .collect();
        // A claim of the same name is another one, with another volume: then these pods use that.
        if !users.is_empty()
            && self
                .claims
                .store()
                .get(&claim.parse().unwrap_or_default())
                .is_none()
        {
            let message = format!("Volume is used by pods: {}", users.join(","));
            self.tell_of_volume(volume, Note::normal("VolumeFailedRecycle", "", message));
            return Ok(());
        }
        let Some(pod) = reclaim::recycler(volume) else {
            return Ok(());
        };
        match self.context.api.create(&PODS, &pod).await {
            Err(error) if !is_already_exists(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn unbind(&self, volume: &Object) -> Result<(), Error> {
        let unbound = self.save_volume(&bind::unbound(volume)).await?;
        self.set_volume_phase(&unbound, "Available", "")
            .await
            .map(drop)
    }
}
