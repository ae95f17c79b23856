//! How much of what metrics ask for may be done now?
//!
//! First the recommendation is held against those of the last minutes, so that a target does not flap; then it is bound by
//! the least and the most replicas, and by how fast a target may grow and shrink.

use mizzen_value::Value;

use super::history::{History, Moment};

/// How long a target waits until it shrinks, in seconds, where nobody says otherwise.
const SHRINK_WINDOW: i64 = 300;

/// Between which numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// The least replicas.
    pub min: i64,
    /// The most.
    pub max: i64,
    /// Those that there are.
    pub current: i64,
}

/// What may be done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Verdict {
    /// How many replicas there shall be.
    pub replicas: i64,
    /// Whether the recommendation was held against others: reason and message of `AbleToScale`.
    pub able: Reason,
    /// Whether it was bound.
    pub is_limited: bool,
    /// By what: reason and message of `ScalingLimited`.
    pub limited: Reason,
}

/// A reason for machines and one for people.
pub(crate) type Reason = (&'static str, &'static str);

const READY: Reason = ("ReadyForNewScale", "recommended size matches current size");
const HELD_UP: Reason = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const HELD_DOWN: Reason = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const WITHIN: Reason = (
    "DesiredWithinRange",
    "the desired count is within the acceptable range",
);
const TOO_FEW: Reason = (
    "TooFewReplicas",
    "the desired replica count is less than the minimum replica count",
);
const TOO_MANY: Reason = (
    "TooManyReplicas",
    "the desired replica count is more than the maximum replica count",
);
const TOO_FAST_UP: Reason = (
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
);
const TOO_FAST_DOWN: Reason = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);

/// How much of `wanted` may be done now. `behaviour` is what people say about it, if they do.
pub(crate) fn limit(
    behaviour: &Value,
    bounds: Bounds,
    wanted: i64,
    history: &mut History,
    now: Moment,
) -> Verdict {
    let (stable, held) = stabilise(behaviour, bounds, wanted, history, now);
    history.recommend(wanted, now);
    let (replicas, limited) = match behaviour.is_null() {
        true => bind(bounds, stable),
        false => bind_by_policies(behaviour, bounds, stable, history, now),
    };
    let able = if stable == wanted { READY } else { held };
    Verdict {
        replicas,
        able,
        is_limited: replicas != stable,
        limited,
    }
}

/// The recommendation in the light of others, and the reason if it is another then.
fn stabilise(
    behaviour: &Value,
    bounds: Bounds,
    wanted: i64,
    history: &History,
    now: Moment,
) -> (i64, Reason) {
    let shrink = behaviour["scaleDown"]["stabilizationWindowSeconds"]
        .as_int()
        .unwrap_or(SHRINK_WINDOW);
    let highest = history.recommended(shrink, now).fold(wanted, i64::max);
    if behaviour.is_null() {
        return (highest, HELD_UP);
    }
    let grow = behaviour["scaleUp"]["stabilizationWindowSeconds"].int();
    let lowest = history.recommended(grow, now).fold(wanted, i64::min);
    let stable = bounds.current.max(lowest).min(highest);
    (
        stable,
        if wanted >= bounds.current {
            HELD_DOWN
        } else {
            HELD_UP
        },
    )
}

/// Without policies a target may double, and four replicas may always be made.
fn bind(bounds: Bounds, wanted: i64) -> (i64, Reason) {
    let fastest = (bounds.current * 2).max(4);
    let (most, reason) = if bounds.max > fastest {
        (fastest, TOO_FAST_UP)
    } else {
        (bounds.max, TOO_MANY)
    };
    match wanted {
        _ if wanted < bounds.min => (bounds.min, TOO_FEW),
        _ if wanted > most => (most, reason),
        _ => (wanted, WITHIN),
    }
}

fn bind_by_policies(
    behaviour: &Value,
    bounds: Bounds,
    wanted: i64,
    history: &History,
    now: Moment,
) -> (i64, Reason) {
    let current = bounds.current;
    if wanted > current {
        let fastest = fastest(&behaviour["scaleUp"], current, history, now, true).max(current);
        let (most, reason) = if bounds.max > fastest {
            (fastest, TOO_FAST_UP)
        } else {
            (bounds.max, TOO_MANY)
        };
        return if wanted > most {
            (most, reason)
        } else {
            (wanted, WITHIN)
        };
    }
    if wanted < current {
        let fastest = fastest(&behaviour["scaleDown"], current, history, now, false).min(current);
        let (least, reason) = if bounds.min < fastest {
            (fastest, TOO_FAST_DOWN)
        } else {
            (bounds.min, TOO_FEW)
        };
        return if wanted < least {
            (least, reason)
        } else {
            (wanted, WITHIN)
        };
    }
    (wanted, WITHIN)
}

