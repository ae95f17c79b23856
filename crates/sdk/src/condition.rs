//! Conditions of an object's status, one per type.
//!
//! ```
//! use mizzen_sdk::{clock, condition};
//!
//! let now = clock::wall_clock();
//! let mut conditions = Vec::new();
//! assert!(condition::set(&mut conditions, condition::new("Ready", true, "AllUp", "3 of 3 are up", now())));
//! assert!(condition::is_true(&conditions, "Ready"));
//! ```

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use mizzen_value::{Value, value};

/// The condition of a type.
///
/// ```
/// use k8s_openapi::jiff::Timestamp;
/// use mizzen_sdk::condition;
///
/// let conditions = vec![condition::new("Ready", true, "AllUp", "3 of 3 are up", Timestamp::UNIX_EPOCH)];
/// assert_eq!(condition::find(&conditions, "Ready").map(|ready| &*ready.reason), Some("AllUp"));
/// assert_eq!(condition::find(&conditions, "Degraded"), None);
/// ```
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Whether a condition is true.
///
/// ```
/// use k8s_openapi::jiff::Timestamp;
/// use mizzen_sdk::condition;
///
/// let conditions = vec![condition::new("Ready", true, "AllUp", "3 of 3 are up", Timestamp::UNIX_EPOCH)];
/// assert!(condition::is_true(&conditions, "Ready"));
/// assert!(!condition::is_true(&conditions, "Degraded"));
/// ```
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    has_status(conditions, type_, "True")
}

/// Whether a condition is false; a missing one is not.
///
/// ```
/// use k8s_openapi::jiff::Timestamp;
/// use mizzen_sdk::condition;
///
/// let conditions = vec![condition::new("Ready", true, "AllUp", "3 of 3 are up", Timestamp::UNIX_EPOCH)];
/// assert!(!condition::is_false(&conditions, "Ready"));
/// assert!(!condition::is_false(&conditions, "Degraded"));
/// ```
pub fn is_false(conditions: &[Condition], type_: &str) -> bool {
    has_status(conditions, type_, "False")
}

fn has_status(conditions: &[Condition], type_: &str, status: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == status)
}

/// A condition with the transition time `now`.
///
/// ```
/// use k8s_openapi::jiff::Timestamp;
/// use mizzen_sdk::condition;
///
/// let ready = condition::new("Ready", false, "Pulling", "1 of 3 are up", Timestamp::UNIX_EPOCH);
/// assert_eq!((&*ready.type_, &*ready.status), ("Ready", "False"));
/// ```
pub fn new(
    type_: &str,
    status: bool,
    reason: &str,
    message: impl Into<String>,
    now: Timestamp,
) -> Condition {
    Condition {
        type_: type_.into(),
        status: if status { "True" } else { "False" }.into(),
        reason: reason.into(),
        message: message.into(),
        last_transition_time: Time(now),
        observed_generation: None,
    }
}

/// Sets a condition; true if anything changed. The transition time stays unless the status changes.
///
/// ```
/// use k8s_openapi::jiff::Timestamp;
/// use mizzen_sdk::condition;
///
/// let (mut conditions, then) = (Vec::new(), Timestamp::UNIX_EPOCH);
/// let now = mizzen_sdk::clock::wall_clock()();
/// assert!(condition::set(&mut conditions, condition::new("Ready", true, "AllUp", "2 of 2", then)));
/// assert!(condition::set(&mut conditions, condition::new("Ready", true, "AllUp", "3 of 3", now)));
/// assert_eq!(conditions[0].last_transition_time.0, then); // it was true before
/// assert!(!condition::set(&mut conditions, condition::new("Ready", true, "AllUp", "3 of 3", now)));
/// ```
pub fn set(conditions: &mut Vec<Condition>, mut condition: Condition) -> bool {
    let Some(known) = conditions
        .iter_mut()
        .find(|known| known.type_ == condition.type_)
    else {
        conditions.push(condition);
        return true;
    };
    if known.status == condition.status {
        condition.last_transition_time = known.last_transition_time.clone();
    }
    let changed = *known != condition;
    *known = condition;
    changed
}

/// Removes a condition; true if it existed.
///
/// ```
/// use k8s_openapi::jiff::Timestamp;
/// use mizzen_sdk::condition;
///
/// let mut conditions = vec![condition::new("Ready", true, "AllUp", "3 of 3 are up", Timestamp::UNIX_EPOCH)];
/// assert!(condition::remove(&mut conditions, "Ready"));
/// assert!(!condition::remove(&mut conditions, "Ready"));
/// ```
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != type_);
    conditions.len() != before
}

/// The strategic merge patch of a status that sets a condition. A new one is appended: merging
/// alone would put it first.
///
/// ```
/// use mizzen_sdk::condition;
/// use mizzen_value::value;
///
/// let pod = value!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
/// let patch = condition::added(&pod, value!({"type": "Evicted", "status": "True"}));
/// assert_eq!(patch["conditions"].list().len(), 1);
/// assert_eq!(patch["$setElementOrder/conditions"][1]["type"].str(), "Evicted");
/// ```
pub fn added(object: &Value, condition: Value) -> Value {
    let known = object["status"]["conditions"].list().iter();
    let mut types: Vec<&Value> = known.map(|known| &known["type"]).collect();
    if !types.contains(&&condition["type"]) {
        types.push(&condition["type"]);
    }
    let order: Vec<Value> = types
        .into_iter()
        .map(|type_| value!({ "type": (type_.clone()) }))
        .collect();
    value!({ "$setElementOrder/conditions": order, "conditions": [(condition)] })
}
