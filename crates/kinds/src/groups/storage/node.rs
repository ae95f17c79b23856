//! CSINodes.

use mizzen_object::validate::{field, names, repeats};
use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::Value;

use super::driver_name;
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::{internal, rules};

pub(super) const NODE: Behaviour = Behaviour::of::<CsiNodeStrategy>();

pub(super) struct CsiNodeStrategy;

impl KindStrategy for CsiNodeStrategy {
    fn validate(node: &Value, old: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        let path = Path::new("spec");
        let path = path.child("drivers");
        let drivers = node["spec"]["drivers"].list();
        let repeated = repeats(drivers, |driver| driver["name"].str());
        for (index, driver) in drivers.iter().enumerate() {
            let path = path.index(index);
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
            if repeated[index] {
                violations.duplicate(path.child("name"), driver["name"].str());
            }
            // Kubernetes: violations of a key are reported at its driver.
            let keys = driver["topologyKeys"].list();
            for (key, repeated) in keys.iter().zip(repeats(keys, Value::str)) {
                if key.is_empty() {
                    violations.required(path, "");
                }
                if repeated {
                    violations.duplicate(path, key.str());
                }
                rules::text(key.str(), names::is_qualified_name, &path, violations);
            }
        }
        for old in old
            .into_iter()
            .flat_map(|old| old["spec"]["drivers"].list())
        {
            for new in drivers.iter().filter(|new| new["name"] == old["name"]) {
                // A driver stays as it is, but for how much it can take.
                let shown = |driver: &Value| {
                    let mut driver = driver.clone();
                    driver.remove("allocatable");
                    internal::shown("CSINodeDriver", &driver)
                };
                field::immutable(&shown(new), &shown(old), &path, violations);
            }
        }
    }
}
