//! Auditing: events of who did what to which object, when, and with which result.
//!
//! The [`policy`](AuditPolicy) selects the level of a request; an `AuditRecord` collects the event
//! while the request is served and emits it at each stage; `sink/` delivers events to a log file or
//! a webhook.
//!
//! Invariant: without a policy or a sink nothing is collected.
//! Invariant: the last event of a request is emitted when its last record is dropped at the latest,
//! even if the client or the handler is gone.

mod capture;
mod counters;
mod event;
mod latency;
mod policy;
mod record;
mod sink;
mod source;

pub(crate) use latency::Layer;
pub use policy::{AuditLevel, AuditPolicy, AuditStage, PolicyError};
pub use record::AuditRecord;
pub use sink::{
    AuditLogFormat, AuditWebhookOptions, BatchOptions, Delivery, DeliveryMode, LogFile, Throttle,
    Truncation,
};

use std::sync::Arc;

use mizzen_registry::Registry;
use mizzen_value::json;
use tokio::time::Instant;

use crate::authorization::escape_html;
use crate::request::Request;
use crate::response::{self, Response};
use crate::server::ServerParts;
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
pub(crate) struct Audit {
    /// None if auditing is disabled.
    policy: Option<AuditPolicy>,
    sinks: Vec<AuditSink>,
    registry: Registry,
    pub counters: Arc<AuditMetrics>,
}

impl Audit {
    pub(crate) fn new(setup: Option<AuditOptions>, registry: &Registry) -> Audit {
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
    pub(crate) async fn close(&self) {
        for sink in &self.sinks {
            sink.close().await;
        }
    }
}

/// Starts the record of a request that arrived at `started`, and emits RequestReceived. `known`
/// says whether the request is authenticated. The response is for a request that must be rejected
/// because its event could not be stored.
pub(crate) async fn begin_record(
    server: &Arc<ServerParts>,
    request: &mut Request,
    known: bool,
    started: Instant,
) -> Option<Response> {
    request.record = AuditRecord::new(&server.audit, request, known, started);
    if request.record.record_received().await {
        return None;
    }
    server.audit.counters.record_rejected();
    request.record.discard();
    let uri = json::quote(&request.uri.to_string());
    let text = format!("Internal Server Error: {uri}: failed to store audit event");
    Some(response::text(500, format!("{}\n", escape_html(&text))))
}
