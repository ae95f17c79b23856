//! Which tokens' signatures were looked at already?
//!
//! Checking a signature costs more than answering a small request, and a client shows the same token with each. A signature
//! that was good stays good; whether the token still holds is looked at every time. Invariant: no token is kept, only its digest.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use sha2::{Digest as _, Sha256};

use crate::delegate::Cache;

/// How many signatures are remembered.
const ROOM: usize = 4096;
/// For how long.
const KEPT: Duration = Duration::from_secs(600);

/// Good signatures.
pub(crate) struct Signatures(Cache<()>);

impl Default for Signatures {
    fn default() -> Signatures {
        Signatures(Cache::new(ROOM))
    }
}

impl Signatures {
    /// Whether a token's signature is good: it was before, or `verify` says so.
    pub fn is_good(&self, token: &str, verify: impl FnOnce() -> bool) -> bool {
        let digest = STANDARD_NO_PAD.encode(Sha256::digest(token));
        let is_good = self.0.get(&digest).is_some() || verify();
        if is_good {
            self.0.put(digest, (), KEPT);
        }
        is_good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_good_signature_is_looked_at_once_and_a_bad_one_every_time() {
        let signatures = Signatures::default();
        assert!(!signatures.is_good("a.b.c", || false));
        assert!(signatures.is_good("a.b.c", || true));
        assert!(signatures.is_good("a.b.c", || panic!("it was looked at")));
        assert!(!signatures.is_good("a.b.d", || false));
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_looked_at_again_when_nobody_has_shown_it_for_long() {
        let signatures = Signatures::default();
        assert!(signatures.is_good("a.b.c", || true));
        tokio::time::advance(KEPT).await;
        assert!(!signatures.is_good("a.b.c", || false));
    }
}
