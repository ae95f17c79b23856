//! API Priority and Fairness (KEP-1040): requests share the server's seats by priority level and
//! flow.
//!
//! Reading order: `schema` (FlowSchema rules), `level` (PriorityLevelConfiguration), `flows` (both
//! together) and `config_consumer` (as stored now); `work_estimator` (seats of a request) with
//! `watch_tracker`; then `priority_level` around the pure `queue_set`, which counts in
//! `work_estimate`, keeps requests in `entry` and picks queues by `shuffle_sharding`. A
//! `seat_lease` is what a request holds, `server_concurrency` what all levels share, `utilization`
//! how much of it is in use. `demand` and `concurrency_allocation` move seats between levels every
//! ten seconds. `metrics` and `dump` show the state, `status` writes the Dangling condition of flow
//! schemas, and `max_in_flight` replaces all of it where it is disabled.
//!
//! Invariant: a request holds its seats until its response has been written or its client is gone;
//! a response of up to 4 KiB until it has been made, a watch until its initial events have been
//! sent.

mod concurrency_allocation;
mod config_consumer;
mod demand;
mod dropped_requests;
mod dump;
mod entry;
mod flow_schema_counts;
mod flow_ticket;
mod flows;
mod level;
mod max_in_flight;
mod metrics;
mod priority_level;
mod queue;
mod queue_set;
mod schema;
mod seat_lease;
mod server_concurrency;
mod shuffle_sharding;
mod status;
mod utilization;
mod watch_tracker;
mod work_estimate;
mod work_estimator;

#[cfg(test)]
mod tests;

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use mizzen_metrics::Families;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::authorization::request::request_attributes;
use crate::authorization::{Attributes, AttributesTarget, ResourceAttributes};
use crate::catalog::Catalog;
use crate::request::Request;
use crate::response::{self, Response};
use crate::server::ServerParts;
use config_consumer::{ConfigConsumer, ConfigSources};
use entry::{ArrivingRequest, RequestDigest};
pub(crate) use flow_ticket::{FlowTicket, HeldSeats};
use flows::FlowSchema;
use max_in_flight::MaxInFlight;
use seat_lease::SeatLease;
use watch_tracker::WatchTracker;
use work_estimate::WorkEstimate;

/// How often levels lend and borrow seats.
const ADJUST_EVERY: Duration = Duration::from_secs(10);

/// How many requests are served concurrently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Concurrency {
    /// Limit of read requests. With priority and fairness, both limits together are the server's
    /// seats.
    pub reads: usize,
    /// Limit of mutating requests.
    pub writes: usize,
    /// Whether priority and fairness is enabled; otherwise there are only the two limits.
    pub is_fair: bool,
}

impl Default for Concurrency {
    fn default() -> Concurrency {
        Concurrency {
            reads: 400,
            writes: 200,
            is_fair: true,
        }
    }
}

/// Why a request is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RejectReason {
    /// The level rejects instead of queueing, and no seats are free.
    ConcurrencyLimit,
    /// The queue is full, and no seats are free.
    QueueFull,
    /// The request waited too long, or its client is gone.
    TimeOut,
}

impl Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            RejectReason::ConcurrencyLimit => "concurrency-limit",
            RejectReason::QueueFull => "queue-full",
            RejectReason::TimeOut => "time-out",
        })
    }
}

/// The concurrency filter: priority and fairness, or plain limits.
pub(crate) struct FlowControl {
    limiter: ConcurrencyLimiter,
    watchers: WatchTracker,
    /// When the server started, in Unix seconds.
    began: i64,
}

/// How concurrency is limited.
enum ConcurrencyLimiter {
    PriorityAndFairness(Box<ConfigConsumer>),
    MaxInFlight(MaxInFlight),
}

impl FlowControl {
    /// Plain limits apply where no FlowSchemas are served.
    pub(crate) fn new(catalog: &Catalog, concurrency: Concurrency, began: i64) -> FlowControl {
        let Concurrency {
            reads,
            writes,
            is_fair,
        } = concurrency;
        let limiter = match ConfigSources::find(catalog).filter(|_| is_fair) {
            Some(sources) => ConcurrencyLimiter::PriorityAndFairness(Box::new(
                ConfigConsumer::new(sources, reads.saturating_add(writes)),
            )),
            None => ConcurrencyLimiter::MaxInFlight(MaxInFlight::new(reads, writes)),
        };
        FlowControl {
            limiter,
            watchers: WatchTracker::default(),
            began,
        }
    }

