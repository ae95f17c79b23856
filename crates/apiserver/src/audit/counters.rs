//! How much was told, and what went wrong, for who watches the server.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use mizzen_metrics::Families;
use tokio::time::Instant;

use super::policy::Level;

/// How often people are told that something goes wrong.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// Where something can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Log,
    Webhook,
    Buffer,
    Truncation,
}

impl Place {
    const ALL: [Place; 4] = [Place::Log, Place::Webhook, Place::Buffer, Place::Truncation];

    /// As upstream calls it.
    fn word(self) -> &'static str {
        match self {
            Place::Log => "log",
            Place::Webhook => "webhook",
            Place::Buffer => "buffered",
            Place::Truncation => "truncate",
        }
    }
}

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    events: AtomicU64,
    rejected: AtomicU64,
    levels: [AtomicU64; 4],
    errors: [AtomicU64; 4],
    complained: Mutex<Option<Instant>>,
}

impl Counters {
    pub(super) fn level(&self, level: Level) {
        self.levels[level as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn event(&self) {
        self.events.fetch_add(1, Relaxed);
    }

    /// A request was refused because nobody would know of it.
    pub(super) fn reject(&self) {
        self.rejected.fetch_add(1, Relaxed);
    }

    /// So many events are lost, or were told in part. People are told now and then.
    pub(super) fn lost(&self, place: Place, events: usize, why: &str) {
        let lost = &self.errors[place as usize];
        let all = lost.fetch_add(events as u64, Relaxed) + events as u64;
        let mut complained = self.complained.lock();
        if complained.is_none_or(|before| before.elapsed() >= COMPLAIN_EVERY) {
            *complained = Some(Instant::now());
            tracing::error!(
                plugin = place.word(),
                events,
                all,
                why,
                "audit events are lost"
            );
        }
    }

    /// Adds its series to a scrape.
    pub(crate) fn collect(&self, out: &mut Families) {
        out.counter(
            "apiserver_audit_event_total",
            "Audit events that were sent to backends.",
        )
        .add(&[], self.events.load(Relaxed));
        out.counter(
            "apiserver_audit_requests_rejected_total",
            "Requests that were rejected because they could not be audited.",
        )
        .add(&[], self.rejected.load(Relaxed));
        let levels = out.counter("apiserver_audit_level_total", "Requests by audit level.");
        for (level, count) in Level::ALL.iter().zip(&self.levels) {
            let count = count.load(Relaxed);
            if count > 0 {
                levels.add(&[("level", level.word())], count);
            }
        }
        let errors = out.counter(
            "apiserver_audit_error_total",
            "Audit events that were lost.",
        );
        for (place, count) in Place::ALL.iter().zip(&self.errors) {
            let count = count.load(Relaxed);
            if count > 0 {
                errors.add(&[("plugin", place.word())], count);
            }
        }
    }
}
