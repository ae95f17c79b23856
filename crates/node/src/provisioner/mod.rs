//! The provisioner of directories: it makes the PersistentVolumes of classes with the provisioner
//! `mizzen.dev/directory`, removes them, and lets them grow.
//!
//! A volume is a directory of a node with real containers, so the agent of each such node runs a
//! provisioner for its own ones. The scheduler selects the node (`WaitForFirstConsumer`), the
//! controllers of PersistentVolumes bind what the provisioner creates.
//!
//! Invariant: a directory is there before its object, and goes before it. A crash between the two
//! leaves a directory that is found again by the name of the volume.

mod plan;

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::clock::Clock;
use mizzen_sdk::controller::{
    Action, Context, ContextOptions, Controller, Error, Reconcile, dynamic,
};
use mizzen_sdk::dynamic::{DeleteOptions, PatchType};
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::resource::{PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, STORAGE_CLASSES};
use mizzen_sdk::write::{ignore_not_found, is_already_exists};
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::settings::NodeSettings;
use plan::{FINALIZER, Place};

/// The name of the provisioner in a StorageClass.
pub const PROVISIONER: &str = "mizzen.dev/directory";

/// How long a claim waits for a class that the cache does not have yet.
const CLASS_WAIT: Duration = Duration::from_secs(5);
/// How long the provisioner pauses if it may not read what it needs.
const RETRY: Duration = Duration::from_secs(60);
/// The permissions of the directory of all volumes: only containers reach what is below.
const ROOT_MODE: u32 = 0o750;
/// The permissions of a volume: any user of a container may write.
const VOLUME_MODE: u32 = 0o777;

/// Provisions the volumes of a node until the future is dropped.
pub(crate) async fn run(settings: Arc<NodeSettings>, directory: PathBuf, clock: Clock) {
    let place = Place {
        node: settings.name(0).as_str().into(),
        directory,
    };
    loop {
        let controller = start(&settings, place.clone(), clock.clone());
        if let Err(error) = controller.run(std::future::pending()).await {
            tracing::warn!(%error, "no volumes are provisioned, retrying");
        }
        sleep(RETRY).await;
    }
}

fn start(settings: &NodeSettings, place: Place, clock: Clock) -> Controller {
    let client = settings.client.clone();
    let context = Context::with(ContextOptions {
        clock,
        ..ContextOptions::new(Arc::new(move |_| client.clone()))
    });
    let context = context
        .named("directory-provisioner")
        .with_event_source(PROVISIONER);
    let volume_keys = |volume: &Object| {
        let claim = &volume["spec"]["claimRef"];
        let claim = Key::new(claim["namespace"].str(), claim["name"].str());
        [volume.key(), claim]
    };
    let provisioner = Provisioner {
        claims: context.informer(&PERSISTENT_VOLUME_CLAIMS),
        volumes: context.informer(&PERSISTENT_VOLUMES),
        classes: context.informer(&STORAGE_CLASSES),
        context: context.clone(),
        place,
    };
    Controller::for_keys(&context)
        .queue_name("directories")
        .watches(dynamic(&PERSISTENT_VOLUME_CLAIMS), |claim: &Object| {
            [claim.key()]
        })
        .watches(dynamic(&PERSISTENT_VOLUMES), volume_keys)
        .reconcile(provisioner)
}

/// The provisioner of one node. A key with a namespace is a claim, one without is a volume.
struct Provisioner {
    context: Context,
    claims: Informer<Object>,
    volumes: Informer<Object>,
    classes: Informer<Object>,
    place: Place,
}

impl Reconcile for Provisioner {
    async fn reconcile(&self, key: &Key, _: &Context) -> Result<Action, Error> {
        match key.namespace() {
            "" => self.sync_volume(key).await,
            _ => self.sync_claim(key).await,
        }
    }
}

impl Provisioner {
    async fn sync_claim(&self, key: &Key) -> Result<Action, Error> {
        let Some(claim) = self.claims.lister().by_key(key)? else {
            return Ok(Action::done());
        };
        if plan::is_wanted(&claim) {
            return self.provision(&claim).await;
        }
        let volume = self
            .volumes
            .lister()
            .get(claim["spec"]["volumeName"].str())?;
        if let Some(volume) = volume.filter(|volume| plan::is_own(volume, &self.place)) {
            self.expand(&claim, &volume).await?;
        }
        Ok(Action::done())
    }

