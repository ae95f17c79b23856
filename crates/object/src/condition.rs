//! Conditions in an object's status: a list with one entry per type.
//!
//! The one implementation for all kinds and components. A condition is updated in place, a new one
//! is appended, and `lastTransitionTime` is when its `status` last changed.
//!
//! Kubernetes: apimachinery/pkg/api/meta/conditions.go (`SetStatusCondition`) and
//! pkg/api/v1/pod/util.go (`UpdatePodCondition`).

use mizzen_value::Value;

/// The condition of a type; `conditions` is the list of a status.
pub fn find<'a>(conditions: &'a Value, type_: &str) -> Option<&'a Value> {
    conditions
        .list()
        .iter()
        .find(|condition| condition["type"].str() == type_)
}

/// Whether a condition exists and its status is `True`.
pub fn is_true(conditions: &Value, type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition["status"].str() == "True")
}

/// The condition to write, with the previous transition time if the status is unchanged. `None` if
/// the existing condition is equal.
pub fn updated(conditions: &Value, mut condition: Value) -> Option<Value> {
    let Some(known) = find(conditions, condition["type"].str()) else {
        return Some(condition);
    };
    let is_same = |field: &str| known[field].str() == condition[field].str();
    if is_same("status") {
        if is_same("reason") && is_same("message") {
            return None;
        }
        keep_time(&mut condition, known);
    }
    Some(condition)
}

/// Sets a condition; returns whether that changed anything. The transition time stays if the status
/// is unchanged.
pub fn set(conditions: &mut Vec<Value>, mut condition: Value) -> bool {
    let Some(known) = conditions
        .iter_mut()
        .find(|known| known["type"] == condition["type"])
    else {
        conditions.push(condition);
        return true;
    };
    if known["status"] == condition["status"] {
        keep_time(&mut condition, known);
    }
    let is_changed = *known != condition;
    *known = condition;
    is_changed
}

fn keep_time(condition: &mut Value, known: &Value) {
    if !known["lastTransitionTime"].is_null() {
        condition.set("lastTransitionTime", known["lastTransitionTime"].clone());
    }
}

/// Removes a condition; returns whether it existed.
pub fn remove(conditions: &mut Vec<Value>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition["type"].str() != type_);
    conditions.len() != before
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    fn read(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    fn condition(type_: &str, status: &str, time: &str, reason: &str) -> String {
        format!(
            r#"{{"type":"{type_}","status":"{status}","lastTransitionTime":"{time}","reason":"{reason}"}}"#
        )
    }

    /// The conditions after `new` is set, whether they changed, and whether it is to be written.
    #[track_caller]
    fn check(known: &[String], new: &str, expected: &[String], is_changed: bool) {
        let known = read(&format!("[{}]", known.join(",")));
        let mut conditions = known.list().to_vec();
        assert_eq!(set(&mut conditions, read(new)), is_changed, "{new}");
        let expected = format!("[{}]", expected.join(","));
        assert_eq!(json::to_string(&Value::List(conditions.clone())), expected);
        let written = updated(&known, read(new));
        assert_eq!(written.is_some(), is_changed, "{new}");
        if let Some(written) = written {
            assert!(conditions.contains(&written), "{written:?}");
        }
    }

    #[test]
    fn the_time_of_the_last_transition_is_that_of_the_status() {
        let (a, b) = (
            condition("A", "True", "then", "X"),
            condition("B", "True", "then", "X"),
        );
        let now = |status: &str, reason: &str| condition("A", status, "now", reason);
        let both = [a.clone(), b.clone()];
        // A new one is appended.
        check(&[], &now("True", "X"), &[now("True", "X")], true);
        check(
            std::slice::from_ref(&b),
            &now("True", "X"),
            &[b.clone(), now("True", "X")],
            true,
        );
        // An equal one changes nothing, whatever the time.
        check(&both, &now("True", "X"), &both, false);
        // Another reason keeps the time, another status does not; both stay in place.
        let other = [condition("A", "True", "then", "Y"), b.clone()];
        check(&both, &now("True", "Y"), &other, true);
        check(
            &both,
            &now("False", "X"),
            &[now("False", "X"), b.clone()],
            true,
        );
        check(&both, &now("Unknown", "Y"), &[now("Unknown", "Y"), b], true);
    }

    #[test]
    fn a_condition_is_found_by_its_type() {
        let conditions = read(&format!(
            "[{},{}]",
            condition("A", "True", "t", ""),
            condition("B", "False", "t", "")
        ));
        assert!(is_true(&conditions, "A"));
        assert!(!is_true(&conditions, "B") && !is_true(&conditions, "C"));
        assert!(!is_true(&Value::Null, "A"));
        assert_eq!(find(&conditions, "B"), Some(&conditions[1]));
        assert_eq!(find(&conditions, "a"), None);
        let mut list = conditions.list().to_vec();
        assert!(remove(&mut list, "A") && !remove(&mut list, "A"));
        assert_eq!(list, [conditions[1].clone()]);
    }
}
