//! Metrics of auditing, under upstream's names.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use mizzen_metrics::Families;
use tokio::time::Instant;

use super::policy::AuditLevel;

/// How often lost events are logged.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// The plugin in which an error occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AuditPlugin {
    Log,
    Webhook,
    Buffer,
    Truncation,
}

impl AuditPlugin {
    const ALL: [AuditPlugin; 4] = [
        AuditPlugin::Log,
        AuditPlugin::Webhook,
        AuditPlugin::Buffer,
        AuditPlugin::Truncation,
    ];

    fn label(self) -> &'static str {
        match self {
            AuditPlugin::Log => "log",
            AuditPlugin::Webhook => "webhook",
            AuditPlugin::Buffer => "buffered",
            AuditPlugin::Truncation => "truncate",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct AuditMetrics {
    events: AtomicU64,
    rejected: AtomicU64,
    levels: [AtomicU64; 4],
    errors: [AtomicU64; 4],
    complained: Mutex<Option<Instant>>,
}

impl AuditMetrics {
    pub(super) fn record_level(&self, level: AuditLevel) {
        self.levels[level as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn record_event(&self) {
        self.events.fetch_add(1, Relaxed);
    }

    /// A request was rejected because it could not be audited.
    pub(super) fn record_rejected(&self) {
        self.rejected.fetch_add(1, Relaxed);
    }

    /// Counts lost or truncated events, and logs them now and then.
    pub(super) fn record_errors(&self, place: AuditPlugin, events: usize, why: &str) {
        let lost = &self.errors[place as usize];
        let all = lost.fetch_add(events as u64, Relaxed) + events as u64;
        let mut complained = self.complained.lock();
        if complained.is_none_or(|before| before.elapsed() >= COMPLAIN_EVERY) {
            *complained = Some(Instant::now());
            tracing::error!(
                plugin = place.label(),
                events,
                all,
                why,
                "audit events are lost"
            );
        }
    }

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
        for (level, count) in AuditLevel::ALL.iter().zip(&self.levels) {
            let count = count.load(Relaxed);
            if count > 0 {
                levels.add(&[("level", level.name())], count);
            }
        }
        let errors = out.counter(
            "apiserver_audit_error_total",
            "Audit events that were lost.",
        );
        for (place, count) in AuditPlugin::ALL.iter().zip(&self.errors) {
            let count = count.load(Relaxed);
            if count > 0 {
                errors.add(&[("plugin", place.label())], count);
            }
        }
    }
}
