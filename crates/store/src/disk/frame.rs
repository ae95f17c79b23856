//! How bytes lie in a file: a header, then frames, each under a checksum.
//!
//! Invariant: a frame is only valid at its place. The checksum covers the file's role and generation and the frame's
//! offset, so a frame that was moved, repeated or left over from another file does not pass.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use crc32fast::Hasher;

use crate::OpenError;

/// The version of everything in the directory.
const FORMAT: u64 = 1;

const MAGIC: &[u8; 8] = b"mizzen\r\n";

/// The header's length.
pub(super) const HEADER: u64 = 36;

/// What stands before a frame's payload: its length and its checksum.
pub(super) const PREFIX: usize = 8;

/// How much of a file is read at a time: as much as stays in the cache until it is decoded.
const READ_AHEAD: usize = if cfg!(test) { 256 } else { 512 << 10 };

/// Which file this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileIdentity {
    pub(super) role: FileRole,
    pub(super) generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileRole {
    Base = 1,
    Log = 2,
}

impl FileIdentity {
    /// Magic, format, role, generation, checksum.
    pub(super) fn header(self) -> Vec<u8> {
        let mut header = MAGIC.to_vec();
        for number in [FORMAT, self.role as u64, self.generation] {
            header.extend(number.to_le_bytes());
        }
        header.extend(crc32fast::hash(&header).to_le_bytes());
        header
    }

    /// Appends to `buffer`, which lies at `offset` in its file, a frame of what `fill` writes.
    pub(super) fn frame(self, offset: u64, buffer: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
        let start = buffer.len();
        buffer.extend([0; PREFIX]);
        fill(buffer);
        let payload = &buffer[start + PREFIX..];
        let length = u32::try_from(payload.len()).expect("a transaction's size is limited");
        let checksum = self.checksum(offset + start as u64, payload);
        buffer[start..start + 4].copy_from_slice(&length.to_le_bytes());
        buffer[start + 4..start + PREFIX].copy_from_slice(&checksum.to_le_bytes());
    }

    fn checksum(self, offset: u64, payload: &[u8]) -> u32 {
        let mut hasher = Hasher::new();
        for number in [
            self.role as u64,
            self.generation,
            offset,
            payload.len() as u64,
        ] {
            hasher.update(&number.to_le_bytes());
        }
        hasher.update(payload);
        hasher.finalize()
    }
}

/// Reads a file's frames, one after the other.
pub(super) struct FrameReader {
    path: PathBuf,
    identity: FileIdentity,
    file: File,
    length: u64,
    offset: u64,
    /// What was read. Frames are not copied out of it.
    buffer: Vec<u8>,
    /// What of the buffer was read from the file and not returned; it begins at `offset`.
    unread: Range<usize>,
}

/// What follows in a file.
pub(super) enum NextFrame<'a> {
    Frame(&'a [u8]),
    /// Nothing: the file ends, or was never written from here on.
    End,
    /// Something that is no frame.
    Torn,
}

impl FrameReader {
    pub(super) fn open(path: &Path, identity: FileIdentity) -> Result<FrameReader, OpenError> {
        let failed = |source| OpenError::Io {
            path: path.into(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let mut frames = FrameReader {
            path: path.into(),
            identity,
            file,
            length,
            offset: 0,
            buffer: vec![0; READ_AHEAD],
            unread: 0..0,
        };
        frames.check_header()?;
        Ok(frames)
    }

    /// Where the next frame begins.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn corrupt(&self, detail: impl Into<String>) -> OpenError {
        OpenError::Corrupt {
            path: self.path.clone(),
            detail: detail.into(),
        }
    }

    pub(super) fn next(&mut self) -> Result<NextFrame<'_>, OpenError> {
        let Some(prefix) = self.read_prefix()? else {
            return Ok(NextFrame::End);
        };
        let (length, checksum) = prefix;
        let end = self.offset + PREFIX as u64 + u64::from(length);
        if length == 0 || end > self.length {
            return Ok(NextFrame::Torn);
        }
        let n_bytes = PREFIX + length as usize;
        self.fill(n_bytes)?;
        let frame = self.unread.start..self.unread.start + n_bytes;
        let payload = &self.buffer[frame][PREFIX..];
        if self.identity.checksum(self.offset, payload) != checksum {
            return Ok(NextFrame::Torn);
        }
        self.unread.start += n_bytes;
        self.offset = end;
        Ok(NextFrame::Frame(payload))
    }

    /// Length and checksum of the next frame. A log's unused room is zero, and so begins no frame.
    fn read_prefix(&mut self) -> Result<Option<(u32, u32)>, OpenError> {
        let mut prefix = [0; PREFIX];
        let room = (self.length - self.offset).min(PREFIX as u64) as usize;
        prefix[..room].copy_from_slice(self.fill(room)?);
        let [length, checksum] = [&prefix[..4], &prefix[4..]].map(le_u32);
        Ok((prefix != [0; PREFIX]).then_some((length, checksum)))
    }

    fn check_header(&mut self) -> Result<(), OpenError> {
        if self.length < HEADER {
            return Err(self.corrupt("too short"));
        }
        let mut header = [0; HEADER as usize];
        header.copy_from_slice(self.fill(HEADER as usize)?);
        let (body, checksum) = header.split_at(HEADER as usize - 4);
        if crc32fast::hash(body) != le_u32(checksum) || body[..8] != *MAGIC {
            return Err(self.corrupt("its header is not ours"));
        }
        let found = le_u64(&body[8..16]);
        if found != FORMAT {
            return Err(OpenError::Version {
                path: self.path.clone(),
                found,
                supported: FORMAT,
            });
        }
        if header[..] != self.identity.header() {
            return Err(self.corrupt("it has another file's name"));
        }
        self.unread.start += HEADER as usize;
        self.offset = HEADER;
        Ok(())
    }

    /// The next `n_bytes`, which the file has.
    fn fill(&mut self, n_bytes: usize) -> Result<&[u8], OpenError> {
        if self.unread.len() < n_bytes {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
            self.buffer.resize(self.buffer.len().max(n_bytes), 0);
        }
        while self.unread.len() < n_bytes {
            match self.file.read(&mut self.buffer[self.unread.end..]) {
                Ok(0) => return Err(self.io(ErrorKind::UnexpectedEof.into())),
                Ok(n_read) => self.unread.end += n_read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io(error)),
            }
        }
        Ok(&self.buffer[self.unread.start..][..n_bytes])
    }

    fn io(&self, source: io::Error) -> OpenError {
        OpenError::Io {
            path: self.path.clone(),
            source,
        }
    }
}

fn le_u32(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("the caller cut four bytes"))
}

fn le_u64(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("the caller cut eight bytes"))
}
