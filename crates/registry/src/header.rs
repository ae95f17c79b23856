//! The header of a record: labels and selectable fields, extracted once.
//!
//! Invariant: selectors are evaluated on headers; no object is decoded twice to be selected.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use mizzen_object::select::{FieldSelector, LabelSelector, SelectorOperator};
use mizzen_object::{Kind, Status};
use mizzen_store::Record;
use mizzen_value::{Str, Value, json};
use parking_lot::Mutex;

use crate::decode::header;
use crate::render::Rendering;
use crate::{Key, Object, Resource};

/// The selectable part of an object. Packed, because there are many objects, and most are never selected.
pub(crate) struct Header {
    /// Texts one after the other: key and value of each label, then the values of the kind's selectable fields, in the
    /// kind's order.
    text: Box<str>,
    /// The end offset of each.
    ends: Box<[u32]>,
    n_labels: u32,
    pub(crate) forms: Forms,
    /// The object in other versions. Boxed, for most objects are never read in another version.
    pub(crate) renderings: OnceLock<Box<Mutex<Vec<Arc<Rendering>>>>>,
}

/// Other representations of an object, each rendered on first use.
#[derive(Default)]
pub struct Forms {
    /// Its protobuf message, without envelope.
    pub proto: OnceLock<Bytes>,
    /// Its row in a table: what stands before its age, when it was made, and what stands after. None if
    /// something else in the row depends on the time. Boxed, for most objects are never shown in a table.
    pub row: OnceLock<Option<Box<(Bytes, i64, Bytes)>>>,
}

impl Header {
    pub(crate) fn new(kind: &Kind, value: &Value) -> Header {
        let (mut text, mut ends, mut n_labels) = (String::new(), Vec::new(), 0);
        let mut push = |part: &str| {
            text.push_str(part);
            ends.push(u32::try_from(text.len()).expect("an object's size is limited"));
        };
        for (key, value) in value["metadata"]["labels"].entries() {
            push(key);
            push(value.str());
            n_labels += 1;
        }
        kind.selectable
            .iter()
            .for_each(|field| push(&selectable(kind, value, field)));
        Header {
            text: text.into(),
            ends: ends.into(),
            n_labels,
            forms: Forms::default(),
            renderings: OnceLock::new(),
        }
    }

    fn label(&self, key: &str) -> Option<&str> {
        let label = (0..self.n_labels as usize).find(|label| self.part(2 * label) == Some(key))?;
        self.part(2 * label + 1)
    }

    /// The value of the kind's selectable field number `at`.
    fn field(&self, at: usize) -> Option<&str> {
        self.part(2 * self.n_labels as usize + at)
    }

    fn part(&self, at: usize) -> Option<&str> {
        let start = if at == 0 {
            0
        } else {
            *self.ends.get(at - 1)? as usize
        };
        self.text.get(start..*self.ends.get(at)? as usize)
    }
}

/// The value of a selectable field.
fn selectable(kind: &Kind, value: &Value, field: &str) -> Str {
    if let Some(computed) = kind.hooks.selectable(value, field) {
        return computed;
    }
    shown(value.at(field))
}

/// The index terms of an object.
pub(crate) fn terms(kind: &Kind, value: &Value) -> Vec<Arc<str>> {
    let fields = kind.indexed.iter().flat_map(|field| {
        let mut found = Vec::new();
        collect(value, field, &mut found);
        found.into_iter().map(|value| field_term(field, &value))
    });
    label_terms(value).chain(fields).collect()
}

/// The index terms of an object's labels.
pub(crate) fn label_terms(value: &Value) -> impl Iterator<Item = Arc<str>> {
    let labels = value["metadata"]["labels"].entries();
    labels.map(|(key, value)| label_term(key, value.str()))
}

