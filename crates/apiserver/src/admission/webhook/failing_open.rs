//! Logs webhooks that fail open: at once, then once a minute with the number of failures.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

use mizzen_value::Str;
use tokio::time::Instant;

use super::configuration::AdmissionWebhook;

/// The shortest time between two log lines about a webhook.
const INTERVAL: Duration = Duration::from_secs(60);
/// How many webhooks are tracked; the oldest are dropped.
const MOST: usize = 1000;

/// The log state of webhooks that fail open.
#[derive(Default)]
pub(crate) struct FailingOpen(Mutex<HashMap<Key, Logged>>);

/// The configuration and the name of a webhook.
type Key = (Str, Str);

struct Logged {
    at: Instant,
    /// How many failures were not logged since then.
    n_suppressed: u64,
}

impl FailingOpen {
    /// Logs a failure, unless the same webhook was logged within the last minute.
    pub(crate) fn log(&self, webhook: &AdmissionWebhook, why: &str) {
        if let Some(suppressed) = self.count((webhook.configuration.clone(), webhook.name.clone()))
        {
            let (configuration, name) = (&webhook.configuration, &webhook.name);
            tracing::warn!(%configuration, webhook = %name, %why, suppressed, "failed calling webhook, failing open");
        }
    }

    /// The number of suppressed failures; `None` if this one is suppressed, too.
    fn count(&self, key: Key) -> Option<u64> {
        let now = Instant::now();
        let mut all = self.0.lock();
        if let Some(logged) = all.get_mut(&key) {
            if now.duration_since(logged.at) < INTERVAL {
                logged.n_suppressed += 1;
                return None;
            }
            logged.at = now;
            return Some(std::mem::take(&mut logged.n_suppressed));
        }
        if all.len() >= MOST {
            all.retain(|_, logged| now.duration_since(logged.at) < INTERVAL);
        }
        if all.len() < MOST {
            all.insert(
                key,
                Logged {
                    at: now,
                    n_suppressed: 0,
                },
            );
        }
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failing_open_webhook_is_logged_once_a_minute_with_the_suppressed_count() {
        let failing = FailingOpen::default();
        let count = |name: &str| failing.count(("c".into(), name.into()));
        assert_eq!((count("a"), count("b")), (Some(0), Some(0)));
        for _ in 0..100 {
            assert_eq!(count("a"), None);
        }
        advance(INTERVAL).await;
        assert_eq!((count("a"), count("b")), (Some(100), Some(0)));
        assert_eq!(count("a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_series_are_bounded() {
        let failing = FailingOpen::default();
        for n in 0..3 * MOST {
            failing.count(("c".into(), n.to_string().into()));
        }
        assert_eq!(failing.0.lock().len(), MOST);
    }
}
