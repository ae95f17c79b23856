//! The deadline of a request: the server's limit, or the client's `timeout` if that is shorter.

use std::time::Duration;

use mizzen_object::Status;
use mizzen_value::time::duration_nanos;
use tokio::time::Instant;

use crate::request::Request;

/// The longest that a request waits in a queue, whatever its timeout.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How long a request may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadline {
    received: Instant,
    limit: Duration,
}

impl Deadline {
    /// The deadline of a request that arrived at `received` and may take so many seconds.
    pub(crate) fn new(received: Instant, seconds: u64) -> Deadline {
        Deadline {
            received,
            limit: Duration::from_secs(seconds),
        }
    }

    /// When the request times out.
    pub(crate) fn at(self) -> Instant {
        self.received + self.limit
    }

    /// When a queued request is rejected: after a quarter of its time.
    pub(crate) fn queue_deadline(self) -> Instant {
        self.received + (self.limit / 4).min(LONGEST_WAIT)
    }

    /// Kubernetes: a timeout that is zero, negative or longer than the server's is ignored
    /// (endpoints/filters/request_deadline.go).
    fn shortened(self, nanos: i64) -> Deadline {
        let requested = u64::try_from(nanos)
            .ok()
            .filter(|nanos| *nanos > 0)
            .map(Duration::from_nanos);
        Deadline {
            limit: requested.map_or(self.limit, |requested| requested.min(self.limit)),
            ..self
        }
    }
}

impl Request {
    /// Applies the client's `timeout` parameter. Long-running requests have none.
    pub(crate) fn apply_timeout(&mut self) -> Result<(), Status> {
        let timeout = self.query.text("timeout");
        if timeout.is_empty() || self.attributes().is_long_running() {
            return Ok(());
        }
        let problem = |error| format!("invalid timeout specified in the request URL - {error}");
        let nanos = duration_nanos(timeout).map_err(|error| Status::bad_request(problem(error)))?;
        self.deadline = self.deadline.shortened(nanos);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_can_only_shorten_the_timeout() {
        let now = Instant::now();
        let check = |seconds: u64, nanos: i64, limit: u64, turn: u64| {
            let deadline = Deadline::new(now, seconds).shortened(nanos);
            assert_eq!((deadline.at() - now, deadline.queue_deadline() - now), {
                (Duration::from_millis(limit), Duration::from_millis(turn))
            });
        };
        check(60, 2_000_000_000, 2_000, 500);
        check(60, 0, 60_000, 15_000);
        check(60, -1, 60_000, 15_000);
        check(60, 61_000_000_000, 60_000, 15_000);
        check(1_000, 0, 1_000_000, 60_000);
    }
}
