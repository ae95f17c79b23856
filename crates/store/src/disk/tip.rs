//! How far the log was promised to reach.
//!
//! Written after each append, without a sync of its own: it survives the process at once and a power cut a little
//! late, but never says more than was durable before. So a log that is shorter than its tip was damaged, and what is
//! torn beyond it was promised to nobody.

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::Path;

use super::Place;
use crate::OpenError;

/// The first `length` bytes of the log of `generation` were acknowledged, and all logs before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tip {
    pub(super) generation: u64,
    pub(super) length: u64,
}

impl Tip {
    /// The tip of a directory, if it has one.
    pub(super) fn read(path: &Path) -> Result<Option<Tip>, OpenError> {
        match fs::read(path) {
            Ok(bytes) => Tip::decode(&bytes).map(Some).ok_or_else(|| damaged(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(OpenError::Io { path: path.into(), source }),
        }
    }

    fn encode(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.length.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..16]);
        bytes[16..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Tip> {
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let tip = Tip { generation: number(0)?, length: number(8)? };
        (tip.encode() == *bytes).then_some(tip)
    }
}

fn damaged(path: &Path) -> OpenError {
    OpenError::Corrupt { path: path.into(), detail: "its checksum does not match".into() }
}

/// The tip's file, open for writing.
pub(super) struct TipFile(File);

impl TipFile {
    /// Opens the tip of `place`, which is created, durably, where there is none.
    pub(super) fn open(place: &Place, tip: Tip) -> io::Result<TipFile> {
        let path = place.tip();
        let mut file = match path.exists() {
            true => TipFile(File::options().write(true).open(&path)?),
            false => TipFile(place.create(&path, |file| file.write_all(&tip.encode()))?.0),
        };
        file.write(tip)?;
        Ok(file)
    }

    pub(super) fn write(&mut self, tip: Tip) -> io::Result<()> {
        self.0.rewind()?;
        self.0.write_all(&tip.encode())
    }
}
