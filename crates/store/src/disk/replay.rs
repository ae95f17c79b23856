//! Replay at start: reads the newest base and the logs since, and rejects damage.

use super::JournalDir;
use super::codec::{self, Payload};
use super::commit_mark::CommitMark;
use super::frame::{FileIdentity, FileRole, FrameReader, HEADER, NextFrame};
use super::log::LogFile;
use crate::{OpenError, Revision, Saved};

/// What a directory holds.
pub(super) struct Replayed {
    pub(super) revision: Revision,
    pub(super) base_bytes: u64,
    /// The bytes of all logs since the base but the last.
    pub(super) sealed_bytes: u64,
    pub(super) log: LogFile,
}

/// The files that count.
struct GenerationChain {
    /// The newest base's generation; the first has none.
    base: Option<u64>,
    /// The generations of all logs from the base on, without a gap.
    logs: Vec<u64>,
    commit_mark: CommitMark,
}

pub(super) fn replay(
    place: &JournalDir,
    load: &mut dyn FnMut(Saved<'_>),
) -> Result<Replayed, OpenError> {
    let failed = |source| OpenError::Io {
        path: place.dir.clone(),
        source,
    };
    let mut scan = ReplayScan {
        load,
        revision: Revision::ZERO,
        n_changes: 0,
    };
    let Some(chain) = GenerationChain::find(place)? else {
        let log = LogFile::create_first(place).map_err(failed)?;
        return Ok(Replayed {
            revision: scan.revision,
            base_bytes: 0,
            sealed_bytes: 0,
            log,
        });
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
    let (log, last_bytes) = scan.last(place, last, chain.commit_mark)?;
    if log.generation() != last {
        sealed_bytes += last_bytes;
    }
    place.sweep(chain.base.unwrap_or_default());
    Ok(Replayed {
        revision: scan.revision,
        base_bytes,
        sealed_bytes,
        log,
    })
}

impl GenerationChain {
    /// `None` if nothing was ever promised here.
    fn find(place: &JournalDir) -> Result<Option<GenerationChain>, OpenError> {
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

    /// Reads the log that was in use, up to its end or to where it is torn, which may only be beyond the commit mark. Returns the
    /// log to go on with, and how many bytes were read.
    fn last(
        &mut self,
        place: &JournalDir,
        generation: u64,
        commit_mark: CommitMark,
    ) -> Result<(LogFile, u64), OpenError> {
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
        let offset = frames.offset();
        if offset < promised {
            let detail =
                format!("unreadable at byte {offset} of {promised} that were acknowledged");
            return Err(frames.corrupt(detail));
        }
        let sealed = CommitMark {
            generation,
            length: offset,
        };
        let log = match then {
            // On a full disk the new log takes the place of the reserve.
            Some(Then::Sealed) => LogFile::create(place, sealed).or_else(|_| {
                place
                    .remove_reserve()
                    .and_then(|()| LogFile::create(place, sealed))
            }),
            _ => LogFile::resume(place, generation, offset, self.n_changes),
        };
        let log = log.map_err(|source| OpenError::Io {
            path: place.log(generation),
            source,
        })?;
        Ok((log, offset))
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
