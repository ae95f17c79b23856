//! Which kinds of device can be asked for?

use mizzen_object::validate::names;
use mizzen_object::{Context, Path, Value, Violations};

use super::parts;
use crate::Behaviour;
use crate::core::resources;

pub(super) const CLASS: Behaviour = Behaviour {
    validate,
    ..Behaviour::NONE
};

const MAX_CONFIGURATIONS: usize = 32;

fn validate(class: &Value, old: Option<&Value>, _context: &Context, violations: &mut Violations) {
    let (spec, path) = (&class["spec"], Path::new("spec"));
    parts::selectors(&spec["selectors"], &path.child("selectors"), violations);
    let stored = old.is_some_and(|old| old["spec"]["config"] == spec["config"]);
    let configurations = spec["config"].list();
    parts::each(
        configurations,
        MAX_CONFIGURATIONS,
        &path.child("config"),
        violations,
        |item, path, violations| {
            parts::configuration(item, stored, path, violations);
        },
    );
    if let Some(name) = spec["extendedResourceName"]
        .as_str()
        .filter(|name| !is_extended(name))
    {
        violations.invalid(
            path.child("extendedResourceName"),
            name,
            "must be a valid extended resource name",
        );
    }
}

/// Whether a resource is somebody else's than Kubernetes', and could be counted by a quota.
fn is_extended(name: &str) -> bool {
    let as_quota = format!("requests.{name}");
    !resources::is_native(name)
        && !name.starts_with("requests.")
        && names::is_qualified_name(&as_quota).is_empty()
}
