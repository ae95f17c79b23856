//! The volumes of a pod as directories of the machine.
//!
//! | part | what it has |
//! |---|---|
//! | `files` | volumes that are made of API objects |
//! | `host_path` | paths of the machine, and their types |
//! | `image` | images as volumes |
//! | `persistent` | PersistentVolumes |
//! | `ownership` | `fsGroup` |
//! | `sub_path` | mounts of a part of a volume |
//! | `pinned` | files that are opened without following links |
//! | `text` | files of variables |
//! | `tear_down` | the removal of a pod's directory |
//!
//! Invariant: a container can change what is in its volumes at any time. What the agent opens there
//! is opened without following links (`pinned`).

mod files;
mod host_path;
pub(super) mod image;
mod ownership;
mod persistent;
mod pinned;
mod sub_path;
mod tear_down;
mod text;

use std::fs::{self, Permissions};
use std::hash::BuildHasher as _;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use mizzen_cri::messages::Mount;
use mizzen_value::quantity::Quantity;
use mizzen_value::{Str, Value};
use nix::mount::{MsFlags, mount};

use super::config::{NodePaths, VOLUMES, volume_mount};
use super::resources;
use crate::pod::claims::{cannot_process, claim_name};
use crate::pod::env_file::VolumeText;
use crate::pod::inputs::{Variables, VolumeContent, VolumeContents, expand};
use files::write_files;
use ownership::fs_group;
pub(super) use tear_down::tear_down;

/// The file in the directory of a pod that names the node: several agents may share a machine.
const NODE: &str = "node";
/// The permissions of a pod's directory: other users of the machine see no files of pods.
const POD_MODE: u32 = 0o750;
/// The options of a file system for files that must not reach a disk, and those for kernels
/// without `noswap`.
const SECRET_OPTIONS: [&str; 2] = ["mode=0755,noswap", "mode=0755"];
/// The option of newer kernels by which a file system in memory is not swapped.
const NO_SWAP: &str = "noswap";

/// Why a volume cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub(super) enum MountError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("hostPath type check failed: {path} is not {wanted}")]
    HostPath { path: PathBuf, wanted: &'static str },
    #[error("{kind} is not supported by this node")]
    Unsupported { kind: String },
    #[error("subPath {0:?} is not a path below the volume")]
    SubPath(String),
    #[error(
        "failed to prepare subPath for volumeMount {volume:?} of container {container:?}: {source}"
    )]
    PrepareSubPath {
        volume: String,
        container: String,
        source: Box<MountError>,
    },
    #[error("failed to resolve recursive read-only mode: {0}")]
    RecursiveReadOnly(String),
    #[error("path {0:?} does not exist")]
    NoPath(PathBuf),
    #[error("only directory and block device are supported")]
    NotDirectory,
    #[error("no matching NodeSelectorTerms")]
    NodeAffinity,
    #[error(
        "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name {0} not found in \
             the list of registered CSI drivers"
    )]
    NoDriver(String),
    #[error("no volume plugin matched")]
    NoPlugin,
}

impl MountError {
    /// The message of the event about a volume of a pod, whose own name is `name`.
    fn event(&self, volume: &str, name: &str) -> String {
        let stage = match self {
            MountError::NoPlugin => {
                let why =
                    format!("failed to get Plugin from volumeSpec for volume {name:?} err={self}");
                return cannot_process(&[volume.into()], &why);
            }
            MountError::NoPath(_) => "MountVolume.NewMounter initialization",
            MountError::NodeAffinity => "MountVolume.NodeAffinity check",
            MountError::NoDriver(_) => "MountVolume.MountDevice",
            _ => "MountVolume.SetUp",
        };
        format!("{stage} failed for volume {name:?} : {self}")
    }
}

trait AtPath<T> {
    fn at(self, path: &Path) -> Result<T, MountError>;
}

impl<T> AtPath<T> for io::Result<T> {
    fn at(self, path: &Path) -> Result<T, MountError> {
        self.map_err(|source| MountError::File {
            path: path.into(),
            source,
        })
    }
}

