//! Volumes that are images: the files of a snapshot, mounted so that nothing of them can be changed.
//!
//! The directory `image-volumes` of a pod has a file for each of its image volumes, with the image by
//! digest. It is written before a snapshot is made, so that an agent that starts finds which
//! snapshots there may be, and which images are used.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mizzen_cri::containerd::SnapshotMount;
use mizzen_value::Str;
use nix::mount::{MsFlags, mount};

use super::files::below;
use super::pinned::Pinned;
use super::{is_mount_point, pods_with_directories};
use crate::cri::config::NodePaths;

/// The directory of records in the directory of a pod.
pub(super) const RECORDS: &str = "image-volumes";
/// A directory without files, which is the last layer of an overlay: one without a layer to write
/// needs two others.
pub(super) const EMPTY: &str = "image-volumes-empty";

/// Writes down the image of a volume.
pub(in crate::cri) fn record(pod_dir: &Path, volume: &str, image: &str) -> io::Result<()> {
    let records = pod_dir.join(RECORDS);
    fs::create_dir_all(&records)?;
    fs::write(records.join(volume), image)
}

/// The images of a pod's volumes, by the name of the volume.
pub(in crate::cri) fn recorded(pod_dir: &Path) -> Vec<(Str, Str)> {
    let records = fs::read_dir(pod_dir.join(RECORDS)).into_iter().flatten();
    let mut images: Vec<(Str, Str)> = records
        .flatten()
        .filter_map(|entry| {
            let image = fs::read_to_string(entry.path()).ok()?;
            Some((entry.file_name().to_string_lossy().into(), image.into()))
        })
        .collect();
    images.sort();
    images
}

/// The images of the volumes of all pods of this node.
pub(in crate::cri) fn in_use(paths: &NodePaths, node: &str) -> Vec<Str> {
    let pods = pods_with_directories(paths, node).into_iter();
    let images = pods.flat_map(|uid| recorded(&paths.pod(&uid)));
    images.map(|(_, image)| image).collect()
}

/// Whether the files of a volume are mounted.
pub(in crate::cri) fn is_mounted(dir: &Path) -> bool {
    is_mount_point(dir).unwrap_or_default()
}

/// Mounts the files of a snapshot at `dir`.
pub(in crate::cri) fn mount_snapshot(
    pod_dir: &Path,
    dir: &Path,
    mounts: &[SnapshotMount],
) -> io::Result<()> {
    let empty = pod_dir.join(EMPTY);
    fs::create_dir_all(&empty)?;
    fs::create_dir_all(dir)?;
    let mut layers = layers(mounts)?;
    layers.push(empty);
    // A mount takes options of one page only, and a layer has a long path: layers are named by what
    // is open.
    let opened: Vec<Pinned> = layers
        .iter()
        .map(|layer| Pinned::open(layer))
        .collect::<io::Result<_>>()?;
    let layers = opened
        .iter()
        .map(|layer| layer.path().display().to_string());
    let options = format!("lowerdir={}", layers.collect::<Vec<_>>().join(":"));
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOEXEC | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let overlay = Some("overlay");
    Ok(mount(overlay, dir, overlay, flags, Some(options.as_str()))?)
}

/// The directories of a snapshot, the upper ones first. Without a directory to write to, an overlay
/// of them is read-only whatever the flags of a mount of it are; a directory that is mounted as it
/// is would not be.
fn layers(mounts: &[SnapshotMount]) -> io::Result<Vec<PathBuf>> {
    let [mount] = mounts else {
        let message = format!("a snapshot has {} mounts, not one", mounts.len());
        return Err(io::Error::other(message));
    };
    match mount.r#type.as_str() {
        "bind" => Ok(vec![mount.source.as_str().into()]),
        "overlay" => {
            let mut options = mount.options.iter();
            let layers = options.find_map(|option| option.strip_prefix("lowerdir="));
            Ok(layers
                .unwrap_or_default()
                .split(':')
                .map(PathBuf::from)
                .collect())
        }
        kind => Err(io::Error::other(format!("a snapshot is mounted as {kind}"))),
    }
}

/// The directory of a volume that is mounted with a `subPath`. Nothing in the volume can change, so
/// that the path stays what it is.
pub(in crate::cri) fn sub_directory(volume: &Path, sub_path: &str) -> Result<PathBuf, String> {
    let failed =
        |why: String| format!("failed to ensure image subpath {sub_path:?} in {volume:?}: {why}");
    let relative = below(sub_path).ok_or_else(|| failed("path escapes from parent".into()))?;
    let real = |path: &Path| fs::canonicalize(path).map_err(|error| failed(error.to_string()));
    let (root, dir) = (real(volume)?, real(&volume.join(relative))?);
    if !dir.starts_with(&root) {
        return Err(failed("path escapes from parent".into()));
    }
    match dir.is_dir() {
        true => Ok(dir),
        false => Err(failed("only directory subpath is supported".into())),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn snapshot(kind: &str, source: &str, options: &[&str]) -> SnapshotMount {
        SnapshotMount {
            r#type: kind.into(),
            source: source.into(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
        }
    }

    #[test]
    fn a_snapshot_of_one_layer_or_more_is_a_list_of_directories() {
        let one = [snapshot("bind", "/s/1/fs", &["ro", "rbind"])];
        assert_eq!(layers(&one).unwrap(), [Path::new("/s/1/fs")]);
        let two = [snapshot(
            "overlay",
            "overlay",
            &["index=off", "lowerdir=/s/2/fs:/s/1/fs"],
        )];
        let expected = [Path::new("/s/2/fs"), Path::new("/s/1/fs")];
        assert_eq!(layers(&two).unwrap(), expected);
        let error = layers(&[snapshot("zfs", "", &[])]).unwrap_err().to_string();
        assert_eq!(error, "a snapshot is mounted as zfs");
        assert!(layers(&[]).is_err());
    }

    #[test]
    fn a_sub_path_is_a_directory_of_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("v");
        fs::create_dir_all(volume.join("a/b")).unwrap();
        fs::write(volume.join("file"), "").unwrap();
        symlink("a", volume.join("inner")).unwrap();
        symlink("/", volume.join("outer")).unwrap();
        let found = |sub_path: &str| sub_directory(&volume, sub_path);
        let expected = fs::canonicalize(volume.join("a/b")).unwrap();
        assert_eq!(found("a/b").unwrap(), expected);
        assert_eq!(found("inner/b").unwrap(), expected);
        for (wrong, why) in [
            ("none", "No such file or directory"),
            ("file", "only directory subpath is supported"),
            ("outer", "path escapes from parent"),
            ("../v", "path escapes from parent"),
        ] {
            let error = found(wrong).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    #[test]
    fn images_of_volumes_are_found_again() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(recorded(dir.path()), []);
        record(dir.path(), "b", "sha256:2").unwrap();
        record(dir.path(), "a", "sha256:0").unwrap();
        record(dir.path(), "a", "sha256:1").unwrap();
        let expected = [("a", "sha256:1"), ("b", "sha256:2")];
        assert_eq!(
            recorded(dir.path()),
            expected.map(|(volume, image)| (volume.into(), image.into()))
        );
    }
}
