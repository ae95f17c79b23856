//! How many pods may a budget lose now?

use std::collections::BTreeMap;

use mizzen_object::condition::set;
use mizzen_value::{Value, time, value};

use crate::common::percent::{Round, scaled};
use crate::common::pod::is_ready;
use crate::services::member::condition;

/// How long an eviction may take until a pod is seen to go, in seconds. After that it is taken for one that stays.
pub(crate) const DEADLINE: i64 = 120;

/// How many pods there should be, and how many of them must be healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    /// How many there should be.
    pub expected: i64,
    /// How many must be healthy.
    pub healthy: i64,
}

/// What a budget counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Basis {
    /// The pods that are there.
    Pods,
    /// As many as those who control them want.
    Scale,
}

/// What a budget counts from: a number that must be there needs nobody to be asked.
pub(crate) fn basis(budget: &Value) -> Basis {
    let spec = &budget["spec"];
    match spec["maxUnavailable"].is_null() && spec["minAvailable"].as_str().is_none() {
        true => Basis::Pods,
        false => Basis::Scale,
    }
}

/// What a budget needs of `expected` pods.
pub(crate) fn need(budget: &Value, expected: i64) -> Result<Need, String> {
    let spec = &budget["spec"];
    let healthy = match (&spec["maxUnavailable"], &spec["minAvailable"]) {
        (Value::Null, Value::Null) => {
            return Ok(Need {
                expected: 0,
                healthy: 0,
            });
        }
        (Value::Null, least) => scaled(least, expected, Round::Up)?,
        (most, _) => (expected - scaled(most, expected, Round::Up)?).max(0),
    };
    Ok(Need { expected, healthy })
}

/// Pods that were evicted and are not seen to go yet.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Disrupted<'a> {
    /// Those that may still go, and since when.
    pub waiting: BTreeMap<&'a str, &'a str>,
    /// Those that should have gone by now.
    pub late: Vec<&'a Value>,
    /// When the first of those that wait is late.
    pub next: Option<i64>,
}

/// What became of the pods that a budget let go.
pub(crate) fn disrupted<'a>(budget: &'a Value, pods: &[&'a Value], now: i64) -> Disrupted<'a> {
    let known = &budget["status"]["disruptedPods"];
    let mut disrupted = Disrupted::default();
    for pod in pods.iter().filter(|pod| !is_going(pod)) {
        let name = pod["metadata"]["name"].str();
        let Some(since) = known[name].as_str() else {
            continue;
        };
        let deadline = time::to_unix(since).unwrap_or_default() + DEADLINE;
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

/// How many pods are healthy and likely to stay.
pub(crate) fn healthy(pods: &[&Value], disrupted: &Disrupted, now: i64) -> i64 {
    let is_leaving = |pod: &Value| {
        let since = disrupted.waiting.get(pod["metadata"]["name"].str());
        since.is_some_and(|since| time::to_unix(since).unwrap_or_default() + DEADLINE > now)
    };
    pods.iter()
        .filter(|pod| !is_going(pod) && !is_leaving(pod) && is_ready(pod))
        .count() as i64
}

/// The status that a budget should have, or none if it has it.
pub(crate) fn status(
    budget: &Value,
    need: Need,
    healthy: i64,
    disrupted: &Disrupted,
    now: &str,
) -> Option<Value> {
    let generation = budget["metadata"]["generation"].int();
    // A budget of no pods allows nothing: the first ones may come before we look again.
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
    let known = condition(budget, "DisruptionAllowed");
    let is_same = status
        .entries()
        .all(|(name, value)| old[name].int() == value.int())
        && (old["disruptedPods"] == waiting
            || old["disruptedPods"].is_empty() && waiting.is_empty())
        && (known["status"].str(), known["reason"].str()) == (is, reason);
    if is_same {
        return None;
    }
    if !waiting.is_empty() {
        status.set("disruptedPods", waiting);
    }
    status.set(
        "conditions",
        conditions(budget, is, reason, "", generation, now),
    );
    Some(status)
}

/// The status of a budget about which nothing can be said: it allows nothing.
pub(crate) fn failed(budget: &Value, error: &str, now: &str) -> Option<Value> {
    let mut status = budget["status"].clone();
    let generation = status["observedGeneration"].int();
    status.set("disruptionsAllowed", 0);
    status.set(
        "conditions",
        conditions(budget, "False", "SyncFailed", error, generation, now),
    );
    (status != budget["status"]).then_some(status)
}

fn conditions(
    budget: &Value,
    is: &str,
    reason: &str,
    text: &str,
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
        let need = need(&value!({"spec": (spec)}), expected).map(|need| need.healthy);
        assert_eq!(need, expect.map_err(String::from));
    }

    #[test]
    fn numbers_count_as_they_are_and_shares_are_rounded_up() {
        check_need(value!({"minAvailable": 2}), 5, Ok(2));
        check_need(value!({"minAvailable": "50%"}), 5, Ok(3));
        check_need(value!({"maxUnavailable": 2}), 5, Ok(3));
        check_need(value!({"maxUnavailable": "30%"}), 4, Ok(2));
        check_need(value!({"maxUnavailable": 9}), 4, Ok(0));
        let error = "invalid value for IntOrString: invalid type: string is not a percentage";
        check_need(value!({"maxUnavailable": "9"}), 4, Err(error));
    }

    #[test]
    fn only_a_number_that_must_be_there_needs_nobody_to_be_asked() {
        let check =
            |spec: Value, expect: Basis| assert_eq!(basis(&value!({"spec": (spec)})), expect);
        check(value!({"minAvailable": 2}), Basis::Pods);
        check(value!({"minAvailable": "2%"}), Basis::Scale);
        check(value!({"maxUnavailable": 1}), Basis::Scale);
    }

    const NOW: i64 = 1_704_067_500;

    fn pod(name: &str, ready: &str) -> Value {
        let conditions = value!([{"type": "Ready", "status": (ready)}]);
        value!({"metadata": {"name": (name)}, "status": {"conditions": (conditions)}})
    }

    #[test]
    fn a_pod_that_was_let_go_does_not_count_until_it_is_late() {
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
        assert_eq!(healthy(&pods, &disrupted, NOW), 2);
    }

    #[track_caller]
    fn check_status(need: (i64, i64), healthy: i64, expect: (i64, &str)) -> Value {
        let budget = value!({"metadata": {"generation": 1}});
        let need = Need {
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
    fn a_budget_allows_what_is_healthy_beyond_its_need() {
        check_status((3, 2), 3, (1, "SufficientPods"));
        check_status((3, 2), 2, (0, "InsufficientPods"));
        check_status((3, 2), 1, (0, "InsufficientPods"));
        check_status((0, 0), 1, (0, "InsufficientPods"));
    }

    #[test]
    fn a_status_that_is_right_is_not_written() {
        let right = check_status((3, 2), 3, (1, "SufficientPods"));
        let mut budget = value!({"metadata": {"generation": 1}, "status": (right.clone())});
        let need = Need {
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
        let status = failed(&budget, "no idea", "u").expect("it was fine before");
        let condition = &status["conditions"][0];
        assert_eq!(status["disruptionsAllowed"].int(), 0);
        assert_eq!(
            (condition["reason"].str(), condition["message"].str()),
            ("SyncFailed", "no idea")
        );
    }
}
