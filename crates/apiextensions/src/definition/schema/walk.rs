//! Iteration over all schemas inside a schema.

use mizzen_object::structural::is_known_format;
use mizzen_value::Value;

/// Whether a test holds anywhere in a schema.
pub(in crate::definition) fn any(schema: &Value, test: &dyn Fn(&Value) -> bool) -> bool {
    if schema.as_map().is_none() {
        return false;
    }
    test(schema) || below(schema).any(|schema| any(schema, test))
}

/// The schemas directly inside one.
pub(super) fn below(schema: &Value) -> impl Iterator<Item = &Value> {
    let one = ["items", "not", "additionalProperties", "additionalItems"];
    let many = ["items", "allOf", "anyOf", "oneOf"];
    let named = [
        "properties",
        "patternProperties",
        "definitions",
        "dependencies",
    ];
    let ones = one.into_iter().map(|name| &schema[name]);
    let lists = many.into_iter().flat_map(|name| schema[name].list());
    let maps = named
        .into_iter()
        .flat_map(|name| schema[name].entries().map(|(_, schema)| schema));
    ones.chain(lists).chain(maps)
}

/// The unknown formats of a schema, in their order: they are not checked.
pub(in crate::definition) fn unknown_formats(schema: &Value) -> Vec<String> {
    if schema.as_map().is_none() {
        return Vec::new();
    }
    let format = schema["format"].str();
    let unknown = !format.is_empty() && !is_known_format(schema["type"].str(), format);
    let own = unknown.then(|| format.to_string());
    own.into_iter()
        .chain(below(schema).flat_map(unknown_formats))
        .collect()
}
