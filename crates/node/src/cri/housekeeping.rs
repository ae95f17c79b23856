//! What a node does beside running pods: it collects images, dead containers and the directories of
//! pods that have gone, rotates logs, and knows the images for its status.
//!
//! Each duty has its period; one that fails is repeated at the next turn.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mizzen_cri::CallError;
use mizzen_cri::messages::{Image, ImageFsInfoRequest, ListImagesRequest, StatusRequest};
use mizzen_cri::messages::{ImageSpec, ListContainersRequest, RemoveImageRequest};
use mizzen_sdk::clock::{Clock, wall_clock};
use mizzen_sdk::event::Note;
use mizzen_value::{Value, json, value};
use nix::sys::statvfs::statvfs;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::image_gc::{DiskUsage, ImageGcPolicy, ImageRecords};
use super::image_verification::ImageVerification;
use super::log_rotation::ContainerLogPolicy;
use super::{CriNode, volumes};

/// Kubernetes: how often images are listed, and garbage is collected (kubelet.go).
const LIST_IMAGES: Duration = Duration::from_secs(30);
const COLLECT_IMAGES: Duration = Duration::from_secs(300);
const COLLECT_CONTAINERS: Duration = Duration::from_secs(60);
/// Kubernetes: the most images and names of an image in the status of a node
/// (`nodeStatusMaxImages`, `MaxNamesPerImageInNodeStatus`).
const MAX_IMAGES: usize = 50;
const MAX_NAMES: usize = 5;

/// The limits of a node with real containers. Kubernetes: fields of KubeletConfiguration.
#[derive(Clone)]
pub struct Housekeeping {
    /// The most pulls at once (`maxParallelImagePulls`); 1 is `serializeImagePulls`.
    pub max_parallel_image_pulls: usize,
    /// Which pods may use an image that is there.
    pub image_verification: ImageVerification,
    /// When images are collected.
    pub image_gc: ImageGcPolicy,
    /// When logs are rotated.
    pub container_log: ContainerLogPolicy,
    /// The wall clock.
    pub clock: Clock,
}

impl Default for Housekeeping {
    fn default() -> Housekeeping {
        Housekeeping {
            max_parallel_image_pulls: 5,
            image_verification: ImageVerification::default(),
            image_gc: ImageGcPolicy::default(),
            container_log: ContainerLogPolicy::default(),
            clock: wall_clock(),
        }
    }
}

impl std::fmt::Debug for Housekeeping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Housekeeping")
            .field("max_parallel_image_pulls", &self.max_parallel_image_pulls)
            .field("image_verification", &self.image_verification)
            .field("image_gc", &self.image_gc)
            .field("container_log", &self.container_log)
            .finish_non_exhaustive()
    }
}

impl CriNode {
    /// Keeps house until the future is dropped.
    pub(super) async fn keep_house(self: Arc<Self>) {
        let images = async {
            loop {
                if let Err(error) = self.refresh_images().await {
                    tracing::debug!(%error, "cannot list images");
                }
                sleep(LIST_IMAGES).await;
            }
        };
        tokio::join!(
            images,
            self.collect_images(),
            self.collect_dead_containers(),
            self.rotate_logs(),
        );
    }

