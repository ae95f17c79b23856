//! Makes the images of a tarball images of the runtime, as the interface lists them.
//!
//! The tarball is read once, so that it can come from a pipe: every blob in it is written, and what
//! no image refers to is removed by containerd when the lease ends.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Duration;

use bytes::Bytes;
use mizzen_value::{json, time, value};
use tokio::sync::mpsc;
use tokio::task::{JoinError, spawn_blocking};
use tokio::time::{Instant, sleep};
use tonic::Code;

use super::archive::{ArchiveError, ArchivedImage, Contents, Part, read};
use super::content::BlobWriter;
use super::messages::*;
use super::{Containerd, UnpackError, since_1970};
use crate::client::CallError;
use crate::messages::{ImageSpec, ImageStatusRequest};

/// How long what is written stays without a reference, if the import is interrupted.
const LEASE: i64 = 24 * 60 * 60;
/// How long the interface may take to list an image that was named.
const LISTED: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
/// The types of the parts of a manifest that is made here.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
/// The first bytes of a layer that is compressed.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// Why a tarball was not imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The tarball is not read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// An image of it is not what it should be.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// A call failed.
    #[error("containerd fails: {0}")]
    Call(#[from] CallError),
    /// The runtime does not list the image.
    #[error("containerd does not list the image {0} that was imported")]
    NotListed(String),
    /// The thread that reads the tarball has failed.
    #[error("cannot read the tarball: {0}")]
    Reader(#[from] JoinError),
}

/// An image that was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedImage {
    /// Its name.
    pub name: String,
    /// The digest of its manifest, or of the index of its manifests.
    pub digest: String,
}

/// A blob that was written.
struct Blob {
    size: i64,
    is_compressed: bool,
}

/// What was read and written.
#[derive(Default)]
struct Written {
    contents: Contents,
    /// By digest.
    blobs: BTreeMap<String, Blob>,
}

/// A blob that is being written.
struct Writing {
    path: String,
    size: i64,
    is_compressed: Option<bool>,
    writer: BlobWriter,
}

impl Containerd {
    /// Imports all images of a tarball, and makes snapshots of their layers.
    pub async fn import(
        &self,
        archive: impl Read + Send + 'static,
    ) -> Result<Vec<ImportedImage>, ImportError> {
        let now = since_1970();
        let id = format!("mizzen-import-{}-{}", std::process::id(), now.as_nanos());
        let seconds = i64::try_from(now.as_secs()).unwrap_or_default();
        let end = time::from_unix(seconds + LEASE);
        let lease = CreateLeaseRequest {
            id: id.clone(),
            labels: [("containerd.io/gc.expire".to_owned(), end)].into(),
        };
        self.call(lease).await?;
        let leased = Containerd {
            lease: id.parse().ok(),
            ..self.clone()
        };
        let imported = leased.import_leased(archive, &id).await;
        // It expires, if this fails.
        let _ = self.call(DeleteLeaseRequest { id }).await;
        imported
    }

    async fn import_leased(
        &self,
        archive: impl Read + Send + 'static,
        id: &str,
    ) -> Result<Vec<ImportedImage>, ImportError> {
        let (sender, parts) = mpsc::channel(2);
        let reading =
            spawn_blocking(move || read(archive, |part| sender.blocking_send(part).is_ok()));
        let written = self.write_parts(parts, id).await;
        // The reader stops when its parts are not taken any more.
        reading.await??;
        let mut written = written?;
        let images = written.contents.images()?;
        let mut imported = Vec::new();
        for image in images {
            let (names, target) = self.complete(image, &mut written, id).await?;
            for name in names {
                self.name_image(&name, &target).await?;
                let unpacked = self.unpack(&name).await?;
                self.wait_until_listed(&name, &unpacked.id).await?;
                imported.push(ImportedImage {
                    name,
                    digest: target.digest.clone(),
                });
            }
        }
        Ok(imported)
    }

    /// Writes the blobs of a tarball.
    async fn write_parts(
        &self,
        mut parts: mpsc::Receiver<Part>,
        id: &str,
    ) -> Result<Written, CallError> {
        let mut written = Written::default();
        let mut current: Option<Writing> = None;
        while let Some(part) = parts.recv().await {
            if !matches!(part, Part::Data(_)) {
                self.finish(current.take(), &mut written).await?;
            }
            match part {
                Part::Document(name, text) => drop(written.contents.documents.insert(name, text)),
                Part::Link(path, target) => drop(written.contents.links.insert(path, target)),
                Part::Blob(path, size) => {
                    let size = i64::try_from(size).unwrap_or(i64::MAX);
                    let expected = path.strip_prefix("blobs/sha256/");
                    let expected = expected.map(|hex| format!("sha256:{hex}"));
                    let name = format!("{id}-{path}");
                    let writer = self.write(name, &expected.unwrap_or_default(), size);
                    current = Some(Writing {
                        path,
                        size,
                        is_compressed: None,
                        writer,
                    });
                }
                Part::Data(data) => {
                    if let Some(writing) = &mut current {
                        let is_compressed = data.starts_with(GZIP);
                        writing.is_compressed.get_or_insert(is_compressed);
                        self.append(&mut writing.writer, data).await?;
                    }
                }
            }
        }
        self.finish(current, &mut written).await?;
        Ok(written)
    }

