//! How often was a configuration read again while the server ran, and which one is gone by?

use parking_lot::Mutex;

use mizzen_metrics::Families;
use sha2::{Digest as _, Sha256};

use super::{api_server_id_hash, lock};

/// What there is to tell of a file that is followed.
#[derive(Debug)]
pub struct Reloads {
    /// What the file configures: `authorization`.
    subject: &'static str,
    state: Mutex<ReloadState>,
}

#[derive(Debug, Default)]
struct ReloadState {
    /// How often, and when last, with success.
    good: (u64, i64),
    bad: (u64, i64),
    /// The hash of what is gone by.
    hash: String,
}

impl Reloads {
    /// Of a file that configures `subject`.
    pub fn new(subject: &'static str) -> Reloads {
        Reloads {
            subject,
            state: Mutex::default(),
        }
    }

    /// The file is gone by, or was at the start.
    pub fn set_content(&self, text: &[u8]) {
        lock(&self.state).hash = hash(text);
    }

    /// The file was read again, in the second `now`.
    pub fn record_reload(&self, good: bool, now: i64) {
        let mut told = lock(&self.state);
        let (count, last) = if good { &mut told.good } else { &mut told.bad };
        *count += 1;
        *last = now;
    }

    /// Adds its series to a scrape.
    pub fn collect(&self, out: &mut Families) {
        let name = |what: &str| format!("apiserver_{}_config_controller_{what}", self.subject);
        let ReloadState { good, bad, hash } = &*lock(&self.state);
        for (status, (count, at)) in [("success", good), ("failure", bad)] {
            let labels: &[_] = &[
                ("apiserver_id_hash", api_server_id_hash()),
                ("status", status),
            ];
            if *count > 0 {
                out.counter(
                    name("automatic_reloads_total"),
                    "How often the configuration was read again.",
                )
                .add(labels, *count);
                out.gauge(
                    name("automatic_reload_last_timestamp_seconds"),
                    "When the configuration was last read again.",
                )
                .add(labels, *at);
            }
        }
        if !hash.is_empty() {
            let labels: &[_] = &[("apiserver_id_hash", api_server_id_hash()), ("hash", hash)];
            out.gauge(
                name("last_config_info"),
                "The configuration that is in effect.",
            )
            .add(labels, 1);
        }
    }
}

/// What may be told of a text that is nobody's business; nothing of an empty one.
pub fn hash(text: &[u8]) -> String {
    if text.is_empty() {
        return String::new();
    }
    let hash: String = Sha256::digest(text)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hash}")
}
