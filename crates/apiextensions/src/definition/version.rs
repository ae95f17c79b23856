//! Validation of the versions of a CustomResourceDefinition.
//!
//! Kubernetes: what all versions have alike belongs to the definition as a whole, and messages say so: to
//! `spec.subresources` if it is the same in each, to `spec.versions[0].subresources` otherwise.

use mizzen_object::structural::resolve;
use mizzen_object::validate::names;
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::schema::{self, SchemaOptions};
use crate::internal;

/// What versions have of their own, unless they all have the same: the API's name, and the whole's.
pub(super) const SHARED: [(&str, &str); 4] = [
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// What all versions have alike.
pub(super) fn shared<'a>(spec: &'a Value, name: &str) -> Option<&'a Value> {
    let versions = spec["versions"].list();
    let first = &versions.first()?[name];
    versions
        .iter()
        .all(|version| version[name] == *first)
        .then_some(first)
}

fn is_shared(spec: &Value, name: &str) -> bool {
    shared(spec, name).is_some()
}

/// The versions one by one, and what they are together.
pub(super) fn validate_versions(
    spec: &Value,
    old: Option<&Value>,
    path: &Path,
    violations: &mut Violations,
) {
    let (versions, path) = (spec["versions"].list(), path.child("versions"));
    let options = SchemaOptions::new(spec, old);
    validate_presence(spec, old, &path, violations);
    for (index, version) in versions.iter().enumerate() {
        let path = path.index(index);
        let (name, wrong) = (
            version["name"].str(),
            names::is_dns1035_label(version["name"].str()),
        );
        if !wrong.is_empty() {
            violations.invalid(path.child("name"), name, &wrong.join(","));
        }
        let place = path.child("deprecationWarning");
        if let Some(warning) = version["deprecationWarning"].as_str() {
            if !version["deprecated"].bool() {
                violations.invalid(place, warning, "can only be set for deprecated versions");
            } else {
                if warning.len() > 256 {
                    violations.invalid(place, warning, "must be <= 256 characters long");
                }
                if warning.is_empty() {
                    violations.invalid(place, warning, "must not be an empty string");
                }
                if let Some((index, _)) = warning
                    .char_indices()
                    .find(|(_, char)| *char != ' ' && (char.is_control() || char.is_whitespace()))
                {
                    let detail = format!(
                        "must only contain printable UTF-8 characters; non-printable character found at index {index}"
                    );
                    violations.invalid(place, warning, &detail);
                }
            }
        }
        for (name, _) in SHARED.iter().filter(|(name, _)| !is_shared(spec, name)) {
            let part = VersionPart {
                spec,
                version: Some(version),
                name,
                old,
                options,
            };
            part.validate(&path.child(name), violations);
        }
    }
    let unique = (0..versions.len()).all(|i| {
        versions[..i]
            .iter()
            .all(|other| other["name"] != versions[i]["name"])
    });
    if !unique {
        violations.invalid(path, shown(spec), "must contain unique version names");
    }
    if versions
        .iter()
        .filter(|version| version["storage"].bool())
        .count()
        != 1
    {
        violations.invalid(
            path,
            shown(spec),
            "must have exactly one version marked as storage version",
        );
    }
    // Kubernetes: the first version is also that of the definition as a whole.
    if let Some(name) = versions
        .first()
        .map(|version| version["name"].str())
        .filter(|name| !name.is_empty())
    {
        let wrong = names::is_dns1035_label(name);
        if !wrong.is_empty() {
            violations.invalid("spec.version", name, &wrong.join(","));
        }
    }
    schema::validate_sizes(spec, old, &path, violations);
}

/// Every version has a schema, unless the old definition did without.
fn validate_presence(spec: &Value, old: Option<&Value>, path: &Path, violations: &mut Violations) {
    let demanded = old.is_none_or(|old| old["versions"].items().all(has_schema));
    let preserves = spec["preserveUnknownFields"].bool();
    let versions = spec["versions"].items().enumerate();
    for (index, version) in versions.filter(|(_, version)| !has_schema(version)) {
        let path = path.index(index);
        let path = path.child("schema");
        if demanded {
            violations.required(path.child("openAPIV3Schema"), "");
        } else if !preserves && version["served"].bool() {
            violations.required(
                path.child("openAPIV3Schema"),
                "because otherwise all fields are pruned",
            );
        }
    }
    if preserves
        && spec["versions"].items().any(|version| {
            schema::any(schema_of(version), &|schema| {
                schema.get("default").is_some()
            })
        })
    {
        let detail = "must be false in order to use defaults in the schema";
        violations.invalid("spec.preserveUnknownFields", true, detail);
    }
}

