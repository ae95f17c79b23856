//! A copy of a journal that may be in use.
//!
//! Files only grow until a compaction removes them, and the commit mark tells how far the last one counts. So a copy of the
//! files up to a commit mark that was read first is the journal as it was then. A compaction that removes a file
//! meanwhile is noticed, and the copy is made again.

use std::cmp::Ordering;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::file_ops::FileOps;
use super::frame::HEADER;
use super::replay::{self, GenerationChain};
use super::{JournalDir, create_dir, private};
use crate::{OpenError, Revision};

/// How often a copy is tried. A compaction takes longer than a copy of what it has compacted.
const ATTEMPTS: usize = 10;

/// Copies the journal in `from` into `to`, which is created if need be and must be empty, and reads the copy. Returns its
/// revision: all writes that were acknowledged before the call are in it.
pub fn backup(from: &Path, to: &Path) -> Result<Revision, OpenError> {
    let ops = FileOps::default();
    let [source, target] = [from, to].map(|dir| JournalDir {
        dir: dir.into(),
        ops: ops.clone(),
    });
    let failed = |path: &Path, source| OpenError::Io {
        path: path.into(),
        source,
    };
    // Without this a wrong path would be an empty journal.
    fs::read_dir(from).map_err(|source| failed(from, source))?;
    create_dir(to).map_err(|source| failed(to, source))?;
    let mut entries = fs::read_dir(to).map_err(|source| failed(to, source))?;
    if entries.next().is_some() {
        return Err(failed(to, io::ErrorKind::DirectoryNotEmpty.into()));
    }
    let mut attempts = 1;
    loop {
        let copied = copy(&source, &target).and_then(|()| replay::read(&target, &mut |_| {}));
        match copied {
            Ok(revision) => return Ok(revision.unwrap_or(Revision::ZERO)),
            Err(error) if attempts == ATTEMPTS => return Err(of_source(error, from)),
            Err(_) => attempts += 1,
        }
        clear(to).map_err(|source| failed(to, source))?;
    }
}

fn copy(source: &JournalDir, target: &JournalDir) -> Result<(), OpenError> {
    let Some(chain) = GenerationChain::find(source)? else {
        return Ok(());
    };
    let mark = chain.commit_mark;
    if let Some(base) = chain.base {
        copy_file(&source.base(base), &target.base(base), u64::MAX)?;
    }
    // Nothing was acknowledged in logs after the commit mark's. That of the base belongs to it all the same.
    let last = mark.generation.max(chain.base.unwrap_or_default());
    for &log in chain.logs.iter().filter(|&&log| log <= last) {
        let length = match log.cmp(&mark.generation) {
            Ordering::Less => u64::MAX,
            Ordering::Equal => mark.length,
            Ordering::Greater => HEADER,
        };
        copy_file(&source.log(log), &target.log(log), length)?;
    }
    let failed = |source| OpenError::Io {
        path: target.dir.clone(),
        source,
    };
    target
        .create(&target.commit_mark(), |file| {
            target.ops.write(file, &mark.encode())
        })
        .map(drop)
        .map_err(failed)
}

/// Copies the first `length` bytes of a file.
fn copy_file(from: &Path, to: &Path, length: u64) -> Result<(), OpenError> {
    let copy = || {
        let mut copy = private().truncate(true).open(to)?;
        io::copy(&mut File::open(from)?.take(length), &mut copy)?;
        copy.sync_all()
    };
    copy().map_err(|source| OpenError::Io {
        path: from.into(),
        source,
    })
}

/// Removes the files of an attempt that failed.
fn clear(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        fs::remove_file(entry?.path())?;
    }
    Ok(())
}

/// Damage that was found in the copy is in the file that was copied.
fn of_source(error: OpenError, from: &Path) -> OpenError {
    let original = |path: PathBuf| match path.file_name() {
        Some(name) => from.join(name),
        None => path,
    };
    match error {
        OpenError::Corrupt { path, detail } => OpenError::Corrupt {
            path: original(path),
            detail,
        },
        OpenError::Version {
            path,
            found,
            supported,
        } => OpenError::Version {
            path: original(path),
            found,
            supported,
        },
        error => error,
    }
}