    async fn finish(
        &self,
        writing: Option<Writing>,
        written: &mut Written,
    ) -> Result<(), CallError> {
        let Some(writing) = writing else {
            return Ok(());
        };
        let digest = self.commit(writing.writer).await?;
        let blob = Blob {
            size: writing.size,
            is_compressed: writing.is_compressed.unwrap_or_default(),
        };
        written.blobs.insert(digest.clone(), blob);
        written.contents.blobs.insert(writing.path, digest);
        Ok(())
    }

    /// Makes the manifest of an image, if it has none, and labels what it refers to.
    async fn complete(
        &self,
        image: ArchivedImage,
        written: &mut Written,
        id: &str,
    ) -> Result<(Vec<String>, Descriptor), ImportError> {
        let (names, target) = match image {
            ArchivedImage::Manifest {
                names,
                media_type,
                digest,
                size,
            } => {
                let target = Descriptor {
                    media_type,
                    digest,
                    size,
                };
                (names, target)
            }
            ArchivedImage::Parts {
                names,
                config,
                layers,
            } => {
                let manifest = manifest(&config, &layers, written);
                let size = i64::try_from(manifest.len()).unwrap_or(i64::MAX);
                let mut writer = self.write(format!("{id}-manifest-{config}"), "", size);
                self.append(&mut writer, manifest).await?;
                let target = Descriptor {
                    media_type: MANIFEST.into(),
                    digest: self.commit(writer).await?,
                    size,
                };
                (names, target)
            }
        };
        let name = names.first().map_or("", String::as_str);
        self.label_references(&target.digest, name).await?;
        Ok((names, target))
    }

    /// Labels a manifest, or an index and its manifests, with the blobs that it needs.
    async fn label_references(&self, digest: &str, name: &str) -> Result<(), ImportError> {
        let mut open = vec![digest.to_owned()];
        while let Some(digest) = open.pop() {
            let document = self.document(&digest).await?;
            let document = document.map_err(|why| UnpackError::Invalid {
                image: name.into(),
                why,
            })?;
            let mut labels = BTreeMap::new();
            let mut refer = |label: String, digest: &str| {
                labels.insert(
                    format!("containerd.io/gc.ref.content.{label}"),
                    digest.into(),
                );
            };
            for (idx, entry) in document["manifests"].list().iter().enumerate() {
                // A tarball may have the manifests of some platforms alone.
                if self.has_blob(entry["digest"].str()).await? {
                    refer(format!("m.{idx}"), entry["digest"].str());
                    open.push(entry["digest"].str().into());
                }
            }
            if !document["config"].is_null() {
                refer("config".into(), document["config"]["digest"].str());
            }
            for (idx, layer) in document["layers"].list().iter().enumerate() {
                refer(format!("l.{idx}"), layer["digest"].str());
            }
            self.label(&digest, labels).await?;
        }
        Ok(())
    }

    /// Gives an image its name, which another one may have had.
    async fn name_image(&self, name: &str, target: &Descriptor) -> Result<(), CallError> {
        let image = NamedImage {
            name: name.into(),
            target: Some(target.clone()),
            ..NamedImage::default()
        };
        let create = CreateImageRequest {
            image: Some(image.clone()),
        };
        match self.call(create).await {
            Err(error) if error.code == Code::AlreadyExists => {
                let update = UpdateImageRequest { image: Some(image) };
                self.call(update).await.map(drop)
            }
            created => created.map(drop),
        }
    }

    /// Waits until the interface has the image of a name: containerd tells its plug-in by an event.
    async fn wait_until_listed(&self, name: &str, id: &str) -> Result<(), ImportError> {
        let began = Instant::now();
        while began.elapsed() < LISTED {
            let request = ImageStatusRequest {
                image: Some(ImageSpec {
                    image: name.into(),
                    ..ImageSpec::default()
                }),
                verbose: false,
            };
            let image = self.client.call(request).await?.image;
            if image.is_some_and(|image| image.id == id) {
                return Ok(());
            }
            sleep(POLL).await;
        }
        Err(ImportError::NotListed(name.into()))
    }
}

/// The manifest of an image by the digests of its parts.
fn manifest(config: &str, layers: &[String], written: &Written) -> Bytes {
    let part = |media_type: &str, digest: &str| {
        let size = written.blobs.get(digest).map_or(0, |blob| blob.size);
        value!({ "mediaType": media_type, "digest": digest, "size": size })
    };
    let layer = |digest: &String| {
        let blob = written.blobs.get(digest);
        match blob.is_some_and(|blob| blob.is_compressed) {
            true => part(&format!("{LAYER}+gzip"), digest),
            false => part(LAYER, digest),
        }
    };
    let layers: Vec<_> = layers.iter().map(layer).collect();
    let manifest = value!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": (part(CONFIG, config)),
        "layers": layers,
    });
    json::to_string(&manifest).into()
}
