//! The volumes of a pod as directories of the machine.
//!
//! A volume that is made of API objects is written to a new directory, and a link is moved to it,
//! so that a container sees all files of one version (upstream: pkg/volume/util/atomic_writer.go).

use std::fs::{self, Permissions};
use std::hash::BuildHasher as _;
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _, chown, symlink,
};
use std::path::{Component, Path, PathBuf};

use mizzen_cri::messages::Mount;
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::config::{NodePaths, volume_mount};
use crate::pod::inputs::{Variables, VolumeContents, VolumeFile, expand};

/// The link to the current version of a volume's files.
const DATA: &str = "..data";

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

/// The type of a volume, by its field.
fn kind(volume: &Value) -> &str {
    let mut fields = volume.entries().map(|(field, _)| field);
    fields.find(|field| *field != "name").unwrap_or("emptyDir")
}

/// Which volumes of a pod this node cannot mount.
pub(super) fn unsupported(pod: &Value) -> Option<String> {
    let known = [
        "emptyDir",
        "hostPath",
        "configMap",
        "secret",
        "downwardAPI",
        "projected",
    ];
    let mut volumes = pod["spec"]["volumes"].list().iter();
    let volume = volumes.find(|volume| !known.contains(&kind(volume)))?;
    Some(format!(
        "volume {:?}: {} is not supported by this node",
        volume["name"].str(),
        kind(volume)
    ))
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
        kind => paths.volume(uid, kind, name),
    }
}

/// Sets up all volumes of a pod. It is idempotent.
pub(super) fn set_up(
    pod: &Value,
    contents: &VolumeContents,
    paths: &NodePaths,
) -> Result<(), (String, MountError)> {
    for volume in pod["spec"]["volumes"].list() {
        let name = volume["name"].str();
        let place = location(pod, volume, paths);
        let done = match kind(volume) {
            "hostPath" => check_host_path(&place, volume["hostPath"]["type"].str()),
            "emptyDir" => make_empty_dir(pod, &place, &volume["emptyDir"]),
            kind => match contents.get(name) {
                Some(files) => write_files(pod, &place, files),
                None => Err(MountError::Unsupported { kind: kind.into() }),
            },
        };
        done.map_err(|error| (name.to_owned(), error))?;
    }
    Ok(())
}

/// Kubernetes: pkg/volume/hostpath/host_path.go.
fn check_host_path(path: &Path, wanted: &str) -> Result<(), MountError> {
    let found = || fs::metadata(path).map(|found| found.file_type()).ok();
    let (holds, wanted) = match wanted {
        "" => return Ok(()),
        "DirectoryOrCreate" => {
            if found().is_none() {
                let mut builder = fs::DirBuilder::new();
                builder.recursive(true).mode(0o755).create(path).at(path)?;
            }
            (found().is_some_and(|it| it.is_dir()), "a directory")
        }
        "FileOrCreate" => {
            if found().is_none() {
                fs::write(path, "").at(path)?;
            }
            (found().is_some_and(|it| it.is_file()), "a file")
        }
        "Directory" => (found().is_some_and(|it| it.is_dir()), "a directory"),
        "File" => (found().is_some_and(|it| it.is_file()), "a file"),
        "Socket" => (found().is_some_and(|it| it.is_socket()), "a socket"),
        "CharDevice" => {
            let is_device = found().is_some_and(|it| it.is_char_device());
            (is_device, "a character device")
        }
        "BlockDevice" => {
            let is_device = found().is_some_and(|it| it.is_block_device());
            (is_device, "a block device")
        }
        _ => (false, "of a known type"),
    };
    match holds {
        true => Ok(()),
        false => Err(MountError::HostPath {
            path: path.into(),
            wanted,
        }),
    }
}

fn make_empty_dir(pod: &Value, dir: &Path, source: &Value) -> Result<(), MountError> {
    if dir.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(dir).at(dir)?;
    if source["medium"].str() == "Memory" {
        let limit = Quantity::parse_or_zero(source["sizeLimit"].str()).value();
        let options = (limit > 0).then(|| format!("size={limit}"));
        mount(
            Some("tmpfs"),
            dir,
            Some("tmpfs"),
            MsFlags::empty(),
            options.as_deref(),
        )
        .map_err(io::Error::from)
        .at(dir)?;
    }
    fs::set_permissions(dir, Permissions::from_mode(0o777)).at(dir)?;
    if let Some(group) = fs_group(pod) {
        chown(dir, None, Some(group)).at(dir)?;
        fs::set_permissions(dir, Permissions::from_mode(0o2777)).at(dir)?;
    }
    Ok(())
}