    /// Waits for the seats of a request, which then holds them in its ticket. The error is the
    /// response to a rejected request.
    pub(crate) async fn admit(
        &self,
        server: &ServerParts,
        request: &Request,
    ) -> Result<(), Response> {
        let attributes = request_attributes(request);
        // Long-running requests are exempt. Of a watch only the initialization takes seats.
        if attributes.is_long_running() && attributes.verb != "watch" {
            return Ok(());
        }
        match &self.limiter {
            ConcurrencyLimiter::MaxInFlight(_) if attributes.verb == "watch" => {}
            ConcurrencyLimiter::MaxInFlight(limits) => {
                match limits.acquire(&request.user, attributes.verb) {
                    Ok(seat) => request.ticket.hold(HeldSeats::from_permit(seat)),
                    Err(_) => return Err(too_many(1)),
                }
            }
            ConcurrencyLimiter::PriorityAndFairness(config) => {
                let lease = self
                    .wait_for_seats(server, request, &attributes, config.classify(&attributes))
                    .await?;
                let registration = match attributes.target {
                    AttributesTarget::Resource(resource) if attributes.verb == "watch" => {
                        let fields = request.query.text("fieldSelector");
                        self.watchers
                            .register(&ResourceAttributes { fields, ..resource })
                    }
                    _ => None,
                };
                request
                    .ticket
                    .hold(HeldSeats::from_lease(lease, registration));
            }
        }
        Ok(())
    }

    async fn wait_for_seats(
        &self,
        server: &ServerParts,
        request: &Request,
        attributes: &Attributes<'_>,
        schema: Arc<FlowSchema>,
    ) -> Result<SeatLease, Response> {
        let arriving = self.describe_request(server, request, attributes, &schema);
        let level = schema.level.clone();
        request.ticket.set_schema(schema);
        let entered = level.admit(arriving);
        let (mut lease, wait) = entered.map_err(|_| too_many(level.retry_after()))?;
        if let Some(wait) = wait
            && !lease.wait(wait, request.deadline.queue_deadline()).await
        {
            return Err(too_many(level.retry_after()));
        }
        Ok(lease)
    }

    fn describe_request(
        &self,
        server: &ServerParts,
        request: &Request,
        attributes: &Attributes,
        schema: &FlowSchema,
    ) -> ArrivingRequest {
        let (work, watchers) = match &attributes.target {
            AttributesTarget::Resource(resource) => work_estimator::estimate_work(
                server,
                request,
                resource,
                schema.max_request_seats,
                &self.watchers,
            ),
            AttributesTarget::NonResource(_) => (WorkEstimate::ONE, None),
        };
        let (flow, flow_hash) = schema.flow_distinguisher(attributes);
        let digest = RequestDigest {
            user: request.user.name.clone(),
            flow,
            info: request.info.clone(),
            uri: request.uri.clone(),
        };
        ArrivingRequest {
            counts_idx: schema.counts_idx,
            flow_hash,
            work,
            watchers,
            digest,
        }
    }

    /// Adds its series to a scrape.
    pub(crate) fn collect(&self, out: &mut Families) {
        if let ConcurrencyLimiter::PriorityAndFairness(config) = &self.limiter {
            metrics::collect(&config.flows(), &config.server, out);
        }
    }

    /// A debug dump, if there is one at that path.
    pub(crate) fn dump_page(&self, path: &str, has_details: bool) -> Option<Response> {
        let (ConcurrencyLimiter::PriorityAndFairness(config), Some(name)) =
            (&self.limiter, path.strip_prefix(dump::ROOT))
        else {
            return None;
        };
        let text = dump::render_dump(&config.flows(), name, has_details, self.began)?;
        Some(response::with_body(200, "text/plain; charset=utf-8", text))
    }
}

/// Starts the loops that adjust borrowing and that maintain the status of flow schemas.
pub(crate) fn start(server: &Arc<ServerParts>) {
    let ConcurrencyLimiter::PriorityAndFairness(config) = &server.flow_control.limiter else {
        return;
    };
    tokio::spawn(status::run_status_updates(
        Arc::downgrade(server),
        config.sources.clone(),
    ));
    let server = Arc::downgrade(server);
    tokio::spawn(async move {
        let mut ticks = interval_at(Instant::now() + ADJUST_EVERY, ADJUST_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(server) = server.upgrade() else {
                return;
            };
            if let ConcurrencyLimiter::PriorityAndFairness(config) = &server.flow_control.limiter {
                config.update_borrowing();
            }
        }
    });
}

/// 429 with a `Retry-After` header.
fn too_many(seconds: u64) -> Response {
    let mut answer = response::text(429, "Too many requests, please try again later.\n");
    answer
        .headers_mut()
        .insert(http::header::RETRY_AFTER, HeaderValue::from(seconds));
    answer
}
