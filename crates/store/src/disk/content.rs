//! The encrypted part of a record: everything but key, revision and expiry.

use std::sync::Arc;

use bytes::Bytes;

use super::codec::{NEVER, PayloadReader, bytes, number};
use crate::Draft;

/// A draft's content as bytes.
pub(crate) fn pack(draft: &Draft) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(draft.value.len() + 64 * (draft.terms.len() + 1));
    number(&mut buffer, draft.stamp.map_or(NEVER, |stamp| stamp as u64));
    number(&mut buffer, draft.terms.len() as u64);
    draft
        .terms
        .iter()
        .for_each(|term| bytes(&mut buffer, term.as_bytes()));
    bytes(&mut buffer, &draft.value);
    buffer
}

/// The draft of which [`pack`] made `content`, if it was ours. `intern` makes a term of its text.
pub(crate) fn unpack(content: &[u8], mut intern: impl FnMut(&str) -> Arc<str>) -> Option<Draft> {
    let mut reader = PayloadReader::new(content);
    let stamp = match reader.number()? {
        NEVER => None,
        stamp => Some(usize::try_from(stamp).ok()?),
    };
    let terms = (0..reader.number()?)
        .map(|_| reader.text().map(&mut intern))
        .collect::<Option<_>>()?;
    let value = Bytes::copy_from_slice(reader.bytes()?);
    let inside = stamp.is_none_or(|stamp| stamp <= value.len());
    inside.then(|| Draft {
        value,
        stamp,
        terms,
        ..Draft::default()
    })
}