    async fn provision(&self, claim: &Object) -> Result<Action, Error> {
        let Some(class) = self.classes.lister().get(plan::class_name(claim))? else {
            return Ok(Action::requeue_after(CLASS_WAIT));
        };
        if !plan::is_of_node(claim, &class, &self.place.node) {
            return Ok(Action::done());
        }
        let failed = |why: &dyn std::fmt::Display| {
            let class = class.name();
            let message = format!("failed to provision volume with StorageClass {class:?}: {why}");
            self.record(claim, Note::warning("ProvisioningFailed", "", message));
        };
        if let Some(why) = plan::refusal(claim) {
            failed(&why);
            return Ok(Action::done());
        }
        let name = plan::volume_name(claim);
        let path = self.place.path(&name);
        if let Err(error) = make_directory(&self.place.directory, &path) {
            failed(&error);
            return Err(Error::other(error));
        }
        let volume = plan::volume(claim, &class, &self.place);
        match self.context.api.create(&PERSISTENT_VOLUMES, &volume).await {
            Ok(_) => {
                let message = format!("Successfully provisioned volume {name}");
                self.record(claim, Note::normal("ProvisioningSucceeded", "", message));
            }
            Err(error) if is_already_exists(&error) => self.give_way(&name).await?,
            Err(error) => return Err(error.into()),
        }
        Ok(Action::done())
    }

    /// Removes the directory for a volume that another node has made.
    async fn give_way(&self, name: &str) -> Result<(), Error> {
        let key = Key::cluster(name);
        let volume = self.context.api.find(&PERSISTENT_VOLUMES, &key).await?;
        if volume.is_some_and(|volume| !plan::is_own(&volume, &self.place)) {
            // Only an empty one: it may have been used.
            let _ = fs::remove_dir(self.place.path(name));
        }
        Ok(())
    }

    /// Kubernetes: the steps of external-resizer. A directory has no size of its own.
    async fn expand(&self, claim: &Object, volume: &Object) -> Result<(), Error> {
        let size = plan::growth(claim, volume);
        if size.is_null() {
            return Ok(());
        }
        let (api, key) = (&self.context.api, claim.key());
        let set_status = async |status: Value| {
            let (claims, how) = (&PERSISTENT_VOLUME_CLAIMS, PatchType::Merge);
            api.patch(claims, &key, "status", how, &status).await
        };
        let message = format!("External resizer is resizing volume {}", volume.name());
        self.record(claim, Note::normal("Resizing", "", message));
        let now = self.context.now_text();
        let claim = set_status(plan::growing(claim, size, &now)).await?;
        let grown = value!({ "spec": { "capacity": { "storage": (size.clone()) } } });
        api.patch(
            &PERSISTENT_VOLUMES,
            &volume.key(),
            "",
            PatchType::Merge,
            &grown,
        )
        .await?;
        set_status(plan::grown(&claim, size)).await?;
        let message = "Resize volume succeeded";
        self.record(&claim, Note::normal("VolumeResizeSuccessful", "", message));
        Ok(())
    }

    async fn sync_volume(&self, key: &Key) -> Result<Action, Error> {
        let volume = self.volumes.lister().by_key(key)?;
        let is_ours =
            |volume: &Arc<Object>| plan::is_own(volume, &self.place) && plan::is_reclaimed(volume);
        let Some(volume) = volume.filter(is_ours) else {
            return Ok(Action::done());
        };
        let path = self.place.path(volume.name());
        let removed = spawn_blocking(move || remove_directory(&path)).await;
        if let Err(error) = removed
            .map_err(io::Error::other)
            .and_then(|removed| removed)
        {
            let regarding = PERSISTENT_VOLUMES.reference(key, volume.uid(), volume.version());
            let note = Note::warning("VolumeFailedDelete", "", error.to_string());
            self.context.recorder().record(&regarding, note);
            return Err(Error::other(error));
        }
        self.delete(&volume).await?;
        Ok(Action::done())
    }

    /// Deletes the object of a volume whose directory is gone.
    async fn delete(&self, volume: &Object) -> Result<(), Error> {
        let (api, key) = (&self.context.api, volume.key());
        if !volume.is_terminating() {
            let options = DeleteOptions {
                uid: Some(volume.uid()),
                ..DeleteOptions::default()
            };
            ignore_not_found(api.delete(&PERSISTENT_VOLUMES, &key, &options).await)?;
        }
        let Some(mut free) = api.find(&PERSISTENT_VOLUMES, &key).await? else {
            return Ok(());
        };
        if free.uid() != volume.uid() || !free.has_finalizer(FINALIZER) {
            return Ok(());
        }
        let finalizers = free.entry("metadata").entry("finalizers").make_list();
        finalizers.retain(|one| one.str() != FINALIZER);
        Ok(ignore_not_found(
            api.update(&PERSISTENT_VOLUMES, &free).await,
        )?)
    }

    fn record(&self, claim: &Object, note: Note) {
        self.context
            .record_event(&PERSISTENT_VOLUME_CLAIMS, claim, note);
    }
}

fn make_directory(root: &Path, path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(ROOT_MODE).create(root)?;
    builder.create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(VOLUME_MODE))
}

fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
