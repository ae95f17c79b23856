//! API Priority and Fairness (KEP-1040): requests share the server's seats by priority level and
//! flow.
//!
//! A request holds a [`FlowTicket`]; [`FlowControl::admit`] waits for its seats.
//!
//! Reading order: `schema` (FlowSchema rules), `level` (PriorityLevelConfiguration), `flows` (both
//! together) and `config_consumer` (as stored now); `work_estimator` (seats of a request) with
//! `watch_tracker`; then `priority_level` around the pure `queue_set`, which counts in
//! `work_estimate`, keeps requests in `entry` and picks queues by `shuffle_sharding`. A
//! `seat_lease` is what a request holds, `server_concurrency` what all levels share, `utilization`
//! how much of it is in use. `demand` and `concurrency_allocation` move seats between levels every
//! ten seconds. `metrics` and `dump` show the state, `status` has the Dangling condition of flow
//! schemas, and `max_in_flight` replaces all of it where it is disabled.
//!
//! Invariant: a request holds its seats until its response has been written or its client is gone;
//! a response of up to 4 KiB until it has been made, a watch until its initial events have been
//! sent.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use std::time::Duration;
//!
//! use http::{Method, Uri};
//! use mizzen_flowcontrol::{Concurrency, FlowControl, FlowRequest, FlowTicket};
//! use mizzen_object::User;
//! use mizzen_request::{RequestInfo, RequestQuery};
//! use tokio::time::Instant;
//!
//! // Without flow schemas there are plain limits: here one concurrent read.
//! let concurrency = Concurrency { reads: 1, ..Concurrency::default() };
//! let flow_control = FlowControl::new(|_| None, concurrency, 0);
//!
//! let uri: Uri = "/api/v1/pods".parse().unwrap();
//! let query = RequestQuery::parse(&uri);
//! let info = RequestInfo::new(&Method::GET, &uri, &query).unwrap();
//! let user = User::service_account("default", "reader");
//! let (ticket, queue_deadline) = (FlowTicket::default(), Instant::now() + Duration::from_secs(15));
//! let request = FlowRequest {
//!     user: &user,
//!     info: &info,
//!     query: &query,
//!     uri: &uri,
//!     resource: None,
//!     queue_deadline,
//!     ticket: &ticket,
//! };
//! {
//!     let ticket = FlowTicket::default();
//!     let first = FlowRequest { ticket: &ticket, ..request };
//!     assert!(flow_control.admit(&first).await.is_ok());
//!     assert_eq!(flow_control.admit(&request).await.unwrap_err().retry_after, 1);
//! } // its seat is free again
//! assert!(flow_control.admit(&request).await.is_ok());
//! # }
//! ```

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

use http::Uri;
use mizzen_metrics::Families;
use mizzen_object::User;
use mizzen_registry::Resource;
use mizzen_request::{Attributes, AttributesTarget, RequestInfo, RequestQuery, ResourceAttributes};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use config_consumer::ConfigConsumer;
pub use config_consumer::ConfigSources;
use entry::{ArrivingRequest, RequestDigest};
pub use flow_ticket::{FlowTicket, HeldSeats};
use flows::FlowSchema;
use max_in_flight::MaxInFlight;
use seat_lease::SeatLease;
use watch_tracker::WatchTracker;
use work_estimate::WorkEstimate;

/// How often [`FlowControl::update_borrowing`] is to be called.
pub const BORROWING_PERIOD: Duration = Duration::from_secs(10);

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

/// A request, as flow control sees it.
pub struct FlowRequest<'a> {
    /// The user, perhaps impersonated.
    pub user: &'a User,
    /// The verb and the target.
    pub info: &'a RequestInfo,
    /// The query parameters.
    pub query: &'a RequestQuery,
    /// The URI, for debug dumps.
    pub uri: &'a Uri,
    /// The resource, if this server stores it.
    pub resource: Option<&'a Resource>,
    /// Until when the request may wait for seats.
    pub queue_deadline: Instant,
    /// Holds its seats.
    pub ticket: &'a FlowTicket,
}

