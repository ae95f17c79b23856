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

mod deal;
mod demand;
mod dump;
mod entry;
mod figures;
mod flows;
mod house;
mod index;
mod inflight;
mod lend;
mod level;
mod place;
mod queue;
mod queues;
mod retry;
mod room;
mod schema;
mod status;
mod tally;
mod turn;
mod usage;
mod watchers;
mod width;
mod work;

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
use crate::authorization::request::attributes;
use crate::authorization::{Attributes, Resource, Target};
use crate::catalog::Catalog;
use crate::request::Request;
use crate::server::Inner;
use entry::{About, Newcomer};
use flows::Schema;
use index::{Index, Sources};
use inflight::Inflight;
use place::Place;
pub(crate) use turn::{Held, Turn};
use watchers::Watchers;
use work::Work;

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
pub(crate) enum Reason {
    /// There are no queues, and no seats.
    ConcurrencyLimit,
    /// The queue is full, and there are no seats.
    QueueFull,
    /// It waited for too long, or its client is gone.
    TimeOut,
}

impl Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Reason::ConcurrencyLimit => "concurrency-limit",
            Reason::QueueFull => "queue-full",
            Reason::TimeOut => "time-out",
        })
    }
}

/// Who lets requests in.
pub(crate) struct Fairness {
    way: Way,
    watchers: Watchers,
    /// The time of day when this began, in seconds since 1970.
    began: i64,
}

/// How requests are let in.
enum Way {
    Fair(Box<Index>),
    Plain(Inflight),
}

impl Fairness {
    /// Where no flow schemas are served, nobody could say what is fair.
    pub(crate) fn new(catalog: &Catalog, concurrency: Concurrency, began: i64) -> Fairness {
        let Concurrency {
            reads,
            writes,
            is_fair,
        } = concurrency;
        let way = match Sources::find(catalog).filter(|_| is_fair) {
            Some(sources) => Way::Fair(Box::new(Index::new(sources, reads.saturating_add(writes)))),
            None => Way::Plain(Inflight::new(reads, writes)),
        };
        Fairness {
            way,
            watchers: Watchers::default(),
            began,
        }
    }

    /// Waits until it is the turn of a request, which has its place from then on. The answer is that of one which was
    /// turned away.
    pub(crate) async fn admit(&self, server: &Inner, request: &Request) -> Result<(), Answer> {
        let asked = attributes(request);
        // Nobody can wait for the end of what lasts as long as its client likes. Of a watch the beginning is work.
        if asked.is_long_running() && asked.verb != "watch" {
            return Ok(());
        }
        match &self.way {
            Way::Plain(_) if asked.verb == "watch" => {}
            Way::Plain(inflight) => match inflight.enter(&request.user, asked.verb) {
                Ok(seat) => request.turn.hold(Held::seat(seat)),
                Err(_) => return Err(too_many(1)),
            },
            Way::Fair(index) => {
                let place = self
                    .enter(server, request, &asked, index.schema(&asked))
                    .await?;
                let watching = match asked.target {
                    Target::Resource(resource) if asked.verb == "watch" => {
                        let fields = request.query.text("fieldSelector");
                        self.watchers.register(&Resource { fields, ..resource })
                    }
                    _ => None,
                };
                request.turn.hold(Held::place(place, watching));
            }
        }
        Ok(())
    }

    async fn enter(
        &self,
        server: &Inner,
        request: &Request,
        asked: &Attributes<'_>,
        schema: Arc<Schema>,
    ) -> Result<Place, Answer> {
        let newcomer = self.newcomer(server, request, asked, &schema);
        let room = schema.room.clone();
        request.turn.is_of(schema);
        let entered = room.enter(newcomer);
        let (mut place, wait) = entered.map_err(|_| too_many(room.turn_away()))?;
        if let Some(wait) = wait
            && !place.wait(wait, request.deadline.of_turn()).await
        {
            return Err(too_many(room.turn_away()));
        }
        Ok(place)
    }

    fn newcomer(
        &self,
        server: &Inner,
        request: &Request,
        asked: &Attributes,
        schema: &Schema,
    ) -> Newcomer {
        let (work, watchers) = match &asked.target {
            Target::Resource(resource) => width::width(
                server,
                request,
                resource,
                asked.verb,
                schema.widest,
                &self.watchers,
            ),
            Target::Page(_) => (Work::ONE, None),
        };
        let (flow, hash) = schema.flow(asked);
        let about = About {
            user: request.user.name.clone(),
            flow,
            info: request.info.clone(),
            uri: request.uri.clone(),
        };
        Newcomer {
            slot: schema.slot,
            hash,
            work,
            watchers,
            about,
        }
    }

    /// Adds its series to a scrape.
    pub(crate) fn collect(&self, out: &mut Families) {
        if let Way::Fair(index) = &self.way {
            figures::collect(&index.flows(), &index.house, out);
        }
    }

    /// A page of what is going on, if there is one at that path.
    pub(crate) fn page(&self, path: &str, has_details: bool) -> Option<Answer> {
        let (Way::Fair(index), Some(name)) = (&self.way, path.strip_prefix(dump::ROOT)) else {
            return None;
        };
        let text = dump::page(&index.flows(), name, has_details, self.began)?;
        Some(answer::answer(200, "text/plain; charset=utf-8", text))
    }
}

/// Lets levels lend and borrow, and keeps the status of flow schemas, as long as the server is there.
pub(crate) fn start(server: &Arc<Inner>) {
    let Way::Fair(index) = &server.fairness.way else {
        return;
    };
    tokio::spawn(status::keep(Arc::downgrade(server), index.sources.clone()));
    let server = Arc::downgrade(server);
    tokio::spawn(async move {
        let mut ticks = interval_at(Instant::now() + ADJUST_EVERY, ADJUST_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(server) = server.upgrade() else {
                return;
            };
            if let Way::Fair(index) = &server.fairness.way {
                index.adjust();
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
