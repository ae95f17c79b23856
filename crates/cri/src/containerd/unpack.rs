//! Makes snapshots of the layers of an image: of each layer on those below it.
//!
//! A snapshot is named by the chain of its layers, so that images share those that they have in
//! common (image-spec, config.md, "Layer ChainID").

use mizzen_value::{Value, json};
use ring::digest::{SHA256, digest};
use tonic::Code;

use super::messages::*;
use super::{Containerd, digest_text, since_1970};
use crate::client::CallError;

/// Why the layers of an image were not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A blob of the image is not what it should be.
    #[error("image {image}: {why}")]
    Invalid {
        /// The name of the image.
        image: String,
        /// What is wrong.
        why: String,
    },
}

/// An image whose layers are snapshots.
pub(super) struct Unpacked {
    /// Its ID: the digest of its configuration.
    pub id: String,
    /// The name of the snapshot of its last layer.
    pub chain: String,
}

/// What the manifest of an image for this machine refers to.
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

impl Containerd {
    /// Makes snapshots of the layers of an image.
    pub(super) async fn unpack(&self, name: &str) -> Result<Unpacked, UnpackError> {
        let invalid = |why: String| UnpackError::Invalid {
            image: name.into(),
            why,
        };
        let request = GetImageRequest { name: name.into() };
        let target = self
            .call(request)
            .await?
            .image
            .and_then(|image| image.target);
        let target = target.ok_or_else(|| invalid("it has no manifest".into()))?;
        let manifest = self.manifest(&target).await?.map_err(invalid)?;
        let config = self
            .document(&manifest.config.digest)
            .await?
            .map_err(invalid)?;
        let diffs = config["rootfs"]["diff_ids"].list();
        if diffs.len() != manifest.layers.len() || diffs.is_empty() {
            let n_layers = manifest.layers.len();
            let why = format!(
                "it has {n_layers} layers, and its configuration {}",
                diffs.len()
            );
            return Err(invalid(why));
        }
        let mut chain = String::new();
        for (diff, layer) in diffs.iter().zip(&manifest.layers) {
            let next = next_chain(&chain, diff.str());
            self.unpack_layer(layer.clone(), diff.str(), &chain, &next)
                .await?
                .map_err(invalid)?;
            chain = next;
        }
        // The image keeps its snapshots.
        let label = format!("containerd.io/gc.ref.snapshot.{}", self.snapshotter);
        let labels = [(label, chain.clone())].into();
        self.label(&manifest.config.digest, labels).await?;
        Ok(Unpacked {
            id: manifest.config.digest,
            chain,
        })
    }

    /// Makes the snapshot `chain` of a layer on `parent`, unless there is one.
    async fn unpack_layer(
        &self,
        layer: Descriptor,
        diff: &str,
        parent: &str,
        chain: &str,
    ) -> Result<Result<(), String>, CallError> {
        let stat = StatSnapshotRequest {
            snapshotter: self.snapshotter.clone(),
            key: chain.into(),
        };
        match self.call(stat).await {
            Err(error) if !error.is_not_found() => return Err(error),
            Err(_) => {}
            Ok(_) => return Ok(Ok(())),
        }
        let unique = since_1970().as_nanos();
        let key = format!("extract-{unique} {chain}");
        let made = self.make_snapshot(layer, diff, parent, (&key, chain)).await;
        if !matches!(made, Ok(Ok(()))) {
            let _ = self.remove_snapshot(&key).await;
        }
        match made {
            // Another client has unpacked it meanwhile.
            Err(error) if error.code == Code::AlreadyExists => Ok(Ok(())),
            made => made,
        }
    }

    async fn make_snapshot(
        &self,
        layer: Descriptor,
        diff: &str,
        parent: &str,
        (key, chain): (&str, &str),
    ) -> Result<Result<(), String>, CallError> {
        let prepare = PrepareSnapshotRequest {
            snapshotter: self.snapshotter.clone(),
            key: key.into(),
            parent: parent.into(),
            ..PrepareSnapshotRequest::default()
        };
        let mounts = self.call(prepare).await?.mounts;
        let digest = layer.digest.clone();
        let apply = ApplyRequest {
            diff: Some(layer),
            mounts,
        };
        let applied = self.call(apply).await?.applied.unwrap_or_default();
        if applied.digest != diff {
            let why = format!(
                "layer {digest} has the files of {}, not of {diff}",
                applied.digest
            );
            return Ok(Err(why));
        }
        let commit = CommitSnapshotRequest {
            snapshotter: self.snapshotter.clone(),
            name: chain.into(),
            key: key.into(),
        };
        self.call(commit).await.map(|_| Ok(()))
    }

    /// The manifest of an image; of several that for this machine.
    async fn manifest(&self, target: &Descriptor) -> Result<Result<Manifest, String>, CallError> {
        let mut document = match self.document(&target.digest).await? {
            Ok(document) => document,
            Err(why) => return Ok(Err(why)),
        };
        if !document["manifests"].list().is_empty() {
            let mut chosen = None;
            for entry in document["manifests"].list() {
                let digest = entry["digest"].str();
                if is_for_this_machine(&entry["platform"]) && self.has_blob(digest).await? {
                    chosen = Some(digest.to_owned());
                    break;
                }
            }
            let Some(chosen) = chosen else {
                let why = format!("it has no files for linux/{}", architecture());
                return Ok(Err(why));
            };
            document = match self.document(&chosen).await? {
                Ok(document) => document,
                Err(why) => return Ok(Err(why)),
            };
        }
        Ok(Ok(Manifest {
            config: descriptor(&document["config"]),
            layers: document["layers"].list().iter().map(descriptor).collect(),
        }))
    }

    /// Reads a blob that is JSON.
    pub(super) async fn document(&self, digest: &str) -> Result<Result<Value, String>, CallError> {
        let blob = self.read(digest).await?;
        Ok(json::parse(&blob).map_err(|error| format!("blob {digest} is not JSON: {error}")))
    }
}

/// A descriptor of a manifest.
fn descriptor(value: &Value) -> Descriptor {
    Descriptor {
        media_type: value["mediaType"].str().into(),
        digest: value["digest"].str().into(),
        size: value["size"].int(),
    }
}

/// Whether a manifest of an index is for this machine; one without a platform is for all.
fn is_for_this_machine(platform: &Value) -> bool {
    let (os, machine) = (platform["os"].str(), platform["architecture"].str());
    matches!(os, "" | "linux") && (machine.is_empty() || machine == architecture())
}

/// The architecture of this machine, as images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The name of a layer on those below it.
fn next_chain(chain: &str, diff: &str) -> String {
    if chain.is_empty() {
        return diff.into();
    }
    digest_text(digest(&SHA256, format!("{chain} {diff}").as_bytes()).as_ref())
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[test]
    fn a_layer_is_named_by_all_layers_below_it() {
        assert_eq!(next_chain("", "sha256:aa"), "sha256:aa");
        // printf 'sha256:aa sha256:bb' | sha256sum
        assert_eq!(
            next_chain("sha256:aa", "sha256:bb"),
            "sha256:b68ad689d6d1ec110ea1c13617437ad6f3766d4b3b309f6a603a222e07a0164f"
        );
    }

    #[test]
    fn only_files_for_this_machine_are_taken() {
        assert!(is_for_this_machine(&Value::Null));
        let platform = |os: &str, machine: &str| value!({ "os": os, "architecture": machine });
        assert!(is_for_this_machine(&platform("linux", architecture())));
        assert!(!is_for_this_machine(&platform("windows", architecture())));
        assert!(!is_for_this_machine(&platform("unknown", "unknown")));
    }
}
