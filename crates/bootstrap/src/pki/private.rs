//! Private files: written atomically with mode 0600, made private if they are not, and rejected if another user owns them.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use mizzen_encryption::check_owner;

use super::PkiError;

/// The permission bits of other users.
const SHARED: u32 = 0o077;

/// Makes a directory with mode 0700, unless it exists.
fn create_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

/// Waits until no other process makes keys in a directory, which is created if need be. The lock ends with the file; a
/// file system that has no such locks has none for this either.
pub fn lock_directory(directory: &Path) -> Result<File, PkiError> {
    let opened = create_directory(directory).and_then(|()| File::open(directory));
    let opened = opened.map_err(|source| PkiError::File {
        path: directory.into(),
        source,
    })?;
    if let Err(error) = opened.lock() {
        tracing::debug!(%error, path = %directory.display(), "cannot lock the data directory");
    }
    Ok(opened)
}

/// Writes a file with mode 0600 atomically.
pub fn write_private(path: &Path, text: &str) -> Result<(), PkiError> {
    let write = || {
        let directory = path
            .parent()
            .filter(|directory| !directory.as_os_str().is_empty());
        if let Some(directory) = directory {
            create_directory(directory)?;
        }
        let mut temporary = path.as_os_str().to_owned();
        // Servers that share a directory may write the same file at the same time.
        temporary.push(format!(".{}.new", std::process::id()));
        let temporary = PathBuf::from(temporary);
        // A leftover may be readable by other users.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(|source| PkiError::File {
        path: path.into(),
        source,
    })
}

/// The text of a key file that an argument names.
pub fn read_key(path: &Path) -> Result<String, PkiError> {
    check_owner(path).map_err(|source| PkiError::File {
        path: path.into(),
        source,
    })?;
    super::read(path)
}

/// Removes the permissions of other users from a file or directory of the server, and logs it.
pub fn make_private(path: &Path) -> Result<(), PkiError> {
    let fail = |source| PkiError::File {
        path: path.into(),
        source,
    };
    check_owner(path).map_err(fail)?;
    let mode = fs::metadata(path).map_err(fail)?.permissions().mode();
    if mode & SHARED == 0 {
        return Ok(());
    }
    tracing::warn!(path = %path.display(), "file was accessible to other users, removed their permissions");
    fs::set_permissions(path, Permissions::from_mode(mode & 0o7700)).map_err(fail)
}

/// Warns of a key of the operator that other users may read.
pub(super) fn warn_if_shared(path: &Path) {
    let mode = fs::metadata(path).map_or(0, |metadata| metadata.permissions().mode());
    if mode & SHARED != 0 {
        tracing::warn!(path = %path.display(), "key file is readable by other users");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_written_is_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("made").join("key");
        write_private(&file, "one").unwrap();
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
        write_private(&file, "two").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
    }

    #[test]
    fn a_leftover_temporary_file_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (file, elsewhere) = (
            directory.path().join("key"),
            directory.path().join("elsewhere"),
        );
        fs::write(&elsewhere, "").unwrap();
        let leftover = format!("key.{}.new", std::process::id());
        std::os::unix::fs::symlink(&elsewhere, directory.path().join(leftover)).unwrap();
        write_private(&file, "secret").unwrap();
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "");
        assert_eq!(
            (fs::read_to_string(&file).unwrap().as_str(), mode(&file)),
            ("secret", 0o600)
        );
    }

    #[test]
    fn a_file_of_another_user_is_rejected() {
        if !nix::unistd::Uid::effective().is_root() {
            eprintln!("SKIPPED: only root can give a file to another user");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        fs::write(&file, "secret").unwrap();
        for path in [file.as_path(), directory.path()] {
            make_private(path).unwrap();
            std::os::unix::fs::chown(path, Some(4321), None).unwrap();
            let refused = make_private(path).unwrap_err().to_string();
            let expected = format!("{}: owned by uid 4321, not by root (uid 0)", path.display());
            assert_eq!(refused, expected);
        }
        assert!(
            read_key(&file)
                .unwrap_err()
                .to_string()
                .contains("owned by uid 4321")
        );
    }

    #[test]
    fn a_shared_file_is_made_private() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        fs::write(&file, "secret").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        make_private(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        make_private(directory.path()).unwrap();
        assert_eq!(mode(directory.path()), 0o700);
    }
}
