//! Replay: reads the newest base and the logs since, and rejects damage.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use super::JournalDir;
use super::codec::{self, Payload};
use super::commit_mark::CommitMark;
use super::frame::{FileIdentity, FileRole, FrameReader, HEADER, NextFrame};
use super::log::LogFile;
use crate::{OpenError, Revision, Saved};

/// What is written again at a time.
const PIECE: u64 = 1 << 20;

/// What a directory holds, and the log to go on with.
pub(super) struct Replayed {
    pub(super) revision: Revision,
    pub(super) base_bytes: u64,
    /// The bytes of all logs since the base but the last.
    pub(super) sealed_bytes: u64,
    pub(super) log: LogFile,
}

/// What a directory holds.
struct Scanned {
    revision: Revision,
    /// The newest base's generation; the first has none.
    base: Option<u64>,
    base_bytes: u64,
    sealed_bytes: u64,
    last: LastLog,
}

/// The log that was in use.
struct LastLog {
    generation: u64,
    /// The bytes that were acknowledged, at least.
    promised: u64,
    /// The bytes that could be read.
    length: u64,
    n_changes: u64,
    is_sealed: bool,
}

/// The files that count.
pub(super) struct GenerationChain {
    /// The newest base's generation; the first has none.
    pub(super) base: Option<u64>,
    /// The generations of all logs from the base on, without a gap.
    pub(super) logs: Vec<u64>,
    pub(super) commit_mark: CommitMark,
}

