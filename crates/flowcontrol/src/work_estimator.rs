//! The work estimator: a list takes seats by its size, a write by the number of watchers.

use std::time::Duration;

use mizzen_request::{RequestQuery, ResourceAttributes};

use super::FlowRequest;
use super::watch_tracker::WatchTracker;
use super::work_estimate::{SeatSeconds, WorkEstimate};

/// The maximum seats of a list, and of a write.
const LIST_LIMIT: usize = 100;
const WRITE_LIMIT: usize = 10;
/// How many bytes of a list one seat stands for.
const BYTES_PER_SEAT: usize = 100_000;
/// Kubernetes: a list that is not read from etcd is assumed to take no more memory
/// (list_work_estimator.go).
const STREAMED: usize = 1_000_000;
/// How many watchers one seat notifies, and how long that takes.
const WATCHERS_PER_SEAT: usize = 10;
const TELLING: Duration = Duration::from_millis(5);

/// Estimates the work of a request, and how many watches it notifies.
pub(super) fn estimate_work(
    request: &FlowRequest,
    target: &ResourceAttributes,
    max_request_seats: Option<usize>,
    watches: &WatchTracker,
) -> (WorkEstimate, Option<usize>) {
    let (verb, query) = (request.info.verb(), request.query);
    let has_initial_events = || {
        query.bool("sendInitialEvents").unwrap_or(false)
            || matches!(query.text("resourceVersion"), "" | "0")
    };
    match verb {
        "watch" if !has_initial_events() => (WorkEstimate::ONE, None),
        "list" | "watch" => {
            let limit = max_request_seats.unwrap_or(LIST_LIMIT).min(LIST_LIMIT);
            let seats = list(request, target, verb == "watch", limit);
            (WorkEstimate::seats(seats.clamp(1, limit)), None)
        }
        // Token requests write no object.
        "create" if target.resource == "serviceaccounts" && target.subresource == "token" => {
            (WorkEstimate::ONE, None)
        }
        "create" | "update" | "patch" | "delete" => {
            let n_watches = watches.count(target);
            let limit = max_request_seats.unwrap_or(WRITE_LIMIT).min(WRITE_LIMIT);
            (WorkEstimate::of_write(n_watches, limit), Some(n_watches))
        }
        _ => (WorkEstimate::ONE, None),
    }
}

/// The seats of a list, or of a watch that starts with one. An invalid request takes the maximum.
fn list(
    request: &FlowRequest,
    target: &ResourceAttributes,
    is_watch: bool,
    refused: usize,
) -> usize {
    let query = request.query;
    let (Ok(limit), Ok(_)) = (query.int("limit"), query.int("timeoutSeconds")) else {
        return refused;
    };
    // Aggregated APIs take no memory here.
    let Some(resource) = request.resource else {
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
    let is_single = !target.name.is_empty();
    stored.seats(limit, is_single, is_watch || is_cached(query), is_selected)
}

/// Whether upstream would serve it from the watch cache (storage/cacher/delegator).
fn is_cached(query: &RequestQuery) -> bool {
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

/// The stored objects of a resource.
struct StoredObjects {
    records: usize,
    bytes: usize,
}

impl StoredObjects {
    /// The seats of a list.
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

impl WorkEstimate {
    /// The work of a write that notifies that many watches. A few cost nothing.
    fn of_write(n_watchers: usize, limit: usize) -> WorkEstimate {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_takes_a_seat_for_every_100_kb() {
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
    fn a_list_that_upstream_reads_from_etcd_is_recognized_by_its_options() {
        let check = |query: &str, expected: bool| {
            assert_eq!(
                is_cached(&RequestQuery::parse(&format!("/?{query}").parse().unwrap())),
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
    fn a_write_takes_final_seats_for_its_watchers() {
        let ms = Duration::from_millis;
        assert_eq!(WorkEstimate::of_write(9, 10), WorkEstimate::ONE);
        assert_eq!(
            WorkEstimate::of_write(10, 10),
            WorkEstimate {
                initial_seats: 1,
                final_seats: 1,
                additional_latency: ms(5)
            }
        );
        assert_eq!(
            WorkEstimate::of_write(95, 10),
            WorkEstimate {
                initial_seats: 1,
                final_seats: 10,
                additional_latency: ms(5)
            }
        );
        assert_eq!(
            WorkEstimate::of_write(1_000, 10),
            WorkEstimate {
                initial_seats: 1,
                final_seats: 10,
                additional_latency: ms(50)
            },
            "narrower, and longer"
        );
        assert_eq!(
            WorkEstimate::of_write(40, 2),
            WorkEstimate {
                initial_seats: 1,
                final_seats: 2,
                additional_latency: ms(10)
            }
        );
    }
}
