//! The shape of an object: what fields there are, what may stand in them, and how lists and maps merge.
//!
//! Built-in kinds get theirs from data files (`parse`), custom kinds from their definition; whoever uses a
//! schema does not know which it was.
//!
//! Invariant: field order is the order in which the field is written. A struct's fields are set once, when
//! all types they refer to exist; recursive types are the only cycles and live as long as the program.

mod canonical;
mod parse;

pub use canonical::{canonical, canonical_stored};
pub use parse::{ParseError, Schemas, parse, parse_with};

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use crate::structural::Structural;
use mizzen_value::{Str, Value};

/// What may stand in a field.
#[derive(Debug, Clone)]
pub struct Type {
    /// How it looks in JSON.
    pub shape: Shape,
    /// The name by which Go's decoder calls it when it complains.
    pub go: Str,
}

/// How a value looks in JSON, and which rules of its own it has.
#[derive(Debug, Clone)]
pub enum Shape {
    /// `true` or `false`.
    Bool,
    /// A 32-bit whole number.
    Int32,
    /// A 64-bit whole number.
    Int64,
    /// Any number.
    Float,
    /// Text.
    String,
    /// Bytes, in base64.
    Bytes,
    /// A moment, to the second.
    Time,
    /// A moment, to the microsecond.
    MicroTime,
    /// A span of time, as Go writes it: `1h30m0s`.
    Duration,
    /// An amount with a suffix: `100m`, `1Gi`.
    Quantity,
    /// A 32-bit whole number, or text.
    IntOrString,
    /// Any object, kept as it came (`RawExtension`, `FieldsV1`).
    Raw,
    /// Any value, kept as it came.
    Json,
    /// A schema or a truth value, a list of schemas, or a list of names (parts of a CRD's schema).
    Or(Alternative, Arc<Struct>),
    /// An array.
    List(Box<Type>),
    /// An object whose keys are free.
    Map(Box<Type>),
    /// An object whose keys are these fields.
    Struct(Arc<Struct>),
}

/// What may stand in the place of a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alternative {
    /// A truth value.
    Bool,
    /// A list of the struct.
    List,
    /// A list of text.
    Strings,
}

/// An object with known fields.
#[derive(Debug)]
pub struct Struct {
    /// The type's name: `PodSpec`.
    pub name: Str,
    /// Where it belongs: `core/v1`.
    pub home: Str,
    /// Whether it has one owner and is replaced as a whole.
    pub atomic: bool,
    /// Set for a kind, whose objects say what they are.
    named: OnceLock<()>,
    union: OnceLock<Union>,
    fields: OnceLock<Fields>,
    rest: OnceLock<Arc<Structural>>,
}

/// The members of a struct of which at most one is set.
#[derive(Debug)]
pub struct Union {
    /// The field that names the member that is set, if there is one.
    pub discriminator: Option<Str>,
    /// The members.
    pub members: Vec<Str>,
}

#[derive(Debug, Default)]
struct Fields {
    list: Vec<Field>,
    index: HashMap<Str, usize, foldhash::fast::RandomState>,
    embedded: Vec<Embedded>,
}

/// A struct whose fields stand among its parent's in JSON but in a message of their own in protobuf.
#[derive(Debug)]
pub struct Embedded {
    /// The protobuf number of the message.
    pub tag: u32,
    /// The message.
    pub message: Arc<Struct>,
}

/// One field of a struct.
#[derive(Debug, Clone)]
pub struct Field {
    /// Its name in JSON.
    pub name: Str,
    /// What may stand in it.
    pub ty: Type,
    /// Its protobuf number, 0 if it has none.
    pub tag: u32,
    /// When it is written.
    pub presence: Presence,
    /// Whether the schema demands it.
    pub required: bool,
    /// What it is when nobody says.
    pub default: Option<Value>,
    /// Who owns what in a list or map.
    pub merge: Merge,
    /// How strategic merge patch treats it.
    pub patch: Patch,
    /// The embedded struct it comes from, as an index into [`Struct::embedded`].
    pub embedded: Option<usize>,
}

/// When a field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Presence {
    /// When it is not empty: false, 0, "" and [] are the same as absent.
    #[default]
    NotEmpty,
    /// When somebody set it, even to an empty value.
    Set,
    /// Always; an unset one as its empty value (`null` for lists, maps and times).
    Always,
    /// Always; an unset one as `null`.
    Nullable,
}