/// Reads a directory, and makes it ready for the next append.
pub(super) fn replay(
    place: &JournalDir,
    load: &mut dyn FnMut(Saved<'_>),
) -> Result<Replayed, OpenError> {
    let Some(scanned) = scan(place, load)? else {
        let log = LogFile::create_first(place).map_err(|source| OpenError::Io {
            path: place.dir.clone(),
            source,
        })?;
        return Ok(Replayed {
            revision: Revision::ZERO,
            base_bytes: 0,
            sealed_bytes: 0,
            log,
        });
    };
    let last = &scanned.last;
    let log = last.resume(place).map_err(|source| OpenError::Io {
        path: place.log(last.generation),
        source,
    })?;
    // A kill may have come between the rename of a file and the sync of its name.
    place.sync().map_err(|source| OpenError::Io {
        path: place.dir.clone(),
        source,
    })?;
    let last_bytes = if last.is_sealed { last.length } else { 0 };
    place.sweep(scanned.base.unwrap_or_default());
    Ok(Replayed {
        revision: scanned.revision,
        base_bytes: scanned.base_bytes,
        sealed_bytes: scanned.sealed_bytes + last_bytes,
        log,
    })
}

/// Reads a directory without changing it, and returns the latest revision; `None` if nothing was ever written.
pub(super) fn read(
    place: &JournalDir,
    load: &mut dyn FnMut(Saved<'_>),
) -> Result<Option<Revision>, OpenError> {
    Ok(scan(place, load)?.map(|scanned| scanned.revision))
}

fn scan(place: &JournalDir, load: &mut dyn FnMut(Saved<'_>)) -> Result<Option<Scanned>, OpenError> {
    let Some(chain) = GenerationChain::find(place)? else {
        return Ok(None);
    };
    let mut scan = ReplayScan {
        load,
        revision: Revision::ZERO,
        n_changes: 0,
    };
    let base_bytes = match chain.base {
        Some(generation) => scan.sealed(
            place,
            FileIdentity {
                role: FileRole::Base,
                generation,
            },
        )?,
        None => 0,
    };
    let (&last, sealed) = chain
        .logs
        .split_last()
        .ok_or_else(|| missing(place.log(chain.commit_mark.generation)))?;
    let mut sealed_bytes = 0;
    for &generation in sealed {
        sealed_bytes += scan.sealed(
            place,
            FileIdentity {
                role: FileRole::Log,
                generation,
            },
        )?;
    }
    let last = scan.last(place, last, chain.commit_mark)?;
    Ok(Some(Scanned {
        revision: scan.revision,
        base: chain.base,
        base_bytes,
        sealed_bytes,
        last,
    }))
}

impl LastLog {
    /// The log to go on with: this one, or the next if this one is sealed.
    fn resume(&self, place: &JournalDir) -> io::Result<LogFile> {
        self.write_again(place)?;
        if !self.is_sealed {
            return LogFile::resume(place, self.generation, self.length, self.n_changes);
        }
        let sealed = CommitMark {
            generation: self.generation,
            length: self.length,
        };
        // On a full disk the new log takes the place of the reserve.
        LogFile::create(place, sealed).or_else(|_| {
            place
                .remove_reserve()
                .and_then(|()| LogFile::create(place, sealed))
        })
    }

    /// Makes durable what lies beyond the commit mark, and is now taken for written. It may have been read from the page
    /// cache. A sync is not enough: after one that failed the kernel takes pages for clean that are not on disk.
    fn write_again(&self, place: &JournalDir) -> io::Result<()> {
        if self.length == self.promised {
            return Ok(());
        }
        let mut file = File::options()
            .read(true)
            .write(true)
            .open(place.log(self.generation))?;
        let mut piece = Vec::new();
        let mut offset = self.promised;
        while offset < self.length {
            piece.resize((self.length - offset).min(PIECE) as usize, 0);
            file.seek(SeekFrom::Start(offset))?;
            file.read_exact(&mut piece)?;
            file.seek(SeekFrom::Start(offset))?;
            place.ops.write(&mut file, &piece)?;
            offset += piece.len() as u64;
        }
        place.ops.sync_all(&file)
    }
}

impl GenerationChain {
    /// `None` if nothing was ever promised here.
    pub(super) fn find(place: &JournalDir) -> Result<Option<GenerationChain>, OpenError> {
        let failed = |source| OpenError::Io {
            path: place.dir.clone(),
            source,
        };
        let base = place.generations("base").map_err(failed)?.last().copied();
        let mut logs = place.generations("log").map_err(failed)?;
        logs.retain(|&generation| generation >= base.unwrap_or(1));
        let commit_mark = match CommitMark::read(&place.commit_mark())? {
            None if logs.is_empty() && base.is_none() => return Ok(None),
            Some(CommitMark {
                generation: 1,
                length: HEADER,
            }) if logs.is_empty() && base.is_none() => {
                return Ok(None);
            }
            None => return Err(missing(place.commit_mark())),
            Some(commit_mark) => commit_mark,
        };
        let chain = GenerationChain {
            base,
            logs,
            commit_mark,
        };
        chain.check(place)?;
        Ok(Some(chain))
    }

    /// Every log from the base to the commit mark is there.
    fn check(&self, place: &JournalDir) -> Result<(), OpenError> {
        let first = self.base.unwrap_or(1);
        let last = self
            .logs
            .last()
            .copied()
            .unwrap_or(first)
            .max(self.commit_mark.generation);
        match (first..=last).find(|generation| !self.logs.contains(generation)) {
            Some(generation) if generation == 1 && !self.logs.is_empty() => {
                Err(missing(place.base(self.logs[0])))
            }
            Some(generation) => Err(missing(place.log(generation))),
            None => Ok(()),
        }
    }
}

fn missing(path: std::path::PathBuf) -> OpenError {
    OpenError::Corrupt {
        path,
        detail: "it is missing".into(),
    }
}

/// What was read so far.
struct ReplayScan<'a> {
    load: &'a mut dyn FnMut(Saved<'_>),
    revision: Revision,
    /// In the file at hand.
    n_changes: u64,
}

/// What the frame at hand says of those to come.
#[derive(PartialEq, Eq)]
enum Then {
    More,
    Sealed,
}

impl ReplayScan<'_> {
    /// Reads a file that was finished, and returns its length.
    fn sealed(&mut self, place: &JournalDir, identity: FileIdentity) -> Result<u64, OpenError> {
        let mut frames = open(place, identity)?;
        self.n_changes = 0;
        loop {
            let offset = frames.offset();
            match self.step(&mut frames)? {
                Some(Then::More) => {}
                Some(Then::Sealed) => return Ok(frames.offset()),
                None => return Err(frames.corrupt(format!("unreadable at byte {offset}"))),
            }
        }
    }

    /// Reads the log that was in use, up to its end or to where it is torn, which may only be beyond the commit mark.
    fn last(
        &mut self,
        place: &JournalDir,
        generation: u64,
        commit_mark: CommitMark,
    ) -> Result<LastLog, OpenError> {
        let mut frames = open(
            place,
            FileIdentity {
                role: FileRole::Log,
                generation,
            },
        )?;
        let promised = if commit_mark.generation == generation {
            commit_mark.length
        } else {
            HEADER
        };
        self.n_changes = 0;
        let mut then = Some(Then::More);
        while then == Some(Then::More) {
            then = self.step(&mut frames)?;
        }
        let length = frames.offset();
        if length < promised {
            let detail =
                format!("unreadable at byte {length} of {promised} that were acknowledged");
            return Err(frames.corrupt(detail));
        }
        Ok(LastLog {
            generation,
            promised,
            length,
            n_changes: self.n_changes,
            is_sealed: then == Some(Then::Sealed),
        })
    }

    /// Loads one frame. `None` if there is none.
    fn step(&mut self, frames: &mut FrameReader) -> Result<Option<Then>, OpenError> {
        let payload = match frames.next()? {
            NextFrame::Frame(payload) => codec::decode(payload),
            NextFrame::End | NextFrame::Torn => return Ok(None),
        };
        let then = payload.and_then(|payload| self.take(payload));
        match then {
            Some(then) => Ok(Some(then)),
            None => Err(frames.corrupt(format!(
                "what ends at byte {} makes no sense",
                frames.offset()
            ))),
        }
    }

    fn take(&mut self, payload: Payload<'_>) -> Option<Then> {
        match payload {
            Payload::Batch { revision, changes } => {
                for change in changes {
                    (self.load)(change?);
                    self.n_changes += 1;
                }
                self.revision = self.revision.max(revision);
                Some(Then::More)
            }
            Payload::Seal {
                revision,
                n_changes,
            } => {
                self.revision = self.revision.max(revision);
                (n_changes == self.n_changes).then_some(Then::Sealed)
            }
        }
    }
}

fn open(place: &JournalDir, identity: FileIdentity) -> Result<FrameReader, OpenError> {
    let path = match identity.role {
        FileRole::Base => place.base(identity.generation),
        FileRole::Log => place.log(identity.generation),
    };
    FrameReader::open(&path, identity)
}