/// Every value that a dotted path leads to, through lists too. A path that leads nowhere has the value "".
fn collect(value: &Value, path: &str, found: &mut Vec<Str>) {
    let (name, rest) = path
        .split_once('.')
        .map_or((path, None), |(name, rest)| (name, Some(rest)));
    let inner = &value[name];
    let items = if let Value::List(items) = inner {
        items.as_slice()
    } else {
        std::slice::from_ref(inner)
    };
    for item in items {
        match rest {
            Some(rest) => collect(item, rest, found),
            None => found.push(shown(item)),
        }
    }
}

fn shown(value: &Value) -> Str {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => Str::default(),
        other => json::to_string(other).into(),
    }
}

fn label_term(key: &str, value: &str) -> Arc<str> {
    format!("{key}={value}").into()
}

/// A colon cannot begin a label, so fields and labels never meet.
pub(crate) fn field_term(field: &str, value: &str) -> Arc<str> {
    format!(":{field}={value}").into()
}

/// A term that every selected object has, if the selectors demand one.
pub(crate) fn required_term(
    kind: &Kind,
    labels: &LabelSelector,
    fields: &FieldSelector,
) -> Option<Arc<str>> {
    let indexed = kind
        .indexed
        .iter()
        .find_map(|field| Some(field_term(field, fields.exact(field)?)));
    indexed.or_else(|| {
        labels
            .requirements
            .iter()
            .find_map(|requirement| match &requirement.operator {
                SelectorOperator::In(values) if values.len() == 1 => {
                    Some(label_term(&requirement.key, &values[0]))
                }
                _ => None,
            })
    })
}

/// Whether the selectors match a record.
pub(crate) fn matches(
    resource: &Resource,
    record: &Arc<Record>,
    labels: &LabelSelector,
    fields: &FieldSelector,
) -> Result<bool, Status> {
    if labels.is_empty() && fields.is_empty() {
        return Ok(true);
    }
    let header = header(resource, record)?;
    if !labels.matches(|key| header.label(key)) {
        return Ok(false);
    }
    for (field, equal, wanted) in &fields.terms {
        if (selected(resource, record, field)? == *wanted) != *equal {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The value of a record's selectable field.
pub(crate) fn selected(
    resource: &Resource,
    record: &Arc<Record>,
    field: &str,
) -> Result<Str, Status> {
    match field {
        "metadata.name" => Ok(Key::of(&record.key).name),
        "metadata.namespace" => Ok(Key::of(&record.key).namespace),
        _ => match position(resource.stored(), field) {
            Some(at) => Ok(header(resource, record)?
                .field(at)
                .unwrap_or_default()
                .into()),
            // Only the requested version has it.
            None => {
                let object = resource.render_without_converter(record)?;
                let value = object.map(|object| object.value()).unwrap_or_default();
                Ok(selectable(resource.kind(), &value, field))
            }
        },
    }
}

fn position(kind: &Kind, field: &str) -> Option<usize> {
    kind.selectable.iter().position(|name| name == field)
}

/// Whether the selectors match an object in the requested version.
pub(crate) fn matches_object(
    resource: &Resource,
    object: &Object,
    labels: &LabelSelector,
    fields: &FieldSelector,
) -> bool {
    if labels.is_empty() && fields.is_empty() {
        return true;
    }
    let Some(header) = object.header(resource) else {
        return false;
    };
    let key = object
        .record()
        .map(|record| Key::of(&record.key))
        .unwrap_or_default();
    let field = |name: &str| match name {
        "metadata.name" => key.name.clone(),
        "metadata.namespace" => key.namespace.clone(),
        _ => {
            let at = position(resource.kind(), name);
            let kept = at.and_then(|at| header.field(at)).map(Str::from);
            kept.unwrap_or_else(|| selectable(resource.kind(), &object.value(), name))
        }
    };
    labels.matches(|key| header.label(key))
        && fields
            .terms
            .iter()
            .all(|(name, equal, wanted)| (field(name) == *wanted) == *equal)
}
