//! Validation of the OpenAPI schema of a version.
//!
//! In order: the schema is structural, its defaults are valid, and it uses no forbidden constructs.
//! Kubernetes: apiextensions-apiserver, pkg/apis/apiextensions/validation and pkg/apiserver/schema.

mod cost;
mod defaults;
mod expressions;
mod list;
mod nested;
mod openapi;
mod patterns;
mod shown;
mod structural;
mod walk;

pub(super) use patterns::validate_sizes;
pub(super) use structural::unsupported;
pub(super) use walk::{any, unknown_formats};

use mizzen_object::{Path, Violations};
use mizzen_value::Value;

/// What is demanded of schemas. What the old definition broke already is let through.
#[derive(Debug, Clone, Copy)]
pub(super) struct SchemaOptions {
    /// That it is structural.
    structural: bool,
    /// That defaults have no unknown fields.
    pruned_defaults: bool,
    /// That the items of sets have one owner.
    atomic_sets: bool,
    /// That the keys of lists are always there.
    certain_keys: bool,
    /// That types are types.
    known_types: bool,
    /// That no rule is too dear.
    cheap_rules: bool,
}

impl SchemaOptions {
    pub(super) fn new(spec: &Value, old: Option<&Value>) -> SchemaOptions {
        let before = |broken: fn(&Value) -> bool| old.is_some_and(|old| schemas(old).any(broken));
        let demands = |schema: &Value| {
            any(schema, &|schema| {
                const WORDS: [&str; 7] = [
                    "default",
                    "x-kubernetes-embedded-resource",
                    "x-kubernetes-preserve-unknown-fields",
                    "x-kubernetes-int-or-string",
                    "x-kubernetes-list-map-keys",
                    "x-kubernetes-list-type",
                    "x-kubernetes-validations",
                ];
                WORDS.iter().any(|word| schema.get(word).is_some())
            })
        };
        SchemaOptions {
            structural: !spec["preserveUnknownFields"].bool()
                || schemas(spec).any(demands)
                || !before(|schema| !structural::is_structural(schema)),
            pruned_defaults: !before(defaults::has_unknown_fields),
            atomic_sets: !before(|schema| any(schema, &|schema| !list::has_atomic_items(schema))),
            certain_keys: !before(|schema| any(schema, &|schema| !list::has_certain_keys(schema))),
            known_types: !before(|schema| any(schema, &|schema| !openapi::has_known_type(schema))),
            cheap_rules: true,
        }
    }

    /// The same for a schema that was there before: its rules were found cheap enough.
    pub(super) fn unchanged(self) -> SchemaOptions {
        SchemaOptions {
            cheap_rules: false,
            ..self
        }
    }
}

/// The schemas of all versions.
fn schemas(spec: &Value) -> impl Iterator<Item = &Value> {
    spec["versions"]
        .items()
        .map(|version| &version["schema"]["openAPIV3Schema"])
}

/// The status, reason and message of the condition that says that a definition's schemas do not describe
/// objects whole; none if they do. Only definitions of old versions can come to that.
pub fn structural_condition(definition: &Value) -> Option<(&'static str, &'static str, String)> {
    let spec = &definition["spec"];
    let mut violations = Violations::default();
    if spec["preserveUnknownFields"].bool() {
        violations.invalid("spec.preserveUnknownFields", true, "must be false");
    }
    for (index, version) in spec["versions"].items().enumerate() {
        let schema = &version["schema"]["openAPIV3Schema"];
        if schema.as_map().is_none() {
            continue;
        }
        if let Some(why) = structural::unsupported(schema) {
            let name = version["name"].str();
            let message = format!("failed to check validation schema for version {name}: {why}");
            return Some(("Unknown", "StructuralError", message));
        }
        let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
        structural::validate(schema, &Path::new(&path), &mut violations);
    }
    Some(("True", "Violations", violations.aggregate()?))
}

/// Validates the schema of a version at `path`.
pub(super) fn validate(
    schema: &Value,
    has_status: bool,
    options: SchemaOptions,
    path: &Path,
    all: &mut Violations,
) {
    if schema.as_map().is_none() {
        return;
    }
    let mut violations = Violations::default();
    if has_status {
        validate_root(schema, path, &mut violations);
    }
    if schema["nullable"].bool() {
        violations.forbidden(
            path.child("nullable"),
            "nullable cannot be true at the root",
        );
    }
    let unsupported = structural::unsupported(schema);
    let sound = options.structural && unsupported.is_none() && {
        let before = violations.0.len();
        structural::validate(schema, path, &mut violations);
        if violations.0.len() == before {
            defaults::validate(schema, options.pruned_defaults, path, &mut violations);
        }
        violations.0.len() == before
    };
    let costs = openapi::validate(schema, options, sound, path, &mut violations);
    if let Some(word) = unsupported.filter(|_| options.structural && violations.is_empty()) {
        violations.invalid(path, "", &word);
    }
    costs.validate(path, &mut violations);
    all.0.append(&mut violations.0);
}

const AT_ROOT: [&str; 22] = [
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];

/// With a status that is written on its own the whole object can only be described, not judged. The first field
/// that does more is reported.
fn validate_root(schema: &Value, path: &Path, violations: &mut Violations) {
    let whole = shown::internal(schema);
    let said =
        |name: &str, value: &Value| !value.is_empty() || name == "Default" && !value.is_null();
    for (name, value) in whole.entries().filter(|(name, value)| said(name, value)) {
        if name == "Type" && value.str() != "object" {
            let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
            return violations.invalid(path.child("type"), value.str(), detail);
        }
        if !AT_ROOT.contains(&name) {
            let allowed = AT_ROOT.join(" ");
            let detail = format!(
                "only [{allowed}] fields are allowed at the root of the schema if the status subresource is enabled"
            );
            return violations.invalid(path, whole.clone(), &detail);
        }
    }
}