/// The node of a volume.
#[derive(Debug, Clone, Copy)]
pub(super) struct VolumeNode<'a> {
    pub name: &'a str,
    pub paths: &'a NodePaths,
    /// The memory that is allocatable to its pods, in bytes; zero if it is not known.
    pub memory: i64,
}

/// The volumes of a pod that were set up.
#[derive(Debug, Default)]
pub(super) struct VolumeState {
    /// The hash of the contents that were written last.
    written: Option<u64>,
    /// Whether the volumes are torn down, so that nothing is written any more.
    is_torn_down: bool,
}

impl VolumeState {
    /// Sets up the volumes of a pod, unless they have these contents. The error is the message of
    /// an event.
    pub(super) fn set_up(
        &mut self,
        pod: &Value,
        contents: &VolumeContents,
        node: VolumeNode,
    ) -> Result<(), String> {
        let hash = hash(contents);
        if self.is_torn_down || self.written == Some(hash) {
            return Ok(());
        }
        let dir = node.paths.pod(pod["metadata"]["uid"].str());
        make_pod_dir(&dir, node.name).map_err(|error| format!("{}: {error}", dir.display()))?;
        set_up(pod, contents, node)?;
        self.written = Some(hash);
        Ok(())
    }

    /// The volumes must be set up again, whatever was written.
    pub(super) fn forget(&mut self) {
        self.written = None;
    }

    /// Removes the volumes of a pod that has ended from its directory, which stays.
    pub(super) fn tear_down(&mut self, dir: &Path) -> io::Result<()> {
        self.is_torn_down = true;
        tear_down::tear_down_volumes(
            dir,
            &[VOLUMES, sub_path::PARTS, image::RECORDS, image::EMPTY],
        )
    }

    /// Removes the directory of the pod.
    pub(super) fn remove(&mut self, dir: &Path) -> io::Result<()> {
        self.is_torn_down = true;
        tear_down(dir)
    }
}

fn hash(contents: &VolumeContents) -> u64 {
    let files: Vec<_> = contents
        .iter()
        .filter_map(|(name, content)| match content {
            VolumeContent::Files(files) => Some((name, files)),
            VolumeContent::Claim(_) => None,
        })
        .collect();
    foldhash::quality::FixedState::default().hash_one(files)
}

fn make_pod_dir(dir: &Path, node: &str) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(POD_MODE).create(dir)?;
    fs::set_permissions(dir, Permissions::from_mode(POD_MODE))?;
    fs::write(dir.join(NODE), node)
}

/// The UIDs of the pods whose directories an agent of this node has made.
pub(super) fn pods_with_directories(paths: &NodePaths, node: &str) -> Vec<Str> {
    let entries = fs::read_dir(paths.pods()).into_iter().flatten().flatten();
    let own = entries.filter(|entry| {
        let known = fs::read_to_string(entry.path().join(NODE));
        known.is_ok_and(|known| known == node)
    });
    own.map(|entry| entry.file_name().to_string_lossy().into())
        .collect()
}

/// The type of a volume, by its field.
fn kind(volume: &Value) -> &str {
    let mut fields = volume.entries().map(|(field, _)| field);
    fields.find(|field| *field != "name").unwrap_or("emptyDir")
}

/// Which volumes of a pod this node cannot mount; `has_images` if it mounts images.
pub(super) fn unsupported(pod: &Value, has_images: bool) -> Option<String> {
    let known = [
        "emptyDir",
        "hostPath",
        "configMap",
        "secret",
        "downwardAPI",
        "projected",
        "persistentVolumeClaim",
        "ephemeral",
    ];
    let is_known = |kind: &str| known.contains(&kind) || kind == "image" && has_images;
    let unknown = |volume: &Value| match kind(volume) {
        "projected" => unsupported_source(volume),
        "emptyDir" => {
            let medium = volume["emptyDir"]["medium"].str();
            let is_huge = medium.starts_with("HugePages");
            is_huge.then(|| format!("the medium {medium}"))
        }
        kind => (!is_known(kind)).then(|| kind.to_owned()),
    };
    let mut volumes = pod["spec"]["volumes"].list().iter();
    volumes.find_map(|volume| {
        let (name, unknown) = (volume["name"].str(), unknown(volume)?);
        Some(format!(
            "volume {name:?}: {unknown} is not supported by this node"
        ))
    })
}