fn fs_group(pod: &Value) -> Option<u32> {
    let group = pod["spec"]["securityContext"]["fsGroup"].as_int()?;
    u32::try_from(group).ok()
}

/// Writes a version of the files, unless it is the current one.
fn write_files(pod: &Value, dir: &Path, files: &[VolumeFile]) -> Result<(), MountError> {
    let hash = foldhash::quality::FixedState::default().hash_one(files);
    let version = format!("..{hash:016x}");
    let data = dir.join(DATA);
    let current = fs::read_link(&data).ok();
    if current.as_deref() == Some(Path::new(&version)) {
        return Ok(());
    }
    let target = dir.join(&version);
    if target.exists() {
        fs::remove_dir_all(&target).at(&target)?;
    }
    fs::create_dir_all(&target).at(&target)?;
    for file in files {
        let relative =
            below(&file.path).ok_or_else(|| MountError::SubPath(file.path.to_string()))?;
        let path = target.join(relative);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).at(parent)?;
        }
        fs::write(&path, &file.content).at(&path)?;
        let mut mode = file.mode;
        if let Some(group) = fs_group(pod) {
            chown(&path, None, Some(group)).at(&path)?;
            mode |= 0o440;
        }
        fs::set_permissions(&path, Permissions::from_mode(mode)).at(&path)?;
    }
    let next = dir.join("..data_tmp");
    let _ = fs::remove_file(&next);
    symlink(&version, &next).at(&next)?;
    fs::rename(&next, &data).at(&data)?;
    link_files(dir, files)?;
    if let Some(old) = current.map(|old| dir.join(old)) {
        fs::remove_dir_all(&old).at(&old)?;
    }
    Ok(())
}

/// Links what users see to the current version, and removes links to what is gone.
fn link_files(dir: &Path, files: &[VolumeFile]) -> Result<(), MountError> {
    let first = |file: &VolumeFile| file.path.split('/').next().map(str::to_owned);
    let names: std::collections::BTreeSet<String> = files.iter().filter_map(first).collect();
    for entry in fs::read_dir(dir).at(dir)? {
        let name = entry.at(dir)?.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !names.contains(&name) {
            let path = dir.join(&name);
            fs::remove_file(&path).at(&path)?;
        }
    }
    for name in names {
        let link = dir.join(&name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new(DATA).join(&name), &link).at(&link)?;
        }
    }
    Ok(())
}

/// A relative path without `..`.
fn below(path: &str) -> Option<&Path> {
    let path = Path::new(path);
    let mut parts = path.components();
    parts
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        .then_some(path)
}

/// The mounts of a container's volumes, with the directories that a `subPath` needs.
pub(super) fn mounts(
    pod: &Value,
    container: &Value,
    variables: Option<&Variables>,
    paths: &NodePaths,
) -> Result<Vec<Mount>, MountError> {
    let mut mounts = Vec::new();
    for wanted in container["volumeMounts"].list() {
        let mut volumes = pod["spec"]["volumes"].list().iter();
        let Some(volume) = volumes.find(|volume| volume["name"] == wanted["name"]) else {
            continue;
        };
        let mut host = location(pod, volume, paths);
        let sub_path: String = match wanted["subPathExpr"].str() {
            "" => wanted["subPath"].str().into(),
            expression => expand(expression, &|name| variables?.get(name).cloned()),
        };
        if !sub_path.is_empty() {
            host = resolve_sub_path(&host, &sub_path)?;
        }
        let is_made = !matches!(kind(volume), "emptyDir" | "hostPath");
        mounts.push(volume_mount(&host, wanted, is_made));
    }
    Ok(mounts)
}

/// The path below a volume. A link in it must not lead out of the volume.
fn resolve_sub_path(volume: &Path, sub_path: &str) -> Result<PathBuf, MountError> {
    let refuse = || MountError::SubPath(sub_path.into());
    let path = volume.join(below(sub_path).ok_or_else(refuse)?);
    if !path.exists() {
        let mut existing = path.as_path();
        while !existing.exists() {
            existing = existing.parent().ok_or_else(refuse)?;
        }
        is_inside(volume, existing, sub_path)?;
        make_dirs(volume, existing, &path)?;
    }
    is_inside(volume, &path, sub_path)?;
    fs::canonicalize(&path).at(&path)
}

/// Makes the directories of a `subPath` below one that exists. Kubernetes: they have the permissions
/// of the volume (pkg/kubelet/kubelet_pods.go, `makeMounts`).
fn make_dirs(volume: &Path, existing: &Path, path: &Path) -> Result<(), MountError> {
    let mode = fs::metadata(volume).at(volume)?.permissions();
    let made = path.ancestors().take_while(|dir| *dir != existing);
    let mut made: Vec<&Path> = made.collect();
    made.reverse();
    for dir in made {
        fs::create_dir(dir).at(dir)?;
        fs::set_permissions(dir, mode.clone()).at(dir)?;
    }
    Ok(())
}

