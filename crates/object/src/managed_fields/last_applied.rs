//! Migration from client-side apply, by the annotation in which kubectl keeps the last applied
//! configuration.
//!
//! `kubectl apply --server-side` conflicts with the fields that `kubectl apply` wrote under another
//! manager. It takes over those that the annotation lists, and updates the annotation so that the
//! user can go back.

use super::compare::compare;
use super::field_manager::FieldManager;
use super::field_set::FieldSet;
use super::shape::validate_shape;
use super::to_field_set::to_field_set;
use mizzen_value::Value;
use mizzen_value::json;

/// The annotation of client-side apply.
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Only this manager takes over fields of client-side apply.
const MANAGER: &str = "kubectl";

/// The maximum size of all annotations of an object, in bytes.
const MAX_ANNOTATIONS: usize = 256 << 10;

/// The fields in the annotation whose values have not changed since.
pub(super) fn fields(field_manager: &FieldManager, live: &Value) -> Option<FieldSet> {
    let text = live["metadata"]["annotations"][ANNOTATION].str();
    if field_manager.manager != MANAGER || text.is_empty() {
        return None;
    }
    let last = json::parse(text.as_bytes()).ok()?;
    let same_kind = last["apiVersion"].str() == field_manager.gvk.api_version()
        && last["kind"].str() == field_manager.gvk.kind;
    if !same_kind || validate_shape(field_manager.schema, &last).is_some() {
        return None;
    }
    let changes = compare(field_manager.schema, &last, live).ok()?;
    Some(
        to_field_set(field_manager.schema, &last)
            .difference(&changes.changed)
            .difference(&changes.removed),
    )
}

/// Updates the annotation, if there is one, with the applied configuration.
pub(super) fn refresh(field_manager: &FieldManager, applied: &mut Value, config: &Value) {
    if field_manager.manager != MANAGER
        || applied["metadata"]["annotations"][ANNOTATION]
            .str()
            .is_empty()
    {
        return;
    }
    let annotations = applied.entry("metadata").entry("annotations");
    let mut config = config.clone();
    if let Some(annotations) = config.at_mut("metadata.annotations") {
        annotations.remove(ANNOTATION);
    }
    crate::structural::sort(&mut config);
    annotations.set(ANNOTATION, json::to_string(&config) + "\n");
    let size: usize = annotations
        .entries()
        .map(|(key, value)| key.len() + value.str().len())
        .sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(ANNOTATION);
    }
}
