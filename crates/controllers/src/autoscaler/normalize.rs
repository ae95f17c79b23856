//! Normalizes the recommended replicas.
//!
//! First the recommendation is stabilized against those of the stabilization window. Then it is
//! limited by minReplicas, maxReplicas and the scaling policies.

use mizzen_value::Value;

use super::history::{Moment, ScalingHistory};

/// The default stabilization window for scaling down, in seconds.
const SHRINK_WINDOW: i64 = 300;

/// The bounds of a target's replicas, and its current replicas.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplicaBounds {
    pub min: i64,
    pub max: i64,
    pub current: i64,
}

/// The replicas to scale to, and the conditions that explain them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NormalizedReplicas {
    pub replicas: i64,
    /// Reason and message of `AbleToScale`: whether the stabilization window changed the
    /// recommendation.
    pub able: Reason,
    /// Whether a bound or a policy limited the recommendation.
    pub is_limited: bool,
    /// Reason and message of `ScalingLimited`.
    pub limited: Reason,
}

/// The reason and the message of a condition.
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

/// Normalizes `wanted` replicas. `behaviour` is the autoscaler's `spec.behavior`, or null.
pub(crate) fn normalize_desired_replicas(
    behaviour: &Value,
    bounds: ReplicaBounds,
    wanted: i64,
    history: &mut ScalingHistory,
    now: Moment,
) -> NormalizedReplicas {
    let (stable, held) = bounds.stabilize_recommendation(behaviour, wanted, history, now);
    history.record_recommendation(wanted, now);
    let (replicas, limited) = match behaviour.is_null() {
        true => bounds.convert_desired_replicas(stable),
        false => bounds.convert_desired_replicas_with_behavior(behaviour, stable, history, now),
    };
    let able = if stable == wanted { READY } else { held };
    NormalizedReplicas {
        replicas,
        able,
        is_limited: replicas != stable,
        limited,
    }
}

impl ReplicaBounds {
    /// The recommendation within its stabilization window, and the reason if the window changed it.
    fn stabilize_recommendation(
        self,
        behaviour: &Value,
        wanted: i64,
        history: &ScalingHistory,
        now: Moment,
    ) -> (i64, Reason) {
        let shrink = behaviour["scaleDown"]["stabilizationWindowSeconds"]
            .as_int()
            .unwrap_or(SHRINK_WINDOW);
        let highest = history
            .recommendations_within(shrink, now)
            .fold(wanted, i64::max);
        if behaviour.is_null() {
            return (highest, HELD_UP);
        }
        let grow = behaviour["scaleUp"]["stabilizationWindowSeconds"].int();
        let lowest = history
            .recommendations_within(grow, now)
            .fold(wanted, i64::min);
        let stable = self.current.max(lowest).min(highest);
        (
            stable,
            if wanted >= self.current {
                HELD_DOWN
            } else {
                HELD_UP
            },
        )
    }

    /// Without `behavior`, a target may double, or grow to four replicas.
    fn convert_desired_replicas(self, wanted: i64) -> (i64, Reason) {
        let fastest = (self.current * 2).max(4);
        let (most, reason) = if self.max > fastest {
            (fastest, TOO_FAST_UP)
        } else {
            (self.max, TOO_MANY)
        };
        match wanted {
            _ if wanted < self.min => (self.min, TOO_FEW),
            _ if wanted > most => (most, reason),
            _ => (wanted, WITHIN),
        }
    }

    fn convert_desired_replicas_with_behavior(
        self,
        behaviour: &Value,
        wanted: i64,
        history: &ScalingHistory,
        now: Moment,
    ) -> (i64, Reason) {
        let current = self.current;
        if wanted > current {
            let fastest =
                policy_scale_limit(&behaviour["scaleUp"], current, history, now, true).max(current);
            let (most, reason) = if self.max > fastest {
                (fastest, TOO_FAST_UP)
            } else {
                (self.max, TOO_MANY)
            };
            return if wanted > most {
                (most, reason)
            } else {
                (wanted, WITHIN)
            };
        }
        if wanted < current {
            let fastest = policy_scale_limit(&behaviour["scaleDown"], current, history, now, false)
                .min(current);
            let (least, reason) = if self.min < fastest {
                (fastest, TOO_FAST_DOWN)
            } else {
                (self.min, TOO_FEW)
            };
            return if wanted < least {
                (least, reason)
            } else {
                (wanted, WITHIN)
            };
        }
        (wanted, WITHIN)
    }
}

/// The replicas that the scaling policies of one direction allow at most (up) or at least (down).
fn policy_scale_limit(
    rules: &Value,
    current: i64,
    history: &ScalingHistory,
    now: Moment,
    up: bool,
) -> i64 {
    let proposed = rules["policies"].list().iter().map(|policy| {
        let before = history.replicas_at_period_start(current, policy["periodSeconds"].int(), now);
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
        let mut history = ScalingHistory::default();
        before
            .iter()
            .for_each(|(ago, replicas)| history.record_recommendation(*replicas, NOW - ago * 1000));
        let normalized = normalize_desired_replicas(
            behaviour,
            ReplicaBounds {
                min: 2,
                max: 20,
                current,
            },
            wanted,
            &mut history,
            NOW,
        );
        assert_eq!(
            (normalized.replicas, normalized.able.0, normalized.limited.0),
            expect
        );
        assert_eq!(
            normalized.is_limited,
            normalized.limited.0 != "DesiredWithinRange"
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
    fn scaling_down_uses_the_highest_recommendation_of_five_minutes() {
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
    fn each_direction_has_its_stabilization_window() {
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
    fn policies_limit_the_scale_rate() {
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
    fn scale_events_within_a_period_count() {
        let side = value!({"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]});
        let rules = rules(side.clone(), side);
        let mut history = ScalingHistory::default();
        history.record_scale_event(5, 8, NOW - 30_000);
        let bounds = ReplicaBounds {
            min: 1,
            max: 20,
            current: 8,
        };
        assert_eq!(
            normalize_desired_replicas(&rules, bounds, 15, &mut history, NOW).replicas,
            9
        );
        assert_eq!(
            normalize_desired_replicas(&rules, bounds, 15, &mut history, NOW + 31_000).replicas,
            12
        );
    }
}
