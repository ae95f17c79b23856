//! A PriorityLevelConfiguration: how requests wait, and the shares of the server's seats.

use mizzen_value::{Str, Value};

use super::shuffle_sharding::Hand;

/// The only level of type Exempt.
pub(super) const EXEMPT: &str = "exempt";
/// The level, and the schema, of requests that match nothing else.
pub(super) const CATCH_ALL: &str = "catch-all";
/// The maximum fraction of a level's nominal seats for one request.
const WIDEST: f64 = 0.15;

/// A PriorityLevelConfiguration.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PriorityLevelConfiguration {
    pub name: Str,
    pub uid: Str,
    pub response: LimitResponse,
    /// Its part of the server's seats, relative to all shares.
    pub shares: i64,
    lendable_percent: i64,
    /// None if there is no limit.
    borrowing_percent: Option<i64>,
}

/// What happens to requests for which no seats are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitResponse {
    /// Requests are never limited.
    Exempt,
    /// They are rejected.
    Reject,
    /// They wait in queues.
    Queue {
        queues: usize,
        /// How many requests may wait in each queue.
        length: usize,
        /// The hand size: how many queues each flow may use.
        hand: usize,
    },
}

impl LimitResponse {
    /// None if the object is invalid.
    fn from_object(response: &Value) -> Option<LimitResponse> {
        let queuing = &response["queuing"];
        if (response["type"].str() == "Reject") != queuing.is_null() {
            return None;
        }
        if queuing.is_null() {
            return Some(LimitResponse::Reject);
        }
        let number = |name: &str| usize::try_from(queuing[name].int()).ok();
        let (queues, length, hand) = (
            number("queues")?,
            number("queueLengthLimit")?,
            number("handSize")?,
        );
        Hand::is_possible(queues, hand).then_some(LimitResponse::Queue {
            queues,
            length,
            hand,
        })
    }

    pub(super) fn n_queues(self) -> usize {
        match self {
            LimitResponse::Queue { queues, .. } => queues,
            _ => 0,
        }
    }

    /// How many requests may wait. Kubernetes: the scale of utilization is at least one
    /// (queueset.go).
    pub(super) fn max_waiting(self) -> usize {
        match self {
            LimitResponse::Queue { queues, length, .. } => {
                length.max(1).saturating_mul(queues.max(1))
            }
            _ => 0,
        }
    }
}

/// The concurrency limits of a level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SeatLimits {
    /// The nominal limit.
    pub nominal: usize,
    /// The minimum when it lends.
    pub lower: usize,
    /// The maximum when it borrows.
    pub upper: usize,
    /// The maximum seats of one request; none without queues.
    pub max_request_seats: Option<usize>,
}

impl PriorityLevelConfiguration {
    /// None if the object is invalid.
    pub(super) fn from_object(object: &Value) -> Option<PriorityLevelConfiguration> {
        let (metadata, spec) = (&object["metadata"], &object["spec"]);
        let (limited, exempt) = (&spec["limited"], &spec["exempt"]);
        let (is_limited, is_exempt) = (
            spec["type"].str() == "Limited",
            spec["type"].str() == "Exempt",
        );
        let name = metadata["name"].str();
        if is_limited == limited.is_null()
            || is_exempt == exempt.is_null()
            || is_exempt != (name == EXEMPT)
        {
            return None;
        }
        let response = if is_exempt {
            LimitResponse::Exempt
        } else {
            LimitResponse::from_object(&limited["limitResponse"])?
        };
        let said = if is_exempt { exempt } else { limited };
        Some(PriorityLevelConfiguration {
            name: name.into(),
            uid: metadata["uid"].str().into(),
            response,
            shares: said["nominalConcurrencyShares"].int().max(0),
            lendable_percent: said["lendablePercent"].int().clamp(0, 100),
            borrowing_percent: said["borrowingLimitPercent"]
                .as_int()
                .map(|percent| percent.max(0)),
        })
    }

