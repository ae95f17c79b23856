//! How many seats does a request take? A list by what it shows, a write by how many hear of it.

use std::time::Duration;

use super::watch_tracker::WatchTracker;
use super::work_estimate::{SeatSeconds, WorkEstimate};
use crate::authorization;
use crate::request::{Query, Request};
use crate::server::Inner;

/// The most seats that a list takes, and a write.
const LIST_LIMIT: usize = 100;
const WRITE_LIMIT: usize = 10;
/// How much is shown for one seat.
const BYTES_PER_SEAT: usize = 100_000;
/// Kubernetes: a list that is not read from etcd is thought to take no more memory at a time (list_work_estimator.go).
const STREAMED: usize = 1_000_000;
/// How many watchers one seat tells of a change, and how long that takes.
const WATCHERS_PER_SEAT: usize = 10;
const TELLING: Duration = Duration::from_millis(5);

/// What a request takes, where its level allows it `widest` seats, and how many watchers will hear of it.
pub(super) fn estimate_work(
    server: &Inner,
    request: &Request,
    asked: &authorization::Resource,
    verb: &str,
    widest: Option<usize>,
    watchers: &WatchTracker,
) -> (WorkEstimate, Option<usize>) {
    match verb {
        "watch" if !tells_all(&request.query) => (WorkEstimate::ONE, None),
        "list" | "watch" => {
            let limit = widest.unwrap_or(LIST_LIMIT).min(LIST_LIMIT);
            (
                WorkEstimate::seats(
                    list(server, request, asked, verb == "watch", limit).clamp(1, limit),
                ),
                None,
            )
        }
        // Nobody hears of a token.
        "create" if asked.resource == "serviceaccounts" && asked.subresource == "token" => {
            (WorkEstimate::ONE, None)
        }
        "create" | "update" | "patch" | "delete" => {
            let n_watchers = watchers.count(asked);
            (
                write(n_watchers, widest.unwrap_or(WRITE_LIMIT).min(WRITE_LIMIT)),
                Some(n_watchers),
            )
        }
        _ => (WorkEstimate::ONE, None),
    }
}

/// Whether a watch begins with everything that is there.
fn tells_all(query: &Query) -> bool {
    query.bool("sendInitialEvents").unwrap_or(false)
        || matches!(query.text("resourceVersion"), "" | "0")
}

/// The seats of a list, or of a watch that begins with one. One that will be refused takes all it may.
fn list(
    server: &Inner,
    request: &Request,
    asked: &authorization::Resource,
    is_watch: bool,
    refused: usize,
) -> usize {
    let query = &request.query;
    let (Ok(limit), Ok(_)) = (query.int("limit"), query.int("timeoutSeconds")) else {
        return refused;
    };
    // What others serve costs us nothing.
    let Some(resource) = server
        .catalog
        .get(asked.group, asked.version, asked.resource)
    else {
        return 1;
    };
    let stats = resource.space().stats();
    let stored = StoredObjects {
        records: stats.records,
        bytes: usize::try_from(stats.bytes).unwrap_or(usize::MAX),
    };
    let limit = limit
        .and_then(|limit| usize::try_from(limit).ok())
        .filter(|limit| *limit > 0);
    let is_selected =
        !query.text("fieldSelector").is_empty() || !query.text("labelSelector").is_empty();
    let is_single = !asked.name.is_empty();
    stored.seats(limit, is_single, is_watch || is_cached(query), is_selected)
}

/// Whether upstream would not have to read from etcd (storage/cacher/delegator).
fn is_cached(query: &Query) -> bool {
    let is_limited = query
        .int("limit")
        .is_ok_and(|limit| limit.is_some_and(|limit| limit > 0));
    match query.text("resourceVersionMatch") {
        "NotOlderThan" => true,
        "" if !query.text("continue").is_empty() => false,
        "" => !is_limited || matches!(query.text("resourceVersion"), "" | "0"),
        _ => false,
    }
}

