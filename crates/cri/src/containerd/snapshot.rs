//! The files of an image as a snapshot that can only be read.

use mizzen_value::json;

use super::messages::*;
use super::{Containerd, UnpackError};
use crate::client::CallError;
use crate::messages::{Image, ImageSpec, ImageStatusRequest};

/// A label that keeps a snapshot while nothing refers to it.
const KEEP: &str = "containerd.io/gc.root";

impl Containerd {
    /// Makes a snapshot of the files of an image, and returns how it is mounted. One that was made
    /// before stays as it is. It exists until it is removed.
    pub async fn view(
        &self,
        image: &Image,
        key: &str,
        at: &str,
    ) -> Result<Vec<SnapshotMount>, UnpackError> {
        let parent = match self.top_layer(image).await? {
            Some(parent) => parent,
            None => self.unpack(&image.id).await?.chain,
        };
        let request = ViewSnapshotRequest {
            snapshotter: self.snapshotter.clone(),
            key: key.into(),
            parent: parent.clone(),
            labels: [(KEEP.to_owned(), at.to_owned())].into(),
        };
        let mut viewed = self.call(request.clone()).await;
        if viewed.as_ref().is_err_and(CallError::is_not_found) {
            // The image was imported without making its layers snapshots.
            self.unpack(&image.id).await?;
            viewed = self.call(request).await;
        }
        match viewed {
            Err(error) if error.code == tonic::Code::AlreadyExists => {
                let request = MountsRequest {
                    snapshotter: self.snapshotter.clone(),
                    key: key.into(),
                };
                Ok(self.call(request).await?.mounts)
            }
            viewed => Ok(viewed?.mounts),
        }
    }

    /// The snapshot of the last layer of an image, by the chain of its layers.
    async fn top_layer(&self, image: &Image) -> Result<Option<String>, CallError> {
        let request = ImageStatusRequest {
            image: Some(ImageSpec {
                image: image.id.clone(),
                ..ImageSpec::default()
            }),
            verbose: true,
        };
        let status = self.client.call(request).await?;
        let info = status.info.get("info").map_or("", String::as_str);
        let info = json::parse(info.as_bytes()).unwrap_or_default();
        let chain = info["chainID"].str();
        Ok((!chain.is_empty()).then(|| chain.to_owned()))
    }

    /// Removes a snapshot that may have gone already.
    pub async fn remove_snapshot(&self, key: &str) -> Result<(), CallError> {
        let request = RemoveSnapshotRequest {
            snapshotter: self.snapshotter.clone(),
            key: key.into(),
        };
        match self.call(request).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}
