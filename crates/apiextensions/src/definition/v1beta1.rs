//! CustomResourceDefinitions of v1beta1: fields shared by all versions are at the top level, schemas are optional, and
//! unknown fields are preserved by default.

use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::{Value, value};

use super::version::{SHARED, shared};
use super::{CustomResourceDefinitionStrategy, names};
use crate::Behaviour;
use crate::behaviour::KindStrategy;
use crate::internal;

pub(super) const DEFINITION: Behaviour = Behaviour {
    prepare: CustomResourceDefinitionStrategy::prepare,
    ..Behaviour::of::<CustomResourceDefinitionV1beta1Strategy>()
};

pub(super) struct CustomResourceDefinitionV1beta1Strategy;

impl KindStrategy for CustomResourceDefinitionV1beta1Strategy {
    fn default(definition: &mut Value) {
        let spec = definition.entry("spec");
        if spec["scope"].is_empty() {
            spec.set("scope", "Namespaced");
        }
        default_versions(spec);
        if let Some(conversion) = spec.get_mut("conversion") {
            if conversion["strategy"].str() == "Webhook"
                && conversion["conversionReviewVersions"].is_empty()
            {
                conversion.set("conversionReviewVersions", value!(["v1beta1"]));
            }
            if let Some(service) = conversion.at_mut("webhookClientConfig.service") {
                service.set_default("port", 443);
            }
        }
        spec.set_default("preserveUnknownFields", true);
        CustomResourceDefinitionStrategy::default(definition);
    }

    /// All that v1 demands, but what v1 forgives a definition that had it before, v1beta1 forgives a new one.
    fn validate(
        definition: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if old.is_none() {
            names::validate_name(definition, violations);
        }
        // A definition to which `definition` could be an update: without approval if it has none, keeping unknown fields
        // if it does, and then without schemas where it has none.
        let mut before = old.unwrap_or(definition).clone();
        let (spec, annotations) = (
            &definition["spec"],
            definition["metadata"]["annotations"].clone(),
        );
        before.entry("metadata").set("annotations", annotations);
        let preserves = spec["preserveUnknownFields"].clone();
        if preserves.bool() {
            before
                .entry("spec")
                .set("versions", spec["versions"].clone());
        } else if old.is_none() {
            before.entry("spec").remove("versions");
        }
        before.entry("spec").set("preserveUnknownFields", preserves);
        if old.is_none() {
            before.entry("spec").remove("conversion");
        }
        CustomResourceDefinitionStrategy::validate(definition, Some(&before), context, violations);
    }

    /// What is above the versions and what is in them would be one after conversion.
    fn validate_unconverted(definition: &Value, violations: &mut Violations) {
        let (spec, path) = (&definition["spec"], Path::new("spec"));
        let versions = spec["versions"].list();
        for (own, above) in SHARED {
            if !spec[above].is_empty() && versions.iter().any(|version| !version[own].is_null()) {
                let detail = format!(
                    "top-level and per-version {} are mutually exclusive",
                    plural(own)
                );
                violations.forbidden(path.child(above), &detail);
            }
        }
        for (own, above) in SHARED {
            if shared(spec, own).is_some_and(|part| !part.is_null()) {
                let detail = format!(
                    "per-version {} may not all be set to identical values (top-level {above} should be used instead)",
                    plural(own)
                );
                violations.invalid(path.child("versions"), shown(spec), &detail);
            }
        }
        let version = spec["version"].str();
        if !version.is_empty()
            && versions
                .first()
                .is_some_and(|first| first["name"].str() != version)
        {
            let detail = "must match the first version in spec.versions";
            violations.invalid(path.child("version"), version, detail);
        }
    }

    fn to_stored(definition: &mut Value) {
        let Some(spec) = definition.get_mut("spec") else {
            return;
        };
        default_versions(spec);
        spec.remove("version");
        for (own, above) in SHARED {
            if let Some(part) = spec.remove(above).filter(|part| !part.is_null()) {
                versions(spec).for_each(|version| version.set(own, part.clone()));
            }
        }
        versions(spec).for_each(|version| rename_paths(version, "JSONPath", "jsonPath"));
        if let Some(conversion) = spec.get_mut("conversion") {
            let (client, versions) = (
                conversion.remove("webhookClientConfig"),
                conversion.remove("conversionReviewVersions"),
            );
            if client.is_some() || versions.is_some() {
                let webhook = conversion.entry("webhook");
                webhook.set("conversionReviewVersions", versions);
                if let Some(client) = client {
                    webhook.set("clientConfig", client);
                }
            }
        }
    }

    fn from_stored(definition: &mut Value) {
        let Some(spec) = definition.get_mut("spec") else {
            return;
        };
        let first = spec["versions"][0]["name"].str().to_string();
        spec.set("version", first);
        for (own, above) in SHARED {
            let Some(part) = shared(spec, own).cloned() else {
                continue;
            };
            versions(spec).for_each(|version| drop(version.remove(own)));
            spec.set(above, part);
        }
        rename_paths(spec, "jsonPath", "JSONPath");
        versions(spec).for_each(|version| rename_paths(version, "jsonPath", "JSONPath"));
        if let Some(conversion) = spec.get_mut("conversion")
            && let Some(mut webhook) = conversion.remove("webhook")
        {
            for (from, to) in [
                ("clientConfig", "webhookClientConfig"),
                ("conversionReviewVersions", "conversionReviewVersions"),
            ] {
                if let Some(part) = webhook.remove(from).filter(|part| !part.is_null()) {
                    conversion.set(to, part);
                }
            }
        }
        spec.set_default("preserveUnknownFields", false);
    }
}

/// The list of versions and the one version above it say the same.
fn default_versions(spec: &mut Value) {
    let first = spec["versions"][0]["name"].str().to_string();
    let version = spec["version"].str().to_string();
    if spec["versions"].is_empty() && !version.is_empty() {
        spec.set(
            "versions",
            value!([{"name": version, "served": true, "storage": true}]),
        );
    } else if version.is_empty() && !first.is_empty() {
        spec.set("version", first);
    }
}

fn versions(spec: &mut Value) -> impl Iterator<Item = &mut Value> {
    spec.get_mut("versions")
        .into_iter()
        .flat_map(Value::list_mut)
}

/// The path of a column is written differently.
fn rename_paths(holder: &mut Value, from: &str, to: &str) {
    let columns = holder
        .get_mut("additionalPrinterColumns")
        .into_iter()
        .flat_map(Value::list_mut);
    for column in columns {
        if let Some(path) = column.remove(from) {
            column.set(to, path);
        }
    }
}

fn plural(part: &str) -> &str {
    if part == "schema" { "schemas" } else { part }
}

/// The versions as messages show them.
fn shown(spec: &Value) -> Value {
    let versions = spec["versions"].items().map(|version| {
        let mut version = version.clone();
        rename_paths(&mut version, "JSONPath", "jsonPath");
        internal::shown("CustomResourceDefinitionVersion", &version)
    });
    versions.collect::<Vec<_>>().into()
}
