//! node.k8s.io: RuntimeClasses.

use mizzen_object::validate::{field, meta, names, repeats};
use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::Value;

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::{internal, rules};
use mizzen_core_kinds::resources;

pub(super) fn behaviour(version: &str, kind: &str) -> Behaviour {
    match (version, kind) {
        ("v1alpha1", "RuntimeClass") => V1ALPHA1,
        (_, "RuntimeClass") => Behaviour::of::<RuntimeClassStrategy>(),
        _ => Behaviour::NONE,
    }
}

/// A class of v1alpha1, which may be in etcd: its fields are below `spec`.
const V1ALPHA1: Behaviour = Behaviour {
    to_stored: |class| {
        let spec = class.remove("spec").unwrap_or_default();
        class.set("handler", spec["runtimeHandler"].str());
        for name in ["overhead", "scheduling"] {
            if let Some(field) = spec.get(name) {
                class.set(name, field.clone());
            }
        }
    },
    ..Behaviour::of::<RuntimeClassStrategy>()
};

pub(super) struct RuntimeClassStrategy;

impl KindStrategy for RuntimeClassStrategy {
    fn validate(class: &Value, old: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        let handler = Path::new("handler");
        rules::required_text(
            &class["handler"],
            names::is_dns1123_label,
            &handler,
            violations,
        );
        // Kubernetes: overhead is validated, and named in messages, as a container's limits.
        let amounts = &class["overhead"]["podFixed"];
        let path = Path::new("overhead");
        let limits = path.child("limits");
        for (name, amount) in amounts.entries() {
            resources::container_name(name, &limits.key(name), violations);
            resources::amount(name, amount, &limits.key(name), violations);
        }
        let has = |wanted: &str| amounts.entries().any(|(name, _)| name.starts_with(wanted));
        if has("hugepages-") && amounts.get("cpu").is_none() && amounts.get("memory").is_none() {
            violations.forbidden(path, "HugePages require cpu or memory");
        }
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

    fn warnings(class: &Value, _: Option<&Value>, _: &HookContext) -> Vec<String> {
        let labels = class["scheduling"]["nodeSelector"].entries();
        let messages = labels.filter_map(|(key, _)| mizzen_core_kinds::pod::old_node_label(key));
        messages
            .map(|message| format!("scheduling.nodeSelector: {message}"))
            .collect()
    }
}

fn validate_tolerations(tolerations: &Value, path: &Path, violations: &mut Violations) {
    mizzen_core_kinds::pod::validate_tolerations(tolerations, path, violations);
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