/// 429: the request is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyRequests {
    /// After how many seconds the client is to try again.
    pub retry_after: u64,
}

/// The concurrency filter: priority and fairness, or plain limits.
pub struct FlowControl {
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
    /// `resource` finds a resource of `flowcontrol.apiserver.k8s.io/v1` by plural name; plain limits apply where no
    /// FlowSchemas are served. `began` is the start of the server in Unix seconds.
    pub fn new(
        resource: impl Fn(&str) -> Option<Resource>,
        concurrency: Concurrency,
        began: i64,
    ) -> FlowControl {
        let Concurrency {
            reads,
            writes,
            is_fair,
        } = concurrency;
        let limiter = match ConfigSources::find(resource).filter(|_| is_fair) {
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

    /// Waits for the seats of a request, which then holds them in its ticket.
    pub async fn admit(&self, request: &FlowRequest<'_>) -> Result<(), TooManyRequests> {
        let attributes = Attributes::of_request(request.user, request.info, request.query);
        // Long-running requests are exempt. Of a watch only the initialization takes seats.
        if attributes.is_long_running() && attributes.verb != "watch" {
            return Ok(());
        }
        match &self.limiter {
            ConcurrencyLimiter::MaxInFlight(_) if attributes.verb == "watch" => {}
            ConcurrencyLimiter::MaxInFlight(limits) => {
                match limits.acquire(request.user, attributes.verb) {
                    Ok(seat) => request.ticket.hold(HeldSeats::from_permit(seat)),
                    Err(_) => return Err(TooManyRequests { retry_after: 1 }),
                }
            }
            ConcurrencyLimiter::PriorityAndFairness(config) => {
                let lease = self
                    .wait_for_seats(request, &attributes, config.classify(&attributes))
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
        request: &FlowRequest<'_>,
        attributes: &Attributes<'_>,
        schema: Arc<FlowSchema>,
    ) -> Result<SeatLease, TooManyRequests> {
        let arriving = self.describe_request(request, attributes, &schema);
        let level = schema.level.clone();
        request.ticket.set_schema(schema);
        let too_many = || TooManyRequests {
            retry_after: level.retry_after(),
        };
        let entered = level.admit(arriving);
        let (mut lease, wait) = entered.map_err(|_| too_many())?;
        if let Some(wait) = wait
            && !lease.wait(wait, request.queue_deadline).await
        {
            return Err(too_many());
        }
        Ok(lease)
    }

    fn describe_request(
        &self,
        request: &FlowRequest,
        attributes: &Attributes,
        schema: &FlowSchema,
    ) -> ArrivingRequest {
        let (work, watchers) = match &attributes.target {
            AttributesTarget::Resource(resource) => work_estimator::estimate_work(
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
    pub fn collect(&self, out: &mut Families) {
        if let ConcurrencyLimiter::PriorityAndFairness(config) = &self.limiter {
            metrics::collect(&config.flows(), &config.server, out);
        }
    }

    /// The text of a debug dump, if there is one at that path.
    pub fn dump(&self, path: &str, has_details: bool) -> Option<String> {
        let (ConcurrencyLimiter::PriorityAndFairness(config), Some(name)) =
            (&self.limiter, path.strip_prefix(dump::ROOT))
        else {
            return None;
        };
        dump::render_dump(&config.flows(), name, has_details, self.began)
    }

    /// Where flow schemas and priority levels are stored; none if plain limits apply.
    pub fn sources(&self) -> Option<&ConfigSources> {
        match &self.limiter {
            ConcurrencyLimiter::PriorityAndFairness(config) => Some(&config.sources),
            ConcurrencyLimiter::MaxInFlight(_) => None,
        }
    }

    /// Lets levels lend and borrow seats.
    pub fn update_borrowing(&self) {
        if let ConcurrencyLimiter::PriorityAndFairness(config) = &self.limiter {
            config.update_borrowing();
        }
    }
}
