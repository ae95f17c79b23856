//! What selecting an object needs, found once and kept with its record.
//!
//! Invariant: a selector is answered from here; no object is parsed twice to be selected.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use mizzen_object::select::{FieldSelector, LabelSelector, Operator};
use mizzen_object::{Kind, Str, Value, json};
use mizzen_store::Record;

use crate::{Key, Object, Resource};

/// The selectable part of an object. Packed, because there are many objects, and most are never selected.
pub(crate) struct Header {
    /// Texts one after the other: key and value of each label, then the values of the kind's selectable fields, in the
    /// kind's order.
    text: Box<str>,
    /// Where each of them ends.
    ends: Box<[u32]>,
    n_labels: u32,
    pub(crate) forms: Forms,
}

/// Forms of an object other than its text, each made when it is first asked for.
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

/// The header of a record, read from its text the first time if the writer did not leave it.
pub(crate) fn header<'a>(resource: &Resource, record: &'a Record) -> &'a Header {
    record.attach(|record| {
        let value = json::parse(&record.value).unwrap_or_default();
        Header::new(resource.stored(), &value)
    })
}

/// The value of a selectable field.
fn selectable(kind: &Kind, value: &Value, field: &str) -> Str {
    if let Some(computed) = kind.hooks.selectable(value, field) {
        return computed;
    }
    shown(value.at(field))
}

/// The terms under which the store finds an object without looking at others.
pub(crate) fn terms(kind: &Kind, value: &Value) -> Vec<Arc<str>> {
    let labels = value["metadata"]["labels"].entries();
    let labels = labels.map(|(key, value)| label_term(key, value.str()));
    let fields = kind.indexed.iter().flat_map(|field| {
        let mut found = Vec::new();
        collect(value, field, &mut found);
        found.into_iter().map(|value| field_term(field, &value))
    });
    labels.chain(fields).collect()
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
                Operator::In(values) if values.len() == 1 => {
                    Some(label_term(&requirement.key, &values[0]))
                }
                _ => None,
            })
    })
}

/// Whether the selectors select a record.
pub(crate) fn matches(
    resource: &Resource,
    record: &Record,
    labels: &LabelSelector,
    fields: &FieldSelector,
) -> bool {
    if labels.is_empty() && fields.is_empty() {
        return true;
    }
    let header = header(resource, record);
    labels.matches(|key| header.label(key))
        && fields
            .terms
            .iter()
            .all(|(field, equal, wanted)| (selected(resource, record, field) == *wanted) == *equal)
}

/// The value of a record's selectable field.
pub(crate) fn selected(resource: &Resource, record: &Record, field: &str) -> Str {
    match field {
        "metadata.name" => Key::of(&record.key).name,
        "metadata.namespace" => Key::of(&record.key).namespace,
        _ => {
            let at = resource
                .stored()
                .selectable
                .iter()
                .position(|name| name == field);
            let kept = at
                .and_then(|at| header(resource, record).field(at))
                .map(Str::from);
            kept.unwrap_or_else(|| converted_field(resource, record, field))
        }
    }
}

/// A field that only the asked-for version has.
fn converted_field(resource: &Resource, record: &Record, field: &str) -> Str {
    let text = resource.present(record).unwrap_or_default();
    let value = json::parse(&text).unwrap_or_default();
    selectable(resource.kind(), &value, field)
}

/// Whether the selectors select an object that may have been stored in another version, or under other rules, than
/// the one that is asked for.
pub(crate) fn matches_object(
    resource: &Resource,
    object: &Object,
    labels: &LabelSelector,
    fields: &FieldSelector,
) -> bool {
    if labels.is_empty() && fields.is_empty() {
        return true;
    }
    if let Some(record) = object.record().filter(|record| resource.is_current(record)) {
        return matches(resource, record, labels, fields);
    }
    let value = object.value();
    let metadata = &value["metadata"];
    let field = |name: &str| selectable(resource.kind(), &value, name);
    labels.matches(|key| metadata["labels"].get(key).map(Value::str))
        && fields
            .terms
            .iter()
            .all(|(name, equal, wanted)| (field(name) == *wanted) == *equal)
}