/// The first source of a projected volume of which this node makes no file. The API server removes
/// these as their features are off by default; another server may not.
fn unsupported_source(volume: &Value) -> Option<String> {
    let sources = volume["projected"]["sources"].list().iter();
    let mut fields = sources.flat_map(|source| source.entries());
    let found = fields.find(|(field, source)| {
        matches!(*field, "clusterTrustBundle" | "podCertificate") && !source.is_null()
    });
    found.map(|(field, _)| format!("projected.sources.{field}"))
}

/// Where a volume is.
fn location(pod: &Value, volume: &Value, paths: &NodePaths) -> PathBuf {
    let (uid, name) = (pod["metadata"]["uid"].str(), volume["name"].str());
    match kind(volume) {
        "hostPath" => volume["hostPath"]["path"].str().into(),
        "emptyDir" => paths.volume(uid, "empty-dir", name),
        "configMap" => paths.volume(uid, "configmap", name),
        "secret" => paths.volume(uid, "secret", name),
        "downwardAPI" => paths.volume(uid, "downward-api", name),
        "persistentVolumeClaim" | "ephemeral" => paths.volume(uid, "persistent", name),
        kind => paths.volume(uid, kind, name),
    }
}

/// Reads a file of a pod's volume that was set up.
pub(super) fn volume_text(
    pod: &Value,
    volume: &str,
    path: &str,
    paths: &NodePaths,
) -> io::Result<VolumeText> {
    let mut volumes = pod["spec"]["volumes"].list().iter();
    let found = volumes.find(|found| found["name"].str() == volume);
    let found = found.ok_or(io::ErrorKind::NotFound)?;
    text::read_text(&location(pod, found, paths), path)
}

/// Sets up all volumes of a pod. It is idempotent.
fn set_up(pod: &Value, contents: &VolumeContents, node: VolumeNode) -> Result<(), String> {
    for volume in pod["spec"]["volumes"].list() {
        let name = volume["name"].str();
        let place = location(pod, volume, node.paths);
        let (done, own_name) = match (kind(volume), contents.get(name)) {
            (_, Some(VolumeContent::Claim(claimed))) => (
                persistent::set_up(pod, &place, claimed),
                claimed.name.as_str(),
            ),
            (kind, Some(VolumeContent::Files(files))) => {
                let made = match is_secret(kind) {
                    true => ensure_tmpfs(&place, &SECRET_OPTIONS),
                    false => Ok(()),
                };
                (made.and_then(|()| write_files(pod, &place, files)), name)
            }
            ("hostPath", None) => {
                let source = &volume["hostPath"];
                (host_path::check(&place, source["type"].str()), name)
            }
            ("emptyDir", None) => {
                let source = &volume["emptyDir"];
                (make_empty_dir(pod, &place, source, node.memory), name)
            }
            // It is mounted when a container starts.
            ("image", None) => (Ok(()), name),
            // A claim that no container uses is not read.
            _ if claim_name(pod, volume).is_some() => (Ok(()), name),
            (kind, None) => (Err(MountError::Unsupported { kind: kind.into() }), name),
        };
        done.map_err(|error| error.event(name, own_name))?;
    }
    Ok(())
}

/// Whether the files of a volume are kept in memory only. Kubernetes: the media of these types
/// (pkg/volume/secret, projected, downwardapi).
fn is_secret(kind: &str) -> bool {
    matches!(kind, "secret" | "projected" | "downwardAPI")
}

