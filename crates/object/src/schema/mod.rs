//! Schemas: the fields of an object, their types, and how lists and maps merge.
//!
//! Built-in kinds have schemas from data files (`parse`), custom kinds from their definition; users
//! of a schema see no difference.
//!
//! Invariant: fields are encoded in schema order. A struct's fields are set once, when all types
//! they refer to exist; recursive types are the only cycles and live as long as the process.

mod canonical;
mod canonical_object;
mod parse;
mod write;

pub(crate) use canonical::{CanonicalMembers, zero};
pub use canonical::{canonical, canonical_stored};
pub use canonical_object::CanonicalObject;
pub use parse::{SchemaParseError, Schemas, parse, parse_with};
pub use write::write_stored;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use crate::structural::Structural;
use mizzen_value::{Str, Value};

/// The type of a field.
#[derive(Debug, Clone)]
pub struct FieldType {
    /// The shape in JSON.
    pub shape: FieldShape,
    /// The Go type name in decoder errors.
    pub go: Str,
}

/// The shape of a value in JSON.
#[derive(Debug, Clone)]
pub enum FieldShape {
    /// `true` or `false`.
    Bool,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A floating point number.
    Float,
    /// A string.
    String,
    /// Bytes, in base64.
    Bytes,
    /// A timestamp, to the second.
    Time,
    /// A timestamp, to the microsecond.
    MicroTime,
    /// A duration as Go prints it: `1h30m0s`.
    Duration,
    /// A resource quantity: `100m`, `1Gi`.
    Quantity,
    /// A 32-bit integer or a string.
    IntOrString,
    /// Any object, unchanged (`RawExtension`, `FieldsV1`).
    Raw,
    /// Any value, unchanged.
    Json,
    /// A schema or a boolean, a list of schemas, or a list of names (parts of a CRD's schema).
    Or(Alternative, Arc<Struct>),
    /// An array.
    List(Box<FieldType>),
    /// An object with arbitrary keys.
    Map(Box<FieldType>),
    /// An object with these fields.
    Struct(Arc<Struct>),
}

/// The alternative to a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alternative {
    /// A boolean.
    Bool,
    /// A list of the struct.
    List,
    /// A list of strings.
    Strings,
}

/// A struct type.
#[derive(Debug)]
pub struct Struct {
    /// The type's name: `PodSpec`.
    pub name: Str,
    /// The group version: `core/v1`.
    pub home: Str,
    /// Whether it is atomic.
    pub atomic: bool,
    /// Set for a kind, whose objects have `kind` and `apiVersion`.
    named: OnceLock<()>,
    union: OnceLock<Union>,
    fields: OnceLock<FieldTable>,
    /// Whether a default is found at or below it.
    reaches_default: OnceLock<bool>,
    rest: OnceLock<Arc<Structural>>,
}

/// A union: at most one of its members is set.
#[derive(Debug)]
pub struct Union {
    /// The field that names the member that is set, if there is one.
    pub discriminator: Option<Str>,
    /// The members.
    pub members: Vec<Str>,
}

#[derive(Debug, Default)]
struct FieldTable {
    list: Vec<StructField>,
    index: HashMap<Str, usize, foldhash::fast::RandomState>,
    embedded: Vec<Embedded>,
    /// The positions of the fields that are always encoded.
    always: Vec<usize>,
    /// The positions of the fields that have a default.
    defaulted: Vec<usize>,
}

/// An embedded struct: its fields are inlined in JSON, but in a message of their own in protobuf.
#[derive(Debug)]
pub struct Embedded {
    /// The protobuf field number of the message.
    pub tag: u32,
    /// The message.
    pub message: Arc<Struct>,
}

/// A field of a struct.
#[derive(Debug, Clone)]
pub struct StructField {
    /// The JSON name.
    pub name: Str,
    /// The type.
    pub ty: FieldType,
    /// The protobuf field number, 0 if it has none.
    pub tag: u32,
    /// When it is encoded.
    pub presence: Presence,
    /// Whether it is required.
    pub required: bool,
    /// The default value.
    pub default: Option<Value>,
    /// How it is owned and merged by server-side apply.
    pub merge: Merge,
    /// The patch strategy.
    pub patch: PatchStrategy,
    /// The embedded struct it comes from, as an index into [`Struct::embedded`].
    pub embedded: Option<usize>,
}

/// When a field is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Presence {
    /// If it is not empty: false, 0, "" and [] are the same as absent (`omitempty`).
    #[default]
    NotEmpty,
    /// If it is set, even to an empty value (a pointer).
    Set,
    /// Always; if unset as its empty value (`null` for lists, maps and times).
    Always,
    /// Always; if unset as `null`.
    Nullable,
}

/// How a list or map is owned and merged by server-side apply (`+listType`, `+mapType`,
/// `+structType`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Merge {
    /// Unspecified: a list is atomic, a map is granular.
    #[default]
    Unsaid,
    /// Owned and replaced as a whole.
    Atomic,
    /// Owned field by field, even if the type is atomic.
    Granular,
    /// A list of unique scalars, owned one by one.
    Set,
    /// A list of structs, owned one by one, with these key fields.
    Keyed(Vec<Str>),
}

/// The strategic merge patch strategy of a field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PatchStrategy {
    /// Lists are merged instead of replaced.
    pub merge: bool,
    /// Maps are replaced instead of merged.
    pub replace: bool,
    /// Only the keys in the patch are kept.
    pub retain_keys: bool,
    /// The merge key.
    pub key: Option<Str>,
}

