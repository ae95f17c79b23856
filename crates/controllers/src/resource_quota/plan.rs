//! The status of a quota for a calculated usage.

use mizzen_component_helpers::amounts::{Amounts, amounts};
use mizzen_component_helpers::quota::QuotaEvaluator;
use mizzen_sdk::Object;
use mizzen_value::{Map, Value};

/// Whether a quota limits a resource.
pub(super) fn limits_resource(quota: &Object, counted: &QuotaEvaluator) -> bool {
    quota["spec"]["hard"]
        .entries()
        .any(|(name, _)| counted.counts_as(name))
}

/// Whether the status lacks the limits of the spec.
pub(super) fn needs_initial_usage(quota: &Object) -> bool {
    amounts(&quota["spec"]["hard"]) != amounts(&quota["status"]["hard"])
}

/// The status to write; none if it did not change.
pub(super) fn status(quota: &Object, counted: &Amounts) -> Option<Value> {
    let hard = &quota["spec"]["hard"];
    let known = amounts(&quota["status"]["used"]);
    // What could not be calculated stays as it was.
    let mut used: Amounts = known.clone();
    used.extend(counted.clone());
    used.retain(|name, _| hard.get(name).is_some());
    let is_said = !quota["status"]["hard"].is_null() && !quota["status"]["used"].is_null();
    if is_said && !needs_initial_usage(quota) && used == known {
        return None;
    }
    let mut status = Value::object();
    status.set(
        "hard",
        if hard.is_null() {
            Value::object()
        } else {
            hard.clone()
        },
    );
    let used: Map = used
        .iter()
        .map(|(name, amount)| (name.as_str(), amount.to_string()))
        .collect();
    status.set("used", used);
    Some(status)
}

/// Whether a status has less usage than another.
pub(super) fn is_less(new: &Value, old: &Value) -> bool {
    let (new, old) = (amounts(&new["used"]), amounts(&old["used"]));
    new.iter()
        .any(|(name, amount)| old.get(name).is_some_and(|old| amount < old))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    /// The new status of a quota for this usage.
    #[track_caller]
    fn check(quota: &str, counted: &str, expected: Option<&str>) {
        let counted = amounts(&json::parse(counted.as_bytes()).unwrap());
        let found = status(&Object::parse(quota.as_bytes()).unwrap(), &counted);
        assert_eq!(
            found.map(|status| json::to_string(&status)).as_deref(),
            expected
        );
    }

    #[test]
    fn usage_is_written_once() {
        check(
            r#"{"spec":{"hard":{"pods":"2"}}}"#,
            r#"{"pods":"1","x":"1"}"#,
            Some(r#"{"hard":{"pods":"2"},"used":{"pods":"1"}}"#),
        );
        check(
            r#"{"spec":{"hard":{"pods":"2"}},"status":{"hard":{"pods":"2"},"used":{"pods":"1"}}}"#,
            r#"{"pods":"1"}"#,
            None,
        );
        check(
            r#"{"spec":{"hard":{"memory":"1Gi"}},"status":{"hard":{"memory":"1024Mi"},"used":{"memory":"0"}}}"#,
            r#"{"memory":"0"}"#,
            None,
        );
    }

    #[test]
    fn new_limits_are_written_even_without_usage() {
        check(
            r#"{"spec":{"hard":{"count/x.io":"1"}}}"#,
            "{}",
            Some(r#"{"hard":{"count/x.io":"1"},"used":{}}"#),
        );
        check(
            r#"{"spec":{"hard":{"pods":"3"}},"status":{"hard":{"pods":"2","cpu":"1"},"used":{"pods":"1","cpu":"1"}}}"#,
            "{}",
            Some(r#"{"hard":{"pods":"3"},"used":{"pods":"1"}}"#),
        );
        check("{}", "{}", Some(r#"{"hard":{},"used":{}}"#));
    }

    #[test]
    fn a_lower_usage_is_less() {
        let read = |text: &str| json::parse(text.as_bytes()).unwrap();
        let old = read(r#"{"used":{"pods":"2","cpu":"1"}}"#);
        assert!(is_less(
            &read(r#"{"used":{"pods":"3","cpu":"900m"}}"#),
            &old
        ));
        assert!(!is_less(&read(r#"{"used":{"pods":"3","cpu":"1"}}"#), &old));
    }
}
