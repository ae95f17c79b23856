//! Validation inside `anyOf`, `allOf`, `oneOf` and `not`: conditions on fields that are declared outside.

use mizzen_object::{Path, Violations};
use mizzen_value::{Value, value};

use super::structural::pattern;

/// Which `anyOf` says nothing but "a whole number or text" and is let through.
#[derive(Clone, Copy)]
pub(super) struct Skip {
    any_of: bool,
    first_all_of: bool,
}

impl Skip {
    const NOTHING: Skip = Skip {
        any_of: false,
        first_all_of: false,
    };

    pub(super) fn of(schema: &Value) -> Skip {
        let either = value!([{"type": "integer"}, {"type": "string"}]);
        Skip {
            any_of: schema["anyOf"] == either,
            first_all_of: schema["allOf"][0]["anyOf"] == either,
        }
    }
}

/// The schemas inside a schema that are judged with it, and what leads there.
pub(super) fn below(schema: &Value) -> impl Iterator<Item = (String, &Value)> {
    let one = ["items", "additionalProperties", "not"].into_iter();
    let ones = one.map(|name| (name.to_string(), &schema[name]));
    let lists = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|name| {
        let items = schema[name].items().enumerate();
        items.map(move |(index, schema)| (format!("{name}[{index}]"), schema))
    });
    let properties = schema["properties"].entries();
    let maps = properties.map(|(name, schema)| (format!("properties[{name}]"), schema));
    ones.chain(lists)
        .chain(maps)
        .filter(|(_, schema)| schema.as_map().is_some())
}

/// The conditions on the value at a place.
pub(super) fn values(schema: &Value, skip: Skip, path: &Path, violations: &mut Violations) {
    let mut each = |name: &str, skip: &dyn Fn(usize) -> Skip| {
        let path = path.child(name);
        for (index, below) in schema[name].items().enumerate() {
            condition(below, skip(index), &path.index(index), violations);
        }
    };
    if !skip.any_of {
        each("anyOf", &|_| Skip::NOTHING);
    }
    each("allOf", &|index| Skip {
        any_of: skip.first_all_of && index == 0,
        first_all_of: false,
    });
    each("oneOf", &|_| Skip::NOTHING);
    if let Some(below) = schema.get("not") {
        condition(below, Skip::NOTHING, &path.child("not"), violations);
    }
    pattern(schema, path, violations);
}

/// What a condition may not say.
const FORBIDDEN: [(&str, &str); 12] = [
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    (
        "x-kubernetes-preserve-unknown-fields",
        "must be false to be structural",
    ),
    (
        "x-kubernetes-embedded-resource",
        "must be false to be structural",
    ),
    (
        "x-kubernetes-int-or-string",
        "must be false to be structural",
    ),
    (
        "x-kubernetes-list-map-keys",
        "must be empty to be structural",
    ),
    (
        "x-kubernetes-list-type",
        "must be undefined to be structural",
    ),
    (
        "x-kubernetes-map-type",
        "must be undefined to be structural",
    ),
];

fn condition(schema: &Value, skip: Skip, path: &Path, violations: &mut Violations) {
    values(schema, skip, path, violations);
    if let Some(items) = schema.get("items") {
        condition(items, Skip::NOTHING, &path.child("items"), violations);
    }
    let properties = path.child("properties");
    for (name, below) in schema["properties"].entries() {
        condition(below, Skip::NOTHING, &properties.key(name), violations);
    }
    for (name, detail) in FORBIDDEN {
        let said = match &schema[name] {
            Value::Null => false,
            _ if name == "default" => true,
            Value::Bool(said) => *said,
            Value::String(text) => !text.is_empty(),
            Value::List(items) => !items.is_empty(),
            _ => true,
        };
        if said {
            violations.forbidden(path.child(name), detail);
        }
    }
    if !schema["x-kubernetes-validations"].is_empty() {
        violations.forbidden(
            path.child("x-kubernetes-validations"),
            "must be empty to be structural",
        );
    }
    if schema["properties"].get("metadata").is_some() {
        violations.forbidden(
            properties.key("metadata"),
            "must not be specified in a nested context",
        );
    }
}

/// Every field that a condition names must be declared: `place` is where it should be, `defined_in` where it is named.
/// Kubernetes: only the conditions at the root are validated (schema/complete.go).
pub(super) fn complete(
    condition: &Value,
    declared: &Value,
    place: &Path,
    defined_in: &Path,
    violations: &mut Violations,
) {
    if let Some(not) = condition.get("not") {
        complete_below(not, declared, place, &defined_in.child("not"), violations);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        let defined_in = defined_in.child(name);
        for (index, below) in condition[name].items().enumerate() {
            complete_below(below, declared, place, &defined_in.index(index), violations);
        }
    }
}

fn complete_below(
    condition: &Value,
    declared: &Value,
    place: &Path,
    defined_in: &Path,
    violations: &mut Violations,
) {
    complete(condition, declared, place, defined_in, violations);
    if let Some(items) = condition.get("items") {
        let (place, defined_in) = (place.child("items"), defined_in.child("items"));
        match declared.get("items") {
            Some(declared) => complete_below(items, declared, &place, &defined_in, violations),
            None => violations.required(place, &format!("because it is defined in {defined_in}")),
        }
    }
    let (places, properties_defined_in) =
        (place.child("properties"), defined_in.child("properties"));
    for (name, below) in condition["properties"].entries() {
        let (place, defined_in) = (places.key(name), properties_defined_in.key(name));
        match declared["properties"].get(name) {
            Some(declared) => complete_below(below, declared, &place, &defined_in, violations),
            None => violations.required(place, &format!("because it is defined in {defined_in}")),
        }
    }
}
