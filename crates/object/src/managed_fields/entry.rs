//! `metadata.managedFields`: encoding, decoding, and the entries.
//!
//! Each entry has a manager and its subresource, an operation (Apply or Update), a version, and a
//! set of fields.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::field_set::{FieldSet, FieldSetNode};
use super::fields_v1::FieldsError;
use super::rule::OwnershipRule;
use crate::schema::Struct;
use mizzen_value::json;
use mizzen_value::{Map, Str, Value};

/// The managed fields of an object.
#[derive(Debug, Clone, Default)]
pub struct ManagedFields<'a> {
    /// The entries; no two have the same identifier.
    pub entries: Vec<ManagedFieldsEntry>,
    /// The entries as they were decoded, which are encoded again if they are unchanged.
    source: Cow<'a, [Value]>,
}

/// An entry of `metadata.managedFields`.
#[derive(Debug, Clone, PartialEq)]
pub struct ManagedFieldsEntry {
    /// The manager that owns the fields.
    pub owner: ManagerIdentifier,
    /// The version of the field paths.
    pub api_version: Str,
    time: Str,
    fields: FieldSet,
    /// The index of the decoded entry that is identical, except for the time.
    source: Option<usize>,
}

/// The identity of a manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagerIdentifier {
    /// The name of the manager.
    pub manager: Str,
    /// The operation.
    pub operation: ManagedFieldsOperation,
    /// The version of its writes. Empty for an applier, which is the same in every version.
    pub api_version: Str,
    /// The subresource through which it writes; empty for the main resource.
    pub subresource: Str,
}

/// The operation of a manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ManagedFieldsOperation {
    /// Server-side apply.
    Apply,
    /// Any other write.
    Update,
}

impl ManagedFieldsOperation {
    fn word(self) -> &'static str {
        match self {
            ManagedFieldsOperation::Apply => "Apply",
            ManagedFieldsOperation::Update => "Update",
        }
    }
}

/// Why managed fields are invalid.
#[derive(Debug, thiserror::Error)]
pub enum ManagedFieldsError {
    /// The operation is neither Apply nor Update.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// The version is missing.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// The fields type is missing.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoType(usize),
    /// The fields type is unknown.
    #[error("invalid fieldsType {} in managed fields entry {index}", json::quote(.name))]
    Type {
        /// The fields type.
        name: String,
        /// The index of the entry.
        index: usize,
    },
    /// The field set is invalid.
    #[error("error decoding versioned set from {0}: error decoding set: {1}")]
    Fields(String, FieldsError),
}

