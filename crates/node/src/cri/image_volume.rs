//! Volumes that are images, in the containers of a pod.
//!
//! A runtime mounts them itself if it knows how (`Mount.image`). Older versions of containerd ignore
//! that field; for them the agent makes a snapshot of the image and mounts it below the directory of
//! the pod. Pods with such a volume are refused if neither is possible.

use std::path::Path;

use mizzen_cri::CriClient;
use mizzen_cri::containerd::Containerd;
use mizzen_cri::messages::{ContainerConfig, Image, ImageSpec, Mount, VersionResponse};
use mizzen_value::Value;
use tokio::task::spawn_blocking;

use super::CriNode;
use super::image::spec_of;
use super::volumes::{self, volume_of};
use crate::pod::inputs::{Variables, expand};

/// Since when a runtime mounts images, by its major and its minor version.
const SINCE: [(&str, (u32, u32)); 2] = [("containerd", (2, 1)), ("cri-o", (1, 33))];

/// Who mounts images.
pub(super) enum ImageMounter {
    /// The runtime.
    Runtime,
    /// The agent, with snapshots of containerd.
    Agent(Box<Containerd>),
    /// It is not possible.
    None,
}

impl ImageMounter {
    /// Who mounts images for a runtime.
    pub(super) async fn of(client: &CriClient) -> ImageMounter {
        if mounts_images(client.version()) {
            return ImageMounter::Runtime;
        }
        match Containerd::of(client).await {
            Some(containerd) => ImageMounter::Agent(Box::new(containerd)),
            None => ImageMounter::None,
        }
    }
}

/// Whether a runtime mounts images, with their sub paths.
fn mounts_images(version: &VersionResponse) -> bool {
    let mut known = SINCE.iter();
    let Some((_, since)) = known.find(|(name, _)| *name == version.runtime_name) else {
        return false;
    };
    let text = version.runtime_version.trim_start_matches('v');
    let mut numbers = text
        .split(['.', '-', '~', '+'])
        .map(|part| part.parse().ok());
    let mut next = || numbers.next().flatten();
    next()
        .zip(next())
        .is_some_and(|version: (u32, u32)| version >= *since)
}

impl CriNode {
    /// Mounts the images of a container's volumes, or has the runtime mount them.
    pub(super) async fn mount_images(
        &self,
        pod: &Value,
        spec: &Value,
        variables: Option<&Variables>,
        made: &mut ContainerConfig,
    ) -> Result<(), String> {
        for wanted in spec["volumeMounts"].list() {
            let Some(volume) = volume_of(pod, wanted).filter(|it| !it["image"].is_null()) else {
                continue;
            };
            let path = wanted["mountPath"].str();
            let mut mounts = made.mounts.iter_mut();
            let Some(mount) = mounts.find(|mount| mount.container_path == path) else {
                continue;
            };
            let sub_path = match wanted["subPathExpr"].str() {
                "" => wanted["subPath"].str().into(),
                expression => expand(expression, &|name| variables?.get(name).cloned()),
            };
            self.mount_image(pod, volume, sub_path, mount).await?;
        }
        Ok(())
    }

