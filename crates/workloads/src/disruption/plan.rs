//! The status of a PodDisruptionBudget.

use std::collections::BTreeMap;

use mizzen_object::condition::set;
use mizzen_value::{Value, time, value};

use crate::common::int_or_percent::{Rounding, scaled_value};
use crate::common::pod::{condition, is_ready};

/// How long an evicted pod may take to be deleted, in seconds. After that it counts as not
/// disrupted.
pub(crate) const DELETION_TIMEOUT: i64 = 120;

/// The expected pods, and how many of them must be healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PodRequirement {
    pub expected: i64,
    pub healthy: i64,
}

/// How the expected number of pods is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpectedFrom {
    /// The number of existing pods.
    Pods,
    /// The scale of the pods' controllers.
    Scale,
}

/// How the expected number is determined: only a fixed minAvailable does not need the scale.
pub(crate) fn expected_from(budget: &Value) -> ExpectedFrom {
    let spec = &budget["spec"];
    match spec["maxUnavailable"].is_null() && spec["minAvailable"].as_str().is_none() {
        true => ExpectedFrom::Pods,
        false => ExpectedFrom::Scale,
    }
}

/// What a budget requires of `expected` pods.
pub(crate) fn requirement(budget: &Value, expected: i64) -> Result<PodRequirement, String> {
    let spec = &budget["spec"];
    let healthy = match (&spec["maxUnavailable"], &spec["minAvailable"]) {
        (Value::Null, Value::Null) => {
            return Ok(PodRequirement {
                expected: 0,
                healthy: 0,
            });
        }
        (Value::Null, least) => scaled_value(least, expected, Rounding::Up)?,
        (most, _) => (expected - scaled_value(most, expected, Rounding::Up)?).max(0),
    };
    Ok(PodRequirement { expected, healthy })
}

/// Evicted pods that are not being deleted yet.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Disrupted<'a> {
    /// Pods within the timeout, and when they were evicted.
    pub waiting: BTreeMap<&'a str, &'a str>,
    /// Pods after the timeout.
    pub late: Vec<&'a Value>,
    /// When the next timeout ends.
    pub next: Option<i64>,
}

