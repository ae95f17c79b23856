//! Whose turn is it? Requests share the server's seats by priority and fairness, as KEP-1040 has it.
//!
//! Reading order: `schema` (which requests a flow schema means), `level` (what a priority level says), `flows` (both
//! together) and `index` (as of now); `width` (how many seats a request takes) with `watchers`; then `room` (a level at
//! work) around `queues` (who is next), which counts in `work`, keeps requests in `entry` and deals queues in `deal`;
//! `place` is what a request holds, `house` what all levels share, `usage` how much of it is in use. `demand` and `lend` move seats between levels every ten seconds. `figures` and
//! `dump` show it, `status` says which schemas name no level, and `inflight` is what there is without all this.
//!
//! Invariant: a request has a place from the moment it comes until its response has been written or its client is gone, in
//! whatever way that comes about; a response of up to 4 KiB until it has been made, a watch until what was there has been sent.

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

use crate::answer::{self, Answer};
use crate::authorization::request::request_attributes;
use crate::authorization::{Attributes, Resource, Target};
use crate::catalog::Catalog;
use crate::request::Request;
use crate::server::Inner;
use config_consumer::{ConfigConsumer, ConfigSources};
use entry::{ArrivingRequest, RequestDigest};
pub(crate) use flow_ticket::{FlowTicket, HeldSeats};
use flows::FlowSchema;
use max_in_flight::MaxInFlight;
use seat_lease::SeatLease;
use watch_tracker::WatchTracker;
use work_estimate::WorkEstimate;

/// How often levels lend and borrow.
const ADJUST_EVERY: Duration = Duration::from_secs(10);

/// How many requests are answered at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Concurrency {
    /// Reads. With fairness both together are the seats that there are.
    pub reads: usize,
    /// Writes.
    pub writes: usize,
    /// Whether requests share the seats by priority and fairness, or first come, first served.
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

/// Why a request is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RejectReason {
    /// There are no queues, and no seats.
    ConcurrencyLimit,
    /// The queue is full, and there are no seats.
    QueueFull,
    /// It waited for too long, or its client is gone.
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

/// Who lets requests in.
pub(crate) struct FlowControl {
    limiter: Limiter,
    watchers: WatchTracker,
    /// The time of day when this began, in seconds since 1970.
    began: i64,
}

/// How requests are let in.
enum Limiter {
    PriorityAndFairness(Box<ConfigConsumer>),
    MaxInFlight(MaxInFlight),
}

impl FlowControl {
    /// Where no flow schemas are served, nobody could say what is fair.
    pub(crate) fn new(catalog: &Catalog, concurrency: Concurrency, began: i64) -> FlowControl {
        let Concurrency {
            reads,
            writes,
            is_fair,
        } = concurrency;
        let way = match ConfigSources::find(catalog).filter(|_| is_fair) {
            Some(sources) => Limiter::PriorityAndFairness(Box::new(ConfigConsumer::new(
                sources,
                reads.saturating_add(writes),
            ))),
            None => Limiter::MaxInFlight(MaxInFlight::new(reads, writes)),
        };
        FlowControl {
            limiter: way,
            watchers: WatchTracker::default(),
            began,
        }
    }

    /// Waits until it is the turn of a request, which has its place from then on. The answer is that of one which was
    /// turned away.
    pub(crate) async fn admit(&self, server: &Inner, request: &Request) -> Result<(), Answer> {
        let asked = request_attributes(request);
        // Nobody can wait for the end of what lasts as long as its client likes. Of a watch the beginning is work.
        if asked.is_long_running() && asked.verb != "watch" {
            return Ok(());
        }
        match &self.limiter {
            Limiter::MaxInFlight(_) if asked.verb == "watch" => {}
            Limiter::MaxInFlight(inflight) => match inflight.acquire(&request.user, asked.verb) {
                Ok(seat) => request.ticket.hold(HeldSeats::from_permit(seat)),
                Err(_) => return Err(too_many(1)),
            },
            Limiter::PriorityAndFairness(index) => {
                let place = self
                    .wait_for_seats(server, request, &asked, index.classify(&asked))
                    .await?;
                let watching = match asked.target {
                    Target::Resource(resource) if asked.verb == "watch" => {
                        let fields = request.query.text("fieldSelector");
                        self.watchers.register(&Resource { fields, ..resource })
                    }
                    _ => None,
                };
                request.ticket.hold(HeldSeats::from_lease(place, watching));
            }
        }
        Ok(())
    }

    async fn wait_for_seats(
        &self,
        server: &Inner,
        request: &Request,
        asked: &Attributes<'_>,
        schema: Arc<FlowSchema>,
    ) -> Result<SeatLease, Answer> {
        let newcomer = self.describe_request(server, request, asked, &schema);
        let room = schema.level.clone();
        request.ticket.set_schema(schema);
        let entered = room.admit(newcomer);
        let (mut place, wait) = entered.map_err(|_| too_many(room.retry_after()))?;
        if let Some(wait) = wait
            && !place.wait(wait, request.deadline.of_turn()).await
        {
            return Err(too_many(room.retry_after()));
        }
        Ok(place)
    }

    fn describe_request(
        &self,
        server: &Inner,
        request: &Request,
        asked: &Attributes,
        schema: &FlowSchema,
    ) -> ArrivingRequest {
        let (work, watchers) = match &asked.target {
            Target::Resource(resource) => work_estimator::estimate_work(
                server,
                request,
                resource,
                asked.verb,
                schema.max_request_seats,
                &self.watchers,
            ),
            Target::Page(_) => (WorkEstimate::ONE, None),
        };
        let (flow, hash) = schema.flow_distinguisher(asked);
        let about = RequestDigest {
            user: request.user.name.clone(),
            flow,
            info: request.info.clone(),
            uri: request.uri.clone(),
        };
        ArrivingRequest {
            counts_idx: schema.counts_idx,
            flow_hash: hash,
            work,
            watchers,
            digest: about,
        }
    }

    /// Adds its series to a scrape.
    pub(crate) fn collect(&self, out: &mut Families) {
        if let Limiter::PriorityAndFairness(index) = &self.limiter {
            metrics::collect(&index.flows(), &index.house, out);
        }
    }

    /// A page of what is going on, if there is one at that path.
    pub(crate) fn dump_page(&self, path: &str, has_details: bool) -> Option<Answer> {
        let (Limiter::PriorityAndFairness(index), Some(name)) =
            (&self.limiter, path.strip_prefix(dump::ROOT))
        else {
            return None;
        };
        let text = dump::render_dump(&index.flows(), name, has_details, self.began)?;
        Some(answer::answer(200, "text/plain; charset=utf-8", text))
    }
}

/// Lets levels lend and borrow, and keeps the status of flow schemas, as long as the server is there.
pub(crate) fn start(server: &Arc<Inner>) {
    let Limiter::PriorityAndFairness(index) = &server.flow_control.limiter else {
        return;
    };
    tokio::spawn(status::run_status_updates(
        Arc::downgrade(server),
        index.sources.clone(),
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
            if let Limiter::PriorityAndFairness(index) = &server.flow_control.limiter {
                index.update_borrowing();
            }
        }
    });
}

/// What somebody is told who has to come back in so many seconds.
fn too_many(seconds: u64) -> Answer {
    let mut answer = answer::text(429, "Too many requests, please try again later.\n");
    answer
        .headers_mut()
        .insert(http::header::RETRY_AFTER, HeaderValue::from(seconds));
    answer
}