    /// The time since 1970.
    pub(super) fn now(&self) -> Duration {
        let now = (self.housekeeping.clock)();
        Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default())
    }

    fn record_on_node(&self, note: Note) {
        self.node_events.lock().push(note);
    }

    async fn refresh_images(&self) -> Result<Vec<Image>, CallError> {
        let listed = self.client.call(ListImagesRequest::default()).await?;
        *self.images.lock() = status_images(&listed.images);
        Ok(listed.images)
    }

    /// Collects images when the disk is full to a limit, and old ones.
    async fn collect_images(&self) {
        let began = self.now();
        let mut has_failed = false;
        loop {
            let collected = self.collect_images_once(began).await;
            if let Err(error) = &collected {
                tracing::warn!(error, "cannot collect images");
                // Kubernetes: the first failure may be that statistics are not there yet.
                if has_failed {
                    self.record_on_node(Note::warning("ImageGCFailed", "", error.as_str()));
                }
            }
            has_failed = collected.is_err();
            sleep(COLLECT_IMAGES).await;
        }
    }

    async fn collect_images_once(&self, began: Duration) -> Result<(), String> {
        let records = &mut *self.image_records.lock().await;
        let now = self.detect_images(records).await;
        let now = now.map_err(|error| error.to_string())?;
        let collected = self.collect_detected(records, began, now).await;
        self.prune_pull_records(records, now).await;
        collected
    }

    /// Removes the records of pulls of images that are not there any more.
    async fn prune_pull_records(&self, records: &ImageRecords, listed: Duration) {
        let (ids, pulls) = (records.ids(), self.pull_records.clone());
        let pruned = spawn_blocking(move || pulls.prune(&ids, listed)).await;
        if let Err(error) = pruned {
            tracing::warn!(%error, "cannot remove the records of images");
        }
    }

    /// Records what an agent before this one was pulling when it ended.
    pub(super) async fn recover_pull_records(&self) {
        let pulls = self.pull_records.clone();
        let has_intents = spawn_blocking(move || pulls.has_intents()).await;
        if !has_intents.unwrap_or_default() {
            return;
        }
        let recovered = match self.client.call(ListImagesRequest::default()).await {
            Err(error) => Err(error.to_string()),
            Ok(listed) => {
                let (pulls, now) = (self.pull_records.clone(), self.now());
                let recover = spawn_blocking(move || pulls.recover(&listed.images, now)).await;
                recover.map_err(|error| error.to_string())
            }
        };
        if let Err(error) = recovered {
            tracing::warn!(error, "cannot record the images that were being pulled");
        }
    }

    async fn collect_detected(
        &self,
        records: &mut ImageRecords,
        began: Duration,
        now: Duration,
    ) -> Result<(), String> {
        let policy = &self.housekeeping.image_gc;
        let called = |error: CallError| error.to_string();
        for id in records.expired(policy, now, began) {
            self.remove_image(records, &id).await.map_err(called)?;
        }
        let disk = self.image_disk().await.map_err(called)?;
        if disk.capacity == 0 {
            let message = "invalid capacity 0 on image filesystem";
            self.record_on_node(Note::warning("InvalidDiskCapacity", "", message));
            return Err(message.into());
        }
        let Some(wanted) = disk.bytes_to_free(policy) else {
            return Ok(());
        };
        let (percent, n_bytes) = (disk.used_percent(), wanted);
        tracing::info!(
            percent,
            n_bytes,
            "the disk of images is over its high threshold"
        );
        let (mut freed, mut failed) = (0, Vec::new());
        for (id, size) in records.removable(policy, now) {
            match self.remove_image(records, &id).await {
                Ok(()) => freed += size,
                Err(error) => failed.push(error.to_string()),
            }
            if freed >= wanted {
                break;
            }
        }
        if !failed.is_empty() {
            return Err(format!(
                "wanted to free {wanted} bytes, but freed {freed} bytes space with errors in image deletion: {}",
                failed.join(", ")
            ));
        }
        if freed < wanted {
            let message = disk.insufficient(freed);
            self.record_on_node(Note::warning("FreeDiskSpaceFailed", "", message.as_str()));
            return Err(message);
        }
        Ok(())
    }

    /// Records the images that there are, and returns the time before they were listed.
    async fn detect_images(&self, records: &mut ImageRecords) -> Result<Duration, CallError> {
        let now = self.now();
        let images = self.refresh_images().await?;
        let used = self.images_in_use(&images).await?;
        records.detect(&images, &used, now);
        Ok(now)
    }

    /// Removes dead containers and all images that no container uses, because the disk is short.
    pub(super) async fn reclaim_disk(self: Arc<Self>) {
        tracing::info!("removing dead containers and unused images");
        if let Err(error) = self.collect_containers_once(true).await {
            tracing::warn!(%error, "cannot collect dead containers");
        }
        if let Err(error) = self.remove_unused_images().await {
            tracing::warn!(%error, "cannot remove unused images");
        }
    }

    async fn remove_unused_images(&self) -> Result<(), CallError> {
        let records = &mut *self.image_records.lock().await;
        let now = self.detect_images(records).await?;
        for (id, _) in records.removable(&self.housekeeping.image_gc, now) {
            if let Err(error) = self.remove_image(records, &id).await {
                tracing::warn!(%error, image = id, "cannot remove an image");
            }
        }
        self.prune_pull_records(records, now).await;
        Ok(())
    }

    async fn remove_image(&self, records: &mut ImageRecords, id: &str) -> Result<(), CallError> {
        let image = Some(ImageSpec {
            image: id.into(),
            ..ImageSpec::default()
        });
        self.client.call(RemoveImageRequest { image }).await?;
        tracing::info!(image = id, "image removed");
        records.forget(id);
        Ok(())
    }

    /// The IDs of images that containers of any program or volumes of this node have, and that of
    /// sandboxes.
    async fn images_in_use(&self, images: &[Image]) -> Result<HashSet<String>, CallError> {
        let listed = self.client.call(ListContainersRequest::default()).await?;
        let mut names: HashSet<String> = HashSet::new();
        for container in listed.containers {
            names.insert(container.image_ref);
            names.extend(container.image.map(|spec| spec.image));
        }
        let status = self.client.call(StatusRequest { verbose: true }).await?;
        names.extend(sandbox_image(status.info.get("config")));
        let (paths, node) = (self.paths.clone(), self.node.clone());
        let of_volumes = spawn_blocking(move || volumes::image::in_use(&paths, &node)).await;
        let of_volumes = of_volumes.unwrap_or_default();
        names.extend(of_volumes.iter().map(ToString::to_string));
        let is_used = |image: &&Image| {
            let own = image.repo_tags.iter().chain(&image.repo_digests);
            own.chain([&image.id]).any(|name| names.contains(name))
        };
        let used = images.iter().filter(is_used);
        Ok(used.map(|image| image.id.clone()).collect())
    }

    /// The file system with the images of the runtime.
    async fn image_disk(&self) -> Result<DiskUsage, CallError> {
        let info = self.client.call(ImageFsInfoRequest {}).await?;
        let id = info.image_filesystems.into_iter().next();
        let place = PathBuf::from(id.and_then(|it| it.fs_id).unwrap_or_default().mountpoint);
        let measured = spawn_blocking(move || statvfs(&place)).await;
        Ok(match measured {
            Ok(Ok(disk)) => DiskUsage {
                capacity: disk.blocks() * disk.fragment_size(),
                available: disk.blocks_available() * disk.fragment_size(),
            },
            _ => DiskUsage::default(),
        })
    }

    /// Removes dead containers and what is left of pods that have gone.
    async fn collect_dead_containers(self: &Arc<Self>) {
        loop {
            sleep(COLLECT_CONTAINERS).await;
            if let Err(error) = self.collect_containers_once(false).await {
                tracing::warn!(%error, "cannot collect dead containers");
                let message = error.to_string();
                self.record_on_node(Note::warning("ContainerGCFailed", "", message));
            }
        }
    }
}