/// Splits the pods of `status.disruptedPods`.
pub(crate) fn disrupted<'a>(budget: &'a Value, pods: &[&'a Value], now: i64) -> Disrupted<'a> {
    let known = &budget["status"]["disruptedPods"];
    let mut disrupted = Disrupted::default();
    for pod in pods.iter().filter(|pod| !is_going(pod)) {
        let name = pod["metadata"]["name"].str();
        let Some(since) = known[name].as_str() else {
            continue;
        };
        let deadline = time::to_unix(since).unwrap_or_default() + DELETION_TIMEOUT;
        if deadline < now {
            disrupted.late.push(pod);
        } else {
            disrupted.waiting.insert(name, since);
            disrupted.next = Some(disrupted.next.map_or(deadline, |next| next.min(deadline)));
        }
    }
    disrupted
}

fn is_going(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

/// Counts healthy pods that are not disrupted.
pub(crate) fn count_healthy(pods: &[&Value], disrupted: &Disrupted, now: i64) -> i64 {
    let is_leaving = |pod: &Value| {
        let since = disrupted.waiting.get(pod["metadata"]["name"].str());
        since.is_some_and(|since| time::to_unix(since).unwrap_or_default() + DELETION_TIMEOUT > now)
    };
    pods.iter()
        .filter(|pod| !is_going(pod) && !is_leaving(pod) && is_ready(pod))
        .count() as i64
}

/// The status to write; none if it did not change.
pub(crate) fn status(
    budget: &Value,
    need: PodRequirement,
    healthy: i64,
    disrupted: &Disrupted,
    now: &str,
) -> Option<Value> {
    let generation = budget["metadata"]["generation"].int();
    // A budget without pods allows no disruptions: the first pods may be created before the next
    // sync.
    let allowed = if need.expected > 0 {
        (healthy - need.healthy).max(0)
    } else {
        0
    };
    let (is, reason) = if allowed > 0 {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    let old = &budget["status"];
    let mut status = value!({
        "currentHealthy": (healthy),
        "desiredHealthy": (need.healthy),
        "expectedPods": (need.expected),
        "disruptionsAllowed": (allowed),
        "observedGeneration": (generation)
    });
    let waiting = disrupted
        .waiting
        .iter()
        .map(|(name, since)| (*name, Value::from(*since)));
    let waiting = Value::Map(waiting.collect());
    let has_condition =
        |known: &Value| (known["status"].str(), known["reason"].str()) == (is, reason);
    let is_same = status
        .entries()
        .all(|(name, value)| old[name].int() == value.int())
        && (old["disruptedPods"] == waiting
            || old["disruptedPods"].is_empty() && waiting.is_empty())
        && condition(budget, "DisruptionAllowed").is_some_and(has_condition);
    if is_same {
        return None;
    }
    if !waiting.is_empty() {
        status.set("disruptedPods", waiting);
    }
    status.set(
        "conditions",
        conditions(budget, (is, reason, ""), generation, now),
    );
    Some(status)
}

/// The status of a budget whose sync failed: no disruptions are allowed.
pub(crate) fn failed_status(budget: &Value, error: &str, now: &str) -> Option<Value> {
    let mut status = budget["status"].clone();
    let generation = status["observedGeneration"].int();
    status.set("disruptionsAllowed", 0);
    status.set(
        "conditions",
        conditions(budget, ("False", "SyncFailed", error), generation, now),
    );
    (status != budget["status"]).then_some(status)
}

/// The conditions with DisruptionAllowed set to a status, reason and message.
fn conditions(
    budget: &Value,
    (is, reason, text): (&str, &str, &str),
    generation: i64,
    now: &str,
) -> Value {
    let mut conditions = budget["status"]["conditions"].clone();
    let mut new = value!({
        "type": "DisruptionAllowed",
        "status": (is),
        "observedGeneration": (generation),
        "lastTransitionTime": (now),
        "reason": (reason),
        "message": (text)
    });
    if generation == 0 {
        new.remove("observedGeneration");
    }
    set(conditions.make_list(), new);
    conditions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_need(spec: Value, expected: i64, expect: Result<i64, &str>) {
        let need = requirement(&value!({"spec": (spec)}), expected).map(|need| need.healthy);
        assert_eq!(need, expect.map_err(String::from));
    }

    #[test]
    fn numbers_count_as_they_are_and_percentages_are_rounded_up() {
        check_need(value!({"minAvailable": 2}), 5, Ok(2));
        check_need(value!({"minAvailable": "50%"}), 5, Ok(3));
        check_need(value!({"maxUnavailable": 2}), 5, Ok(3));
        check_need(value!({"maxUnavailable": "30%"}), 4, Ok(2));
        check_need(value!({"maxUnavailable": 9}), 4, Ok(0));
        let error = "invalid value for IntOrString: invalid type: string is not a percentage";
        check_need(value!({"maxUnavailable": "9"}), 4, Err(error));
    }

    #[test]
    fn only_a_fixed_min_available_needs_no_scale() {
        let check = |spec: Value, expect: ExpectedFrom| {
            assert_eq!(expected_from(&value!({"spec": (spec)})), expect)
        };
        check(value!({"minAvailable": 2}), ExpectedFrom::Pods);
        check(value!({"minAvailable": "2%"}), ExpectedFrom::Scale);
        check(value!({"maxUnavailable": 1}), ExpectedFrom::Scale);
    }

    const NOW: i64 = 1_704_067_500;

    fn pod(name: &str, ready: &str) -> Value {
        let conditions = value!([{"type": "Ready", "status": (ready)}]);
        value!({"metadata": {"name": (name)}, "status": {"conditions": (conditions)}})
    }

    #[test]
    fn a_disrupted_pod_does_not_count_until_its_timeout() {
        let (fresh, late) = (time::from_unix(NOW - 60), time::from_unix(NOW - 121));
        let pods = [
            pod("a", "True"),
            pod("b", "True"),
            pod("c", "True"),
            pod("d", "False"),
        ];
        let pods: Vec<&Value> = pods.iter().collect();
        let budget = value!({"status": {"disruptedPods": {"a": (fresh.as_str()), "b": (late), "gone": (fresh.as_str())}}});
        let disrupted = disrupted(&budget, &pods, NOW);
        assert_eq!(disrupted.waiting, BTreeMap::from([("a", fresh.as_str())]));
        assert_eq!(disrupted.late, [pods[1]]);
        assert_eq!(disrupted.next, Some(NOW + 60));
        assert_eq!(count_healthy(&pods, &disrupted, NOW), 2);
    }

    #[track_caller]
    fn check_status(need: (i64, i64), healthy: i64, expect: (i64, &str)) -> Value {
        let budget = value!({"metadata": {"generation": 1}});
        let need = PodRequirement {
            expected: need.0,
            healthy: need.1,
        };
        let status =
            status(&budget, need, healthy, &Disrupted::default(), "t").expect("there is none yet");
        let condition = &status["conditions"][0];
        assert_eq!(
            (
                status["disruptionsAllowed"].int(),
                condition["reason"].str()
            ),
            expect
        );
        status
    }

    #[test]
    fn a_budget_allows_healthy_pods_beyond_its_requirement() {
        check_status((3, 2), 3, (1, "SufficientPods"));
        check_status((3, 2), 2, (0, "InsufficientPods"));
        check_status((3, 2), 1, (0, "InsufficientPods"));
        check_status((0, 0), 1, (0, "InsufficientPods"));
    }

    #[test]
    fn a_status_that_is_right_is_not_written() {
        let right = check_status((3, 2), 3, (1, "SufficientPods"));
        let mut budget = value!({"metadata": {"generation": 1}, "status": (right.clone())});
        let need = PodRequirement {
            expected: 3,
            healthy: 2,
        };
        assert_eq!(status(&budget, need, 3, &Disrupted::default(), "u"), None);
        budget.entry("metadata").set("generation", 2);
        let newer = status(&budget, need, 3, &Disrupted::default(), "u")
            .expect("it is of an older generation");
        assert_eq!(
            newer["conditions"][0]["lastTransitionTime"].str(),
            "t",
            "nothing turned"
        );
        assert_eq!(newer["conditions"][0]["observedGeneration"].int(), 2);
    }

    #[test]
    fn a_budget_that_cannot_be_counted_allows_nothing() {
        let right = check_status((3, 2), 3, (1, "SufficientPods"));
        let budget = value!({"metadata": {"generation": 1}, "status": (right)});
        let status = failed_status(&budget, "no idea", "u").expect("it was fine before");
        let condition = &status["conditions"][0];
        assert_eq!(status["disruptionsAllowed"].int(), 0);
        assert_eq!(
            (condition["reason"].str(), condition["message"].str()),
            ("SyncFailed", "no idea")
        );
    }
}
