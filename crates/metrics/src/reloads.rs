//! Metrics of configuration files that are reloaded.

use parking_lot::Mutex;

use sha2::{Digest as _, Sha256};

use crate::{Families, api_server_id_hash};

/// The reloads of one file.
#[derive(Debug)]
pub struct Reloads {
    /// What the file configures: `authorization`.
    subject: &'static str,
    state: Mutex<ReloadState>,
}

#[derive(Debug, Default)]
struct ReloadState {
    /// Count and last time of successful reloads.
    good: (u64, i64),
    bad: (u64, i64),
    /// The hash of the content in effect.
    hash: String,
}

impl Reloads {
    /// Counts reloads of the file that configures `subject`.
    pub fn new(subject: &'static str) -> Reloads {
        Reloads {
            subject,
            state: Mutex::default(),
        }
    }

    /// Sets the content in effect.
    pub fn set_content(&self, text: &[u8]) {
        self.state.lock().hash = hash(text);
    }

    /// Records a reload at `now`, in Unix seconds.
    pub fn record_reload(&self, good: bool, now: i64) {
        let mut told = self.state.lock();
        let (count, last) = if good { &mut told.good } else { &mut told.bad };
        *count += 1;
        *last = now;
    }

    /// Adds its series to a scrape.
    pub fn collect(&self, out: &mut Families) {
        let name = |what: &str| format!("apiserver_{}_config_controller_{what}", self.subject);
        let ReloadState { good, bad, hash } = &*self.state.lock();
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

/// A hash of confidential text; empty for an empty one.
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
