//! Mounts of a part of a volume: `subPath` and `subPathExpr`.
//!
//! A container can replace any part of the path by a link to a path of the host, before the runtime
//! mounts it. So the part is opened without following links, and what was opened is mounted below
//! the directory of the pod, for the runtime (upstream: pkg/volume/util/subpath).

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::files::below;
use super::pinned::Pinned;
use super::{AtPath as _, MountError};

/// The directory of mounted parts in the directory of a pod.
pub(super) const PARTS: &str = "volume-subpaths";

/// Mounts the part of a volume at `target`, in place of what was mounted there before.
pub(super) fn bind(volume: &Path, sub_path: &str, target: &Path) -> Result<(), MountError> {
    let part = open(volume, sub_path)?;
    // Fails if it is no mount.
    let _ = umount2(target, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW);
    let _ = fs::remove_file(target).or_else(|_| fs::remove_dir(target));
    match part.metadata().at(volume)?.is_dir() {
        true => DirBuilder::new()
            .recursive(true)
            .create(target)
            .at(target)?,
        false => {
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent).at(parent)?;
            }
            fs::write(target, "").at(target)?;
        }
    }
    let source = part.path();
    let none = None::<&str>;
    let mounted = mount(Some(&source), target, none, MsFlags::MS_BIND, none);
    mounted.map_err(io::Error::from).at(target)
}

/// Opens a part of a volume; directories that are missing are made. A link in the path must lead
/// to another part of the volume.
fn open(volume: &Path, sub_path: &str) -> Result<Pinned, MountError> {
    let refuse = || MountError::SubPath(sub_path.into());
    let relative = below(sub_path).ok_or_else(refuse)?;
    let root = fs::canonicalize(volume).at(volume)?;
    let path = root.join(relative);
    let (mut existing, mut missing) = (path.as_path(), Vec::new());
    while fs::symlink_metadata(existing).is_err() {
        missing.push(existing.file_name().ok_or_else(refuse)?);
        existing = existing.parent().ok_or_else(refuse)?;
    }
    let real = fs::canonicalize(existing).at(existing)?;
    let inside = real.strip_prefix(&root).map_err(|_| refuse())?;
    let mut opened = Pinned::open(&root).at(&root)?;
    let mode = opened.metadata().at(&root)?.permissions();
    for name in inside.components() {
        opened = opened.entry(name.as_os_str()).at(&path)?;
    }
    for name in missing.into_iter().rev() {
        opened = make_dir(&opened, Path::new(name), &mode).at(&path)?;
    }
    // A link that was put there since the path was resolved.
    match opened.metadata().at(&path)?.is_symlink() {
        true => Err(refuse()),
        false => Ok(opened),
    }
}

/// Makes a directory of a `subPath`. Kubernetes: it has the permissions of the volume
/// (pkg/kubelet/kubelet_pods.go, `makeMounts`).
fn make_dir(parent: &Pinned, name: &Path, mode: &Permissions) -> io::Result<Pinned> {
    fs::create_dir(parent.path().join(name))?;
    let made = parent.entry(name.as_os_str())?;
    if made.metadata()?.is_dir() {
        fs::set_permissions(made.path(), Permissions::from_mode(mode.mode()))?;
    }
    Ok(made)
}

/// Where a part of a volume is mounted for a container.
pub(super) fn target(pod_dir: &Path, volume: &str, container: &str, mount_idx: usize) -> PathBuf {
    let parts = pod_dir.join(PARTS).join(volume);
    parts.join(container).join(mount_idx.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn a_sub_path_stays_in_its_volume() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, outside) = (dir.path().join("v"), dir.path().join("outside"));
        fs::create_dir(&volume).unwrap();
        fs::set_permissions(&volume, Permissions::from_mode(0o777)).unwrap();
        fs::create_dir(&outside).unwrap();
        symlink(&outside, volume.join("link")).unwrap();
        symlink("nowhere", volume.join("dangling")).unwrap();
        let made = open(&volume, "a/b").unwrap().metadata().unwrap();
        assert_eq!(made.ino(), fs::metadata(volume.join("a/b")).unwrap().ino());
        for dir in ["a", "a/b"] {
            let found = fs::metadata(volume.join(dir)).unwrap().permissions();
            assert_eq!(found.mode() & 0o7777, 0o777, "{dir}");
        }
        symlink("a", volume.join("inner")).unwrap();
        let inner = open(&volume, "inner/b").unwrap().metadata().unwrap();
        assert_eq!(inner.ino(), made.ino());
        for refused in [
            "..",
            "a/../../outside",
            "link",
            "link/new",
            "/etc",
            "dangling/x",
        ] {
            assert!(open(&volume, refused).is_err(), "{refused}");
        }
        assert!(!outside.join("new").exists());
    }

    #[test]
    fn a_directory_that_becomes_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, outside) = (dir.path().join("v"), dir.path().join("outside"));
        fs::create_dir_all(volume.join("a")).unwrap();
        fs::create_dir(&outside).unwrap();
        let parent = Pinned::open(&volume).unwrap();
        fs::remove_dir(volume.join("a")).unwrap();
        symlink(&outside, volume.join("a")).unwrap();
        let opened = parent.entry("a".as_ref()).unwrap();
        assert!(opened.metadata().unwrap().is_symlink());
        assert!(opened.entry("x".as_ref()).is_err());
        let made = make_dir(&parent, Path::new("a"), &Permissions::from_mode(0o777));
        assert_eq!(made.err().unwrap().kind(), io::ErrorKind::AlreadyExists);
    }
}
