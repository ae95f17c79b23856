//! What the API server has said about tokens and users. It is asked again after a while.

use std::sync::Arc;
use std::time::Duration;

use mizzen_transport::LruCache;

use super::authenticate::ClientUser;

/// The most answers of a kind.
const MAX_ANSWERS: usize = 1_024;

/// How long answers are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReviewConfig {
    /// For the user of a token.
    pub token_ttl: Duration,
    /// For a permission.
    pub authorized_ttl: Duration,
    /// For a denial.
    pub unauthorized_ttl: Duration,
}

impl Default for ReviewConfig {
    /// Kubernetes: kubelet/apis/config/v1beta1/defaults.go.
    fn default() -> ReviewConfig {
        ReviewConfig {
            token_ttl: Duration::from_secs(120),
            authorized_ttl: Duration::from_secs(300),
            unauthorized_ttl: Duration::from_secs(30),
        }
    }
}

/// Answers of the API server.
pub(crate) struct Reviews {
    pub config: ReviewConfig,
    /// The users of tokens, by a hash of the token; `None` for a token that is not accepted.
    pub tokens: LruCache<Option<Arc<ClientUser>>>,
    /// Whether a request is allowed, by the text of the review.
    pub access: LruCache<bool>,
}

impl Reviews {
    pub(crate) fn new(config: ReviewConfig) -> Reviews {
        Reviews {
            config,
            tokens: LruCache::new(MAX_ANSWERS),
            access: LruCache::new(MAX_ANSWERS),
        }
    }
}
