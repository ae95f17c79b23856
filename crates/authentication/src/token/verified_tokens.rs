//! A cache of tokens with a verified signature.
//!
//! Verifying a signature costs more than serving a small request, and a client sends the same token
//! with each. A verified signature stays valid, and so do the claims; whether the token is still
//! valid is checked every time. Invariant: tokens are not kept, only their digests.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use mizzen_object::User;
use mizzen_value::{Str, Value};
use sha2::{Digest as _, Sha256};

use mizzen_outgoing::LruCache;

/// The capacity.
const ROOM: usize = 4096;
/// How long an entry is kept.
const KEPT: Duration = Duration::from_secs(600);

/// A token whose signature was verified.
pub(crate) struct VerifiedToken {
    pub claims: Value,
    pub audiences: Vec<Str>,
    pub user: User,
    /// Whether it is a secret-based token.
    pub is_legacy: bool,
}

pub(crate) struct VerifiedTokens(LruCache<Arc<VerifiedToken>>);

impl Default for VerifiedTokens {
    fn default() -> VerifiedTokens {
        VerifiedTokens(LruCache::new(ROOM))
    }
}

impl VerifiedTokens {
    /// The cached token, or the one that `read` verifies.
    pub(crate) fn get_or_verify<E>(
        &self,
        token: &str,
        read: impl FnOnce() -> Result<Option<VerifiedToken>, E>,
    ) -> Result<Option<Arc<VerifiedToken>>, E> {
        let digest = STANDARD_NO_PAD.encode(Sha256::digest(token));
        if let Some(known) = self.0.get(&digest) {
            return Ok(Some(known));
        }
        let read = read()?.map(Arc::new);
        if let Some(proved) = &read {
            self.0.put(digest, proved.clone(), KEPT);
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proved() -> Result<Option<VerifiedToken>, &'static str> {
        let user = User::service_account("a", "b");
        Ok(Some(VerifiedToken {
            claims: Value::object(),
            audiences: Vec::new(),
            user,
            is_legacy: false,
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_valid_signature_is_verified_once_and_an_invalid_one_every_time() {
        let tokens = VerifiedTokens::default();
        assert_eq!(
            tokens.get_or_verify("a.b.c", || Err("bad")).err(),
            Some("bad")
        );
        assert!(
            tokens
                .get_or_verify("a.b.c", || Ok::<_, ()>(None))
                .unwrap()
                .is_none()
        );
        assert!(tokens.get_or_verify("a.b.c", proved).unwrap().is_some());
        let again =
            tokens.get_or_verify("a.b.c", || -> Result<_, ()> { panic!("it was looked at") });
        assert_eq!(
            again.unwrap().unwrap().user.name,
            "system:serviceaccount:a:b"
        );
        assert_eq!(
            tokens.get_or_verify("a.b.d", || Err("bad")).err(),
            Some("bad")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_cached_signature_expires() {
        let tokens = VerifiedTokens::default();
        assert!(tokens.get_or_verify("a.b.c", proved).unwrap().is_some());
        tokio::time::advance(KEPT).await;
        assert_eq!(
            tokens.get_or_verify("a.b.c", || Err("bad")).err(),
            Some("bad")
        );
    }
}
