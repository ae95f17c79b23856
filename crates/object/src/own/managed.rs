//! What an object says about its owners: `metadata.managedFields`.
//!
//! Each entry says who (manager, and through which subresource), how (by applying or by any other write), in
//! which version, and what.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::fields_v1::FieldsError;
use super::rule::Rule;
use super::set::{FieldSet, Node};
use crate::schema::Struct;
use mizzen_value::json;
use mizzen_value::{Map, Str, Value};

/// Who owns what of an object.
#[derive(Debug, Clone, Default)]
pub struct Managed<'a> {
    /// One for each way in which somebody has written; no two have the same owner.
    pub entries: Vec<Entry>,
    /// The entries as they were read, to be written again where they still say the same.
    source: Cow<'a, [Value]>,
}

/// What somebody owns.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Who owns it.
    pub owner: Owner,
    /// The version in which the fields are named.
    pub api_version: Str,
    time: Str,
    fields: FieldSet,
    /// Which of the entries that were read says the same, to the letter, except for the time.
    source: Option<usize>,
}

/// Who owns something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The name that he goes by.
    pub manager: Str,
    /// How he has written.
    pub operation: Operation,
    /// The version in which he has written. One who applies is the same whatever the version: it is empty then.
    pub api_version: Str,
    /// The subresource through which he has written; empty for the object itself.
    pub subresource: Str,
}

/// How somebody has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// He has applied what he wants.
    Apply,
    /// He has written in any other way.
    Update,
}

