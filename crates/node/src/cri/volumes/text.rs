//! The text of a file in a volume, for variables.
//!
//! A container has written it: it may be a link, a pipe, or endless.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

use super::files::below;
use super::pinned::Pinned;
use crate::pod::env_file::VolumeText;

/// The longest file.
const MAX_LEN: u64 = 1024 * 1024;

/// Reads a file of a volume. A link in the path must lead to another part of the volume.
pub(super) fn read_text(volume: &Path, path: &str) -> io::Result<VolumeText> {
    let refuse = |why: &str| io::Error::other(format!("{path:?} {why}"));
    let outside = || refuse("is not a path below the volume");
    let place = volume.join(below(path).ok_or_else(outside)?);
    let root = fs::canonicalize(volume)?;
    let real = fs::canonicalize(&place)?;
    let inside = real.strip_prefix(&root).map_err(|_| outside())?;
    let mut opened = Pinned::open(&root)?;
    for name in inside.components() {
        opened = opened.entry(name.as_os_str())?;
    }
    if !opened.metadata()?.is_file() {
        return Err(refuse("is not a file"));
    }
    let mut text = String::new();
    let file = File::open(opened.path())?;
    file.take(MAX_LEN + 1).read_to_string(&mut text)?;
    match text.len() as u64 > MAX_LEN {
        true => Err(refuse("is larger than 1 MiB")),
        false => Ok(VolumeText { path: place, text }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    #[test]
    fn only_files_of_the_volume_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("v");
        fs::create_dir_all(volume.join("a")).unwrap();
        fs::write(volume.join("a/file"), "inside").unwrap();
        fs::write(dir.path().join("secret"), "outside").unwrap();
        fs::write(volume.join("large"), " ".repeat(MAX_LEN as usize + 1)).unwrap();
        symlink("a/file", volume.join("inner")).unwrap();
        symlink("../secret", volume.join("outer")).unwrap();
        mkfifo(&volume.join("pipe"), Mode::S_IRWXU).unwrap();
        let read = |path: &str| match read_text(&volume, path) {
            Ok(found) => found.text,
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(read("a/file"), "inside");
        assert_eq!(read("inner"), "inside");
        let found = read_text(&volume, "inner").unwrap();
        assert_eq!(found.path, volume.join("inner"));
        for (path, why) in [
            ("../secret", "is not a path below the volume"),
            ("outer", "is not a path below the volume"),
            ("a", "is not a file"),
            ("pipe", "is not a file"),
            ("large", "is larger than 1 MiB"),
        ] {
            assert_eq!(read(path), format!("error: {path:?} {why}"));
        }
        assert!(read("none").starts_with("error: No such file"));
    }
}