fn schema_of(version: &Value) -> &Value {
    &version["schema"]["openAPIV3Schema"]
}

/// The unknown formats of all schemas: they are not checked.
pub(super) fn unknown_formats(definition: &Value) -> Vec<String> {
    let spec = &definition["spec"];
    match shared(spec, "schema") {
        Some(schema) => schema::unknown_formats(&schema["openAPIV3Schema"]),
        None => spec["versions"]
            .items()
            .map(schema_of)
            .flat_map(schema::unknown_formats)
            .collect(),
    }
}

fn has_schema(version: &Value) -> bool {
    version["schema"].get("openAPIV3Schema").is_some()
}

/// The versions as messages show them, without what they share.
fn shown(spec: &Value) -> Value {
    let versions = spec["versions"].list();
    if versions.is_empty() {
        return spec["versions"].clone();
    }
    let own = |version: &Value| {
        let mut version = version.clone();
        for (name, _) in SHARED.iter().filter(|(name, _)| is_shared(spec, name)) {
            version.remove(name);
        }
        internal::shown("CustomResourceDefinitionVersion", &version)
    };
    versions.iter().map(own).collect::<Vec<_>>().into()
}

/// What the versions share.
pub(super) fn validate_shared(
    spec: &Value,
    old: Option<&Value>,
    path: &Path,
    violations: &mut Violations,
) {
    let options = SchemaOptions::new(spec, old);
    for (name, whole) in SHARED {
        if is_shared(spec, name) {
            VersionPart {
                spec,
                version: None,
                name,
                old,
                options,
            }
            .validate(&path.child(whole), violations);
        }
    }
}

/// A part of a version, or of all versions together.
struct VersionPart<'a> {
    spec: &'a Value,
    version: Option<&'a Value>,
    name: &'a str,
    old: Option<&'a Value>,
    options: SchemaOptions,
}

impl VersionPart<'_> {
    fn validate(&self, path: &Path, violations: &mut Violations) {
        let part = self.value(self.name);
        match self.name {
            "schema" => {
                let path = path.child("openAPIV3Schema");
                let options = if self.is_unchanged() {
                    self.options.unchanged()
                } else {
                    self.options
                };
                schema::validate(
                    &part["openAPIV3Schema"],
                    self.has_status(),
                    options,
                    &path,
                    violations,
                );
            }
            "subresources" => {
                let scale = &part["scale"];
                if !scale.is_null() {
                    let rules: [(&str, &[&str], &str); 3] = [
                        ("specReplicasPath", &[".spec."], ".spec"),
                        ("statusReplicasPath", &[".status."], ".status"),
                        (
                            "labelSelectorPath",
                            &[".spec.", ".status."],
                            "either .spec or .status",
                        ),
                    ];
                    for (name, roots, where_to) in rules {
                        let (text, place) = (scale[name].str(), format!("scale.{name}"));
                        let place = path.child(&place);
                        if text.is_empty() && name != "labelSelectorPath" {
                            violations.required(place, "");
                        } else if !text.is_empty() && !text.starts_with('.') {
                            violations.invalid(
                                place,
                                text,
                                "must be a simple json path starting with .",
                            );
                        } else if !text.is_empty()
                            && !roots.iter().any(|root| text.starts_with(root))
                        {
                            violations.invalid(
                                place,
                                text,
                                &format!("should be a json path under {where_to}"),
                            );
                        }
                    }
                }
            }
            "additionalPrinterColumns" => {
                for (index, column) in part.items().enumerate() {
                    validate_column(column, &path.index(index), violations);
                }
            }
            _ => self.validate_selectable(part.list(), path, violations),
        }
    }

    /// A part by its name, if it belongs to the same whole.
    fn value(&self, name: &str) -> &Value {
        self.version
            .or(self.spec["versions"].list().first())
            .map_or(&Value::Null, |version| &version[name])
    }

    /// Whether the old definition had the version with the same schema. Kubernetes: the first version stands for all
    /// together.
    fn is_unchanged(&self) -> bool {
        let Some(version) = self.version.or(self.spec["versions"].list().first()) else {
            return false;
        };
        let olds = self
            .old
            .map_or(&[] as &[Value], |old| old["versions"].list());
        olds.iter()
            .any(|old| old["name"] == version["name"] && schema_of(old) == schema_of(version))
    }

    /// Whether the status is written on its own: in this version, or in any.
    fn has_status(&self) -> bool {
        let has = |version: &Value| version["subresources"].get("status").is_some();
        match self.version {
            Some(version) => has(version),
            None => self.spec["versions"].items().any(has),
        }
    }

    /// Fields that can be selected are in the schema.
    fn validate_selectable(&self, fields: &[Value], path: &Path, violations: &mut Violations) {
        let together = is_shared(self.spec, "schema") == self.version.is_none();
        let schema = &self.value("schema")["openAPIV3Schema"];
        if fields.is_empty() {
            return;
        }
        if !together || schema.is_null() {
            let detail = match self.version {
                Some(_) => "may only be set when `version.schema.openAPIV3Schema` is not included",
                None => "may only be set when validations.schema is included",
            };
            return violations.invalid(path, "", detail);
        }
        if let Some(words) = schema::unsupported(schema) {
            let place = path
                .to_string()
                .replace("selectableFields", "schema.openAPIV3Schema");
            violations.invalid(place, "", &words);
        }
        let mut seen = Vec::new();
        for (index, field) in fields.iter().enumerate() {
            let path = path.index(index);
            let text = field["jsonPath"].str();
            let path = path.child("jsonPath");
            if text.is_empty() {
                violations.required(path, "");
                continue;
            }
            let place = match resolve(text, schema, false) {
                Ok(place) => place,
                Err(error) => {
                    violations.invalid(path, text, &format!("is an invalid path: {error}"));
                    continue;
                }
            };
            if place.root == "metadata" {
                violations.invalid(path, text, "must not point to fields in metadata");
            }
            if !matches!(place.schema["type"].str(), "string" | "boolean" | "integer") {
                let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
                violations.invalid(path, text, detail);
            }
            if seen.contains(&place.path) {
                violations.duplicate(path, text);
            } else {
                seen.push(place.path);
            }
        }
        if seen.len() > MAX_SELECTABLE && !self.had_as_many(fields) {
            violations.too_many(path, seen.len(), MAX_SELECTABLE);
        }
    }

    /// Whether the old definition had these very fields.
    fn had_as_many(&self, fields: &[Value]) -> bool {
        let versions = self
            .old
            .map_or(&[] as &[Value], |old| old["versions"].list());
        let same = |old: &&Value| {
            self.version
                .is_none_or(|version| old["name"] == version["name"])
        };
        versions
            .iter()
            .find(same)
            .is_some_and(|old| old["selectableFields"].list() == fields)
    }
}

