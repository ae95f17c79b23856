//! node.k8s.io: how does a node run containers?

use mizzen_object::validate::{field, meta, names, repeats};
use mizzen_object::{Context, Path, Violations};
use mizzen_value::Value;

use crate::Behaviour;
use crate::core::resources;
use mizzen_apiextensions::{internal, rules};

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
        &scheduling["tolerations"],
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

fn validate_tolerations(tolerations: &Value, path: &Path, violations: &mut Violations) {
    crate::pod::validate_tolerations(tolerations, path, violations);
    let tolerations = tolerations.list();
    let repeated = repeats(tolerations, |toleration| {
        ["key", "operator", "value", "effect"].map(|name| toleration[name].str())
    });
    for (index, toleration) in tolerations.iter().enumerate() {
        if repeated[index] {
            violations.duplicate(path.index(index), internal::shown("Toleration", toleration));
        }
    }
}

fn warnings(class: &Value, _old: Option<&Value>, _context: &Context) -> Vec<String> {
    let labels = class["scheduling"]["nodeSelector"].entries();
    let messages = labels.filter_map(|(key, _)| crate::pod::old_node_label(key));
    messages
        .map(|message| format!("scheduling.nodeSelector: {message}"))
        .collect()
}
