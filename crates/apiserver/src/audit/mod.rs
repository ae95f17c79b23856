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
pub use policy::{Level, Policy, PolicyError, Stage};
pub use record::Record;
pub use sink::{Batch, Delivery, Format, LogFile, Mode, Throttle, Truncation, WebhookSetup};

use std::sync::Arc;

use mizzen_registry::Registry;
use mizzen_value::json;
use tokio::time::Instant;

use crate::answer::{self, Answer};
use crate::authorization::no_html;
use crate::request::Request;
use crate::server::Inner;
use counters::Counters;
use sink::Sink;

/// How auditing is set up.
#[derive(Debug, Clone)]
pub struct Setup {
    /// What is remembered.
    pub policy: Policy,
    /// The file that it is written to.
    pub log: Option<LogFile>,
    /// The server that it is sent to.
    pub webhook: Option<WebhookSetup>,
}

/// Where events go, and which there are.
pub(crate) struct Audit {
    /// None if nothing is remembered.
    policy: Option<Policy>,
    sinks: Vec<Sink>,
    registry: Registry,
    pub counters: Arc<Counters>,
}

impl Audit {
    pub(crate) fn new(setup: Option<Setup>, registry: &Registry) -> Audit {
        let counters = Arc::new(Counters::default());
        let (policy, sinks) = match setup {
            None => (None, Vec::new()),
            Some(Setup {
                policy,
                log,
                webhook,
            }) => {
                let log = log.map(|log| Sink::log(log, registry, &counters));
                let webhook = webhook.map(|webhook| Sink::webhook(webhook, registry, &counters));
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
pub(crate) async fn begin(
    server: &Arc<Inner>,
    request: &mut Request,
    known: bool,
    started: Instant,
) -> Option<Answer> {
    request.record = Record::new(&server.audit, request, known, started);
    if request.record.received().await {
        return None;
    }
    server.audit.counters.reject();
    request.record.forget();
    let uri = json::quote(&request.uri.to_string());
    let text = format!("Internal Server Error: {uri}: failed to store audit event");
    Some(answer::text(500, format!("{}\n", no_html(&text))))
}