impl Struct {
    /// A struct whose fields are set later, by [`Struct::define`].
    pub fn new(name: impl Into<Str>, home: impl Into<Str>, atomic: bool) -> Struct {
        Struct {
            name: name.into(),
            home: home.into(),
            atomic,
            named: OnceLock::new(),
            union: OnceLock::new(),
            fields: OnceLock::new(),
            reaches_default: OnceLock::new(),
            rest: OnceLock::new(),
        }
    }

    /// Marks it as a kind, whose objects have `kind` and `apiVersion`.
    pub fn name_kind(&self) {
        let _ = self.named.set(());
    }

    /// Whether its objects have `kind` and `apiVersion`.
    pub fn is_kind(&self) -> bool {
        self.named.get().is_some()
    }

    /// Marks it as a union. Only the first call has an effect.
    pub fn define_union(&self, union: Union) {
        let _ = self.union.set(union);
    }

    /// The union, if it is one.
    pub fn union(&self) -> Option<&Union> {
        self.union.get()
    }

    /// Sets the fields. Only the first call has an effect.
    pub fn define(&self, fields: Vec<StructField>, embedded: Vec<Embedded>) {
        let index = fields
            .iter()
            .enumerate()
            .map(|(at, field)| (field.name.clone(), at))
            .collect();
        let positions = |is_meant: fn(&StructField) -> bool| {
            let meant = fields
                .iter()
                .enumerate()
                .filter(|(_, field)| is_meant(field));
            meant.map(|(at, _)| at).collect()
        };
        let always = positions(StructField::is_always);
        let defaulted = positions(|field| {
            let default = field.default.as_ref();
            default.is_some_and(|default| !default.is_empty())
        });
        let _ = self.fields.set(FieldTable {
            list: fields,
            index,
            embedded,
            always,
            defaulted,
        });
    }

    /// Sets the structural schema of everything but the fields. Only the first call has an effect.
    pub fn define_rest(&self, rest: Arc<Structural>) {
        let _ = self.rest.set(rest);
    }

    /// The structural schema of a custom kind; its objects are maps in which only the metadata is
    /// typed.
    pub fn rest(&self) -> Option<&Structural> {
        self.rest.get().map(|rest| &**rest)
    }

    fn inner(&self) -> &FieldTable {
        static NONE: OnceLock<FieldTable> = OnceLock::new();
        self.fields
            .get()
            .unwrap_or_else(|| NONE.get_or_init(FieldTable::default))
    }

    /// The fields in encoding order.
    pub fn fields(&self) -> &[StructField] {
        &self.inner().list
    }

    /// The index of the field `name` in [`Struct::fields`].
    pub fn position(&self, name: &str) -> Option<usize> {
        self.inner().index.get(name).copied()
    }

    /// The field `name`.
    pub fn field(&self, name: &str) -> Option<&StructField> {
        Some(&self.fields()[self.position(name)?])
    }

    /// The fields that are always encoded, with their positions.
    fn always(&self) -> impl ExactSizeIterator<Item = (usize, &StructField)> {
        let inner = self.inner();
        inner.always.iter().map(|at| (*at, &inner.list[*at]))
    }

    /// The fields that have a default.
    pub(crate) fn defaulted(&self) -> impl Iterator<Item = &StructField> {
        let inner = self.inner();
        inner.defaulted.iter().map(|at| &inner.list[*at])
    }

    /// Whether a field of this struct, or of one below it, has a default.
    pub(crate) fn reaches_default(&self) -> bool {
        *self
            .reaches_default
            .get_or_init(|| self.finds_default(&mut HashSet::new()))
    }

    fn finds_default(&self, seen: &mut HashSet<*const Struct>) -> bool {
        if !seen.insert(self) {
            return false;
        }
        let below = |field: &StructField| {
            let mut ty = &field.ty;
            while let Some(item) = ty.item() {
                ty = item;
            }
            ty.as_struct().cloned()
        };
        !self.inner().defaulted.is_empty()
            || self
                .fields()
                .iter()
                .filter_map(below)
                .any(|inner| inner.finds_default(seen))
    }

    /// The embedded structs.
    pub fn embedded(&self) -> &[Embedded] {
        &self.inner().embedded
    }

    /// Whether this is the schema of the group and kind, in any version.
    pub fn is_of(&self, api_version: &str, kind: &str) -> bool {
        let group = |api_version: &str| {
            api_version
                .split_once('/')
                .map(|(group, _)| Str::from(group))
        };
        self.name == kind && group(&self.home) == group(api_version)
    }

    /// The last part of its package: `v1`.
    pub fn package(&self) -> &str {
        self.home.rsplit('/').next().unwrap_or_default()
    }
}

impl FieldType {
    /// The struct, if this is one.
    pub fn as_struct(&self) -> Option<&Arc<Struct>> {
        match &self.shape {
            FieldShape::Struct(inner) => Some(inner),
            _ => None,
        }
    }

    /// The item type of a list or the value type of a map.
    pub fn item(&self) -> Option<&FieldType> {
        match &self.shape {
            FieldShape::List(item) | FieldShape::Map(item) => Some(item),
            _ => None,
        }
    }

    /// The JSON value of Go's zero value.
    pub fn zero(&self) -> Value {
        match self.shape {
            FieldShape::Bool => Value::Bool(false),
            FieldShape::Int32 | FieldShape::Int64 | FieldShape::Float | FieldShape::IntOrString => {
                Value::Int(0)
            }
            FieldShape::String => Value::from(""),
            FieldShape::Quantity => Value::from("0"),
            FieldShape::Duration => Value::from("0s"),
            FieldShape::Struct(_) => Value::object(),
            _ => Value::Null,
        }
    }
}
