//! scheduling.k8s.io: which priorities may people define?

use mizzen_object::validate::field;
use mizzen_object::{Context, Path, Violations};
use mizzen_value::Value;

use crate::Behaviour;
use mizzen_apiextensions::rules;

/// What the server itself defines; nobody else may use the prefix.
const SYSTEM_PREFIX: &str = "system-";
const SYSTEM_CLASSES: [(&str, i64); 2] = [
    ("system-node-critical", 2_000_001_000),
    ("system-cluster-critical", 2_000_000_000),
];
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;

pub(super) fn behaviour(kind: &str) -> Behaviour {
    match kind {
        "PriorityClass" => Behaviour {
            default: default_class,
            validate: validate_class,
            ..Behaviour::NONE
        },
        _ => Behaviour::NONE,
    }
}

fn default_class(class: &mut Value) {
    class.set_default("preemptionPolicy", "PreemptLowerPriority");
}

fn validate_class(
    class: &Value,
    old: Option<&Value>,
    _context: &Context,
    violations: &mut Violations,
) {
    match old {
        Some(old) => validate_change(class, old, violations),
        None => validate_new(class, violations),
    }
}

fn validate_new(class: &Value, violations: &mut Violations) {
    let name = class["metadata"]["name"].str();
    if name.starts_with(SYSTEM_PREFIX) {
        if let Some(error) = not_system(class, name) {
            let metadata = Path::new("metadata");
            let detail = "priority class names with 'system-' prefix are reserved for system use only. error: ";
            violations.forbidden(metadata.child("name"), &format!("{detail}{error}"));
        }
    } else if class["value"].int() > HIGHEST_USER_PRIORITY {
        let detail =
            format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
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

fn validate_change(class: &Value, old: &Value, violations: &mut Violations) {
    if class["value"] != old["value"] {
        violations.forbidden(Path::new("value"), "may not be changed in an update.");
    }
    let name = "preemptionPolicy";
    field::immutable(&class[name], &old[name], &Path::new(name), violations);
}
