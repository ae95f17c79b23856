//! scheduling.k8s.io: PriorityClasses.

use mizzen_object::validate::field;
use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::Value;

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::rules;

/// The system priority classes. Their prefix is reserved.
const SYSTEM_PREFIX: &str = "system-";
const SYSTEM_CLASSES: [(&str, i64); 2] = [
    ("system-node-critical", 2_000_001_000),
    ("system-cluster-critical", 2_000_000_000),
];
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;

pub(super) fn behaviour(kind: &str) -> Behaviour {
    match kind {
        "PriorityClass" => Behaviour::of::<PriorityClassStrategy>(),
        _ => Behaviour::NONE,
    }
}

pub(super) struct PriorityClassStrategy;

impl KindStrategy for PriorityClassStrategy {
    fn default(class: &mut Value) {
        class.set_default("preemptionPolicy", "PreemptLowerPriority");
    }

    fn validate(class: &Value, old: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        match old {
            Some(old) => {
                if class["value"] != old["value"] {
                    violations.forbidden(Path::new("value"), "may not be changed in an update.");
                }
                let name = "preemptionPolicy";
                field::immutable(&class[name], &old[name], &Path::new(name), violations);
            }
            None => {
                let name = class["metadata"]["name"].str();
                if name.starts_with(SYSTEM_PREFIX) {
                    if let Some(error) = not_system(class, name) {
                        let metadata = Path::new("metadata");
                        let detail = "priority class names with 'system-' prefix are reserved for system use only. error: ";
                        violations.forbidden(metadata.child("name"), &format!("{detail}{error}"));
                    }
                } else if class["value"].int() > HIGHEST_USER_PRIORITY {
                    let detail = format!(
                        "maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
                    );
                    violations.forbidden(Path::new("value"), &detail);
                }
                let path = Path::new("preemptionPolicy");
                match class["preemptionPolicy"].as_str() {
                    Some("") => violations.required(path, ""),
                    _ => rules::optional_word(
                        &class["preemptionPolicy"],
                        &["PreemptLowerPriority", "Never"],
                        &path,
                        violations,
                    ),
                }
            }
        }
    }
}

/// Why this is not one of the server's own classes.
fn not_system(class: &Value, name: &str) -> Option<String> {
    let Some((_, value)) = SYSTEM_CLASSES.iter().find(|(system, _)| *system == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if class["value"].int() != *value {
        return Some(format!("value of {name} PriorityClass must be {value}"));
    }
    class["globalDefault"]
        .bool()
        .then(|| format!("globalDefault of {name} PriorityClass must be false"))
}
