//! Until when must a request be answered?

use std::time::Duration;

use mizzen_object::Status;
use mizzen_value::time::duration_nanos;
use tokio::time::Instant;

use crate::authorization::request::attributes;
use crate::request::Request;

/// The longest that a request waits for its turn, however long it may take.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How long a request may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadline {
    received: Instant,
    limit: Duration,
}

impl Deadline {
    /// Of a request that came at `received` and may take so many seconds.
    pub(crate) fn new(received: Instant, seconds: u64) -> Deadline {
        Deadline {
            received,
            limit: Duration::from_secs(seconds),
        }
    }

    /// When it is over.
    pub(crate) fn at(self) -> Instant {
        self.received + self.limit
    }

    /// When it is too late for the request's turn: a quarter of its time is for waiting.
    pub(crate) fn of_turn(self) -> Instant {
        self.received + (self.limit / 4).min(LONGEST_WAIT)
    }

    /// Kubernetes: nothing, less than that, and more than the server allows are as good as not said
    /// (endpoints/filters/request_deadline.go).
    fn shortened(self, nanos: i64) -> Deadline {
        let asked = u64::try_from(nanos)
            .ok()
            .filter(|nanos| *nanos > 0)
            .map(Duration::from_nanos);
        Deadline {
            limit: asked.map_or(self.limit, |asked| asked.min(self.limit)),
            ..self
        }
    }
}

impl Request {
    /// Takes no longer than its client says. What lasts as long as the client likes has no such limit.
    pub(crate) fn heed_timeout(&mut self) -> Result<(), Status> {
        let said = self.query.text("timeout");
        if said.is_empty() || attributes(self).is_long_running() {
            return Ok(());
        }
        let refuse = |error| format!("invalid timeout specified in the request URL - {error}");
        let nanos = duration_nanos(said).map_err(|error| Status::bad_request(refuse(error)))?;
        self.deadline = self.deadline.shortened(nanos);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_can_only_ask_for_less() {
        let now = Instant::now();
        let check = |seconds: u64, nanos: i64, limit: u64, turn: u64| {
            let deadline = Deadline::new(now, seconds).shortened(nanos);
            assert_eq!((deadline.at() - now, deadline.of_turn() - now), {
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