/// The name of the sandboxes' image in the configuration of containerd, which older versions do not
/// list as pinned.
fn sandbox_image(config: Option<&String>) -> Option<String> {
    let config = json::parse(config?.as_bytes()).ok()?;
    let name = config["sandboxImage"].str();
    (!name.is_empty()).then(|| name.to_owned())
}

/// `status.images` of a node: the largest images, each by a few names.
fn status_images(images: &[Image]) -> Value {
    let mut largest: Vec<&Image> = images.iter().collect();
    largest.sort_by_key(|image| std::cmp::Reverse(image.size));
    let entry = |image: &&Image| {
        let names = image.repo_digests.iter().chain(&image.repo_tags);
        let names: Vec<Value> = names.take(MAX_NAMES).map(Value::from).collect();
        value!({ "names": names, "sizeBytes": (i64::try_from(image.size).unwrap_or(i64::MAX)) })
    };
    let shown: Vec<Value> = largest.iter().take(MAX_IMAGES).map(entry).collect();
    match shown.is_empty() {
        true => Value::Null,
        false => Value::from(shown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_a_node_has_the_largest_images() {
        let image = |size: u64| Image {
            repo_tags: vec![format!("a:{size}")],
            repo_digests: vec!["a@sha256:0".into()],
            size,
            ..Image::default()
        };
        let images: Vec<Image> = (0..60).map(image).collect();
        let shown = status_images(&images);
        assert_eq!(shown.list().len(), 50);
        let first = json::to_string(&shown.list()[0]);
        assert_eq!(first, r#"{"names":["a@sha256:0","a:59"],"sizeBytes":59}"#);
        assert!(status_images(&[]).is_null());
    }

    #[test]
    fn the_image_of_sandboxes_is_that_of_the_configuration() {
        let config = |text: &str| sandbox_image(Some(&text.to_owned()));
        assert_eq!(
            config(r#"{"sandboxImage":"pause:3"}"#),
            Some("pause:3".into())
        );
        assert_eq!(config("{}"), None);
        assert_eq!(config("?"), None);
        assert_eq!(sandbox_image(None), None);
    }
}
