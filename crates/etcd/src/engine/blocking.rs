//! A codec that may block, for tasks that must not.

use std::sync::Arc;

use bytes::Bytes;
use mizzen_store::{Codec, Draft, EncodedRecord, EncryptionError, KeyMark};

/// Decodes where blocking is allowed. Needs a runtime with several threads.
#[derive(Debug)]
pub(super) struct BlockingCodec(pub(super) Arc<dyn Codec>);

impl Codec for BlockingCodec {
    fn prefix(&self, space: &str) -> String {
        self.0.prefix(space)
    }

    fn encode(
        &self,
        space: &str,
        key: &str,
        draft: &Draft,
    ) -> Result<EncodedRecord, EncryptionError> {
        self.0.encode(space, key, draft)
    }

    fn decode(&self, space: &str, key: &str, bytes: &Bytes) -> (Draft, KeyMark) {
        tokio::task::block_in_place(|| self.0.decode(space, key, bytes))
    }

    fn mark(&self, space: &str) -> KeyMark {
        self.0.mark(space)
    }
}