    /// A mandatory level, used while it is not stored.
    pub(super) fn mandatory(name: &str) -> PriorityLevelConfiguration {
        let (shape, shares) = match name {
            EXEMPT => (LimitResponse::Exempt, 0),
            _ => (LimitResponse::Reject, 5),
        };
        PriorityLevelConfiguration {
            name: name.into(),
            uid: Str::default(),
            response: shape,
            shares,
            lendable_percent: 0,
            borrowing_percent: None,
        }
    }

    /// The limits of a server with `limit` seats, where the shares of all levels add up to `all`.
    pub(super) fn seat_limits(&self, limit: usize, all: i64) -> SeatLimits {
        let nominal = if all > 0 {
            (limit as f64 * self.shares as f64 / all as f64).ceil()
        } else {
            0.0
        };
        let percent = |percent: i64| (nominal * percent as f64 / 100.0).round() as usize;
        let own = nominal as usize;
        SeatLimits {
            nominal: own,
            lower: own - percent(self.lendable_percent),
            upper: own + self.borrowing_percent.map_or(limit, percent),
            max_request_seats: match self.response {
                LimitResponse::Queue { hand, .. } => {
                    Some(((nominal * WIDEST).ceil() as usize).min(own / hand).max(1))
                }
                _ => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    fn read(name: &str, spec: &str) -> Option<PriorityLevelConfiguration> {
        let object = format!(r#"{{"metadata":{{"name":"{name}","uid":"u"}},"spec":{spec}}}"#);
        PriorityLevelConfiguration::from_object(&json::parse(object.as_bytes()).unwrap())
    }

    fn limited(more: &str) -> PriorityLevelConfiguration {
        let spec = format!(
            r#"{{"type":"Limited","limited":{{"nominalConcurrencyShares":40,{more}"limitResponse":{{"type":"Queue",
               "queuing":{{"queues":64,"queueLengthLimit":50,"handSize":6}}}}}}}}"#
        );
        read("node-high", &spec).expect("a sound level")
    }

    #[test]
    fn seats_are_a_part_of_the_servers_by_shares() {
        let seats = limited(r#""lendablePercent":25,"#).seat_limits(600, 245);
        assert_eq!(
            seats,
            SeatLimits {
                nominal: 98,
                lower: 73,
                upper: 698,
                max_request_seats: Some(15)
            }
        );
        let seats =
            limited(r#""lendablePercent":0,"borrowingLimitPercent":50,"#).seat_limits(600, 245);
        assert_eq!(
            seats,
            SeatLimits {
                nominal: 98,
                lower: 98,
                upper: 147,
                max_request_seats: Some(15)
            }
        );
        assert_eq!(limited("").seat_limits(10, 245).max_request_seats, Some(1));
        assert_eq!(
            PriorityLevelConfiguration::mandatory(CATCH_ALL)
                .seat_limits(600, 245)
                .nominal,
            13
        );
    }

    #[test]
    fn an_invalid_level_is_ignored() {
        let exempt = r#"{"type":"Exempt","exempt":{"nominalConcurrencyShares":0}}"#;
        assert_eq!(
            read("exempt", exempt).map(|level| level.response),
            Some(LimitResponse::Exempt)
        );
        let broken = [
            ("mine", exempt),
            (
                "exempt",
                r#"{"type":"Limited","limited":{"limitResponse":{"type":"Reject"}},"exempt":{}}"#,
            ),
            ("mine", r#"{"type":"Limited"}"#),
            (
                "mine",
                r#"{"type":"Limited","limited":{"limitResponse":{"type":"Queue"}}}"#,
            ),
            (
                "mine",
                r#"{"type":"Limited","limited":{"limitResponse":{"type":"Reject","queuing":{"queues":1}}}}"#,
            ),
            (
                "mine",
                r#"{"type":"Limited","limited":{"limitResponse":{"type":"Queue",
                   "queuing":{"queues":2,"queueLengthLimit":50,"handSize":3}}}}"#,
            ),
        ];
        broken
            .iter()
            .for_each(|(name, spec)| assert_eq!(read(name, spec), None, "{name} {spec}"));
    }
}
