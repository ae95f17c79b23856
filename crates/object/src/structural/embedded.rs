//! Embedded resources (`x-kubernetes-embedded-resource`): objects with a kind and metadata inside
//! of an object.

use super::Structural;
use super::node::SchemaNode;
use crate::decode::{decode_part, decode_part_value};
use crate::kind::NameRule;
use crate::schema::Struct;
use crate::validate::{meta, names};
use crate::violation::{Path, Violation, ViolationReason, Violations, show};
use mizzen_value::json;
use mizzen_value::{Map, Value};

impl Structural {
    /// Converts the metadata of embedded objects to its type, whose schema is `object_meta`.
    /// Returns the unknown fields in it, sorted, or the error of the first that is invalid.
    pub fn coerce(&self, object: &mut Value, object_meta: &Struct) -> Result<Vec<String>, String> {
        self.coerce_at(object, object_meta, &Path::new(""))
            .map_err(|violation| violation.to_string())
    }

    /// Like [`Structural::coerce`], for a value inside of another.
    pub fn coerce_at(
        &self,
        value: &mut Value,
        object_meta: &Struct,
        path: &Path,
    ) -> Result<Vec<String>, Violation> {
        let mut unknown = Vec::new();
        if self.embedded {
            coerce(&self.root, value, object_meta, path, &mut unknown)?;
        }
        unknown.sort();
        Ok(unknown)
    }

    /// Validates the kinds and the metadata of embedded objects.
    pub fn validate_embedded(&self, object: &Value, violations: &mut Violations) {
        self.validate_embedded_at(object, &Path::new(""), violations);
    }

    /// Like [`Structural::validate_embedded`], for a value inside of another.
    pub fn validate_embedded_at(&self, value: &Value, path: &Path, violations: &mut Violations) {
        if self.embedded {
            validate(&self.root, value, path, violations);
        }
    }
}

fn coerce(
    node: &SchemaNode,
    value: &mut Value,
    object_meta: &Struct,
    path: &Path,
    unknown: &mut Vec<String>,
) -> Result<(), Violation> {
    match value {
        Value::Map(map) => {
            if node.is_embedded() {
                coerce_embedded(map, object_meta, path, unknown)?;
            }
            for (name, value) in map.iter_mut() {
                match (node.property(name), node.additional()) {
                    (Some(below), _) => {
                        coerce(below, value, object_meta, &path.child(name), unknown)?
                    }
                    (None, Some(below)) => {
                        coerce(below, value, object_meta, &path.key(name), unknown)?
                    }
                    (None, None) => {}
                }
            }
        }
        Value::List(items) => {
            if let Some(below) = node.items() {
                for (index, value) in items.iter_mut().enumerate() {
                    coerce(below, value, object_meta, &path.index(index), unknown)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn coerce_embedded(
    map: &mut Map,
    object_meta: &Struct,
    path: &Path,
    unknown: &mut Vec<String>,
) -> Result<(), Violation> {
    for name in ["apiVersion", "kind"] {
        if let Some(odd) = map.get(name).filter(|value| value.as_str().is_none()) {
            return Err(wrong(&path.child(name), odd, "must be a string"));
        }
    }
    let Some(metadata) = map.get_mut("metadata") else {
        return Ok(());
    };
    let place = path.child("metadata");
    let decoded = typed(metadata, object_meta).map_err(|error| wrong(&place, metadata, &error))?;
    unknown.extend(
        decoded
            .1
            .iter()
            .map(|name| format!("{}.{name}", path.child("metadata"))),
    );
    *metadata = decoded.0;
    Ok(())
}

fn wrong(path: &Path, value: &Value, detail: &str) -> Violation {
    let mut sorted = value.clone();
    super::sort(&mut sorted);
    let message = format!("Invalid value: {}: {detail}", show(&sorted));
    Violation {
        reason: ViolationReason::Invalid,
        field: path.to_string(),
        message,
    }
}

/// Typed metadata, with the paths of unknown fields.
pub(crate) fn typed(
    metadata: &Value,
    object_meta: &Struct,
) -> Result<(Value, Vec<String>), String> {
    if let Some(mut typed) = decode_part_value(object_meta, metadata.clone()) {
        super::sort(&mut typed);
        return Ok((typed, Vec::new()));
    }
    let mut sorted = metadata.clone();
    super::sort(&mut sorted);
    let text = json::to_string(&sorted);
    let mut decoded =
        decode_part(object_meta, text.as_bytes()).map_err(|error| error.to_string())?;
    super::sort(&mut decoded.value);
    let path = |complaint: &String| complaint.split('"').nth(1).unwrap_or_default().to_string();
    Ok((decoded.value, decoded.complaints.iter().map(path).collect()))
}

fn validate(node: &SchemaNode, value: &Value, path: &Path, violations: &mut Violations) {
    match value {
        Value::Map(map) => {
            if node.is_embedded() {
                validate_embedded(map, path, violations);
            }
            for (name, value) in map.iter() {
                match (node.property(name), node.additional()) {
                    (Some(below), _) => validate(below, value, &path.child(name), violations),
                    (None, Some(below)) => validate(below, value, &path.key(name), violations),
                    (None, None) => {}
                }
            }
        }
        Value::List(items) => {
            if let Some(below) = node.items() {
                for (index, value) in items.iter().enumerate() {
                    validate(below, value, &path.index(index), violations);
                }
            }
        }
        _ => {}
    }
}

fn validate_embedded(map: &Map, path: &Path, violations: &mut Violations) {
    for name in ["apiVersion", "kind"] {
        if !map.contains_key(name) {
            violations.required(path.child(name), "");
        }
    }
    if let Some(version) = map.get("apiVersion") {
        let place = path.child("apiVersion");
        match version.as_str() {
            None => violations.invalid(place, version.clone(), "must be a string"),
            Some("") => violations.invalid(place, "", "must not be empty"),
            Some(text) if text.matches('/').count() > 1 => {
                violations.invalid(
                    place,
                    text,
                    &format!("unexpected GroupVersion string: {text}"),
                );
            }
            Some(_) => {}
        }
    }
    if let Some(kind) = map.get("kind") {
        validate_kind(kind, &path.child("kind"), violations);
    }
    if let Some(metadata) = map.get("metadata") {
        let (namespaced, path) = (
            !metadata["namespace"].str().is_empty(),
            path.child("metadata"),
        );
        let mut named = metadata.clone();
        // A name is required, but an embedded object need not have one.
        if named["name"].str().is_empty() {
            named.set("name", "fakename");
        }
        meta::object_meta(&named, namespaced, NameRule::PathSegment, &path, violations);
    }
}

fn validate_kind(kind: &Value, path: &Path, violations: &mut Violations) {
    let wrong = names::is_dns1035_label(&kind.str().to_lowercase());
    match kind.as_str() {
        None => violations.invalid(path, kind.clone(), "must be a string"),
        Some("") => violations.invalid(path, "", "must not be empty"),
        Some(text) if !wrong.is_empty() => {
            let detail = format!(
                "may have mixed case, but should otherwise match: {}",
                wrong.join(",")
            );
            violations.invalid(path, text, &detail);
        }
        Some(_) => {}
    }
}