impl<'a> ManagedFields<'a> {
    /// Decodes the value of `metadata.managedFields`.
    pub fn decode(source: Cow<'a, [Value]>) -> Result<ManagedFields<'a>, ManagedFieldsError> {
        let mut managed = ManagedFields::default();
        for (index, value) in source.iter().enumerate() {
            managed.set(ManagedFieldsEntry::decode(index, value)?);
        }
        Ok(ManagedFields { source, ..managed })
    }

    /// Decodes those of an object; invalid ones count as none.
    pub fn from_object(object: &'a Value) -> ManagedFields<'a> {
        let source = Cow::Borrowed(object["metadata"]["managedFields"].list());
        ManagedFields::decode(source).unwrap_or_default()
    }

    /// The value of `metadata.managedFields`, in upstream's order; null if there are none.
    pub fn encode(mut self) -> Value {
        self.entries.sort_by(ManagedFieldsEntry::order);
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

    /// Sets them in an object.
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

    /// The index of the entry of `owner`.
    pub fn position(&self, owner: &ManagerIdentifier) -> Option<usize> {
        self.entries.iter().position(|entry| entry.owner == *owner)
    }

    /// The entry of `owner`.
    pub fn get(&self, owner: &ManagerIdentifier) -> Option<&ManagedFieldsEntry> {
        self.entries.iter().find(|entry| entry.owner == *owner)
    }

    /// Sets an entry, in the place of the one with the same identifier.
    pub fn set(&mut self, entry: ManagedFieldsEntry) {
        match self.position(&entry.owner) {
            Some(at) => self.entries[at] = entry,
            None => self.entries.push(entry),
        }
    }

    pub(super) fn drop_empty(&mut self) {
        self.entries.retain(|entry| !entry.fields.is_empty());
    }
}

impl ManagedFieldsEntry {
    /// An entry for `owner` in `api_version`.
    pub fn new(
        owner: ManagerIdentifier,
        api_version: Str,
        time: Str,
        fields: FieldSet,
    ) -> ManagedFieldsEntry {
        ManagedFieldsEntry {
            owner,
            api_version,
            time,
            fields,
            source: None,
        }
    }

    /// The time of the last change; empty if unknown.
    pub fn time(&self) -> &Str {
        &self.time
    }

    /// The owned fields.
    pub fn fields(&self) -> &FieldSet {
        &self.fields
    }

    /// Removes fields.
    pub fn remove_fields(&mut self, fields: &FieldSet) {
        if self.fields.intersects(fields) {
            self.set_fields(self.fields.difference(fields));
        }
    }

    /// Sets the owned fields.
    pub fn set_fields(&mut self, fields: FieldSet) {
        self.fields = fields;
        self.source = None;
    }

    /// Adds fields.
    pub fn add_fields(&mut self, fields: &FieldSet) {
        if !fields.difference(&self.fields).is_empty() {
            self.set_fields(self.fields.union(fields));
        }
    }

    /// Sets the time of the last change.
    pub fn set_time(&mut self, time: &str) {
        self.time = time.into();
    }

    /// Adapts the fields to a schema that has changed since they were written: fields of a value
    /// that has become atomic are replaced by the value.
    pub fn reconcile(&mut self, schema: &Struct) {
        if splits_atomic(OwnershipRule::Struct(schema), &self.fields) {
            self.set_fields(join_atomic(OwnershipRule::Struct(schema), &self.fields));
        }
    }

    fn decode(index: usize, value: &Value) -> Result<ManagedFieldsEntry, ManagedFieldsError> {
        let operation = match value["operation"].str() {
            "Apply" => ManagedFieldsOperation::Apply,
            "Update" => ManagedFieldsOperation::Update,
            _ => return Err(ManagedFieldsError::Operation),
        };
        let api_version = text(value, "apiVersion");
        if api_version.is_empty() {
            return Err(ManagedFieldsError::ApiVersion);
        }
        match value["fieldsType"].str() {
            "FieldsV1" => {}
            "" => return Err(ManagedFieldsError::NoType(index)),
            name => {
                return Err(ManagedFieldsError::Type {
                    name: name.into(),
                    index,
                });
            }
        }
        let (fields, exact) = FieldSet::read(&value["fieldsV1"])
            .map_err(|error| ManagedFieldsError::Fields(json::to_string(value), error))?;
        let owner = ManagerIdentifier::new(
            text(value, "manager"),
            operation,
            &api_version,
            text(value, "subresource"),
        );
        let source = exact.then_some(index);
        Ok(ManagedFieldsEntry {
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

    /// The order of entries. Times are in RFC 3339, so they sort as strings.
    fn order(&self, other: &ManagedFieldsEntry) -> Ordering {
        fn key(entry: &ManagedFieldsEntry) -> (ManagedFieldsOperation, [&str; 4]) {
            let ManagerIdentifier {
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

impl ManagerIdentifier {
    /// The identifier of a manager that writes in `api_version`.
    pub fn new(
        manager: Str,
        operation: ManagedFieldsOperation,
        api_version: &str,
        subresource: Str,
    ) -> ManagerIdentifier {
        let api_version = match operation {
            ManagedFieldsOperation::Apply => Str::default(),
            ManagedFieldsOperation::Update => api_version.into(),
        };
        ManagerIdentifier {
            manager,
            operation,
            api_version,
            subresource,
        }
    }

    /// The string by which managers are ordered. Kubernetes: managedfields'
    /// `BuildManagerIdentifier`.
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

/// Whether a set has fields of an atomic value.
fn splits_atomic(rule: OwnershipRule, set: &FieldSet) -> bool {
    set.nodes()
        .iter()
        .filter(|node| !node.children.is_empty())
        .any(|node| {
            let (below, _) = rule.child(&node.element);
            matches!(below, OwnershipRule::Atomic(_) | OwnershipRule::Whole(_))
                || splits_atomic(below, &node.children)
        })
}

fn join_atomic(rule: OwnershipRule, set: &FieldSet) -> FieldSet {
    let nodes = set
        .nodes()
        .iter()
        .map(|node| match rule.child(&node.element) {
            (OwnershipRule::Atomic(_) | OwnershipRule::Whole(_), _) => {
                FieldSetNode::leaf(node.element.clone())
            }
            (below, _) => FieldSetNode {
                children: join_atomic(below, &node.children),
                ..node.clone()
            },
        });
    FieldSet::from_nodes(nodes.collect())
}
