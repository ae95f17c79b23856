//! Coming from client-side apply: the annotation in which kubectl keeps what it applied last.
//!
//! `kubectl apply --server-side` meets the fields that `kubectl apply` wrote before under another name. It may
//! take over what the annotation proves to be its own, and the annotation is kept up so that one can go back.

use super::check::check;
use super::compare::compare;
use super::of::fields_of;
use super::set::FieldSet;
use super::writer::Writer;
use mizzen_value::json;
use mizzen_value::{Map, Value};

/// Where kubectl keeps what it applied last.
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Only this manager is the same as the one who applied from the client's side.
const MANAGER: &str = "kubectl";

/// How many bytes all annotations of an object may have.
const MAX_ANNOTATIONS: usize = 256 << 10;

/// The fields that the annotation proves to be the applier's: those that are still as he left them.
pub(super) fn fields(writer: &Writer, live: &Value) -> Option<FieldSet> {
    let text = live["metadata"]["annotations"][ANNOTATION].str();
    if writer.manager != MANAGER || text.is_empty() {
        return None;
    }
    let last = json::parse(text.as_bytes()).ok()?;
    let same_kind = last["apiVersion"].str() == writer.gvk.api_version()
        && last["kind"].str() == writer.gvk.kind;
    if !same_kind || check(writer.schema, &last).is_some() {
        return None;
    }
    let changes = compare(writer.schema, &last, live).ok()?;
    Some(
        fields_of(writer.schema, &last)
            .difference(&changes.changed)
            .difference(&changes.removed),
    )
}

/// Brings the annotation, if there is one, up to date with what has been applied.
pub(super) fn refresh(writer: &Writer, applied: &mut Value, config: &Value) {
    if writer.manager != MANAGER
        || applied["metadata"]["annotations"][ANNOTATION]
            .str()
            .is_empty()
    {
        return;
    }
    let annotations = applied.entry("metadata").entry("annotations");
    annotations.set(ANNOTATION, text_of(config));
    let size: usize = annotations
        .entries()
        .map(|(key, value)| key.len() + value.str().len())
        .sum();
    if size > MAX_ANNOTATIONS {
        annotations.remove(ANNOTATION);
    }
}

fn text_of(config: &Value) -> String {
    let mut config = config.clone();
    if let Some(annotations) = config.at_mut("metadata.annotations") {
        annotations.remove(ANNOTATION);
    }
    sort(&mut config);
    json::to_string(&config) + "\n"
}

fn sort(value: &mut Value) {
    match value {
        Value::Map(map) => {
            map.values_mut().for_each(sort);
            Map::sort(map);
        }
        Value::List(items) => items.iter_mut().for_each(sort),
        _ => {}
    }
}
