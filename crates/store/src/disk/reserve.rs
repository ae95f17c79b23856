//! Space that is kept for the next compaction, so that a full disk can be made less full.
//!
//! The reserve is a file of the size that the next base and log will have. A compaction writes its base into the very
//! blocks of the reserve, so that no other process can take them in between. (A file system without `fallocate` reserves
//! nothing: there, other files must be deleted from a full disk.) While that compaction runs there is a reserve for the
//! next one already, as large as what will be missing when the older files are gone.
//!
//! Invariant: while the reserve is smaller than what a compaction would write, no put is taken.

use std::fs;
use std::io;
use std::path::Path;

use super::{JournalDir, private};

/// What the log of the next generation takes at first.
pub(super) const NEXT_LOG: u64 = 1 << 20;

/// The reserve is allocated in pieces of this size.
const STEP: u64 = 1 << 20;

pub(super) struct Reserve {
    place: JournalDir,
    bytes: u64,
}

impl Reserve {
    /// The reserve that is there, if any.
    pub(super) fn open(place: &JournalDir) -> Reserve {
        let bytes = fs::metadata(place.reserve()).map_or(0, |file| file.len());
        Reserve {
            place: place.clone(),
            bytes,
        }
    }

    /// Reserves `needed` bytes at least.
    pub(super) fn ensure(&mut self, needed: u64) -> io::Result<()> {
        if self.bytes >= needed {
            return Ok(());
        }
        // An eighth more than needed, so that a store that grows does not come here with every batch.
        let bytes = (needed + needed / 8).next_multiple_of(STEP);
        let file = private().truncate(false).open(self.place.reserve())?;
        let allocated = self.place.ops.allocate(&file, bytes);
        if allocated.is_err() {
            // Whatever was allocated of it goes back.
            let _ = file.set_len(self.bytes);
        }
        allocated.map(|()| self.bytes = bytes)
    }

    /// Gives back what the next log takes.
    pub(super) fn release_log(&mut self) {
        let left = self.bytes.saturating_sub(NEXT_LOG);
        let released = private()
            .truncate(false)
            .open(self.place.reserve())
            .and_then(|file| file.set_len(left));
        if released.is_ok() {
            self.bytes = left;
        }
    }

    /// Makes the reserve the file `to`, so that another one can be made. Says whether there was one.
    pub(super) fn rename(&mut self, to: &Path) -> bool {
        std::mem::take(&mut self.bytes) > 0 && fs::rename(self.place.reserve(), to).is_ok()
    }
}