impl Operation {
    fn word(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// Why managed fields make no sense.
#[derive(Debug, thiserror::Error)]
pub enum ManagedError {
    /// An operation is none of the two.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// A version is missing.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// A form is missing.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoType(usize),
    /// A form is not known.
    #[error("invalid fieldsType {} in managed fields entry {index}", json::quote(.name))]
    Type {
        /// What it is called.
        name: String,
        /// Which entry it is.
        index: usize,
    },
    /// The fields are no set.
    #[error("error decoding versioned set from {0}: error decoding set: {1}")]
    Fields(String, FieldsError),
}

impl<'a> Managed<'a> {
    /// Reads the value of `metadata.managedFields`.
    pub fn decode(source: Cow<'a, [Value]>) -> Result<Managed<'a>, ManagedError> {
        let mut managed = Managed::default();
        for (index, value) in source.iter().enumerate() {
            managed.set(Entry::decode(index, value)?);
        }
        Ok(Managed { source, ..managed })
    }

    /// Reads those of an object; what makes no sense is none.
    pub fn of(object: &'a Value) -> Managed<'a> {
        let source = Cow::Borrowed(object["metadata"]["managedFields"].list());
        Managed::decode(source).unwrap_or_default()
    }

    /// The value of `metadata.managedFields`, in the order that clients know; null if there are none.
    pub fn encode(mut self) -> Value {
        self.entries.sort_by(Entry::order);
        let mut source = self.source;
        let entries: Vec<Value> = self
            .entries
            .into_iter()
            .map(|entry| entry.encode(&mut source))
            .collect();
        if entries.is_empty() {
            Value::Null
        } else {
            Value::List(entries)
        }
    }

    /// Writes them into an object, in the place of what is there.
    pub fn write(self, object: &mut Value) {
        match self.encode() {
            Value::Null => drop(
                object
                    .get_mut("metadata")
                    .and_then(|metadata| metadata.remove("managedFields")),
            ),
            entries => object.entry("metadata").set("managedFields", entries),
        }
    }

    /// Where the entry of `owner` is.
    pub fn position(&self, owner: &Owner) -> Option<usize> {
        self.entries.iter().position(|entry| entry.owner == *owner)
    }

    /// The entry of `owner`.
    pub fn get(&self, owner: &Owner) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.owner == *owner)
    }

    /// Sets an entry, in the place of the one that its owner has.
    pub fn set(&mut self, entry: Entry) {
        match self.position(&entry.owner) {
            Some(at) => self.entries[at] = entry,
            None => self.entries.push(entry),
        }
    }

    pub(super) fn drop_empty(&mut self) {
        self.entries.retain(|entry| !entry.fields.is_empty());
    }
}

impl Entry {
    /// An entry for `owner` in `api_version`.
    pub fn new(owner: Owner, api_version: Str, time: Str, fields: FieldSet) -> Entry {
        Entry {
            owner,
            api_version,
            time,
            fields,
            source: None,
        }
    }

    /// When he last changed something; empty if nobody remembers.
    pub fn time(&self) -> &Str {
        &self.time
    }

    /// What he owns.
    pub fn fields(&self) -> &FieldSet {
        &self.fields
    }

    /// Takes away from what he owns.
    pub fn lose(&mut self, fields: &FieldSet) {
        if self.fields.meets(fields) {
            self.set_fields(self.fields.difference(fields));
        }
    }

    /// Sets what he owns.
    pub fn set_fields(&mut self, fields: FieldSet) {
        self.fields = fields;
        self.source = None;
    }

    /// Adds to what he owns.
    pub fn gain(&mut self, fields: &FieldSet) {
        if !fields.difference(&self.fields).is_empty() {
            self.set_fields(self.fields.union(fields));
        }
    }

    /// Sets when he last changed something.
    pub fn set_time(&mut self, time: &str) {
        self.time = time.into();
    }

    /// Brings the fields into line with a schema that has changed since they were written: what was owned part
    /// by part and now has one owner becomes one field.
    pub fn reconcile(&mut self, schema: &Struct) {
        if splits_atomic(Rule::Struct(schema), &self.fields) {
            self.set_fields(join_atomic(Rule::Struct(schema), &self.fields));
        }
    }

    fn decode(index: usize, value: &Value) -> Result<Entry, ManagedError> {
        let operation = match value["operation"].str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err(ManagedError::Operation),
        };
        let api_version = text(value, "apiVersion");
        if api_version.is_empty() {
            return Err(ManagedError::ApiVersion);
        }
        match value["fieldsType"].str() {
            "FieldsV1" => {}
            "" => return Err(ManagedError::NoType(index)),
            name => {
                return Err(ManagedError::Type {
                    name: name.into(),
                    index,
                });
            }
        }
        let (fields, exact) = FieldSet::read(&value["fieldsV1"])
            .map_err(|error| ManagedError::Fields(json::to_string(value), error))?;
        let owner = Owner::new(
            text(value, "manager"),
            operation,
            &api_version,
            text(value, "subresource"),
        );
        let source = exact.then_some(index);
        Ok(Entry {
            owner,
            api_version,
            time: text(value, "time"),
            fields,
            source,
        })
    }

    fn encode(self, source: &mut Cow<[Value]>) -> Value {
        let unchanged = self.source.map(|at| match source {
            Cow::Owned(source) => std::mem::take(&mut source[at]),
            Cow::Borrowed(source) => source[at].clone(),
        });
        match unchanged {
            Some(value) if value["time"].str() == self.time => value,
            Some(mut value) if !self.time.is_empty() && value.get("time").is_some() => {
                value.set("time", self.time);
                value
            }
            _ => self.encode_anew(),
        }
    }

    fn encode_anew(self) -> Value {
        let mut map = Map::with_capacity(7);
        let head = [
            ("manager", self.owner.manager),
            ("operation", self.owner.operation.word().into()),
            ("apiVersion", self.api_version),
            ("time", self.time),
            ("fieldsType", Str::new_static("FieldsV1")),
        ];
        for (key, text) in head.into_iter().filter(|(_, text)| !text.is_empty()) {
            map.insert(Str::new_static(key), text);
        }
        map.insert(Str::new_static("fieldsV1"), self.fields.to_value());
        if !self.owner.subresource.is_empty() {
            map.insert(Str::new_static("subresource"), self.owner.subresource);
        }
        Value::Map(map)
    }

    /// The order in which clients see entries. Times are in RFC 3339, so text sorts as they do.
    fn order(&self, other: &Entry) -> Ordering {
        fn key(entry: &Entry) -> (Operation, [&str; 4]) {
            let Owner {
                manager,
                operation,
                subresource,
                ..
            } = &entry.owner;
            (
                *operation,
                [&entry.time, manager, &entry.api_version, subresource],
            )
        }
        key(self).cmp(&key(other))
    }
}

fn text(value: &Value, key: &str) -> Str {
    match &value[key] {
        Value::String(text) => text.clone(),
        _ => Str::default(),
    }
}

impl Owner {
    /// Who writes in `api_version`.
    pub fn new(manager: Str, operation: Operation, api_version: &str, subresource: Str) -> Owner {
        let api_version = match operation {
            Operation::Apply => Str::default(),
            Operation::Update => api_version.into(),
        };
        Owner {
            manager,
            operation,
            api_version,
            subresource,
        }
    }

    /// The text by which owners are ordered. Kubernetes: managedfields' `BuildManagerIdentifier`.
    pub fn identity(&self) -> String {
        let mut map = Map::default();
        let fields = [
            ("manager", self.manager.as_str()),
            ("operation", self.operation.word()),
            ("apiVersion", &self.api_version),
            ("subresource", &self.subresource),
        ];
        for (key, text) in fields.into_iter().filter(|(_, text)| !text.is_empty()) {
            map.insert(key, text);
        }
        json::to_string(&Value::Map(map))
    }
}

/// Whether something is owned part by part that can only be owned as a whole.
fn splits_atomic(rule: Rule, set: &FieldSet) -> bool {
    set.nodes()
        .iter()
        .filter(|node| !node.children.is_empty())
        .any(|node| {
            let (below, _) = rule.child(&node.element);
            matches!(below, Rule::Atomic(_) | Rule::Whole(_))
                || splits_atomic(below, &node.children)
        })
}

fn join_atomic(rule: Rule, set: &FieldSet) -> FieldSet {
    let nodes = set
        .nodes()
        .iter()
        .map(|node| match rule.child(&node.element) {
            (Rule::Atomic(_) | Rule::Whole(_), _) => Node::leaf(node.element.clone()),
            (below, _) => Node {
                children: join_atomic(below, &node.children),
                ..node.clone()
            },
        });
    FieldSet::from_nodes(nodes.collect())
}
