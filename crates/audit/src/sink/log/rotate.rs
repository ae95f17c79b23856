//! Backups of rotated log files: names, compression, removal.
//!
//! `audit.log` becomes `audit-2026-11-15T19-36-55.123.log`, and `….log.gz` if it is compressed, as
//! with lumberjack.

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

/// The backups of a log file.
pub(super) struct Backups {
    directory: PathBuf,
    /// The part of a name before the timestamp.
    prefix: String,
    /// The part after it.
    extension: String,
    max_age: u32,
    max_backups: usize,
    compress: bool,
    /// Held while backups are removed and compressed.
    tending: Mutex<()>,
}

/// A backup.
struct Backup {
    /// The timestamp of its name, which sorts by time.
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

    /// Renames the log file to a new backup.
    pub(super) fn rotate(&self, path: &Path, mut now: Moment) -> io::Result<()> {
        loop {
            let name = format!("{}{}{}", self.prefix, timestamp(now), self.extension);
            let aside = self.directory.join(name);
            if !aside.exists() {
                return fs::rename(path, aside);
            }
            // Two rotations within a millisecond must not overwrite each other.
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

    /// Removes backups beyond the limits and compresses the rest.
    pub(super) fn maintain(&self, now: i64) {
        let _one_at_a_time = self.tending.lock();
        if let Err(error) = self.try_maintain(now) {
            tracing::warn!(%error, "cannot maintain audit log backups");
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

    /// The backups, the latest first.
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

    /// A backup by its file name; none for other files.
    fn parse_name(&self, name: &str, path: PathBuf) -> Option<Backup> {
        let (plain, compressed) = match name.strip_suffix(COMPRESSED) {
            Some(plain) => (plain, true),
            None => (name, false),
        };
        let time = plain
            .strip_prefix(&self.prefix)?
            .strip_suffix(&self.extension)?;
        const SHAPE: &[u8] = b"0000-00-00T00-00-00.000";
        let fits = |(byte, wanted): (u8, &u8)| match wanted {
            b'0' => byte.is_ascii_digit(),
            wanted => byte == *wanted,
        };
        let is_timestamp = time.len() == SHAPE.len() && time.bytes().zip(SHAPE).all(fits);
        is_timestamp.then(|| Backup {
            time: time.into(),
            path,
            compressed,
        })
    }
}

/// The timestamp in a file name.
fn timestamp(moment: Moment) -> String {
    let whole = Moment { nanos: 0, ..moment }.to_string();
    format!(
        "{}.{:03}",
        whole.trim_end_matches('Z').replace(':', "-"),
        moment.nanos / 1_000_000
    )
}

/// Invariant: the file is removed after its compressed copy is durable under its final name.
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
