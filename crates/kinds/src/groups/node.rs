//! node.k8s.io: how does a node run containers?

use mizzen_object::validate::{field, meta, names, repeats};
use mizzen_object::{Context, Path, Value, Violations};

use super::{internal, rules};
use crate::Behaviour;
use crate::core::resources;

pub(super) fn behaviour(kind: &str) -> Behaviour {
    match kind {
        "RuntimeClass" => Behaviour {
            validate,
            warnings,
            ..Behaviour::NONE
        },
        _ => Behaviour::NONE,
    }
}

fn validate(class: &Value, old: Option<&Value>, _context: &Context, violations: &mut Violations) {
    let handler = Path::new("handler");
    rules::required_text(
        &class["handler"],
        names::is_dns1123_label,
        &handler,
        violations,
    );
    validate_overhead(
        &class["overhead"]["podFixed"],
        &Path::new("overhead"),
        violations,
    );
    let (scheduling, path) = (&class["scheduling"], Path::new("scheduling"));
    meta::labels(
        &scheduling["nodeSelector"],
        &path.child("nodeSelector"),
        violations,
    );
    validate_tolerations(
        scheduling["tolerations"].list(),
        &path.child("tolerations"),
        violations,
    );
    if let Some(old) = old {
        field::immutable_text(&class["handler"], &old["handler"], &handler, violations);
    }
}

/// Kubernetes: overhead is looked at as if it were a container's limits, and spoken of so.
fn validate_overhead(amounts: &Value, path: &Path, violations: &mut Violations) {
    let limits = path.child("limits");
    for (name, amount) in amounts.entries() {
        resources::container_name(name, &limits.key(name), violations);
        resources::amount(name, amount, &limits.key(name), violations);
    }
    let has = |wanted: &str| amounts.entries().any(|(name, _)| name.starts_with(wanted));
    if has("hugepages-") && amounts.get("cpu").is_none() && amounts.get("memory").is_none() {
        violations.forbidden(path, "HugePages require cpu or memory");
    }
}

fn validate_tolerations(tolerations: &[Value], path: &Path, violations: &mut Violations) {
    for (index, toleration) in tolerations.iter().enumerate() {
        validate_toleration(toleration, &path.index(index), violations);
    }
    let repeated = repeats(tolerations, |toleration| {
        ["key", "operator", "value", "effect"].map(|name| toleration[name].str())
    });
    for (index, toleration) in tolerations.iter().enumerate() {
        if repeated[index] {
            violations.duplicate(path.index(index), internal::shown("Toleration", toleration));
        }
    }
}

fn validate_toleration(toleration: &Value, path: &Path, violations: &mut Violations) {
    let text = |name: &str| toleration[name].str();
    let (key, operator, value, effect) =
        (text("key"), text("operator"), text("value"), text("effect"));
    let place = path.child("operator");
    if !key.is_empty() {
        meta::label_name(key, &path.child("key"), violations);
    } else if operator != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        violations.invalid(place, operator, detail);
    }
    if !toleration["tolerationSeconds"].is_null() && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        violations.invalid(path.child("effect"), effect, detail);
    }
    let wrong = names::is_label_value(value);
    match operator {
        "Equal" | "" if !wrong.is_empty() => violations.invalid(place, value, &wrong.join(";")),
        "Exists" if !value.is_empty() => {
            violations.invalid(
                place,
                value,
                "value must be empty when `operator` is 'Exists'",
            );
        }
        "Equal" | "" | "Exists" => {}
        "Lt" | "Gt" => violations.not_supported(place, operator, &["Equal", "Exists", "Lt", "Gt"]),
        _ => violations.not_supported(place, operator, &["Equal", "Exists"]),
    }
    if !effect.is_empty() {
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        field::one_of(effect, &effects, &path.child("effect"), violations);
    }
}

fn warnings(class: &Value, _old: Option<&Value>, _context: &Context) -> Vec<String> {
    let labels = class["scheduling"]["nodeSelector"].entries();
    let messages = labels.filter_map(|(key, _)| crate::pod::old_node_label(key));
    messages
        .map(|message| format!("scheduling.nodeSelector: {message}"))
        .collect()
}
