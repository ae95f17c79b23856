//! The file of `mizzen backup`: a tar archive of a data directory.
//!
//! It begins with `backup.json`, which says what the file is. The keys and certificates of the cluster follow, then the
//! journal: a restored cluster accepts the tokens and client certificates of the original. The journal of a server with
//! etcd is made of the objects there.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};

use mizzen_store::{OpenError, Revision};
use mizzen_value::{Value, json, time, value};
use tempfile::TempDir;

/// The version of the archive.
const FORMAT: i64 = 1;

/// What describes the archive.
const MANIFEST: &str = "backup.json";

/// The files of a data directory that are neither the journal nor made anew at start.
const KEYS: [&str; 5] = [
    "ca.crt",
    "ca.key",
    "front-proxy-ca.crt",
    "front-proxy-ca.key",
    "sa.key",
];

/// The most that a key, a certificate or the manifest may have.
const MAX_KEY_BYTES: u64 = 1 << 20;

/// Why a backup could not be written or restored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupError {
    /// The journal cannot be read.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// A file cannot be read or written.
    #[error("cannot use {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// No server has used the data directory.
    #[error("{} is no data directory: it has no {missing}", path.display())]
    NoData {
        /// The directory.
        path: PathBuf,
        /// What every data directory has.
        missing: &'static str,
    },
    /// The directory has certificates and keys only.
    #[error(transparent)]
    NoObjects(#[from] NoObjects),
    /// Something is in the way.
    #[error("{} exists; {remedy}", path.display())]
    Exists {
        /// The file or directory.
        path: PathBuf,
        /// What to do.
        remedy: &'static str,
    },
    /// The archive is not one of `mizzen backup`.
    #[error("{} is no backup: {why}", path.display())]
    NoBackup {
        /// The file.
        path: PathBuf,
        /// How it is known.
        why: String,
    },
}

/// The data directory of a server that stores objects in etcd.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} has no objects, only certificates and keys: with --etcd-servers objects are in etcd; \
     `mizzen backup FILE --etcd-servers URL` copies both, and `mizzen restore` makes a data directory of that file, or \
     fills a new etcd",
    .0.display()
)]
pub(crate) struct NoObjects(PathBuf);

/// Rejects a directory that has the keys of a cluster and no journal. It would seem to be a cluster without objects.
pub(crate) fn check_has_journal(directory: &Path) -> Result<(), NoObjects> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let names: Vec<_> = files.map(|file| file.file_name()).collect();
    let is_of_journal = |name: &OsString| {
        let extension = Path::new(name).extension();
        name == "tip" || extension.is_some_and(|it| it == "log" || it == "base")
    };
    match names.iter().any(|name| name == "ca.crt") && !names.iter().any(is_of_journal) {
        true => Err(NoObjects(directory.into())),
        false => Ok(()),
    }
}

/// What a backup holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BackupInfo {
    /// Up to which revision.
    pub(crate) revision: Revision,
    /// When it was made, in RFC 3339.
    pub(crate) created: String,
}

fn in_file(path: &Path) -> impl Fn(io::Error) -> BackupError + '_ {
    move |source| BackupError::File {
        path: path.into(),
        source,
    }
}

/// Writes the data of `directory`, which a server may use meanwhile, to `file`. `now` is in Unix seconds.
pub(crate) fn write(directory: &Path, file: &Path, now: i64) -> Result<BackupInfo, BackupError> {
    check_has_keys(directory)?;
    check_has_journal(directory)?;
    archive(directory, directory, file, now)
}

/// An empty directory beside `path`, for what becomes a file or directory of that name. It is removed when it is dropped.
pub(crate) fn draft_beside(path: &Path) -> Result<TempDir, BackupError> {
    let parent = parent(path);
    fs::create_dir_all(parent)
        .and_then(|()| tempfile::tempdir_in(parent))
        .map_err(in_file(path))
}

fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Rejects a directory that no server has used.
pub(crate) fn check_has_keys(directory: &Path) -> Result<(), BackupError> {
    if let Some(missing) = ["ca.crt", "sa.key"]
        .into_iter()
        .find(|name| !directory.join(name).exists())
    {
        return Err(BackupError::NoData {
            path: directory.into(),
            missing,
        });
    }
    Ok(())
}

