//! `hostPath` and its types (upstream: pkg/volume/hostpath/host_path.go).

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _};
use std::path::Path;

use super::{AtPath as _, MountError};

/// Checks the type of a path; the types that end in `OrCreate` make it.
pub(super) fn check(path: &Path, wanted: &str) -> Result<(), MountError> {
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
        "Socket" => (found().is_some_and(|it| it.is_socket()), "a socket file"),
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
