//! OpenAPI constructs that are forbidden, or forbidden together.

use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::cost::{self, Costs};
use super::{SchemaOptions, expressions, list};

pub(super) const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Whether a schema has a type that there is, or none.
pub(super) fn has_known_type(schema: &Value) -> bool {
    let ty = schema["type"].str();
    ty.is_empty() || TYPES.contains(&ty)
}

/// All that is wrong with a schema and those inside it. `sound` says that it is structural, so that expressions can
/// be looked at; what they may cost is returned.
pub(super) fn validate(
    schema: &Value,
    options: SchemaOptions,
    sound: bool,
    path: &Path,
    violations: &mut Violations,
) -> Costs {
    let around = SchemaContext {
        options,
        sound,
        root: true,
        in_meta: false,
        no_defaults: None,
        uncorrelated: None,
        cardinality: Some(1),
    };
    let mut found = SchemaViolations::default();
    walk(schema, &around, path, &mut found);
    violations.0.append(&mut found.schema.0);
    violations.0.append(&mut found.expressions.0);
    found.costs
}

/// The violations found; those of expressions are reported last.
#[derive(Default)]
pub(super) struct SchemaViolations {
    pub schema: Violations,
    pub expressions: Violations,
    pub costs: Costs,
}

/// Where a schema stands.
#[derive(Clone)]
pub(super) struct SchemaContext<'a> {
    pub options: SchemaOptions,
    pub sound: bool,
    pub root: bool,
    /// Inside the metadata or the names of an object.
    in_meta: bool,
    /// Why there may be no defaults.
    no_defaults: Option<String>,
    /// The place around here from which on old values are not known.
    pub uncorrelated: Option<&'a Path<'a>>,
    /// How often a value of the schema can stand in one object, if that is bounded.
    pub cardinality: Option<u64>,
}

fn walk(schema: &Value, around: &SchemaContext, path: &Path, found: &mut SchemaViolations) {
    if schema.as_map().is_none() {
        return;
    }
    let before = found.schema.0.len();
    standard(schema, around, path, &mut found.schema);
    let cardinality = around
        .cardinality
        .zip(cost::elements(schema))
        .map(|(all, each)| all.saturating_mul(each));
    let here = SchemaContext {
        root: false,
        cardinality,
        ..around.clone()
    };
    if let Some(additional) = schema.get("additionalProperties") {
        let place = path.child("additionalProperties");
        if !schema["properties"].is_empty() && *additional != Value::Bool(true) {
            found.schema.forbidden(
                place,
                "additionalProperties and properties are mutual exclusive",
            );
        }
        let mut inside = here.clone();
        if inside.in_meta {
            inside.no_defaults =
                Some("inside additionalProperties applying to object metadata".into());
        }
        walk(additional, &inside, &place, found);
    }
    properties(schema, &here, around.root, path, found);
    let plain = SchemaContext {
        sound: false,
        ..here.clone()
    };
    walk(&schema["not"], &plain, &path.child("not"), found);
    for name in ["allOf", "oneOf", "anyOf"] {
        let path = path.child(name);
        for (index, below) in schema[name].items().enumerate() {
            walk(below, &plain, &path.index(index), found);
        }
    }
    for (name, below) in schema["definitions"].entries() {
        walk(below, &plain, &path.child("definitions").key(name), found);
    }
    let mut inside = here.clone();
    if schema["x-kubernetes-list-type"].str() != "map" {
        inside.uncorrelated.get_or_insert(path);
    }
    let place = path.child("items");
    match &schema["items"] {
        Value::List(schemas) => {
            for (index, below) in schemas.iter().enumerate() {
                walk(below, &inside, &place.index(index), found);
            }
        }
        below => walk(below, &inside, &place, found),
    }
    for (name, below) in schema["dependencies"].entries() {
        walk(below, &plain, &path.child("dependencies").key(name), found);
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(false) {
        let path = path.child("x-kubernetes-preserve-unknown-fields");
        found
            .schema
            .invalid(path, false, "must be true or undefined");
    }
    list::validate(schema, around.options, path, &mut found.schema);
    expressions::validate(schema, around, before, path, found);
}

fn properties(
    schema: &Value,
    around: &SchemaContext,
    root: bool,
    path: &Path,
    found: &mut SchemaViolations,
) {
    let places = path.child("properties");
    for (name, below) in schema["properties"].entries() {
        let mut inside = around.clone();
        if !matches!(
            schema["x-kubernetes-map-type"].str(),
            "" | "granular" | "atomic"
        ) {
            inside.uncorrelated.get_or_insert(path);
        }
        let resource = root || schema["x-kubernetes-embedded-resource"].bool();
        if resource && matches!(name, "metadata" | "kind" | "apiVersion") {
            inside.in_meta = true;
            if root {
                inside.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        walk(below, &inside, &places.key(name), found);
    }
}

/// Words of JSON Schema that are not supported.
const FORBIDDEN: [&str; 6] = [
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
];

fn standard(schema: &Value, around: &SchemaContext, path: &Path, violations: &mut Violations) {
    let ty = schema["type"].str();
    if around.options.known_types && !has_known_type(schema) {
        violations.not_supported(path.child("type"), ty, &TYPES);
    }
    if let (Some(_), Some(reason)) = (schema.get("default"), &around.no_defaults) {
        violations.forbidden(path.child("default"), &format!("must not be set {reason}"));
    }
    for name in FORBIDDEN {
        if schema.get(name).is_some_and(|said| !said.is_null()) {
            violations.forbidden(path.child(name), &format!("{name} is not supported"));
        }
    }
    if ty == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        violations.forbidden(path.child("type"), detail);
    }
    if !schema["items"].list().is_empty() {
        violations.forbidden(
            path.child("items"),
            "items must be a schema object and not an array",
        );
    }
    if around.in_meta && schema["x-kubernetes-embedded-resource"].bool() {
        let path = path.child("x-kubernetes-embedded-resource");
        violations.forbidden(path, "must not be used inside of resource meta");
    }
    if schema["uniqueItems"].bool() {
        let detail =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        violations.forbidden(path.child("uniqueItems"), detail);
    }
}