/// The farthest that policies let a target go.
fn fastest(rules: &Value, current: i64, history: &History, now: Moment, up: bool) -> i64 {
    let proposed = rules["policies"].list().iter().map(|policy| {
        let before = history.replicas_before(current, policy["periodSeconds"].int(), now);
        let value = policy["value"].int();
        match (policy["type"].str(), up) {
            ("Percent", true) => (before as f64 * (1.0 + value as f64 / 100.0)).ceil() as i64,
            ("Percent", false) => (before as f64 * (1.0 - value as f64 / 100.0)) as i64,
            (_, true) => before + value,
            (_, false) => before - value,
        }
    });
    let farthest = match (rules["selectPolicy"].str(), up) {
        ("Disabled", _) => None,
        ("Min", true) | ("Max" | "", false) => proposed.min(),
        _ => proposed.max(),
    };
    farthest.unwrap_or(current)
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    const NOW: Moment = 10_000_000;

    /// `before` are recommendations so many seconds ago.
    #[track_caller]
    fn check(
        behaviour: &Value,
        before: &[(i64, i64)],
        current: i64,
        wanted: i64,
        expect: (i64, &str, &str),
    ) {
        let mut history = History::default();
        before
            .iter()
            .for_each(|(ago, replicas)| history.recommend(*replicas, NOW - ago * 1000));
        let verdict = limit(
            behaviour,
            Bounds {
                min: 2,
                max: 20,
                current,
            },
            wanted,
            &mut history,
            NOW,
        );
        assert_eq!(
            (verdict.replicas, verdict.able.0, verdict.limited.0),
            expect
        );
        assert_eq!(
            verdict.is_limited,
            verdict.limited.0 != "DesiredWithinRange"
        );
    }

    #[test]
    fn a_target_may_double_and_has_its_bounds() {
        let none = Value::Null;
        check(
            &none,
            &[],
            5,
            8,
            (8, "ReadyForNewScale", "DesiredWithinRange"),
        );
        check(&none, &[], 5, 11, (10, "ReadyForNewScale", "ScaleUpLimit"));
        check(&none, &[], 2, 9, (4, "ReadyForNewScale", "ScaleUpLimit"));
        check(
            &none,
            &[],
            15,
            25,
            (20, "ReadyForNewScale", "TooManyReplicas"),
        );
        check(&none, &[], 5, 1, (2, "ReadyForNewScale", "TooFewReplicas"));
    }

    #[test]
    fn a_target_shrinks_to_the_highest_of_the_last_five_minutes() {
        check(
            &Value::Null,
            &[(299, 4), (100, 3)],
            5,
            2,
            (4, "ScaleDownStabilized", "DesiredWithinRange"),
        );
        check(
            &Value::Null,
            &[(301, 4), (100, 3)],
            5,
            2,
            (3, "ScaleDownStabilized", "DesiredWithinRange"),
        );
    }

    fn rules(up: Value, down: Value) -> Value {
        value!({"scaleUp": (up), "scaleDown": (down)})
    }

    #[test]
    fn windows_can_be_said_for_each_direction() {
        let windows = rules(
            value!({"stabilizationWindowSeconds": 60, "selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}),
            value!({"stabilizationWindowSeconds": 10, "selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}),
        );
        check(
            &windows,
            &[(50, 6)],
            5,
            9,
            (6, "ScaleUpStabilized", "DesiredWithinRange"),
        );
        check(
            &windows,
            &[(70, 6)],
            5,
            9,
            (9, "ReadyForNewScale", "DesiredWithinRange"),
        );
        check(
            &windows,
            &[(5, 4)],
            5,
            3,
            (4, "ScaleDownStabilized", "DesiredWithinRange"),
        );
        check(
            &windows,
            &[(15, 4)],
            5,
            3,
            (3, "ReadyForNewScale", "DesiredWithinRange"),
        );
    }

    #[test]
    fn policies_say_how_fast() {
        let policies = value!([
            {"type": "Pods", "value": 2, "periodSeconds": 60}, {"type": "Percent", "value": 50, "periodSeconds": 60}
        ]);
        let with = |select: &str| {
            let side = value!({"stabilizationWindowSeconds": 0, "selectPolicy": (select), "policies": (policies.clone())});
            rules(side.clone(), side)
        };
        check(
            &with("Max"),
            &[],
            10,
            19,
            (15, "ReadyForNewScale", "ScaleUpLimit"),
        );
        check(
            &with("Min"),
            &[],
            10,
            19,
            (12, "ReadyForNewScale", "ScaleUpLimit"),
        );
        check(
            &with("Disabled"),
            &[],
            10,
            19,
            (10, "ReadyForNewScale", "ScaleUpLimit"),
        );
        check(
            &with("Max"),
            &[],
            10,
            2,
            (5, "ReadyForNewScale", "ScaleDownLimit"),
        );
        check(
            &with("Min"),
            &[],
            10,
            2,
            (8, "ReadyForNewScale", "ScaleDownLimit"),
        );
        check(
            &with("Disabled"),
            &[],
            10,
            2,
            (10, "ReadyForNewScale", "ScaleDownLimit"),
        );
    }

    #[test]
    fn what_was_done_within_a_period_counts() {
        let side = value!({"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]});
        let rules = rules(side.clone(), side);
        let mut history = History::default();
        history.scaled(5, 8, NOW - 30_000);
        let bounds = Bounds {
            min: 1,
            max: 20,
            current: 8,
        };
        assert_eq!(limit(&rules, bounds, 15, &mut history, NOW).replicas, 9);
        assert_eq!(
            limit(&rules, bounds, 15, &mut history, NOW + 31_000).replicas,
            12
        );
    }
}
