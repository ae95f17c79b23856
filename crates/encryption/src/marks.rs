//! A number for each key that was used since the server started.

use parking_lot::Mutex;
use std::collections::HashMap;

use mizzen_store::KeyMark;
use ring::digest::{Context, SHA256};

/// Assigns marks. Keys are kept only as digests.
#[derive(Default)]
pub(super) struct Marks(Mutex<HashMap<Vec<u8>, KeyMark>>);

impl Marks {
    /// The mark of a key that is not known yet: no record has it.
    pub(super) const UNKNOWN: KeyMark = KeyMark(u32::MAX);

    /// The mark of the key with these parts.
    pub(super) fn assign(&self, parts: &[&[u8]]) -> KeyMark {
        let mut context = Context::new(&SHA256);
        parts.iter().for_each(|part| context.update(part));
        let mut marks = self.0.lock();
        let next = KeyMark(marks.len() as u32 + 1);
        *marks
            .entry(context.finish().as_ref().to_vec())
            .or_insert(next)
    }
}
