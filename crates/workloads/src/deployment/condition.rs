//! The conditions of a Deployment.

use mizzen_object::condition;
use mizzen_value::{Value, value};

pub(super) const AVAILABLE: &str = "Available";
pub(super) const PROGRESSING: &str = "Progressing";
pub(super) const REPLICA_FAILURE: &str = "ReplicaFailure";

/// A condition with its times set to now.
pub(super) fn new(type_: &str, status: &str, reason: &str, message: &str, now: &str) -> Value {
    value!({
        "type": type_,
        "status": status,
        "lastUpdateTime": now,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message
    })
}

pub(super) fn find<'a>(status: &'a Value, type_: &str) -> Option<&'a Value> {
    condition::find(&status["conditions"], type_)
}

/// Sets a condition and moves it to the end. With the same status and reason it does not change;
/// with the same status lastTransitionTime stays.
pub(super) fn set(status: &mut Value, mut condition: Value) {
    let type_ = condition["type"].str().to_string();
    if let Some(known) = find(status, &type_).filter(|known| known["status"] == condition["status"])
    {
        if known["reason"] == condition["reason"] {
            return;
        }
        condition.set("lastTransitionTime", known["lastTransitionTime"].clone());
    }
    remove(status, &type_);
    status.entry("conditions").make_list().push(condition);
}

pub(super) fn remove(status: &mut Value, type_: &str) {
    let Some(Value::List(conditions)) = status.get_mut("conditions") else {
        return;
    };
    condition::remove(conditions, type_);
    if conditions.is_empty() {
        status.remove("conditions");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_changes_with_its_status_or_reason_and_moves_to_the_end() {
        let mut status = Value::object();
        set(&mut status, new("A", "True", "One", "first", "t1"));
        set(&mut status, new("B", "True", "One", "", "t1"));
        set(&mut status, new("A", "True", "One", "same", "t2"));
        assert_eq!(
            find(&status, "A").map(|it| it["message"].str()),
            Some("first")
        );
        set(&mut status, new("A", "True", "Two", "other", "t3"));
        let a = find(&status, "A").expect("it is there");
        assert_eq!(
            (a["lastUpdateTime"].str(), a["lastTransitionTime"].str()),
            ("t3", "t1")
        );
        assert_eq!(status["conditions"][1]["type"].str(), "A");
        set(&mut status, new("A", "False", "Two", "", "t4"));
        assert_eq!(
            find(&status, "A").map(|it| it["lastTransitionTime"].str()),
            Some("t4")
        );
    }

    #[test]
    fn no_conditions_are_no_list() {
        let mut status = Value::object();
        set(&mut status, new("A", "True", "One", "", "t"));
        remove(&mut status, "A");
        assert_eq!(status, Value::object());
    }
}
