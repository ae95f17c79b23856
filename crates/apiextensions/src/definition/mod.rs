//! apiextensions.k8s.io: CustomResourceDefinitions.

mod conversion;
mod deletion;
mod names;
mod schema;
mod v1beta1;
mod version;

pub use names::approval_condition;
pub use schema::structural_condition;

use mizzen_object::condition::is_true;
use mizzen_object::validate::field;
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::{Value, json, value};

use crate::Behaviour;
use crate::behaviour::KindStrategy;

/// The hooks of a kind of `apiextensions.k8s.io`.
pub fn behaviour(version: &str, kind: &str) -> Behaviour {
    match (version, kind) {
        ("v1beta1", "CustomResourceDefinition") => v1beta1::DEFINITION,
        (_, "CustomResourceDefinition") => Behaviour {
            mark_deleted: deletion::mark,
            ..Behaviour::of::<CustomResourceDefinitionStrategy>()
        },
        _ => Behaviour::NONE,
    }
}

pub(super) struct CustomResourceDefinitionStrategy;

impl KindStrategy for CustomResourceDefinitionStrategy {
    fn default(definition: &mut Value) {
        let stored = storage_version(definition).map(str::to_string);
        let spec = definition.entry("spec");
        let names = spec.entry("names");
        let kind = names["kind"].str().to_string();
        if names["singular"].is_empty() {
            names.set("singular", kind.to_lowercase());
        }
        if names["listKind"].is_empty() && !kind.is_empty() {
            names.set("listKind", format!("{kind}List"));
        }
        spec.set_default("conversion", value!({"strategy": "None"}));
        if let Some(service) = spec.at_mut("conversion.webhook.clientConfig.service") {
            service.set_default("port", 443);
        }
        // Kubernetes: the internal type has the fields of a webhook, and no webhook (apiextensions/v1/conversion.go).
        let webhook = spec.at("conversion.webhook");
        if webhook["clientConfig"].is_null() && webhook["conversionReviewVersions"].is_null() {
            spec.entry("conversion").remove("webhook");
        }
        let status = definition.entry("status");
        if let Some(stored) = stored.filter(|_| status["storedVersions"].is_empty()) {
            status.set("storedVersions", value!([stored]));
        }
    }

    /// Once objects may have been stored in a version, it is remembered.
    fn prepare(definition: &mut Value, _: Option<&Value>, context: &HookContext) {
        if context.action == Action::Status {
            return;
        }
        let Some(stored) = storage_version(definition).map(Value::from) else {
            return;
        };
        let versions = definition
            .entry("status")
            .entry("storedVersions")
            .make_list();
        if !versions.contains(&stored) {
            versions.push(stored);
        }
    }

    fn validate(
        definition: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        let status = Path::new("status");
        if context.action != Action::Status {
            if old.is_none() {
                names::validate_name(definition, violations);
            }
            let spec = &definition["spec"];
            let old_spec = old.map(|old| &old["spec"]);
            let path = Path::new("spec");
            names::validate_group(spec["group"].str(), &path.child("group"), violations);
            match spec["scope"].str() {
                "" => violations.required(path.child("scope"), ""),
                scope => field::one_of(
                    scope,
                    &["Cluster", "Namespaced"],
                    &path.child("scope"),
                    violations,
                ),
            }
            version::validate_versions(spec, old_spec, &path, violations);
            for name in ["plural", "singular", "kind", "listKind"] {
                if spec["names"][name].is_empty() {
                    violations.required(path.child("names").child(name), "");
                }
            }
            names::validate_names(&spec["names"], &path.child("names"), violations);
            version::validate_shared(spec, old_spec, &path, violations);
            conversion::validate(spec, old_spec, &path.child("conversion"), violations);
            if old.is_some_and(is_established) {
                conversion::validate_authorities(definition, old, violations);
            }
            if let Some(old) = old {
                // The names of an established kind stay.
                let spec = &definition["spec"];
                let path = Path::new("spec");
                let (new_names, old_names) = (&spec["names"], &old["spec"]["names"]);
                if is_established(old) {
                    field::immutable(
                        &spec["scope"],
                        &old["spec"]["scope"],
                        &path.child("scope"),
                        violations,
                    );
                    field::immutable(
                        &new_names["kind"],
                        &old_names["kind"],
                        &path.child("names").child("kind"),
                        violations,
                    );
                }
                field::immutable(
                    &spec["group"],
                    &old["spec"]["group"],
                    &path.child("group"),
                    violations,
                );
                field::immutable(
                    &new_names["plural"],
                    &old_names["plural"],
                    &path.child("names").child("plural"),
                    violations,
                );
            }
        }
        names::validate_names(
            &definition["status"]["acceptedNames"],
            &status.child("acceptedNames"),
            violations,
        );
        if context.action != Action::Status {
            version::validate_stored(definition, &status.child("storedVersions"), violations);
            names::validate_approval(definition, old, violations);
            let preserves = |definition: &Value| definition["spec"]["preserveUnknownFields"].bool();
            if preserves(definition) && !old.is_some_and(preserves) {
                let path = Path::new("spec");
                let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
                violations.invalid(path.child("preserveUnknownFields"), true, detail);
            }
        }
    }

    /// Warns of new formats that are not recognized, because values are not validated against them.
    fn warnings(definition: &Value, old: Option<&Value>, context: &HookContext) -> Vec<String> {
        if context.action == Action::Status {
            return Vec::new();
        }
        let before: Vec<String> = old.map(version::unknown_formats).unwrap_or_default();
        let formats = version::unknown_formats(definition)
            .into_iter()
            .filter(|format| !before.contains(format));
        formats
            .map(|format| format!("unrecognized format {}", json::quote(&format)))
            .collect()
    }
}

fn storage_version(definition: &Value) -> Option<&str> {
    let versions = definition["spec"]["versions"].list();
    versions.iter().find(|version| version["storage"].bool())?["name"].as_str()
}

fn is_established(definition: &Value) -> bool {
    is_true(&definition["status"]["conditions"], "Established")
}
