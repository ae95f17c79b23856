//! A volume that is made of API objects.
//!
//! Its files are written to a new directory, and a link is moved to it, so that a container sees
//! all files of one version (upstream: pkg/volume/util/atomic_writer.go).

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::hash::BuildHasher as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Component, Path};

use mizzen_value::Value;

use super::{AtPath as _, MountError, fs_group};
use crate::pod::inputs::VolumeFile;

/// The permissions of directories, whatever the umask of the agent is. Kubernetes:
/// pkg/volume/util/atomic_writer.go.
const DIR_MODE: u32 = 0o755;

/// The link to the current version of a volume's files.
const DATA: &str = "..data";

/// Writes a version of the files, unless it is the current one.
pub(super) fn write_files(pod: &Value, dir: &Path, files: &[VolumeFile]) -> Result<(), MountError> {
    let hash = foldhash::quality::FixedState::default().hash_one(files);
    let version = format!("..{hash:016x}");
    let data = dir.join(DATA);
    let current = fs::read_link(&data).ok();
    if current.as_deref() == Some(Path::new(&version)) {
        // The agent may have ended before it had linked them.
        return link_files(dir, &version, files);
    }
    let target = dir.join(&version);
    if target.exists() {
        fs::remove_dir_all(&target).at(&target)?;
    }
    fs::create_dir_all(&target).at(&target)?;
    for made in [dir, &target] {
        fs::set_permissions(made, Permissions::from_mode(DIR_MODE)).at(made)?;
    }
    for file in files {
        write_file(pod, &target, file)?;
    }
    let next = dir.join("..data_tmp");
    let _ = fs::remove_file(&next);
    symlink(&version, &next).at(&next)?;
    fs::rename(&next, &data).at(&data)?;
    link_files(dir, &version, files)
}

fn write_file(pod: &Value, dir: &Path, file: &VolumeFile) -> Result<(), MountError> {
    let relative = below(&file.path).ok_or_else(|| MountError::SubPath(file.path.to_string()))?;
    let path = dir.join(relative);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).at(parent)?;
    }
    // The last one is the directory of the version.
    for made in relative.ancestors().skip(1) {
        let made = dir.join(made);
        fs::set_permissions(&made, Permissions::from_mode(DIR_MODE)).at(&made)?;
    }
    fs::write(&path, &file.content).at(&path)?;
    let mut mode = file.mode;
    let group = fs_group(pod);
    if group.is_some() || file.owner.is_some() {
        chown(&path, file.owner, group).at(&path)?;
    }
    if group.is_some() {
        mode |= 0o440;
    }
    fs::set_permissions(&path, Permissions::from_mode(mode)).at(&path)
}

/// Links what users see to the current version, and removes older ones and links to what is gone.
fn link_files(dir: &Path, version: &str, files: &[VolumeFile]) -> Result<(), MountError> {
    let first = |file: &VolumeFile| file.path.split('/').next().map(str::to_owned);
    let names: BTreeSet<String> = files.iter().filter_map(first).collect();
    for entry in fs::read_dir(dir).at(dir)? {
        let name = entry.at(dir)?.file_name().to_string_lossy().into_owned();
        let path = dir.join(&name);
        if !name.starts_with("..") && !names.contains(&name) {
            fs::remove_file(&path).at(&path)?;
        } else if name.starts_with("..") && name != DATA && name != version {
            fs::remove_dir_all(&path).at(&path)?;
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
pub(super) fn below(path: &str) -> Option<&Path> {
    let path = Path::new(path);
    let mut parts = path.components();
    parts
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        .then_some(path)
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;
    use nix::sys::stat::{Mode, umask};

    use super::*;

    fn file(path: &str, content: &'static str) -> VolumeFile {
        VolumeFile {
            path: path.into(),
            content: content.into(),
            mode: 0o640,
            owner: None,
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
    fn all_users_read_the_directories_of_a_volume_whatever_the_umask_is() {
        let dir = tempfile::tempdir().unwrap();
        let (pod, volume) = (value!({}), dir.path().join("v"));
        let before = umask(Mode::from_bits_truncate(0o077));
        write_files(&pod, &volume, &[file("a/b/c", "1")]).unwrap();
        umask(before);
        let version = volume.join(fs::read_link(volume.join(DATA)).unwrap());
        for dir in [&volume, &version, &version.join("a"), &version.join("a/b")] {
            let mode = fs::metadata(dir).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, DIR_MODE, "{}", dir.display());
        }
    }

    #[test]
    fn files_that_were_not_linked_before_a_crash_are_linked_later() {
        let dir = tempfile::tempdir().unwrap();
        let (pod, volume) = (value!({}), dir.path().join("v"));
        write_files(&pod, &volume, &[file("a", "1")]).unwrap();
        fs::remove_file(volume.join("a")).unwrap();
        let old = volume.join("..0123456789abcdef");
        fs::create_dir(&old).unwrap();
        write_files(&pod, &volume, &[file("a", "1")]).unwrap();
        assert_eq!(fs::read_to_string(volume.join("a")).unwrap(), "1");
        assert!(!old.exists());
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
}
