//! What does a priority level say? How its requests wait, and how many seats are its own.

use mizzen_value::{Str, Value};

use super::deal::Hand;

/// The level whose requests are never held up; there is no other of that kind.
pub(super) const EXEMPT: &str = "exempt";
/// The level, and the schema, of what nothing else is for.
pub(super) const CATCH_ALL: &str = "catch-all";
/// How much of a level's own seats a single request may take.
const WIDEST: f64 = 0.15;

/// A priority level as it is configured.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Level {
    pub name: Str,
    pub uid: Str,
    pub shape: Shape,
    /// Its part of the server's seats, next to those of others.
    pub shares: i64,
    lendable_percent: i64,
    /// None if there is no limit.
    borrowing_percent: Option<i64>,
}

/// How requests of a level wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// They never do.
    Exempt,
    /// They are turned away instead.
    Reject,
    /// In queues.
    Queue {
        /// How many there are.
        queues: usize,
        /// How many requests may wait in each.
        length: usize,
        /// How many each flow may use.
        hand: usize,
    },
}

impl Shape {
    /// How many queues there are.
    pub(super) fn n_queues(self) -> usize {
        match self {
            Shape::Queue { queues, .. } => queues,
            _ => 0,
        }
    }

    /// How many requests may wait. Kubernetes: where none may, use is measured by one (queueset.go).
    pub(super) fn room_to_wait(self) -> usize {
        match self {
            Shape::Queue { queues, length, .. } => length.max(1).saturating_mul(queues.max(1)),
            _ => 0,
        }
    }
}

/// The seats of a level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seats {
    /// Its own.
    pub nominal: usize,
    /// What it keeps of them when it lends.
    pub lower: usize,
    /// What it may have when it borrows.
    pub upper: usize,
    /// What a single request may take; none where nothing is said.
    pub widest: Option<usize>,
}

impl Level {
    /// Reads a PriorityLevelConfiguration. One that makes no sense is as good as none.
    pub(super) fn read(object: &Value) -> Option<Level> {
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
        let shape = if is_exempt {
            Shape::Exempt
        } else {
            waiting(&limited["limitResponse"])?
        };
        let said = if is_exempt { exempt } else { limited };
        Some(Level {
            name: name.into(),
            uid: metadata["uid"].str().into(),
            shape,
            shares: said["nominalConcurrencyShares"].int().max(0),
            lendable_percent: said["lendablePercent"].int().clamp(0, 100),
            borrowing_percent: said["borrowingLimitPercent"]
                .as_int()
                .map(|percent| percent.max(0)),
        })
    }

    /// The level that is there even if nobody has written it.
    pub(super) fn mandatory(name: &str) -> Level {
        let (shape, shares) = match name {
            EXEMPT => (Shape::Exempt, 0),
            _ => (Shape::Reject, 5),
        };
        Level {
            name: name.into(),
            uid: Str::default(),
            shape,
            shares,
            lendable_percent: 0,
            borrowing_percent: None,
        }
    }

    /// Its seats of all `limit` that the server has, where everybody's shares are `all` together.
    pub(super) fn seats(&self, limit: usize, all: i64) -> Seats {
        let nominal = if all > 0 {
            (limit as f64 * self.shares as f64 / all as f64).ceil()
        } else {
            0.0
        };
        let percent = |percent: i64| (nominal * percent as f64 / 100.0).round() as usize;
        let own = nominal as usize;
        Seats {
            nominal: own,
            lower: own - percent(self.lendable_percent),
            upper: own + self.borrowing_percent.map_or(limit, percent),
            widest: match self.shape {
                Shape::Queue { hand, .. } => {
                    Some(((nominal * WIDEST).ceil() as usize).min(own / hand).max(1))
                }
                _ => None,
            },
        }
    }
}

/// What a level's requests do that cannot go at once.
fn waiting(response: &Value) -> Option<Shape> {
    let queuing = &response["queuing"];
    if (response["type"].str() == "Reject") != queuing.is_null() {
        return None;
    }
    if queuing.is_null() {
        return Some(Shape::Reject);
    }
    let number = |name: &str| usize::try_from(queuing[name].int()).ok();
    let (queues, length, hand) = (
        number("queues")?,
        number("queueLengthLimit")?,
        number("handSize")?,
    );
    Hand::is_possible(queues, hand).then_some(Shape::Queue {
        queues,
        length,
        hand,
    })
}

#[cfg(test)]
mod tests {
    use mizzen_value::json;

    use super::*;

    fn read(name: &str, spec: &str) -> Option<Level> {
        let object = format!(r#"{{"metadata":{{"name":"{name}","uid":"u"}},"spec":{spec}}}"#);
        Level::read(&json::parse(object.as_bytes()).unwrap())
    }

    fn limited(more: &str) -> Level {
        let spec = format!(
            r#"{{"type":"Limited","limited":{{"nominalConcurrencyShares":40,{more}"limitResponse":{{"type":"Queue",
               "queuing":{{"queues":64,"queueLengthLimit":50,"handSize":6}}}}}}}}"#
        );
        read("node-high", &spec).expect("a sound level")
    }

    #[test]
    fn seats_are_a_part_of_the_servers_by_shares() {
        let seats = limited(r#""lendablePercent":25,"#).seats(600, 245);
        assert_eq!(
            seats,
            Seats {
                nominal: 98,
                lower: 73,
                upper: 698,
                widest: Some(15)
            }
        );
        let seats = limited(r#""lendablePercent":0,"borrowingLimitPercent":50,"#).seats(600, 245);
        assert_eq!(
            seats,
            Seats {
                nominal: 98,
                lower: 98,
                upper: 147,
                widest: Some(15)
            }
        );
        assert_eq!(limited("").seats(10, 245).widest, Some(1));
        assert_eq!(Level::mandatory(CATCH_ALL).seats(600, 245).nominal, 13);
    }

    #[test]
    fn a_level_that_makes_no_sense_is_none() {
        let exempt = r#"{"type":"Exempt","exempt":{"nominalConcurrencyShares":0}}"#;
        assert_eq!(
            read("exempt", exempt).map(|level| level.shape),
            Some(Shape::Exempt)
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
