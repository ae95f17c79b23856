//! Validation of device capacities and their request policies.

use mizzen_object::{Path, Violations};
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::parts;

const MAX_VALUES: usize = 10;

/// One capacity of a device. Only one that is `shared` is given out in parts.
pub(super) fn validate(capacity: &Value, shared: bool, path: &Path, violations: &mut Violations) {
    let Some(policy) = capacity.get("requestPolicy") else {
        return;
    };
    let path = path.child("requestPolicy");
    if !shared {
        return violations.forbidden(path, "allowMultipleAllocations must be true");
    }
    let (total, default) = (
        CapacityAmount::of(&capacity["value"]),
        policy.get("default").filter(|value| !value.is_null()),
    );
    match (policy["validValues"].list(), policy.get("validRange")) {
        ([], None) => {}
        ([_, ..], Some(_)) => {
            let detail = "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the \
                          same time";
            violations.forbidden(path, detail);
        }
        (values, range) => {
            let name = if range.is_some() {
                "validRange"
            } else {
                "validValues"
            };
            let Some(default) = default.map(CapacityAmount::of) else {
                return violations.required(
                    path.child("default"),
                    &format!("required when {name} is defined"),
                );
            };
            match range {
                Some(range) => {
                    let path = path.child(name);
                    let amount = |name: &str| {
                        range
                            .get(name)
                            .filter(|value| !value.is_null())
                            .map(CapacityAmount::of)
                    };
                    if let Some(min) = amount("min") {
                        let max = amount("max");
                        validate_bounds(&min, max.as_ref(), &default, &total, &path, violations);
                        if let Some(step) = amount("step") {
                            let amounts = [Some(&default), max.as_ref()];
                            validate_step(
                                &step,
                                &min,
                                amounts.into_iter().flatten(),
                                &total,
                                &path.child("step"),
                                violations,
                            );
                        }
                    } else {
                        violations
                            .required(path.child("min"), "required when validRange is defined");
                    }
                }
                None => validate_values(values, &default, &total, &path.child(name), violations),
            }
        }
    }
}

/// An amount, and how it was written.
struct CapacityAmount<'a> {
    text: &'a str,
    quantity: Quantity,
}

impl CapacityAmount<'_> {
    fn of(value: &Value) -> CapacityAmount<'_> {
        CapacityAmount {
            text: value.str(),
            quantity: Quantity::parse_or_zero(value.str()),
        }
    }
}

fn validate_values(
    values: &[Value],
    default: &CapacityAmount,
    total: &CapacityAmount,
    path: &Path,
    violations: &mut Violations,
) {
    let amounts: Vec<CapacityAmount> = values.iter().map(CapacityAmount::of).collect();
    for index in 1..amounts.len() {
        if amounts[index - 1].quantity > amounts[index].quantity {
            violations.invalid(
                path.index(index),
                amounts[index].text,
                "values must be sorted in ascending order",
            );
        }
    }
    let validate = |value: &Value, path: &Path, violations: &mut Violations| {
        if Quantity::parse_or_zero(value.str()) > total.quantity {
            let detail = format!("option is larger than capacity value: {}", total.text);
            violations.invalid(path, value.str(), &detail);
        }
    };
    let key = |value: &Value| {
        Quantity::parse_or_zero(value.str())
            .value()
            .to_string()
            .into()
    };
    parts::each_once(values, MAX_VALUES, path, violations, validate, key);
    let has_default = amounts
        .iter()
        .any(|amount| amount.quantity == default.quantity);
    if !has_default || values.len() > MAX_VALUES {
        violations.invalid(
            path,
            default.text,
            "default value is not valid according to the requestPolicy",
        );
    }
}

fn validate_bounds(
    min: &CapacityAmount,
    max: Option<&CapacityAmount>,
    default: &CapacityAmount,
    total: &CapacityAmount,
    path: &Path,
    violations: &mut Violations,
) {
    let mut refuse =
        |wrong: bool, name: &str, shown: &CapacityAmount, problem: &str, limit: &CapacityAmount| {
            if wrong {
                violations.invalid(
                    path.child(name),
                    shown.text,
                    &format!("{problem}: {}", limit.text),
                );
            }
        };
    refuse(
        min.quantity > total.quantity,
        "min",
        min,
        "min is larger than capacity value",
        total,
    );
    refuse(
        default.quantity < min.quantity,
        "min",
        default,
        "default is less than min",
        min,
    );
    if let Some(max) = max {
        refuse(
            min.quantity > max.quantity,
            "max",
            min,
            "min is larger than max",
            max,
        );
        refuse(
            max.quantity > total.quantity,
            "max",
            max,
            "max is larger than capacity value",
            total,
        );
        refuse(
            default.quantity > max.quantity,
            "max",
            default,
            "default is more than max",
            max,
        );
    }
}

/// What is given out is the least amount and some steps more.
fn validate_step<'a>(
    step: &CapacityAmount,
    min: &CapacityAmount,
    amounts: impl Iterator<Item = &'a CapacityAmount<'a>>,
    total: &CapacityAmount,
    path: &Path,
    violations: &mut Violations,
) {
    let first = min.quantity.add(&step.quantity);
    if first > total.quantity {
        let detail = format!(
            "one step {first} is larger than capacity value: {}",
            total.text
        );
        violations.invalid(path, step.text, &detail);
    }
    for amount in amounts {
        let over = amount.quantity.value() - min.quantity.value();
        // Kubernetes: a step of zero makes upstream panic.
        if over
            .checked_rem(step.quantity.value())
            .is_some_and(|rest| rest != 0)
        {
            let detail = format!(
                "value is not a multiple of a given step ({}) from ({})",
                step.text, min.text
            );
            violations.invalid(path, amount.text, &detail);
        }
    }
}