    async fn mount_image(
        &self,
        pod: &Value,
        volume: &Value,
        sub_path: String,
        mount: &mut Mount,
    ) -> Result<(), String> {
        let (uid, name) = (pod["metadata"]["uid"].str(), volume["name"].str());
        let reference = volume["image"]["reference"].str();
        let failed = |why: String| format!("ImageVolumeMountFailed: {why}");
        // Containers of a pod may start at the same time.
        let turn = {
            let pods = self.pods.lock();
            pods.get(uid).map(|record| record.image_mounts.clone())
        };
        let turn = turn.ok_or_else(|| failed("the pod was removed".into()))?;
        let _turn = turn.lock().await;
        let found = self.find_image(&spec_of(reference)).await;
        let image = found.map_err(|error| failed(error.to_string()))?;
        let image = image
            .ok_or_else(|| failed(format!("failed to resolve image {reference:?}: not found")))?;
        let (pod_dir, dir) = (self.paths.pod(uid), self.paths.volume(uid, "image", name));
        let ImageMounter::Agent(containerd) = &self.image_mounter else {
            record(&pod_dir, name, &image).await.map_err(failed)?;
            mount.image = Some(ImageSpec {
                image: image.id,
                user_specified_image: reference.into(),
                ..ImageSpec::default()
            });
            mount.image_sub_path = sub_path;
            return Ok(());
        };
        let place = dir.clone();
        let is_mounted = spawn_blocking(move || volumes::image::is_mounted(&place)).await;
        if !is_mounted.unwrap_or_default() {
            record(&pod_dir, name, &image).await.map_err(failed)?;
            let (key, at) = (self.snapshot_key(uid, name), dir.display().to_string());
            let mounts = containerd.view(&image, &key, &at).await;
            let mounts = mounts.map_err(|error| {
                failed(format!(
                    "failed to make a snapshot of image {reference:?}: {error}"
                ))
            })?;
            let place = dir.clone();
            let work = move || volumes::image::mount_snapshot(&pod_dir, &place, &mounts);
            match spawn_blocking(work).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let place = dir.display();
                    return Err(failed(format!("failed to mount image at {place}: {error}")));
                }
                Err(error) => return Err(failed(error.to_string())),
            }
        }
        let part = match sub_path.is_empty() {
            true => Ok(dir),
            false => {
                let found = move || volumes::image::sub_directory(&dir, &sub_path);
                let found = spawn_blocking(found).await;
                found.unwrap_or_else(|error| Err(error.to_string()))
            }
        };
        mount.host_path = part.map_err(failed)?.display().to_string();
        // The overlay is read-only whatever the flags are. A runtime that is asked for a read-only
        // mount sets all flags anew, and the mount of the agent has `noexec`.
        (mount.readonly, mount.recursive_read_only) = (false, false);
        Ok(())
    }

    /// The key of the snapshot of a volume.
    fn snapshot_key(&self, uid: &str, volume: &str) -> String {
        format!("mizzen/{}/{uid}/{volume}", self.node)
    }

    /// Removes the snapshots of a pod's volumes.
    pub(super) async fn remove_snapshots(&self, uid: &str) -> Result<(), String> {
        let ImageMounter::Agent(containerd) = &self.image_mounter else {
            return Ok(());
        };
        let dir = self.paths.pod(uid);
        let recorded = spawn_blocking(move || volumes::image::recorded(&dir)).await;
        for (volume, _) in recorded.unwrap_or_default() {
            let removed = containerd
                .remove_snapshot(&self.snapshot_key(uid, &volume))
                .await;
            removed.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

/// Writes down the image of a volume.
async fn record(pod_dir: &Path, volume: &str, image: &Image) -> Result<(), String> {
    let named = image.repo_digests.first().unwrap_or(&image.id).clone();
    let (dir, volume) = (pod_dir.to_owned(), volume.to_owned());
    let written = spawn_blocking(move || volumes::image::record(&dir, &volume, &named)).await;
    match written {
        Ok(written) => written.map_err(|error| format!("{}: {error}", pod_dir.display())),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_runtimes_mount_images_themselves() {
        for (name, version, expected) in [
            ("containerd", "1.6.20~ds1", false),
            ("containerd", "v1.7.27", false),
            ("containerd", "v2.0.5", false),
            ("containerd", "v2.1.0", true),
            ("containerd", "2.1.0-rc.1", true),
            ("containerd", "3.0.0", true),
            ("cri-o", "1.32.4", false),
            ("cri-o", "1.33.0", true),
            ("docker", "28.0.0", false),
            ("containerd", "", false),
        ] {
            let version = VersionResponse {
                runtime_name: name.into(),
                runtime_version: version.into(),
                ..VersionResponse::default()
            };
            assert_eq!(mounts_images(&version), expected, "{version:?}");
        }
    }
}
