//! The images of volumes: pulled before a container of the pod is created.
//!
//! Kubernetes: pkg/kubelet/kuberuntime, `getImageVolumes` and `toKubeContainerImageVolumes`. Events of
//! a pull are about the pod; a container that mounts a volume whose image cannot be had waits as it
//! does for its own image.

use mizzen_sdk::event::Note;
use mizzen_value::{Str, Value};

use super::pull::{ImagePull, WantedImage};
use super::references::ReferencedObjects;
use super::{ContainerState, PodEvent, SyncContext};
use crate::moment::{Moment, earlier};
use crate::runtime::ImageUser;

/// The pulls of a pod's image volumes.
#[derive(Debug, Default)]
pub(super) struct ImageVolumes {
    volumes: Vec<ImageVolume>,
    /// When a container of the pod was last created: the next one has the images looked for again.
    created: Option<Moment>,
}

#[derive(Debug)]
struct ImageVolume {
    name: Str,
    pull: ImagePull,
    /// When the image was last found present.
    present: Option<Moment>,
    /// The reason for which containers wait, if it is new at that moment.
    error: Option<(Moment, &'static str)>,
}

/// The volumes of a pod that are images.
fn specs(pod: &Value) -> impl Iterator<Item = &Value> {
    let volumes = pod["spec"]["volumes"].list().iter();
    volumes.filter(|volume| !volume["image"].is_null())
}

impl ImageVolumes {
    /// A container is created now.
    pub(super) fn note_creation(&mut self, now: Moment) {
        self.created = Some(now);
    }

    fn entry(&mut self, name: &str) -> &mut ImageVolume {
        let known = self.volumes.iter().position(|volume| volume.name == name);
        let idx = known.unwrap_or_else(|| {
            self.volumes.push(ImageVolume {
                name: name.into(),
                pull: ImagePull::default(),
                present: None,
                error: None,
            });
            self.volumes.len() - 1
        });
        &mut self.volumes[idx]
    }
}

impl ImageVolume {
    /// Pulls the image unless it was found since a container was `created`; returns when the next
    /// sync is due, and whether the result is known.
    fn sync(
        &mut self,
        source: &Value,
        created: Option<Moment>,
        referenced: Option<&mut ReferencedObjects>,
        sync: &mut SyncContext,
    ) -> (Option<Moment>, bool) {
        let is_fresh = |at| at == sync.now || created.is_none_or(|created| created < at);
        if self.present.is_some_and(is_fresh) {
            return (None, true);
        }
        let name = self.name.clone();
        let wanted = WantedImage {
            user: ImageUser::Volume(&name),
            image: source["reference"].str(),
            policy: source["pullPolicy"].str(),
        };
        let step = self.pull.sync(&wanted, referenced, sync);
        let mut notes = step.notes;
        if step.is_ready {
            self.present = Some(sync.now);
            notes.push(self.pull.pulled_note(wanted.image));
        }
        if let Some(error) = step.error {
            self.error = Some((sync.now, error));
        }
        sync.events.extend(notes.into_iter().map(|note| PodEvent {
            path: String::new(),
            note,
        }));
        let is_known = step.is_ready || self.pull.waiting().is_some();
        (step.changes_at, is_known)
    }
}

impl ContainerState {
    /// Whether the images of the volumes that it mounts are present. Those of all volumes of the pod
    /// are pulled.
    pub(super) fn volume_images_ready(
        &mut self,
        spec: &Value,
        mut referenced: Option<&mut ReferencedObjects>,
        sync: &mut SyncContext,
    ) -> bool {
        let pod = sync.pod;
        let (mut volumes, mut changes_at) = (std::mem::take(&mut sync.image_volumes), None);
        let mut are_known = true;
        for volume in specs(pod) {
            let created = volumes.created;
            let entry = volumes.entry(volume["name"].str());
            let referenced = referenced.as_deref_mut();
            let (at, is_known) = entry.sync(&volume["image"], created, referenced, sync);
            changes_at = earlier(changes_at, at);
            are_known &= is_known;
        }
        let mut mounts = spec["volumeMounts"].list().iter();
        let failed = mounts.find_map(|mount| {
            let mut entries = volumes.volumes.iter();
            let entry = entries.find(|entry| entry.name == mount["name"].str())?;
            Some((entry.pull.waiting()?, entry.error))
        });
        sync.image_volumes = volumes;
        if !are_known {
            return false;
        }
        let Some((waiting, error)) = failed else {
            self.volume_error = None;
            return true;
        };
        if let Some((_, reason)) = error.filter(|(at, _)| *at == sync.now) {
            let message = format!("Error: {reason}");
            sync.record(self, Note::warning("Failed", "", message));
        }
        self.volume_error = Some(Box::new(waiting));
        self.changes_at = changes_at.or(self.changes_at);
        false
    }
}