/// Writes the keys of one directory and the journal of another one, which may be the same, to `file`.
pub(crate) fn archive(
    directory: &Path,
    objects: &Path,
    file: &Path,
    now: i64,
) -> Result<BackupInfo, BackupError> {
    let (parent, fail) = (parent(file), in_file(file));
    let copy = tempfile::tempdir_in(parent).map_err(&fail)?;
    let journal = copy.path().join("journal");
    let info = BackupInfo {
        revision: mizzen_store::backup(objects, &journal)?,
        created: time::from_unix(now),
    };
    // The archive appears under its name when it is complete.
    let draft = copy.path().join("archive");
    let archived = || -> io::Result<()> {
        let mut options = File::options();
        let out = options.write(true).create_new(true).mode(0o600);
        let mut archive = tar::Builder::new(out.open(&draft)?);
        let manifest = value!({
            "format": (FORMAT),
            "mizzen": (env!("CARGO_PKG_VERSION")),
            "revision": (info.revision.0 as i64),
            "created": (info.created.as_str()),
        });
        append(
            &mut archive,
            MANIFEST,
            json::to_string(&manifest).as_bytes(),
        )?;
        for name in KEYS {
            match fs::read(directory.join(name)) {
                Ok(text) => append(&mut archive, name, &text)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let mut names: Vec<_> = fs::read_dir(&journal)?.collect::<Result<_, _>>()?;
        names.sort_by_key(fs::DirEntry::file_name);
        for entry in names {
            let name = Path::new("journal").join(entry.file_name());
            archive.append_path_with_name(entry.path(), name)?;
        }
        archive.into_inner()?.sync_all()?;
        fs::rename(&draft, file)?;
        File::open(parent)?.sync_all()
    };
    archived().map_err(&fail)?;
    Ok(info)
}

fn append(archive: &mut tar::Builder<File>, name: &str, content: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o600);
    archive.append_data(&mut header, name, content)
}

/// Makes the data directory `directory`, which must not exist or be empty, of a backup.
pub(crate) fn restore(file: &Path, directory: &Path) -> Result<BackupInfo, BackupError> {
    check_new(directory)?;
    let (parent, fail) = (parent(directory), in_file(directory));
    fs::create_dir_all(parent).map_err(&fail)?;
    let unpacked = tempfile::tempdir_in(parent).map_err(&fail)?;
    let journal = unpacked.path().join("journal");
    fs::create_dir(&journal).map_err(&fail)?;
    let info = unpack(file, unpacked.path())?;
    // The copy is verified: every frame has a checksum, and every file its seal.
    let restored = unpacked.path().join("restored");
    let revision = mizzen_store::backup(&journal, &restored)?;
    if revision != info.revision {
        return Err(BackupError::NoBackup {
            path: file.into(),
            why: format!(
                "its journal ends at revision {revision}, not {}",
                info.revision
            ),
        });
    }
    move_keys(unpacked.path(), &restored)
        .and_then(|()| place(&restored, directory))
        .map_err(&fail)?;
    Ok(info)
}

/// Makes the data directory `directory`, which must not exist or be empty, with the keys of `restored` alone: the objects are
/// in etcd.
pub(crate) fn place_keys(restored: &Path, directory: &Path) -> Result<(), BackupError> {
    check_new(directory)?;
    let keys = restored.join("keys");
    fs::create_dir(&keys)
        .and_then(|()| move_keys(restored, &keys))
        .and_then(|()| place(&keys, directory))
        .map_err(in_file(directory))
}

/// Moves the keys of one directory to another one.
fn move_keys(from: &Path, to: &Path) -> io::Result<()> {
    for name in KEYS {
        let key = from.join(name);
        if key.exists() {
            File::open(&key)?.sync_all()?;
            fs::rename(key, to.join(name))?;
        }
    }
    File::open(to)?.sync_all()
}

/// Gives a directory its name. An empty one of that name is replaced; one that was filled meanwhile is not.
fn place(draft: &Path, directory: &Path) -> io::Result<()> {
    fs::rename(draft, directory)?;
    File::open(parent(directory))?.sync_all()
}

/// Rejects a directory that has files.
pub(crate) fn check_new(directory: &Path) -> Result<(), BackupError> {
    let is_empty = match fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(in_file(directory)(error)),
    };
    if !is_empty {
        check_has_journal(directory)?;
        return Err(BackupError::Exists {
            path: directory.into(),
            remedy: "name an empty directory, or move this one away",
        });
    }
    Ok(())
}

/// Unpacks the files that a backup may have, and no others.
fn unpack(file: &Path, target: &Path) -> Result<BackupInfo, BackupError> {
    let no_backup = |why: String| BackupError::NoBackup {
        path: file.into(),
        why,
    };
    let broken = |error: io::Error| no_backup(error.to_string());
    let mut archive = tar::Archive::new(File::open(file).map_err(in_file(file))?);
    let mut info = None;
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let path = entry.path().map_err(broken)?.into_owned();
        let name = path.to_str().unwrap_or_default();
        if info.is_none() && name != MANIFEST {
            return Err(no_backup(format!("it does not begin with {MANIFEST}")));
        }
        if !entry.header().entry_type().is_file() {
            return Err(no_backup(format!("{} is no file", path.display())));
        }
        if name == MANIFEST {
            let mut text = Vec::new();
            let read = (&mut entry).take(MAX_KEY_BYTES).read_to_end(&mut text);
            read.map_err(broken)?;
            info = Some(manifest(&text).map_err(no_backup)?);
            continue;
        }
        let is_key = KEYS.contains(&name) && entry.size() <= MAX_KEY_BYTES;
        if !is_key && !is_journal_file(&path) {
            return Err(no_backup(format!("unknown file {}", path.display())));
        }
        let mut options = File::options();
        let out = options.write(true).create_new(true).mode(0o600);
        out.open(target.join(&path))
            .and_then(|mut out| io::copy(&mut entry, &mut out))
            .map_err(broken)?;
    }
    info.ok_or_else(|| no_backup(format!("it has no {MANIFEST}")))
}

/// `journal/NAME`, where the name has nothing that leads elsewhere.
fn is_journal_file(path: &Path) -> bool {
    let parts: Vec<_> = path.components().collect();
    matches!(parts[..], [Component::Normal(directory), Component::Normal(_)] if directory == "journal")
}

fn manifest(text: &[u8]) -> Result<BackupInfo, String> {
    let manifest = json::parse(text).map_err(|error| format!("{MANIFEST}: {error}"))?;
    match manifest["format"] {
        Value::Int(format) if format == FORMAT => {}
        ref other => {
            return Err(format!(
                "it has format {}, this version reads {FORMAT}",
                json::to_string(other)
            ));
        }
    }
    let Value::Int(revision) = manifest["revision"] else {
        return Err(format!("{MANIFEST} has no revision"));
    };
    Ok(BackupInfo {
        revision: Revision(revision.max(0) as u64),
        created: manifest["created"].str().into(),
    })
}
