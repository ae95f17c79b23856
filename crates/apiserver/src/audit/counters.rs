//! How much was told, and what went wrong, for who watches the server.

use parking_lot::Mutex;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;

use super::policy::Level;
use crate::metrics::head;

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

    /// In Prometheus' text form.
    pub(crate) fn write(&self, out: &mut String) {
        let single = [
            ("event_total", "Audit events that were told.", &self.events),
            (
                "requests_rejected_total",
                "Requests that were refused because they could not be audited.",
                &self.rejected,
            ),
        ];
        for (name, help, count) in single {
            head(out, &format!("apiserver_audit_{name}"), "counter", help);
            let _ = writeln!(out, "apiserver_audit_{name} {}", count.load(Relaxed));
        }
        let levels = Level::ALL.iter().map(|level| level.word());
        write_by(
            out,
            "level_total",
            "Requests by audit level.",
            "level",
            levels.zip(&self.levels),
        );
        let places = Place::ALL.iter().map(|place| place.word());
        write_by(
            out,
            "error_total",
            "Audit events that were lost.",
            "plugin",
            places.zip(&self.errors),
        );
    }
}

fn write_by<'a>(
    out: &mut String,
    name: &str,
    help: &str,
    label: &str,
    counts: impl Iterator<Item = (&'a str, &'a AtomicU64)>,
) {
    head(out, &format!("apiserver_audit_{name}"), "counter", help);
    for (value, count) in counts
        .map(|(value, count)| (value, count.load(Relaxed)))
        .filter(|(_, count)| *count > 0)
    {
        let _ = writeln!(out, "apiserver_audit_{name}{{{label}=\"{value}\"}} {count}");
    }
}
