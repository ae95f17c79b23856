//! The group of a volume: `fsGroup` and `fsGroupChangePolicy` (upstream: pkg/volume/volume_linux.go).

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use mizzen_value::Value;

use super::pinned::Pinned;

const READ_WRITE: u32 = 0o660;
const EXECUTE: u32 = 0o110;
const SET_GROUP_ID: u32 = 0o2000;

/// The group of a pod's volumes.
pub(super) fn fs_group(pod: &Value) -> Option<u32> {
    let group = pod["spec"]["securityContext"]["fsGroup"].as_int()?;
    u32::try_from(group).ok()
}

/// Gives a volume to the group of a pod, if it has one.
pub(super) fn apply(pod: &Value, volume: &Path) -> io::Result<()> {
    let Some(group) = fs_group(pod) else {
        return Ok(());
    };
    let root = Pinned::open(volume)?;
    let policy = pod["spec"]["securityContext"]["fsGroupChangePolicy"].str();
    if policy == "OnRootMismatch" && is_owned(&root.metadata()?, group) {
        return Ok(());
    }
    root.walk(&mut |file, found| give(file, found, group))
}

fn give(file: &Pinned, found: &Metadata, group: u32) -> io::Result<()> {
    // The owner and the permissions of a link mean nothing.
    if found.is_symlink() {
        return Ok(());
    }
    let more = match found.is_dir() {
        true => READ_WRITE | EXECUTE | SET_GROUP_ID,
        false => READ_WRITE,
    };
    chown(file.path(), None, Some(group))?;
    fs::set_permissions(file.path(), Permissions::from_mode(found.mode() | more))
}

/// Whether the root of a volume shows that all of it was given to the group before.
fn is_owned(root: &Metadata, group: u32) -> bool {
    let wanted = READ_WRITE | EXECUTE | SET_GROUP_ID;
    root.is_dir() && root.gid() == group && root.mode() & wanted == wanted
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use mizzen_value::value;

    use super::*;

    fn pod(policy: &str) -> Value {
        // Without root, only the own group can be given.
        let group = i64::from(nix::unistd::getegid().as_raw());
        value!({ "spec": { "securityContext": { "fsGroup": group, "fsGroupChangePolicy": policy } } })
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_volume_is_given_to_its_group_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, outside) = (dir.path().join("v"), dir.path().join("outside"));
        fs::create_dir_all(volume.join("dir")).unwrap();
        fs::write(volume.join("dir/file"), "").unwrap();
        fs::write(&outside, "").unwrap();
        symlink(&outside, volume.join("link")).unwrap();
        for path in [&volume.join("dir/file"), &outside] {
            fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
        }
        apply(&pod("Always"), &volume).unwrap();
        assert_eq!(mode(&volume) & 0o2770, 0o2770);
        assert_eq!(mode(&volume.join("dir")) & 0o2770, 0o2770);
        assert_eq!(mode(&volume.join("dir/file")), 0o660);
        assert_eq!(mode(&outside), 0o600);
    }

    #[test]
    fn a_volume_whose_root_has_the_group_is_left_alone_on_root_mismatch() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        apply(&pod("OnRootMismatch"), dir.path()).unwrap();
        assert_eq!(mode(&file), 0o660);
        fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        apply(&pod("OnRootMismatch"), dir.path()).unwrap();
        assert_eq!(mode(&file), 0o600);
        apply(&pod("Always"), dir.path()).unwrap();
        assert_eq!(mode(&file), 0o660);
    }
}
