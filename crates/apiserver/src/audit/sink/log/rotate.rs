//! Old files: how they are called, which are compressed, and which are removed.
//!
//! `audit.log` becomes `audit-2026-11-15T19-36-55.123.log`, and `….log.gz` if it is compressed, as lumberjack has it.

use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use mizzen_value::time::Moment;

use super::LogFile;

const DAY: i64 = 86_400;
const COMPRESSED: &str = ".gz";

/// What is known of old files.
pub(super) struct Backups {
    directory: PathBuf,
    /// What comes before the time in a name.
    prefix: String,
    /// What comes after it.
    extension: String,
    max_age: u32,
    max_backups: usize,
    compress: bool,
    /// One at a time.
    tending: Mutex<()>,
}

/// An old file.
struct Backup {
    /// Its time, as its name has it: later ones are greater.
    time: String,
    path: PathBuf,
    compressed: bool,
}

impl Backups {
    pub(super) fn new(file: &LogFile) -> Backups {
        let part = |part: Option<&std::ffi::OsStr>| {
            part.unwrap_or_default().to_string_lossy().into_owned()
        };
        let extension = part(file.path.extension());
        Backups {
            directory: file.path.parent().unwrap_or(Path::new("")).to_owned(),
            prefix: format!("{}-", part(file.path.file_stem())),
            extension: if extension.is_empty() {
                extension
            } else {
                format!(".{extension}")
            },
            max_age: file.max_age,
            max_backups: file.max_backups,
            compress: file.compress,
            tending: Mutex::default(),
        }
    }

    /// Gives the file the name of an old one.
    pub(super) fn rotate(&self, path: &Path, mut now: Moment) -> io::Result<()> {
        loop {
            let name = format!("{}{}{}", self.prefix, timestamp(now), self.extension);
            let aside = self.directory.join(name);
            if !aside.exists() {
                return fs::rename(path, aside);
            }
            // Two within a millisecond: neither may take the place of the other.
            now = Moment {
                nanos: now.nanos + 1_000_000,
                ..now
            };
            if now.nanos >= 1_000_000_000 {
                now = Moment {
                    seconds: now.seconds + 1,
                    nanos: 0,
                };
            }
        }
    }

    /// Removes what is too old or too much, and compresses the rest if that is wanted.
    pub(super) fn maintain(&self, now: i64) {
        let _one_at_a_time = self.tending.lock();
        if let Err(error) = self.try_maintain(now) {
            tracing::warn!(%error, "old audit logs cannot be cared for");
        }
    }

    fn try_maintain(&self, now: i64) -> io::Result<()> {
        let kept = self.remove_expired(self.list()?, now)?;
        for backup in kept
            .iter()
            .filter(|backup| self.compress && !backup.compressed)
        {
            compress(&backup.path)?;
        }
        Ok(())
    }

    fn remove_expired(&self, backups: Vec<Backup>, now: i64) -> io::Result<Vec<Backup>> {
        let oldest = timestamp(Moment {
            seconds: now - i64::from(self.max_age) * DAY,
            nanos: 0,
        });
        let mut times = BTreeSet::new();
        let (kept, removed): (Vec<_>, Vec<_>) = backups.into_iter().partition(|backup| {
            times.insert(backup.time.clone());
            let too_many = self.max_backups > 0 && times.len() > self.max_backups;
            !too_many && (self.max_age == 0 || backup.time >= oldest)
        });
        removed
            .iter()
            .try_for_each(|backup| fs::remove_file(&backup.path))?;
        Ok(kept)
    }

    /// The old files, the latest first.
    fn list(&self) -> io::Result<Vec<Backup>> {
        let directory = if self.directory.as_os_str().is_empty() {
            Path::new(".")
        } else {
            &self.directory
        };
        let mut backups = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            backups.extend(
                entry
                    .file_name()
                    .to_str()
                    .and_then(|name| self.parse_name(name, entry.path())),
            );
        }
        backups.sort_by(|one: &Backup, other| other.time.cmp(&one.time));
        Ok(backups)
    }

    /// An old file by its name; others are none of our business.
    fn parse_name(&self, name: &str, path: PathBuf) -> Option<Backup> {
        let (plain, compressed) = match name.strip_suffix(COMPRESSED) {
            Some(plain) => (plain, true),
            None => (name, false),
        };
        let time = plain
            .strip_prefix(&self.prefix)?
            .strip_suffix(&self.extension)?;
        is_stamp(time).then(|| Backup {
            time: time.into(),
            path,
            compressed,
        })
    }
}

/// A moment in the name of a file.
fn timestamp(moment: Moment) -> String {
    let whole = Moment { nanos: 0, ..moment }.to_string();
    format!(
        "{}.{:03}",
        whole.trim_end_matches('Z').replace(':', "-"),
        moment.nanos / 1_000_000
    )
}

fn is_stamp(text: &str) -> bool {
    const SHAPE: &[u8] = b"0000-00-00T00-00-00.000";
    let fits = |(byte, wanted): (u8, &u8)| match wanted {
        b'0' => byte.is_ascii_digit(),
        wanted => byte == *wanted,
    };
    text.len() == SHAPE.len() && text.bytes().zip(SHAPE).all(fits)
}

/// Invariant: the file is removed after its compressed form is on disk, which has its name only when it is whole.
fn compress(path: &Path) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (whole, part) = (
        path.with_file_name(format!("{name}{COMPRESSED}")),
        path.with_file_name(format!("{name}.part")),
    );
    let out = File::options()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&part)?;
    let mut encoder = GzEncoder::new(out, Compression::default());
    io::copy(&mut File::open(path)?, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    fs::rename(&part, whole)?;
    fs::remove_file(path)
}
