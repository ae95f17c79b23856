//! How much of a device does a request take?
//!
//! A device that several may share says for each capacity how much may be asked for: so much if nobody says anything, a
//! range with steps, or certain values. What is asked for is rounded up to what may be.

use mizzen_value::Value;
use mizzen_value::quantity::{Format, Quantity};

use crate::devices::Amounts;

/// What a request takes of a device of which others have `taken` so much; none if that is too much, or not allowed.
pub(super) fn take(requested: &Value, device: &Value, taken: &Amounts) -> Option<Amounts> {
    let capacities = &device["capacity"];
    if requested
        .entries()
        .any(|(name, _)| capacities[name].is_null())
    {
        return None;
    }
    let mut amounts = Amounts::new();
    for (name, capacity) in capacities.entries() {
        let amount = amount(&requested[name], capacity);
        let total = taken.get(name).map_or(amount, |taken| taken.add(&amount));
        if !is_allowed(&amount, &capacity["requestPolicy"]) || total > quantity(&capacity["value"])
        {
            return None;
        }
        amounts.insert(name.into(), amount);
    }
    Some(amounts)
}

fn quantity(value: &Value) -> Quantity {
    Quantity::of(value.str())
}

fn amount(requested: &Value, capacity: &Value) -> Quantity {
    let policy = &capacity["requestPolicy"];
    if requested.is_null() {
        let default = if policy["default"].is_null() {
            &capacity["value"]
        } else {
            &policy["default"]
        };
        return quantity(default);
    }
    let (wanted, range) = (quantity(requested), &policy["validRange"]);
    if !range["min"].is_null() {
        return round_up(wanted, range);
    }
    let values = policy["validValues"].list().iter().map(quantity);
    values
        .into_iter()
        .find(|value| wanted <= *value)
        .unwrap_or(wanted)
}

/// The next step of a range.
fn round_up(wanted: Quantity, range: &Value) -> Quantity {
    let least = quantity(&range["min"]);
    let step = quantity(&range["step"]).value();
    if wanted < least {
        return least;
    }
    if step <= 0 {
        return wanted;
    }
    let above = wanted.value() - least.value();
    let n_steps = above / step + i64::from(above % step != 0);
    Quantity::from_int(least.value() + step * n_steps, Format::Binary)
}

fn is_allowed(amount: &Quantity, policy: &Value) -> bool {
    if !policy["default"].is_null() && *amount == quantity(&policy["default"]) {
        return true;
    }
    let range = &policy["validRange"];
    if !range.is_null() {
        let step = quantity(&range["step"]).value();
        let is_step = step <= 0 || (amount.value() - quantity(&range["min"]).value()) % step == 0;
        return is_step && (range["max"].is_null() || *amount <= quantity(&range["max"]));
    }
    let values = policy["validValues"].list();
    values.is_empty() || values.iter().any(|value| quantity(value) == *amount)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::samples::object;

    /// What a request takes of a device with one capacity of 10 of which `taken` is taken.
    #[track_caller]
    fn check(requested: &str, policy: &str, taken: &str, expected: Option<&str>) {
        let device = object(&format!(
            r#"{{"capacity":{{"memory":{{"value":"10","requestPolicy":{policy}}}}}}}"#
        ));
        let taken = Amounts::from([("memory".into(), Quantity::of(taken))]);
        let amounts = take(&object(requested), &device, &taken);
        let amount = amounts.map(|amounts| amounts["memory"].to_string());
        assert_eq!(amount.as_deref(), expected, "{requested} {policy}");
    }

    #[test]
    fn who_says_nothing_takes_the_default_or_everything() {
        check("{}", "null", "0", Some("10"));
        check("{}", "null", "1", None);
        check("{}", r#"{"default":"4"}"#, "6", Some("4"));
    }

    #[test]
    fn what_is_asked_for_is_rounded_up() {
        check(r#"{"memory":"3"}"#, "null", "7", Some("3"));
        check(r#"{"memory":"3"}"#, "null", "8", None);
        let range = r#"{"validRange":{"min":"2","max":"8","step":"3"}}"#;
        check(r#"{"memory":"1"}"#, range, "0", Some("2"));
        check(r#"{"memory":"3"}"#, range, "0", Some("5"));
        check(r#"{"memory":"8"}"#, range, "0", Some("8"));
        check(r#"{"memory":"9"}"#, range, "0", None);
        let values = r#"{"validValues":["2","4"]}"#;
        check(r#"{"memory":"3"}"#, values, "0", Some("4"));
        check(r#"{"memory":"5"}"#, values, "0", None);
        check(
            r#"{"memory":"2"}"#,
            r#"{"validRange":{"min":"1"}}"#,
            "0",
            Some("2"),
        );
    }

    #[test]
    fn what_a_device_does_not_have_cannot_be_taken() {
        check(r#"{"cores":"1"}"#, "null", "0", None);
    }
}
