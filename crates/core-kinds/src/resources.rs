//! Validation of resource names and quantities.

use mizzen_object::validate::{field, names};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use mizzen_component_helpers::resource_names::{is_extended, is_huge_page, is_native};

pub(crate) use crate::pod::round;

/// What is counted in whole numbers.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// What is measured, and can be limited for a namespace.
const MEASURED: [&str; 10] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

/// The name of a resource.
pub fn name(name: &str, path: &Path, violations: &mut Violations) {
    let wrong = names::is_qualified_name(name);
    if wrong.is_empty() && !name.contains('/') && name != "storage" && !is_for_quota(name) {
        violations.invalid(
            path,
            name,
            "must be a standard resource type or fully qualified",
        );
    }
    field::all(wrong, name, path, violations);
}

/// The name of a resource that containers use.
pub fn container_name(resource: &str, path: &Path, violations: &mut Violations) {
    name(resource, path, violations);
    let is_known =
        ["cpu", "memory", "ephemeral-storage"].contains(&resource) || is_huge_page(resource);
    if !resource.contains('/') && !is_known {
        violations.invalid(path, resource, "must be a standard resource for containers");
    } else if !is_native(resource) && !is_extended(resource) {
        violations.invalid(
            path,
            resource,
            "doesn't follow extended resource name standard",
        );
    }
}

/// The name of a resource that a quota limits.
pub fn quota_name(resource: &str, path: &Path, violations: &mut Violations) {
    name(resource, path, violations);
    if !resource.contains('/') && !is_for_quota(resource) {
        violations.invalid(path, resource, "must be a standard resource for quota");
    }
}

/// An amount of a resource: not below zero, and whole if the resource is counted.
pub fn amount(resource: &str, amount: &Value, path: &Path, violations: &mut Violations) {
    let quantity = Quantity::parse_or_zero(amount.str());
    if quantity.is_negative() {
        violations.invalid(path, amount.str(), "must be greater than or equal to 0");
    }
    if (COUNTED.contains(&resource) || is_extended(resource)) && quantity.milli_value() % 1000 != 0
    {
        violations.invalid(path, amount.str(), "must be an integer");
    }
}

/// An amount that is reported: not below zero.
pub fn reported(amount: &Value, path: &Path, violations: &mut Violations) -> bool {
    let value = Quantity::parse_or_zero(amount.str()).value();
    if value < 0 {
        violations.invalid(path, value, "must be a valid resource quantity");
    }
    value >= 0
}

/// Whether a quota can limit it without knowing more about it.
pub fn is_for_quota(name: &str) -> bool {
    COUNTED.contains(&name)
        || MEASURED.contains(&name)
        || is_huge_page(name)
        || name.starts_with("requests.hugepages-")
}
