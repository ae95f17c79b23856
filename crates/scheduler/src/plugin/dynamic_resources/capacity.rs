//! The capacity that a request consumes of a shared device.
//!
//! The request policy of a capacity has a default, and a range with steps or a list of valid
//! values. A request is rounded up to the next valid value.

use mizzen_value::Value;
use mizzen_value::quantity::{Quantity, QuantityFormat};

use crate::devices::Amounts;

/// The capacity that a request consumes of a device with `taken` already consumed; `None` if it
/// exceeds the device or the policy.
pub(super) fn consume(requested: &Value, device: &Value, taken: &Amounts) -> Option<Amounts> {
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
    Quantity::parse_or_zero(value.str())
}

/// The requested quantity, rounded up to what the request policy allows.
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
        let least = quantity(&range["min"]);
        let step = quantity(&range["step"]).value();
        if wanted < least || step <= 0 {
            return if wanted < least { least } else { wanted };
        }
        let above = wanted.value() - least.value();
        let n_steps = above / step + i64::from(above % step != 0);
        return Quantity::from_int(least.value() + step * n_steps, QuantityFormat::Binary);
    }
    let values = policy["validValues"].list().iter().map(quantity);
    values
        .into_iter()
        .find(|value| wanted <= *value)
        .unwrap_or(wanted)
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

    /// Checks a request to a device with one capacity of 10, of which `taken` is consumed.
    #[track_caller]
    fn check(requested: &str, policy: &str, taken: &str, expected: Option<&str>) {
        let device = object(&format!(
            r#"{{"capacity":{{"memory":{{"value":"10","requestPolicy":{policy}}}}}}}"#
        ));
        let taken = Amounts::from([("memory".into(), Quantity::parse_or_zero(taken))]);
        let amounts = consume(&object(requested), &device, &taken);
        let amount = amounts.map(|amounts| amounts["memory"].to_string());
        assert_eq!(amount.as_deref(), expected, "{requested} {policy}");
    }

    #[test]
    fn without_a_request_the_default_or_everything_is_consumed() {
        check("{}", "null", "0", Some("10"));
        check("{}", "null", "1", None);
        check("{}", r#"{"default":"4"}"#, "6", Some("4"));
    }

    #[test]
    fn a_request_is_rounded_up_to_a_valid_value() {
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
    fn an_unknown_capacity_cannot_be_requested() {
        check(r#"{"cores":"1"}"#, "null", "0", None);
    }
}