const MAX_SELECTABLE: usize = 8;

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];

fn validate_column(column: &Value, path: &Path, violations: &mut Violations) {
    if column["name"].is_empty() {
        violations.required(path.child("name"), "");
    }
    let types = format!("must be one of {}", COLUMN_TYPES.join(","));
    match column["type"].str() {
        "" => violations.required(path.child("type"), &types),
        word if !COLUMN_TYPES.contains(&word) => {
            violations.invalid(path.child("type"), word, &types)
        }
        _ => {}
    }
    let format = column["format"].str();
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        violations.invalid(
            path.child("format"),
            format,
            &format!("must be one of {}", COLUMN_FORMATS.join(",")),
        );
    }
    match column["jsonPath"].str() {
        "" => violations.required(path.child("JSONPath"), ""),
        text if !text.starts_with('.') => {
            violations.invalid(
                path.child("JSONPath"),
                text,
                "must be a simple json path starting with .",
            );
        }
        _ => {}
    }
}

/// Every version in which something is stored is still there.
pub(super) fn validate_stored(definition: &Value, path: &Path, violations: &mut Violations) {
    let stored = &definition["status"]["storedVersions"];
    if stored.is_empty() {
        let shown = if stored.is_null() {
            Value::Null
        } else {
            stored.clone()
        };
        return violations.invalid(path, shown, "must have at least one stored version");
    }
    let versions = definition["spec"]["versions"].list();
    for (index, version) in versions.iter().enumerate() {
        let name = version["name"].str();
        // Kubernetes: a version that is there twice counts once (ValidateCustomResourceDefinitionStoredVersions).
        let is_repeated = versions[..index]
            .iter()
            .any(|other| other["name"].str() == name);
        let is_stored = stored.items().any(|stored| stored.str() == name);
        if version["storage"].bool() && (is_repeated || !is_stored) {
            violations.invalid(
                path,
                stored.clone(),
                &format!("must have the storage version {name}"),
            );
        }
    }
    for (index, name) in stored.items().enumerate() {
        if !versions.iter().any(|version| version["name"] == *name) {
            let name = name.str();
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {name} and removes {name} from \
                 status.storedVersions"
            );
            violations.invalid(path.index(index), name, &detail);
        }
    }
}