/// Mounts a file system in memory, if there is none, with the first options that the kernel takes.
fn ensure_tmpfs(dir: &Path, options: &[&str]) -> Result<(), MountError> {
    fs::create_dir_all(dir).at(dir)?;
    if is_mount_point(dir).at(dir)? {
        return Ok(());
    }
    let mut mounted = Ok(());
    for options in options {
        let kind = Some("tmpfs");
        mounted = mount(kind, dir, kind, MsFlags::empty(), Some(*options));
        if mounted.is_ok() {
            break;
        }
    }
    mounted.map_err(io::Error::from).at(dir)
}

fn is_mount_point(dir: &Path) -> io::Result<bool> {
    let parent = dir.parent().unwrap_or(dir);
    Ok(fs::metadata(dir)?.dev() != fs::metadata(parent)?.dev())
}

/// Makes an empty volume, which all may write to. One in memory has the sticky bit of a tmpfs (Kubernetes: empty_dir.go,
/// `setupDir`, leaves it). It has at most the memory of the node. It appears with its
/// permissions and its group: an agent that is killed meanwhile leaves none without them.
fn make_empty_dir(pod: &Value, dir: &Path, source: &Value, of_node: i64) -> Result<(), MountError> {
    if source["medium"].str() == "Memory" {
        let mut options = match fs_group(pod) {
            Some(group) => vec!["mode=3777".to_owned(), format!("gid={group}")],
            None => vec!["mode=1777".to_owned()],
        };
        // The kernel takes half of the memory of the machine where there is no size.
        let size = memory_size(pod, source, of_node);
        options.extend(size.map(|size| format!("size={size}")));
        let options = options.join(",");
        return ensure_tmpfs(dir, &[&format!("{options},{NO_SWAP}"), &options]);
    }
    if dir.is_dir() {
        return Ok(());
    }
    // No volume has a name that begins with a dot.
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let draft = dir.with_file_name(format!(".{name}"));
    if draft.exists() {
        fs::remove_dir_all(&draft).at(&draft)?;
    }
    fs::create_dir_all(&draft).at(&draft)?;
    fs::set_permissions(&draft, Permissions::from_mode(0o777)).at(&draft)?;
    ownership::apply(pod, &draft).at(&draft)?;
    fs::rename(&draft, dir).at(dir)
}

/// The size of a volume in memory. Kubernetes: the memory of the node's pods, or that of the pod if
/// it is limited, and not more than the volume's own limit (pkg/volume/emptydir,
/// `calculateEmptyDirMemorySize`).
fn memory_size(pod: &Value, source: &Value, of_node: i64) -> Option<i64> {
    let of_pod = resources::of_pod(pod).memory.unwrap_or_default();
    let own = Quantity::parse_or_zero(source["sizeLimit"].str()).value();
    let sizes = [of_node, of_pod, own].into_iter();
    sizes.filter(|size| *size > 0).min()
}

/// What the runtime can do with mounts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MountFeatures {
    /// Whether it makes all mounts below a read-only one read-only.
    pub recursive_read_only: bool,
}

/// The volume of a mount.
pub(super) fn volume_of<'a>(pod: &'a Value, mount: &Value) -> Option<&'a Value> {
    let mut volumes = pod["spec"]["volumes"].list().iter();
    volumes.find(|volume| volume["name"] == mount["name"])
}

