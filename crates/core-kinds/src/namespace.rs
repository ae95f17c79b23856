//! Namespaces: name label, finalizers and phase.

use mizzen_object::validate::{meta, names};
use mizzen_object::{Action, HookContext, NameRule, Path, Violations};
use mizzen_value::{Value, value};

use crate::Behaviour;
use crate::fields::qualified_name;
use mizzen_apiextensions::KindStrategy;

/// The label by which selectors find a namespace by name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The finalizer under which the namespace controller empties a namespace.
const FINALIZER: &str = "kubernetes";

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<NamespaceStrategy>();

pub(super) struct NamespaceStrategy;

impl KindStrategy for NamespaceStrategy {
    fn default(namespace: &mut Value) {
        label(namespace);
        namespace.entry("status").set_default("phase", "Active");
    }

    fn prepare(namespace: &mut Value, old: Option<&Value>, context: &HookContext) {
        match context.action {
            Action::Create => {
                namespace.set("status", value!({"phase": "Active"}));
                let finalizers = namespace.entry("spec").entry("finalizers").make_list();
                if !finalizers
                    .iter()
                    .any(|finalizer| finalizer.str() == FINALIZER)
                {
                    finalizers.push(FINALIZER.into());
                }
                // A generated name is not yet known when defaults are set. A bad one is reported once, not as a label too.
                if names::is_dns1123_label(namespace["metadata"]["name"].str()).is_empty() {
                    label(namespace);
                }
            }
            Action::Update => {
                let finalizers = old
                    .map(|old| old["spec"]["finalizers"].clone())
                    .unwrap_or_default();
                namespace.entry("spec").set("finalizers", finalizers);
            }
            Action::Status => {}
        }
    }

    fn validate(
        namespace: &Value,
        _: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if context.action == Action::Status {
            // Kubernetes: ValidateNamespaceStatusUpdate spells the field `Phase`.
            let deleted = !namespace["metadata"]["deletionTimestamp"].is_null();
            let (phase, filled) = if deleted {
                ("Terminating", "not empty")
            } else {
                ("Active", "empty")
            };
            let found = namespace["status"]["phase"].str();
            if found != phase {
                let message = format!("may only be '{phase}' if `deletionTimestamp` is {filled}");
                violations.invalid(Path::new("status").child("Phase"), found, &message);
            }
            return;
        }
        if context.action == Action::Update {
            meta::native_object_meta(&namespace["metadata"], false, NameRule::Label, violations);
        }
        let spec = Path::new("spec");
        for name in namespace["spec"]["finalizers"].list() {
            finalizer(name.str(), &spec.child("finalizers"), violations);
        }
    }

    /// Kubernetes: `name` is kept for compatibility.
    fn selectable(namespace: &Value, name: &str) -> Option<mizzen_value::Str> {
        (name == "name").then(|| namespace["metadata"]["name"].str().into())
    }

    fn mark_deleted(namespace: &mut Value, _now: &str) -> bool {
        namespace.entry("status").set("phase", "Terminating");
        true
    }

    fn is_removal_blocked(namespace: &Value) -> bool {
        !namespace["spec"]["finalizers"].is_empty()
    }
}

/// `/finalize`: takes the finalizers as they come.
pub(super) const FINALIZE: Behaviour = Behaviour {
    prepare: |_, _, _| {},
    validate: |namespace, _old, _context, violations| {
        let spec = Path::new("spec");
        let path = spec.child("finalizers");
        for (index, name) in namespace["spec"]["finalizers"].items().enumerate() {
            finalizer(name.str(), &path.index(index), violations);
        }
    },
    ..BEHAVIOUR
};

fn label(namespace: &mut Value) {
    let name = namespace["metadata"]["name"].str().to_string();
    if !name.is_empty() {
        namespace
            .entry("metadata")
            .entry("labels")
            .set(NAME_LABEL, name);
    }
}

fn finalizer(name: &str, path: &Path, violations: &mut Violations) {
    qualified_name(name, path, violations);
    meta::finalizer_name(name, path, violations);
}

#[cfg(test)]
mod tests {
    use super::super::check::{Check, check};
    use super::*;

    #[test]
    fn a_new_namespace_is_active_labelled_and_protected() {
        check(BEHAVIOUR)
            .create(r#"{"metadata":{"name":"a"},"spec":{"finalizers":["x.y/z"]}}"#)
            .becomes(
                r#"{"metadata":{"name":"a","labels":{"kubernetes.io/metadata.name":"a"}},
                "spec":{"finalizers":["x.y/z","kubernetes"]},"status":{"phase":"Active"}}"#,
            );
    }

    #[test]
    fn an_update_leaves_finalizers_alone() {
        let old = r#"{"metadata":{"name":"a"},"spec":{"finalizers":["kubernetes"]}}"#;
        check(BEHAVIOUR)
            .update(r#"{"metadata":{"name":"a"},"spec":{}}"#, old)
            .has("spec.finalizers", r#"["kubernetes"]"#);
    }

    #[test]
    fn finalizers_have_a_domain() {
        check(BEHAVIOUR).create(r#"{"metadata":{"name":"a"},"spec":{"finalizers":["nodomain"]}}"#).refused(
            &[r#"spec.finalizers: Invalid value: "nodomain": name is neither a standard finalizer"#],
        );
    }

    #[test]
    fn finalizing_changes_finalizers() {
        let old = r#"{"metadata":{"name":"a"},"spec":{"finalizers":["kubernetes"]}}"#;
        check(FINALIZE)
            .update(
                r#"{"metadata":{"name":"a"},"spec":{"finalizers":["x"]}}"#,
                old,
            )
            .refused(&[
                r#"spec.finalizers[0]: Invalid value: "x": name is neither a standard finalizer"#,
            ]);
    }

    #[test]
    fn the_phase_follows_deletion() {
        let status = |new: &str| -> Check { check(BEHAVIOUR).status(new, "{}") };
        status(r#"{"metadata":{"name":"a"},"status":{"phase":"Terminating"}}"#)
            .refused(&[r#"status.Phase: Invalid value: "Terminating": may only be 'Active' if"#]);
        status(
            r#"{"metadata":{"name":"a","deletionTimestamp":"t"},"status":{"phase":"Terminating"}}"#,
        )
        .refused(&[]);
    }
}