/// Who owns what in a list or map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Merge {
    /// Nothing said: a list is atomic, a map is owned key by key.
    #[default]
    Unsaid,
    /// Owned and replaced as a whole.
    Atomic,
    /// Owned field by field, whatever the type says of itself.
    Granular,
    /// A list of distinct scalars, owned one by one.
    Set,
    /// A list of structs, owned one by one, told apart by these fields.
    Keyed(Vec<Str>),
}

/// How strategic merge patch treats a field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Patch {
    /// Lists are merged instead of replaced.
    pub merge: bool,
    /// Maps are replaced instead of merged.
    pub replace: bool,
    /// Only the keys that a patch names are kept.
    pub retain_keys: bool,
    /// The field that tells the items of a merged list apart.
    pub key: Option<Str>,
}

impl Struct {
    /// A struct whose fields come later, by [`Struct::define`].
    pub fn new(name: impl Into<Str>, home: impl Into<Str>, atomic: bool) -> Struct {
        Struct {
            name: name.into(),
            home: home.into(),
            atomic,
            named: OnceLock::new(),
            union: OnceLock::new(),
            fields: OnceLock::new(),
            rest: OnceLock::new(),
        }
    }

    /// Marks it as the shape of a kind, whose objects say what they are.
    pub fn name_kind(&self) {
        let _ = self.named.set(());
    }

    /// Whether its objects say what they are, by `kind` and `apiVersion`.
    pub fn is_kind(&self) -> bool {
        self.named.get().is_some()
    }

    /// Marks it as a union. Only the first call counts.
    pub fn define_union(&self, union: Union) {
        let _ = self.union.set(union);
    }

    /// The union that it is, if it is one.
    pub fn union(&self) -> Option<&Union> {
        self.union.get()
    }

    /// Sets the fields. Only the first call counts.
    pub fn define(&self, fields: Vec<Field>, embedded: Vec<Embedded>) {
        let index = fields
            .iter()
            .enumerate()
            .map(|(at, field)| (field.name.clone(), at))
            .collect();
        let _ = self.fields.set(Fields {
            list: fields,
            index,
            embedded,
        });
    }

    /// Says what stands beside the fields: whatever a definition declares. Only the first call counts.
    pub fn define_rest(&self, rest: Arc<Structural>) {
        let _ = self.rest.set(rest);
    }

    /// What stands beside the fields, for kinds that somebody defined; their objects are loose maps, of which
    /// only the metadata has a type.
    pub fn rest(&self) -> Option<&Structural> {
        self.rest.get().map(|rest| &**rest)
    }

    fn inner(&self) -> &Fields {
        static NONE: OnceLock<Fields> = OnceLock::new();
        self.fields
            .get()
            .unwrap_or_else(|| NONE.get_or_init(Fields::default))
    }

    /// The fields, in the order in which they are written.
    pub fn fields(&self) -> &[Field] {
        &self.inner().list
    }

    /// Where in [`Struct::fields`] the field `name` is.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.inner().index.get(name).copied()
    }

    /// The field `name`.
    pub fn field(&self, name: &str) -> Option<&Field> {
        Some(&self.fields()[self.position(name)?])
    }

    /// The structs whose fields stand among this one's.
    pub fn embedded(&self) -> &[Embedded] {
        &self.inner().embedded
    }

    /// Whether an object that says this is of the group and kind whose shape this is, in any version.
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

impl Type {
    /// The struct, if this is one.
    pub fn as_struct(&self) -> Option<&Arc<Struct>> {
        match &self.shape {
            Shape::Struct(inner) => Some(inner),
            _ => None,
        }
    }

    /// What the items of a list or the values of a map are.
    pub fn item(&self) -> Option<&Type> {
        match &self.shape {
            Shape::List(item) | Shape::Map(item) => Some(item),
            _ => None,
        }
    }

    /// The value that Go's zero value is written as.
    pub fn zero(&self) -> Value {
        match self.shape {
            Shape::Bool => Value::Bool(false),
            Shape::Int32 | Shape::Int64 | Shape::Float | Shape::IntOrString => Value::Int(0),
            Shape::String => Value::from(""),
            Shape::Quantity => Value::from("0"),
            Shape::Duration => Value::from("0s"),
            Shape::Struct(_) => Value::object(),
            _ => Value::Null,
        }
    }
}
