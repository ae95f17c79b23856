//! Auditing: events of who did what to which object, when, and with which result.
//!
//! The [`AuditPolicy`] selects the level of a request; an [`AuditRecord`] collects the event
//! while the request is served and emits it at each stage; `sink/` delivers events to a log file or
//! a webhook.
//!
//! Invariant: without a policy or a sink nothing is collected.
//! Invariant: the last event of a request is emitted when its last record is dropped at the latest,
//! even if the client or the handler is gone.
//!
//! ```
//! use mizzen_audit::AuditPolicy;
//!
//! let policy = AuditPolicy::read(
//!     b"apiVersion: audit.k8s.io/v1
//! kind: Policy
//! rules:
//! - level: Metadata
//!   resources: [{group: \"\", resources: [secrets]}]
//! - level: RequestResponse
//! ",
//! );
//! assert!(policy.is_ok());
//! assert!(AuditPolicy::read(b"kind: Pod").is_err());
//! ```

mod capture;
mod counters;
mod event;
mod latency;
mod policy;
mod record;
mod sink;
mod source;

pub use capture::remove_managed_fields;
pub use latency::Layer;
pub use policy::{AuditLevel, AuditPolicy, AuditStage, PolicyError};
pub use record::{AuditRecord, AuditedRequest, AuditedResponse, NotAudited};
pub use sink::{
    AuditLogFormat, AuditWebhookOptions, BatchOptions, Delivery, DeliveryMode, LogFile, Throttle,
    Truncation,
};

use std::sync::Arc;

use mizzen_metrics::Families;
use mizzen_registry::Registry;

use counters::AuditMetrics;
use sink::AuditSink;

/// Options of auditing.
#[derive(Debug, Clone)]
pub struct AuditOptions {
    /// Which requests are audited, and how much of them.
    pub policy: AuditPolicy,
    /// The log file.
    pub log: Option<LogFile>,
    /// The webhook.
    pub webhook: Option<AuditWebhookOptions>,
}

/// The policy and sinks of a server.
pub struct Audit {
    /// None if auditing is disabled.
    policy: Option<AuditPolicy>,
    sinks: Vec<AuditSink>,
    registry: Registry,
    counters: Arc<AuditMetrics>,
}

impl Audit {
    /// Nothing is audited without options, or without a sink.
    pub fn new(setup: Option<AuditOptions>, registry: &Registry) -> Audit {
        let counters = Arc::new(AuditMetrics::default());
        let (policy, sinks) = match setup {
            None => (None, Vec::new()),
            Some(AuditOptions {
                policy,
                log,
                webhook,
            }) => {
                let log = log.map(|log| AuditSink::log(log, registry, &counters));
                let webhook =
                    webhook.map(|webhook| AuditSink::webhook(webhook, registry, &counters));
                (
                    Some(policy),
                    log.into_iter().chain(webhook).collect::<Vec<_>>(),
                )
            }
        };
        let policy = policy.filter(|_| !sinks.is_empty());
        Audit {
            policy,
            sinks,
            registry: registry.clone(),
            counters,
        }
    }

    /// Flushes buffered events. Later events of buffered sinks are lost.
    pub async fn close(&self) {
        for sink in &self.sinks {
            sink.close().await;
        }
    }

    /// Adds its series to a scrape.
    pub fn collect(&self, out: &mut Families) {
        self.counters.collect(out);
    }
}