/// The mounts of a container's volumes. Parts of volumes are mounted for it.
pub(super) fn mounts(
    pod: &Value,
    container: &Value,
    variables: Option<&Variables>,
    (features, paths): (MountFeatures, &NodePaths),
) -> Result<Vec<Mount>, MountError> {
    let mut mounts = Vec::new();
    for (mount_idx, wanted) in container["volumeMounts"].list().iter().enumerate() {
        let Some(volume) = volume_of(pod, wanted) else {
            continue;
        };
        let mut host = location(pod, volume, paths);
        if kind(volume) == "image" {
            // The path is known when the image is mounted (`image_volume`).
            let mut mount = volume_mount(Path::new(""), wanted, true);
            mount.recursive_read_only = is_recursive(wanted, features)?;
            mounts.push(mount);
            continue;
        }
        if claim_name(pod, volume).is_some() {
            host = fs::read_link(&host).at(&host)?;
        }
        let sub_path: String = match wanted["subPathExpr"].str() {
            "" => wanted["subPath"].str().into(),
            expression => expand(expression, &|name| variables?.get(name).cloned()),
        };
        if !sub_path.is_empty() {
            let (dir, names) = (
                paths.pod(pod["metadata"]["uid"].str()),
                [&volume["name"], &container["name"]].map(Value::str),
            );
            let target = sub_path::target(&dir, names[0], names[1], mount_idx);
            let bound = sub_path::bind(&host, &sub_path, &target);
            bound.map_err(|source| MountError::PrepareSubPath {
                volume: names[0].into(),
                container: names[1].into(),
                source: Box::new(source),
            })?;
            host = target;
        }
        let is_made =
            !matches!(kind(volume), "emptyDir" | "hostPath") && claim_name(pod, volume).is_none();
        let is_read_only = is_made || volume["persistentVolumeClaim"]["readOnly"].bool();
        let mut mount = volume_mount(&host, wanted, is_read_only);
        mount.recursive_read_only = is_recursive(wanted, features)?;
        mounts.push(mount);
    }
    Ok(mounts)
}

