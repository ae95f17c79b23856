//! Structural schemas: validation of their invariants.

use mizzen_go_regexp as go_regexp;
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::nested;

/// What makes a schema one that cannot be structural, in words.
pub(in crate::definition) fn unsupported(schema: &Value) -> Option<String> {
    const WORDS: [(&str, &str); 7] = [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ];
    schema.as_map()?;
    let said = |name: &str| {
        !schema[name].is_empty() || name == "additionalItems" && schema.get(name).is_some()
    };
    let word = WORDS.iter().find(|(name, _)| said(name));
    let own = word.map(|(_, word)| format!("OpenAPIV3Schema '{word}' is not supported"));
    let array = matches!(schema["items"], Value::List(_))
        .then(|| "OpenAPIV3Schema 'items' must be a schema, but is an array".into());
    let preserves =
        (schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(false)).then(|| {
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
                .to_string()
        });
    own.or(preserves)
        .or(array)
        .or_else(|| nested::below(schema).find_map(|(_, schema)| unsupported(schema)))
}

/// Whether a schema is structural.
pub(super) fn is_structural(schema: &Value) -> bool {
    let mut violations = Violations::default();
    if schema.as_map().is_some() {
        validate(schema, &Path::new(""), &mut violations);
    }
    unsupported(schema).is_none() && violations.is_empty()
}

/// All that keeps a schema from being structural, sorted.
pub(super) fn validate(schema: &Value, path: &Path, violations: &mut Violations) {
    let mut found = Violations::default();
    invariants(schema, SchemaLevel::Root, path, &mut found);
    nested::complete(schema, schema, path, path, &mut found);
    found.0.sort_by_cached_key(ToString::to_string);
    violations.0.append(&mut found.0);
}

#[derive(Clone, Copy, PartialEq)]
enum SchemaLevel {
    Root,
    Item,
    Field,
}

fn invariants(schema: &Value, level: SchemaLevel, path: &Path, violations: &mut Violations) {
    let ty = schema["type"].str();
    let embedded = schema["x-kubernetes-embedded-resource"].bool();
    match schema.get("items") {
        Some(items) => invariants(items, SchemaLevel::Item, &path.child("items"), violations),
        None if ty == "array" => violations.required(path.child("items"), "must be specified"),
        None => {}
    }
    let properties = path.child("properties");
    for (name, below) in schema["properties"].entries() {
        invariants(below, SchemaLevel::Field, &properties.key(name), violations);
    }
    let additional = path.child("additionalProperties");
    if let Some(below) = schema.get("additionalProperties") {
        if level == SchemaLevel::Root {
            violations.forbidden(additional, "must not be used at the root");
        }
        if below.as_map().is_some() {
            invariants(below, SchemaLevel::Field, &additional, violations);
        }
    }
    if schema["x-kubernetes-int-or-string"].bool() {
        for name in [
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-embedded-resource",
        ] {
            if schema[name].bool() {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                violations.invalid(path.child(name), true, detail);
            }
        }
    }
    nested::values(schema, nested::Skip::of(schema), path, violations);
    let (ty, place) = (schema["type"].str(), path.child("type"));
    if schema["x-kubernetes-embedded-resource"].bool() && ty != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        match ty {
            "" => violations.required(place, detail),
            ty => violations.invalid(place, ty, detail),
        };
    } else {
        let free = [
            "x-kubernetes-int-or-string",
            "x-kubernetes-preserve-unknown-fields",
        ];
        if ty.is_empty() && !free.iter().any(|name| schema[*name].bool()) {
            let what = match level {
                SchemaLevel::Root => "must not be empty at the root",
                SchemaLevel::Item => "must not be empty for specified array items",
                SchemaLevel::Field => "must not be empty for specified object fields",
            };
            violations.required(place, what);
        }
    }
    if embedded && schema.get("additionalProperties").is_some() {
        violations.forbidden(
            additional,
            "must not be used if x-kubernetes-embedded-resource is set",
        );
    }
    if level == SchemaLevel::Root && !ty.is_empty() && ty != "object" {
        violations.invalid(path.child("type"), ty, "must be object at the root");
    }
    validate_meta(
        schema,
        level,
        embedded || level == SchemaLevel::Root,
        &properties,
        violations,
    );
    if embedded
        && !schema["x-kubernetes-preserve-unknown-fields"].bool()
        && schema["properties"].is_empty()
    {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        violations.required(properties, detail);
    }
}

/// What an object says of itself is text and metadata, whatever else it is.
fn validate_meta(
    schema: &Value,
    level: SchemaLevel,
    checked: bool,
    path: &Path,
    violations: &mut Violations,
) {
    for name in ["kind", "apiVersion"] {
        if let Some(below) = schema["properties"].get(name).filter(|_| checked)
            && below["type"].str() != "string"
        {
            violations.invalid(
                path.key(name).child("type"),
                below["type"].str(),
                "must be string",
            );
        }
    }
    let Some(metadata) = schema["properties"].get("metadata") else {
        return;
    };
    let path = path.key("metadata");
    if checked && metadata["type"].str() != "object" {
        violations.invalid(path.child("type"), metadata["type"].str(), "must be object");
    }
    let is_plain = |(word, value): (&str, &Value)| match word {
        "type" | "default" => true,
        "properties" => value
            .entries()
            .all(|(name, _)| matches!(name, "name" | "generateName")),
        "additionalProperties" | "items" | "not" => false,
        _ => value.is_empty(),
    };
    if level == SchemaLevel::Root && !metadata.entries().all(is_plain) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        violations.forbidden(path, detail);
    }
}

/// A pattern must be one that Go can read. It is parsed and not compiled.
pub(super) fn pattern(schema: &Value, path: &Path, violations: &mut Violations) {
    let text = schema["pattern"].str();
    if let Err(error) = go_regexp::check(text) {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        violations.invalid(path.child("pattern"), text, &detail);
    }
}
