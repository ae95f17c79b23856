//! Which drivers run on a node, and what can they do there?

use mizzen_object::validate::{field, names, repeats};
use mizzen_object::{Context, Path, Violations};
use mizzen_value::Value;

use super::driver_name;
use crate::Behaviour;
use mizzen_apiextensions::{internal, rules};

pub(super) const NODE: Behaviour = Behaviour {
    validate: validate_node,
    ..Behaviour::NONE
};

fn validate_node(
    node: &Value,
    old: Option<&Value>,
    _context: &Context,
    violations: &mut Violations,
) {
    let path = Path::new("spec");
    let path = path.child("drivers");
    let drivers = node["spec"]["drivers"].list();
    let repeated = repeats(drivers, |driver| driver["name"].str());
    for (index, driver) in drivers.iter().enumerate() {
        let path = path.index(index);
        validate_driver(driver, &path, violations);
        if repeated[index] {
            violations.duplicate(path.child("name"), driver["name"].str());
        }
        validate_keys(driver["topologyKeys"].list(), &path, violations);
    }
    for old in old
        .into_iter()
        .flat_map(|old| old["spec"]["drivers"].list())
    {
        for new in drivers.iter().filter(|new| new["name"] == old["name"]) {
            validate_change(new, old, &path, violations);
        }
    }
}

fn validate_driver(driver: &Value, path: &Path, violations: &mut Violations) {
    driver_name(driver["name"].str(), &path.child("name"), violations);
    let id = driver["nodeID"].str();
    if id.is_empty() {
        violations.required(path.child("nodeID"), "");
    }
    if id.len() > 256 {
        violations.invalid(path.child("nodeID"), id, "must be 256 characters or less");
    }
    let count = &driver["allocatable"]["count"];
    field::non_negative(
        count.int(),
        &path.child("allocatable").child("count"),
        violations,
    );
}

/// Kubernetes: what is wrong with a key is said of the driver that has it.
fn validate_keys(keys: &[Value], path: &Path, violations: &mut Violations) {
    for (key, repeated) in keys.iter().zip(repeats(keys, Value::str)) {
        if key.is_empty() {
            violations.required(path, "");
        }
        if repeated {
            violations.duplicate(path, key.str());
        }
        rules::text(key.str(), names::is_qualified_name, path, violations);
    }
}

/// A driver stays as it is, but for how much it can take.
fn validate_change(new: &Value, old: &Value, path: &Path, violations: &mut Violations) {
    let shown = |driver: &Value| {
        let mut driver = driver.clone();
        driver.remove("allocatable");
        internal::shown("CSINodeDriver", &driver)
    };
    field::immutable(&shown(new), &shown(old), path, violations);
}
