//! CSIStorageCapacities.

use mizzen_object::validate::{field, names};
use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::Value;

use super::label_warning;
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::rules;

pub(super) const CAPACITY: Behaviour = Behaviour::of::<StorageCapacityStrategy>();

pub(super) struct StorageCapacityStrategy;

impl KindStrategy for StorageCapacityStrategy {
    fn validate(
        capacity: &Value,
        old: Option<&Value>,
        _: &HookContext,
        violations: &mut Violations,
    ) {
        let topology = Path::new("nodeTopology");
        rules::selector(
            &capacity["nodeTopology"],
            old.map(|old| &old["nodeTopology"]),
            &topology,
            violations,
        );
        let class = Path::new("storageClassName");
        rules::text(
            capacity["storageClassName"].str(),
            names::is_dns1123_subdomain,
            &class,
            violations,
        );
        rules::nonnegative_amount(&capacity["capacity"], &Path::new("capacity"), violations);
        if let Some(old) = old {
            field::immutable(
                &capacity["nodeTopology"],
                &old["nodeTopology"],
                &topology,
                violations,
            );
            field::immutable(
                &capacity["storageClassName"],
                &old["storageClassName"],
                &class,
                violations,
            );
        }
    }

    fn warnings(capacity: &Value, _: Option<&Value>, _: &HookContext) -> Vec<String> {
        let topology = &capacity["nodeTopology"];
        let mut warnings = Vec::new();
        for (index, requirement) in topology["matchExpressions"].items().enumerate() {
            let key = requirement["key"].str();
            if let Some(message) = mizzen_core_kinds::pod::old_node_label(key) {
                warnings.push(format!(
                    "nodeTopology.matchExpressions[{index}].key: {key} is {message}"
                ));
            }
        }
        for (key, _) in topology["matchLabels"].entries() {
            warnings.extend(label_warning(
                format!("nodeTopology.matchLabels.{key}"),
                key,
            ));
        }
        warnings
    }
}
