//! Validation of list and map types: `x-kubernetes-list-type`, `x-kubernetes-map-type`.

use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::SchemaOptions;

const LIST_TYPE: &str = "x-kubernetes-list-type";
const MAP_TYPE: &str = "x-kubernetes-map-type";
const KEYS: &str = "x-kubernetes-list-map-keys";

pub(super) fn validate(
    schema: &Value,
    options: SchemaOptions,
    path: &Path,
    violations: &mut Violations,
) {
    if schema.get(MAP_TYPE).is_some() {
        of_type(schema, "object", MAP_TYPE, path, violations);
        one_of(schema, MAP_TYPE, &["atomic", "granular"], path, violations);
    }
    if schema.get(LIST_TYPE).is_some() {
        let fits = of_type(schema, "array", LIST_TYPE, path, violations);
        if fits && options.atomic_sets && !has_atomic_items(schema) {
            // Kubernetes: the list type is shown for both.
            let items = &schema["items"];
            let word = if items["type"].str() == "array" {
                LIST_TYPE
            } else {
                MAP_TYPE
            };
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            violations.invalid(
                path.child("items").child(word),
                items[LIST_TYPE].clone(),
                detail,
            );
        }
        one_of(
            schema,
            LIST_TYPE,
            &["atomic", "set", "map"],
            path,
            violations,
        );
    }
    let is_map = schema[LIST_TYPE].str() == "map";
    if !schema[KEYS].is_empty() && !is_map {
        let (path, detail) = (
            path.child(LIST_TYPE),
            "must be map if x-kubernetes-list-map-keys is non-empty",
        );
        match schema.get(LIST_TYPE) {
            None => violations.required(path, detail),
            Some(word) => violations.invalid(path, word.clone(), detail),
        }
    }
    if is_map {
        keyed(schema, path, violations);
    }
    if options.certain_keys {
        certain_keys(schema, path, violations);
    }
}

/// Whether a type fits what is said of it.
fn of_type(
    schema: &Value,
    wanted: &str,
    word: &str,
    path: &Path,
    violations: &mut Violations,
) -> bool {
    let (ty, path) = (schema["type"].str(), path.child("type"));
    let detail = format!("must be {wanted} if {word} is specified");
    match ty {
        "" => violations.required(path, &detail),
        _ if ty != wanted => violations.invalid(path, ty, &detail),
        _ => {}
    }
    ty == wanted
}

fn one_of(schema: &Value, word: &str, allowed: &[&str], path: &Path, violations: &mut Violations) {
    if !allowed.contains(&schema[word].str()) {
        violations.not_supported(path.child(word), schema[word].str(), allowed);
    }
}

/// Whether the items of a set can be told apart: scalars, or what has one owner.
pub(super) fn has_atomic_items(schema: &Value) -> bool {
    let items = &schema["items"];
    match items["type"].str() {
        _ if schema[LIST_TYPE].str() != "set" => true,
        "array" => items
            .get(LIST_TYPE)
            .is_none_or(|word| word.str() == "atomic"),
        "object" => items[MAP_TYPE].str() == "atomic",
        _ => true,
    }
}

fn keyed(schema: &Value, path: &Path, violations: &mut Violations) {
    let (keys, place) = (&schema[KEYS], path.child("items"));
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        violations.required(path.child(KEYS), detail);
    }
    match schema.get("items") {
        None => violations.required(place, "must have a schema if x-kubernetes-list-type is map"),
        Some(Value::List(_)) => {
            let detail = "must only have a single schema if x-kubernetes-list-type is map";
            violations.invalid(
                place,
                super::shown::internal(schema)["Items"].clone(),
                detail,
            );
        }
        Some(items) if items["type"].str() != "object" => {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            violations.invalid(place.child("type"), items["type"].str(), detail);
        }
        Some(items) => {
            // Kubernetes: the type that is shown is that of the item.
            let place = path.child("items");
            let properties = place.child("properties");
            for (index, key) in keys.items().enumerate() {
                match items["properties"].get(key.str()) {
                    Some(property) if matches!(property["type"].str(), "array" | "object") => {
                        let detail =
                            "must be a scalar type if parent array's x-kubernetes-list-type is map";
                        violations.invalid(
                            properties.key(key.str()).child("type"),
                            items["type"].str(),
                            detail,
                        );
                    }
                    Some(_) => {}
                    None => {
                        let detail = "entries must all be names of item properties";
                        violations.invalid(path.child(KEYS), keys.clone(), detail);
                    }
                }
                if keys.list()[..index].contains(key) {
                    violations.invalid(
                        path.child(KEYS),
                        keys.clone(),
                        "must not contain duplicate entries",
                    );
                }
            }
        }
    }
}

/// Whether items are never null, and keys are always there.
pub(super) fn has_certain_keys(schema: &Value) -> bool {
    let mut violations = Violations::default();
    certain_keys(schema, &Path::new(""), &mut violations);
    violations.is_empty()
}

fn certain_keys(schema: &Value, path: &Path, violations: &mut Violations) {
    let (items, word) = (&schema["items"], schema[LIST_TYPE].str());
    if items.as_map().is_none() || !matches!(word, "set" | "map") {
        return;
    }
    let place = path.child("items");
    if items["nullable"].bool() {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {word}");
        violations.forbidden(place.child("nullable"), &detail);
    }
    let keys = if word == "map" {
        schema[KEYS].list()
    } else {
        &[]
    };
    let properties = place.child("properties");
    for key in keys {
        let Some(property) = items["properties"].get(key.str()) else {
            continue;
        };
        let path = properties.key(key.str());
        if property.get("default").is_none() && !items["required"].list().contains(key) {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            violations.required(path.child("default"), detail);
        }
        if property["nullable"].bool() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            violations.forbidden(path.child("nullable"), detail);
        }
    }
}