/// What there is of a resource.
struct StoredObjects {
    records: usize,
    bytes: usize,
}

impl StoredObjects {
    /// The seats of a list of it.
    fn seats(
        &self,
        limit: Option<usize>,
        is_single: bool,
        is_cached: bool,
        is_selected: bool,
    ) -> usize {
        let shown = limit.unwrap_or(usize::MAX).min(self.records);
        let loaded = match (is_single, is_cached) {
            (true, _) => 1,
            (false, false) if is_selected => shown.max(self.records / 2),
            _ => shown,
        };
        let size = self.bytes.checked_div(self.records).unwrap_or_default();
        let memory = loaded.saturating_mul(size);
        (if is_cached {
            memory.min(STREAMED)
        } else {
            memory
        })
        .div_ceil(BYTES_PER_SEAT)
    }
}

/// What a write takes that so many watchers hear of. Few cost nothing.
fn write(n_watchers: usize, limit: usize) -> WorkEstimate {
    if n_watchers < WATCHERS_PER_SEAT {
        return WorkEstimate::ONE;
    }
    let wanted = n_watchers.div_ceil(WATCHERS_PER_SEAT);
    let last = wanted.min(limit);
    WorkEstimate {
        initial_seats: 1,
        final_seats: last,
        additional_latency: SeatSeconds::of(wanted as f64, TELLING).per_seat(last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_takes_a_seat_for_every_100_kb_that_it_shows() {
        let stored = StoredObjects {
            records: 1_000,
            bytes: 3_000_000,
        };
        let seats = |limit, single, cached, selected| stored.seats(limit, single, cached, selected);
        assert_eq!(seats(None, false, false, false), 30);
        assert_eq!(
            seats(None, false, true, false),
            10,
            "what is kept in memory is sent in pieces"
        );
        assert_eq!(seats(Some(100), false, true, false), 3);
        assert_eq!(
            seats(Some(100), false, false, true),
            15,
            "whoever selects reads more than he shows"
        );
        assert_eq!(seats(None, true, true, false), 1);
        assert_eq!(
            StoredObjects {
                records: 0,
                bytes: 0
            }
            .seats(None, false, true, false),
            0
        );
    }

    #[test]
    fn a_list_that_upstream_reads_from_etcd_is_known_by_its_options() {
        let check = |query: &str, expected: bool| {
            assert_eq!(
                is_cached(&Query::parse(&format!("/?{query}").parse().unwrap())),
                expected,
                "{query}"
            );
        };
        check("", true);
        check("limit=500", true);
        check("limit=500&resourceVersion=0", true);
        check("limit=500&resourceVersion=7", false);
        check("resourceVersion=7", true);
        check("resourceVersion=7&resourceVersionMatch=Exact", false);
        check(
            "resourceVersion=7&resourceVersionMatch=NotOlderThan&limit=5",
            true,
        );
        check("continue=abc", false);
    }

    #[test]
    fn a_write_takes_seats_afterwards_for_those_who_hear_of_it() {
        let ms = Duration::from_millis;
        assert_eq!(write(9, 10), WorkEstimate::ONE);
        assert_eq!(
            write(10, 10),
            WorkEstimate {
                initial_seats: 1,
                final_seats: 1,
                additional_latency: ms(5)
            }
        );
        assert_eq!(
            write(95, 10),
            WorkEstimate {
                initial_seats: 1,
                final_seats: 10,
                additional_latency: ms(5)
            }
        );
        assert_eq!(
            write(1_000, 10),
            WorkEstimate {
                initial_seats: 1,
                final_seats: 10,
                additional_latency: ms(50)
            },
            "narrower, and longer"
        );
        assert_eq!(
            write(40, 2),
            WorkEstimate {
                initial_seats: 1,
                final_seats: 2,
                additional_latency: ms(10)
            }
        );
    }
}