/// Whether a mount is read-only with all below it. Kubernetes: pkg/kubelet/kubelet_pods.go,
/// `resolveRecursiveReadOnly`.
fn is_recursive(wanted: &Value, features: MountFeatures) -> Result<bool, MountError> {
    let name = wanted["name"].str();
    let refuse = |why: &str| {
        let message =
            format!("volume {name:?} requested recursive read-only mode, but it is {why}");
        Err(MountError::RecursiveReadOnly(message))
    };
    let propagation = wanted["mountPropagation"].str();
    match wanted["recursiveReadOnly"].str() {
        "" | "Disabled" => Ok(false),
        _ if !wanted["readOnly"].bool() => refuse("not read-only"),
        _ if !matches!(propagation, "" | "None") => {
            refuse(&format!("not compatible with propagation {propagation:?}"))
        }
        "Enabled" if !features.recursive_read_only => refuse("not supported by the runtime"),
        _ => Ok(features.recursive_read_only),
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[test]
    fn a_host_path_has_the_type_that_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("file"), "").unwrap();
        assert!(host_path::check(&path("none"), "").is_ok());
        assert!(host_path::check(&path("none"), "Directory").is_err());
        assert!(host_path::check(&path("file"), "File").is_ok());
        assert!(host_path::check(&path("made"), "DirectoryOrCreate").is_ok());
        assert!(path("made").is_dir());
        assert!(host_path::check(&path("made-file"), "FileOrCreate").is_ok());
        assert!(path("made-file").is_file());
        assert!(host_path::check("/dev/null".as_ref(), "CharDevice").is_ok());
        assert!(host_path::check("/dev/null".as_ref(), "BlockDevice").is_err());
        assert_eq!(
            host_path::check(&path("file"), "Socket")
                .unwrap_err()
                .to_string(),
            format!(
                "hostPath type check failed: {} is not a socket file",
                path("file").display()
            )
        );
    }

    #[test]
    fn a_volume_that_cannot_be_mounted_is_named() {
        let pod = |volume: Value| value!({ "spec": { "volumes": [volume] } });
        assert_eq!(
            unsupported(&pod(value!({ "name": "v", "emptyDir": {} })), false),
            None
        );
        let image = pod(value!({ "name": "v", "image": { "reference": "a" } }));
        assert_eq!(unsupported(&image, true), None);
        assert_eq!(
            unsupported(&image, false).as_deref(),
            Some("volume \"v\": image is not supported by this node")
        );
        for source in [
            "awsElasticBlockStore",
            "azureDisk",
            "azureFile",
            "cephfs",
            "cinder",
            "csi",
            "fc",
            "flexVolume",
            "flocker",
            "gcePersistentDisk",
            "gitRepo",
            "glusterfs",
            "iscsi",
            "nfs",
            "photonPersistentDisk",
            "portworxVolume",
            "quobyte",
            "rbd",
            "scaleIO",
            "storageos",
            "vsphereVolume",
        ] {
            let mut volume = value!({ "name": "v" });
            volume.set(source, value!({ "path": "/" }));
            let expected = format!("volume \"v\": {source} is not supported by this node");
            assert_eq!(unsupported(&pod(volume), true), Some(expected));
        }
        let pages = value!({ "name": "v", "emptyDir": { "medium": "HugePages-2Mi" } });
        assert_eq!(
            unsupported(&pod(pages), true).as_deref(),
            Some("volume \"v\": the medium HugePages-2Mi is not supported by this node")
        );
        let projected = |source: Value| {
            let sources = value!([{ "secret": { "name": "s" } }, source]);
            pod(value!({ "name": "v", "projected": { "sources": sources } }))
        };
        let secret = value!({ "secret": { "name": "t" } });
        assert_eq!(unsupported(&projected(secret), true), None);
        for source in ["clusterTrustBundle", "podCertificate"] {
            let mut unknown = Value::object();
            unknown.set(source, value!({ "path": "x" }));
            let expected =
                format!("volume \"v\": projected.sources.{source} is not supported by this node");
            assert_eq!(unsupported(&projected(unknown), true), Some(expected));
        }
    }

    #[test]
    fn a_volume_in_memory_has_the_smaller_of_its_limits() {
        let pod = |memory: Value| {
            let container =
                value!({ "name": "c", "resources": { "limits": { "memory": memory } } });
            value!({ "spec": { "containers": [container] } })
        };
        let size = |pod: &Value, limit: Value| {
            let source = value!({ "sizeLimit": limit });
            memory_size(pod, &source, 64 << 20)
        };
        let limited = pod("8Mi".into());
        assert_eq!(size(&limited, Value::Null), Some(8 << 20));
        assert_eq!(size(&limited, "1Mi".into()), Some(1 << 20));
        assert_eq!(size(&limited, "9Mi".into()), Some(8 << 20));
        assert_eq!(size(&pod("1Gi".into()), Value::Null), Some(64 << 20));
        assert_eq!(size(&pod(Value::Null), Value::Null), Some(64 << 20));
        assert_eq!(memory_size(&pod(Value::Null), &Value::Null, 0), None);
    }

    #[test]
    fn an_empty_volume_appears_with_its_permissions_and_its_group() {
        let dir = tempfile::tempdir().unwrap();
        // Without root, only the own group can be given.
        let group = i64::from(nix::unistd::getegid().as_raw());
        let pod = value!({ "spec": { "securityContext": { "fsGroup": group } } });
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        // What an agent has left that was killed.
        let (volume, draft) = (dir.path().join("v"), dir.path().join(".v"));
        fs::create_dir(&draft).unwrap();
        fs::write(draft.join("old"), "").unwrap();
        make_empty_dir(&pod, &volume, &value!({}), 0).unwrap();
        assert_eq!(mode(&volume), 0o2777);
        assert!(!draft.exists() && !volume.join("old").exists());
        if !nix::unistd::geteuid().is_root() {
            return;
        }
        for (name, pod, expected) in [("group", pod, 0o3777), ("none", value!({}), 0o1777)] {
            let volume = dir.path().join(name);
            let source = value!({ "medium": "Memory", "sizeLimit": "1Mi" });
            make_empty_dir(&pod, &volume, &source, 0).unwrap();
            assert!(is_mount_point(&volume).unwrap());
            assert_eq!(mode(&volume), expected, "{name}");
            nix::mount::umount(&volume).unwrap();
        }
    }

    #[test]
    fn a_recursive_read_only_mount_needs_a_runtime_that_can() {
        let mount = |mode: &str, more: Value| {
            let mut mount = value!({ "name": "v", "recursiveReadOnly": mode });
            more.entries()
                .for_each(|(key, value)| mount.set(key, value.clone()));
            mount
        };
        let read_only = || value!({ "readOnly": true });
        let with = |can: bool| MountFeatures {
            recursive_read_only: can,
        };
        let check = |mode: &str, more: Value, can: bool| {
            is_recursive(&mount(mode, more), with(can)).map_err(|error| error.to_string())
        };
        assert_eq!(check("Disabled", read_only(), true), Ok(false));
        assert_eq!(check("IfPossible", read_only(), false), Ok(false));
        assert_eq!(check("IfPossible", read_only(), true), Ok(true));
        assert_eq!(check("Enabled", read_only(), true), Ok(true));
        let refused = |why: &str| {
            Err(format!(
                "failed to resolve recursive read-only mode: volume \"v\" requested recursive read-only mode, but it is {why}"
            ))
        };
        let unsupported = refused("not supported by the runtime");
        assert_eq!(check("Enabled", read_only(), false), unsupported);
        let writable = refused("not read-only");
        assert_eq!(check("Enabled", value!({}), true), writable);
        let propagated = value!({ "readOnly": true, "mountPropagation": "HostToContainer" });
        let incompatible = refused("not compatible with propagation \"HostToContainer\"");
        assert_eq!(check("Enabled", propagated, true), incompatible);
    }

    #[test]
    fn only_directories_of_this_node_are_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let paths = NodePaths {
            root: dir.path().into(),
            logs: dir.path().join("logs"),
        };
        make_pod_dir(&paths.pod("mine"), "a").unwrap();
        make_pod_dir(&paths.pod("other"), "b").unwrap();
        fs::create_dir(paths.pod("unknown")).unwrap();
        assert_eq!(pods_with_directories(&paths, "a"), ["mine"]);
        let mode = fs::metadata(paths.pod("mine"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, POD_MODE);
    }

    #[test]
    fn nothing_is_written_after_the_directory_was_removed() {
        let dir = tempfile::tempdir().unwrap();
        let paths = NodePaths {
            root: dir.path().into(),
            logs: dir.path().join("logs"),
        };
        let pod = value!({ "metadata": { "uid": "u" } });
        let mut state = VolumeState::default();
        let contents = VolumeContents::new();
        let node = VolumeNode {
            name: "a",
            paths: &paths,
            memory: 0,
        };
        state.set_up(&pod, &contents, node).unwrap();
        assert!(paths.pod("u").is_dir());
        state.remove(&paths.pod("u")).unwrap();
        state.forget();
        state.set_up(&pod, &contents, node).unwrap();
        assert!(!paths.pod("u").exists());
    }

    #[test]
    fn the_volumes_of_a_pod_that_has_ended_are_removed_and_the_rest_stays() {
        let dir = tempfile::tempdir().unwrap();
        let paths = NodePaths {
            root: dir.path().into(),
            logs: dir.path().join("logs"),
        };
        let pod = value!({
            "metadata": { "uid": "u" },
            "spec": { "volumes": [{ "name": "v", "emptyDir": {} }] },
        });
        let mut state = VolumeState::default();
        let contents = VolumeContents::new();
        let node = VolumeNode {
            name: "a",
            paths: &paths,
            memory: 0,
        };
        state.set_up(&pod, &contents, node).unwrap();
        let (volume, pod_dir) = (paths.volume("u", "empty-dir", "v"), paths.pod("u"));
        let message = paths.termination("u", "c", 0);
        for file in [
            &volume.join("file"),
            &sub_path::target(&pod_dir, "v", "c", 0).join("file"),
            &message,
        ] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        image::record(&pod_dir, "image", "a@b").unwrap();
        state.tear_down(&pod_dir).unwrap();
        state.forget();
        state.set_up(&pod, &contents, node).unwrap();
        let left = fs::read_dir(&pod_dir).unwrap();
        let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut left: Vec<String> = left.collect();
        left.sort();
        assert_eq!(left, ["containers", "node"]);
        assert!(message.exists());
    }
}