fn is_inside(volume: &Path, path: &Path, sub_path: &str) -> Result<(), MountError> {
    let (root, real) = (
        fs::canonicalize(volume).at(volume)?,
        fs::canonicalize(path).at(path)?,
    );
    match real.starts_with(root) {
        true => Ok(()),
        false => Err(MountError::SubPath(sub_path.into())),
    }
}

/// Removes the directory of a pod. What is mounted there is unmounted, never followed.
pub(super) fn tear_down(pod_dir: &Path) -> io::Result<()> {
    let volumes = pod_dir.join("volumes").join("kubernetes.io~empty-dir");
    if let Ok(entries) = fs::read_dir(&volumes) {
        for entry in entries.flatten() {
            // Fails if it is no mount.
            let _ = umount2(&entry.path(), MntFlags::UMOUNT_NOFOLLOW);
        }
    }
    match fs::remove_dir_all(pod_dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    fn file(path: &str, content: &'static str) -> VolumeFile {
        VolumeFile {
            path: path.into(),
            content: content.into(),
            mode: 0o640,
        }
    }

    #[test]
    fn files_change_together_and_what_is_gone_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let (pod, volume) = (value!({}), dir.path().join("v"));
        write_files(&pod, &volume, &[file("a", "1"), file("dir/b", "2")]).unwrap();
        let read = |name: &str| fs::read_to_string(volume.join(name)).ok();
        assert_eq!(
            (read("a"), read("dir/b")),
            (Some("1".into()), Some("2".into()))
        );
        let mode = fs::metadata(volume.join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let version = fs::read_link(volume.join(DATA)).unwrap();

        write_files(&pod, &volume, &[file("a", "1"), file("dir/b", "2")]).unwrap();
        assert_eq!(fs::read_link(volume.join(DATA)).unwrap(), version);

        write_files(&pod, &volume, &[file("a", "3")]).unwrap();
        assert_eq!((read("a"), read("dir/b")), (Some("3".into()), None));
        assert!(!volume.join(version).exists());
        assert!(fs::symlink_metadata(volume.join("dir")).is_err());
    }

    #[test]
    fn a_file_outside_of_its_volume_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let written = write_files(&value!({}), &dir.path().join("v"), &[file("../x", "1")]);
        assert_eq!(
            written.unwrap_err().to_string(),
            "subPath \"../x\" is not a path below the volume"
        );
    }

    #[test]
    fn a_sub_path_stays_in_its_volume() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, outside) = (dir.path().join("v"), dir.path().join("outside"));
        fs::create_dir(&volume).unwrap();
        fs::set_permissions(&volume, Permissions::from_mode(0o777)).unwrap();
        fs::create_dir(&outside).unwrap();
        symlink(&outside, volume.join("link")).unwrap();
        let made = resolve_sub_path(&volume, "a/b").unwrap();
        assert_eq!(made, fs::canonicalize(volume.join("a/b")).unwrap());
        for dir in ["a", "a/b"] {
            let found = fs::metadata(volume.join(dir)).unwrap().permissions();
            assert_eq!(found.mode() & 0o7777, 0o777, "{dir}");
        }
        for refused in ["..", "a/../../outside", "link", "link/new", "/etc"] {
            assert!(resolve_sub_path(&volume, refused).is_err(), "{refused}");
        }
        assert!(!outside.join("new").exists());
    }

    #[test]
    fn a_host_path_has_the_type_that_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::write(path("file"), "").unwrap();
        assert!(check_host_path(&path("none"), "").is_ok());
        assert!(check_host_path(&path("none"), "Directory").is_err());
        assert!(check_host_path(&path("file"), "File").is_ok());
        assert!(check_host_path(&path("made"), "DirectoryOrCreate").is_ok());
        assert!(path("made").is_dir());
        assert_eq!(
            check_host_path(&path("file"), "Socket")
                .unwrap_err()
                .to_string(),
            format!(
                "hostPath type check failed: {} is not a socket",
                path("file").display()
            )
        );
    }

    #[test]
    fn a_volume_that_cannot_be_mounted_is_named() {
        let pod = |volume: Value| value!({ "spec": { "volumes": [volume] } });
        assert_eq!(
            unsupported(&pod(value!({ "name": "v", "emptyDir": {} }))),
            None
        );
        assert_eq!(
            unsupported(&pod(value!({ "name": "v", "nfs": { "path": "/" } }))).as_deref(),
            Some("volume \"v\": nfs is not supported by this node")
        );
    }
}
