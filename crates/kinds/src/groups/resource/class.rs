//! DeviceClasses.

use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::Value;

use super::parts;
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_component_helpers::resource_names::is_extended;

pub(super) const CLASS: Behaviour = Behaviour::of::<DeviceClassStrategy>();

pub(super) struct DeviceClassStrategy;

impl KindStrategy for DeviceClassStrategy {
    fn validate(class: &Value, old: Option<&Value>, _: &HookContext, violations: &mut Violations) {
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
}

const MAX_CONFIGURATIONS: usize = 32;
