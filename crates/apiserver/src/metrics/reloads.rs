//! How often was a configuration read again while the server ran, and which one is gone by?

use parking_lot::Mutex;
use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::{head, lock};

/// What there is to tell of a file that is followed.
#[derive(Debug)]
pub struct Reloads {
    /// What the file configures: `authorization`.
    subject: &'static str,
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
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
            told: Mutex::default(),
        }
    }

    /// The file is gone by, or was at the start.
    pub fn gone_by(&self, text: &[u8]) {
        lock(&self.told).hash = hash(text);
    }

    /// The file was read again, in the second `now`.
    pub fn reloaded(&self, good: bool, now: i64) {
        let mut told = lock(&self.told);
        let (count, last) = if good { &mut told.good } else { &mut told.bad };
        *count += 1;
        *last = now;
    }

    /// In Prometheus' text form.
    pub fn write(&self, out: &mut String) {
        let name = |what: &str| format!("apiserver_{}_config_controller_{what}", self.subject);
        let Told { good, bad, hash } = &*lock(&self.told);
        let known = || {
            [("success", good), ("failure", bad)]
                .into_iter()
                .filter(|(_, told)| told.0 > 0)
        };
        let total = name("automatic_reloads_total");
        head(
            out,
            &total,
            "counter",
            "How often the configuration was read again.",
        );
        for (status, (count, _)) in known() {
            let _ = writeln!(
                out,
                "{total}{{apiserver_id_hash=\"\",status=\"{status}\"}} {count}"
            );
        }
        let last = name("automatic_reload_last_timestamp_seconds");
        head(
            out,
            &last,
            "gauge",
            "When the configuration was last read again.",
        );
        for (status, (_, at)) in known() {
            let _ = writeln!(
                out,
                "{last}{{apiserver_id_hash=\"\",status=\"{status}\"}} {at}"
            );
        }
        let info = name("last_config_info");
        head(out, &info, "gauge", "The configuration that is gone by.");
        if !hash.is_empty() {
            let _ = writeln!(out, "{info}{{apiserver_id_hash=\"\",hash=\"{hash}\"}} 1");
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
