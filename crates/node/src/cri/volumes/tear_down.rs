//! The removal of a pod's directory, or of its volumes, with all that is mounted there.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, umount2};

/// Removes the directory of a pod. Nothing is removed while a mount is left, because it may be a
/// volume that outlives the pod.
pub(in crate::cri) fn tear_down(pod_dir: &Path) -> io::Result<()> {
    unmount_all(pod_dir)?;
    remove_dir(pod_dir)
}

/// Removes directories of volumes in the directory of a pod, with all that is mounted in it.
pub(super) fn tear_down_volumes(pod_dir: &Path, names: &[&str]) -> io::Result<()> {
    unmount_all(pod_dir)?;
    names
        .iter()
        .try_for_each(|name| remove_dir(&pod_dir.join(name)))
}

/// Unmounts what is mounted below the directory of a pod: the agent's own mounts, and those that a
/// container propagated. An error if a mount is left.
fn unmount_all(pod_dir: &Path) -> io::Result<()> {
    for path in mounts_below(pod_dir)?.iter().rev() {
        if umount2(path, MntFlags::UMOUNT_NOFOLLOW).is_err() {
            // It is in use: it goes with the last process that uses it.
            umount2(path, MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH)?;
        }
    }
    match mounts_below(pod_dir)?.first() {
        Some(left) => {
            let message = format!("{} is still mounted", left.display());
            Err(io::Error::other(message))
        }
        None => Ok(()),
    }
}

fn remove_dir(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The mounts below a directory, in the order in which they were made.
fn mounts_below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let dir = match fs::canonicalize(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        dir => dir?,
    };
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(mount_points(&table)
        .filter(|path| path.starts_with(&dir))
        .collect())
}

/// The mount points of `/proc/self/mountinfo`.
fn mount_points(table: &str) -> impl Iterator<Item = PathBuf> {
    let fields = table.lines().filter_map(|line| line.split(' ').nth(4));
    fields.map(|field| std::ffi::OsString::from_vec(unescape(field)).into())
}

/// Replaces `\040` and the like by their bytes.
fn unescape(field: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), field.as_bytes());
    while let [first, tail @ ..] = rest {
        let octal = tail
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &tail[3..] } else { tail };
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_escapes() {
        let table = "22 1 0:21 / /proc rw - proc proc rw\n\
                     23 1 0:22 / /a\\040b\\134/c rw,nosuid shared:2 - tmpfs tmpfs rw\n";
        let found: Vec<PathBuf> = mount_points(table).collect();
        assert_eq!(found, [Path::new("/proc"), Path::new("/a b\\/c")]);
    }

    #[test]
    fn a_directory_that_is_gone_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let pod = dir.path().join("pod");
        fs::create_dir_all(pod.join("volumes/x")).unwrap();
        tear_down(&pod).unwrap();
        assert!(!pod.exists());
        tear_down(&pod).unwrap();
    }
}
