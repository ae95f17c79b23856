//! What is remembered? Who did what to which object, when, and what came of it.
//!
//! The [`policy`](Policy) says how much of a request is remembered; a `Record` gathers it while the request is
//! answered, and tells an event at each stage; `sink/` carries events away: to a file, to another server.
//!
//! Invariant: without a policy, or with nobody to tell, nothing is gathered.
//! Invariant: a request is told of to the end, whoever leaves first: its last event is told when nobody works for it
//! any more.

mod capture;
mod counters;
mod event;
mod latency;
mod policy;
mod record;
mod sink;
mod source;

pub(crate) use latency::Layer;
pub use policy:: { AuditLevel, AuditPolicy, AuditStage, PolicyError } ; pub use record::AuditRecord; pub use sink:: { AuditWebhookOptions, BatchOptions, Delivery, DeliveryMode, LogFile, LogFormat, Throttle, Truncation, } ;

use std::sync::Arc;

use mizzen_registry::Registry;
use mizzen_value::json;
use tokio::time::Instant;

use crate::answer::{self, Answer};
use crate::authorization::escape_html;
use crate::request::Request;
use crate::server::Inner;
use counters::AuditMetrics;
use sink::AuditSink;

/// How auditing is set up.
#[derive(Debug, Clone)]
pub struct AuditOptions {
    /// What is remembered.
    pub policy: AuditPolicy,
    /// The file that it is written to.
    pub log: Option<LogFile>,
    /// The server that it is sent to.
    pub webhook: Option<AuditWebhookOptions>,
}

/// Where events go, and which there are.
pub(crate) struct Audit {
    /// None if nothing is remembered.
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

    /// Tells what is still waiting to be told. Nothing is told afterwards by those that gather events before they
    /// tell them.
    pub(crate) async fn close(&self) {
        for sink in &self.sinks {
            sink.close().await;
        }
    }
}

/// Begins to remember a request that came at `started`, and tells that it has come. `known` says whether we know
/// whose it is. The answer is for a request that must not go on because nobody would know of it.
pub(crate) async fn begin_record(
    server: &Arc<Inner>,
    request: &mut Request,
    known: bool,
    started: Instant,
) -> Option<Answer> {
    request.record = AuditRecord::new(&server.audit, request, known, started);
    if request.record.record_received().await {
        return None;
    }
    server.audit.counters.record_rejected();
    request.record.discard();
    let uri = json::quote(&request.uri.to_string());
    let text = format!("Internal Server Error: {uri}: failed to store audit event");
    Some(answer::text(500, format!("{}\n", escape_html(&text))))
}
