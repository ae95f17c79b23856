//! Objects inside an object (`x-kubernetes-embedded-resource`): they say what they are and have metadata.

use super::Structural;
use super::node::Node;
use crate::decode::decode_part;
use crate::kind::NameRule;
use crate::schema::Struct;
use crate::validate::{meta, names};
use crate::violation::{Path, Reason, Violation, Violations, show};
use mizzen_value::json;
use mizzen_value::{Map, Value};

impl Structural {
    /// Gives the metadata of embedded objects its type, of which `object_meta` is the shape. Returns the unknown
    /// fields in it, sorted, or what is wrong with the first that is not metadata.
    pub fn coerce(&self, object: &mut Value, object_meta: &Struct) -> Result<Vec<String>, String> {
        self.coerce_at(object, object_meta, &Path::new(""))
            .map_err(|violation| violation.to_string())
    }

    /// The same for a value at a place in something greater.
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

    /// All that is wrong with the kinds and the metadata of embedded objects.
    pub fn validate_embedded(&self, object: &Value, violations: &mut Violations) {
        self.validate_embedded_at(object, &Path::new(""), violations);
    }

    /// The same for a value at a place in something greater.
    pub fn validate_embedded_at(&self, value: &Value, path: &Path, violations: &mut Violations) {
        if self.embedded {
            validate(&self.root, value, path, violations);
        }
    }
}

fn coerce(
    node: &Node,
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
        reason: Reason::Invalid,
        field: path.to_string(),
        message,
    }
}

/// Metadata as its type has it, with the paths of unknown fields.
pub(crate) fn typed(
    metadata: &Value,
    object_meta: &Struct,
) -> Result<(Value, Vec<String>), String> {
    let mut sorted = metadata.clone();
    super::sort(&mut sorted);
    let text = json::to_string(&sorted);
    let mut decoded =
        decode_part(object_meta, text.as_bytes()).map_err(|error| error.to_string())?;
    super::sort(&mut decoded.value);
    let path = |complaint: &String| complaint.split('"').nth(1).unwrap_or_default().to_string();
    Ok((decoded.value, decoded.complaints.iter().map(path).collect()))
}

fn validate(node: &Node, value: &Value, path: &Path, violations: &mut Violations) {
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
        validate_metadata(metadata, &path.child("metadata"), violations);
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

fn validate_metadata(metadata: &Value, path: &Path, violations: &mut Violations) {
    let namespaced = !metadata["namespace"].str().is_empty();
    if metadata["name"].str().is_empty() {
        // Something must stand there, or it would be missed.
        let mut named = metadata.clone();
        named.set("name", "fakename");
        return meta::object_meta(&named, namespaced, NameRule::PathSegment, path, violations);
    }
    meta::object_meta(
        metadata,
        namespaced,
        NameRule::PathSegment,
        path,
        violations,
    );
}
