//! Decoding of typed objects from JSON, with the errors of Go's decoder.
//!
//! One pass over the text. A type error is recorded and decoding continues, as upstream does, so
//! that a later syntax error takes precedence. Unknown and duplicate fields are dropped and
//! reported; the caller decides whether that is an error.
//!
//! Invariant: the result is canonical. Every struct, list and map is when its end is reached, so
//! that no second pass is needed.

mod from_unstructured;
mod literal;
mod type_meta;
mod unstructured;
mod value;

pub use from_unstructured::from_unstructured;
pub use type_meta::{TypeMeta, type_meta};
pub(crate) use value::decode_part_value;
pub use value::decode_value;

use std::collections::HashSet;

use crate::schema::{
    Alternative, CanonicalMembers, FieldShape, FieldType, Struct, StructField, canonical, zero,
};
use mizzen_value::json::{self, JsonScanner, SyntaxError};
use mizzen_value::{Map, Str, Value};

/// The maximum number of reported unknown and duplicate fields.
const MAX_COMPLAINTS: usize = 100;

/// A decoded object.
#[derive(Debug)]
pub struct Decoded {
    /// The object, canonical.
    pub value: Value,
    /// The errors of a strict decoder: `unknown field "spec.replicaz"`.
    pub complaints: Vec<String>,
}

/// Why text cannot be decoded as its type.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// It is not JSON.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// A field has a wrong type; Go's message.
    #[error("{0}")]
    Type(String),
    /// An unstructured object has no kind; contains the text.
    #[error("Object 'Kind' is missing in '{0}'")]
    NoKind(String),
    /// An unstructured object does not match its schema.
    #[error("{problem}")]
    Shape {
        /// The object so far.
        object: Value,
        /// The problem.
        problem: String,
    },
}

/// Decodes an object of type `ty`.
pub fn decode(ty: &Struct, text: &[u8]) -> Result<Decoded, DecodeError> {
    match ty.rest() {
        Some(rest) => unstructured::decode(ty, rest, text, unstructured::Pruning::Done),
        None => read(ty, text, true),
    }
}

/// Decodes a part of an object, which has no kind.
pub(crate) fn decode_part(ty: &Struct, text: &[u8]) -> Result<Decoded, DecodeError> {
    read(ty, text, false)
}

fn read(ty: &Struct, text: &[u8], named: bool) -> Result<Decoded, DecodeError> {
    let mut decoder = JsonDecoder::new(text);
    let mut value = Value::Null;
    decoder.top(ty, &mut value, named)?;
    decoder.scanner.end()?;
    if let Some(error) = decoder.fatal.or(decoder.first_error) {
        return Err(DecodeError::Type(error));
    }
    if !matches!(value, Value::Map(_)) {
        value = Value::object();
        canonical(ty, &mut value);
    }
    Ok(Decoded {
        value,
        complaints: decoder.complaints,
    })
}

struct JsonDecoder<'a> {
    scanner: JsonScanner<'a>,
    /// The first type error; decoding continued.
    first_error: Option<String>,
    /// An error at which Go stops decoding. It takes precedence over `first_error`.
    fatal: Option<String>,
    complaints: Vec<String>,
    seen: HashSet<String>,
    /// The path for complaints: `spec.containers[0]`.
    strict_path: String,
    /// The struct whose field is being decoded and the names on the path, for type errors.
    owner: Str,
    fields: Vec<Str>,
}

impl<'a> JsonDecoder<'a> {
    fn new(text: &'a [u8]) -> JsonDecoder<'a> {
        JsonDecoder {
            scanner: JsonScanner::new(text),
            first_error: None,
            fatal: None,
            complaints: Vec::new(),
            seen: HashSet::new(),
            strict_path: String::new(),
            owner: Str::default(),
            fields: Vec::new(),
        }
    }
}

impl JsonDecoder<'_> {
    fn top(&mut self, ty: &Struct, slot: &mut Value, named: bool) -> Result<(), SyntaxError> {
        match self.scanner.peek()? {
            b'{' => self.fill_struct(ty, slot, named),
            b'n' => self.scanner.null(),
            _ => {
                let word = self.skip_word()?;
                let (package, name) = (ty.package(), &ty.name);
                self.fail(format!(
                    "json: cannot unmarshal {word} into Go value of type {package}.{name}"
                ));
                Ok(())
            }
        }
    }

    fn value(&mut self, ty: &FieldType, slot: &mut Value) -> Result<(), SyntaxError> {
        let first = self.scanner.peek()?;
        if first == b'n' && !matches!(ty.shape, FieldShape::Json) {
            *slot = Value::Null;
            return self.scanner.null();
        }
        match (&ty.shape, first) {
            (FieldShape::Struct(inner), b'{') => self.fill_struct(inner, slot, false),
            (FieldShape::Or(_, inner), b'{') => self.fill_struct(inner, slot, false),
            (FieldShape::Or(Alternative::List, inner), b'[') => {
                let item = FieldType {
                    shape: FieldShape::Struct(inner.clone()),
                    go: ty.go.clone(),
                };
                self.list(&item, slot)
            }
            (FieldShape::Or(Alternative::Strings, _), b'[')
            | (FieldShape::Or(Alternative::Bool, _), b't' | b'f') => {
                *slot = json::read(&mut self.scanner)?;
                Ok(())
            }
            (FieldShape::Map(item), b'{') => self.map(item, slot),
            (FieldShape::List(item), b'[') => self.list(item, slot),
            (FieldShape::Raw, _) => {
                *slot = json::read(&mut self.scanner)?;
                Ok(())
            }
            // Kubernetes: it is decoded to untyped values and encoded again.
            (FieldShape::Json, _) => {
                let mut value = json::read(&mut self.scanner)?;
                if let Some(literal) = json::overflow(&value) {
                    self.fail(json::overflow_error(literal));
                }
                json::rewrite(&mut value);
                *slot = value;
                Ok(())
            }
            // Kubernetes: these have their own `UnmarshalJSON` (apiextensions/v1/marshal.go).
            (FieldShape::Or(Alternative::Bool, _), _) => {
                json::skip(&mut self.scanner)?;
                self.give_up("boolean or JSON schema expected".into());
                Ok(())
            }
            (FieldShape::Or(..), _) => {
                *slot = Value::Null;
                json::skip(&mut self.scanner)
            }
            (FieldShape::Struct(_) | FieldShape::Map(_) | FieldShape::List(_), _) => {
                let word = self.skip_word()?;
                self.mismatch(word, &ty.go);
                Ok(())
            }
            _ => self.scalar(ty, first, slot),
        }
    }

    fn fill_struct(&mut self, ty: &Struct, slot: &mut Value, top: bool) -> Result<(), SyntaxError> {
        let map = slot.make_map();
        let (path_len, depth, owner) = (
            self.strict_path.len(),
            self.fields.len(),
            self.owner.clone(),
        );
        let (mut given, mut members) = (GivenKeys::new(map), CanonicalMembers::default());
        if !map.is_empty() {
            members.disturb();
        }
        self.scanner.open_map()?;
        while let Some(key) = self.scanner.key()? {
            let Some(position) = ty.position(&key) else {
                if (top || ty.is_kind()) && matches!(key.as_str(), "kind" | "apiVersion") {
                    members.add_unknown(&key);
                    self.owner = ty.name.clone();
                    self.fields.push(key.clone());
                    self.type_meta_field(&key, map)?;
                    self.fields.truncate(depth);
                    self.owner = owner.clone();
                } else {
                    self.complain("unknown", &key);
                    json::skip(&mut self.scanner)?;
                }
                continue;
            };
            let field = &ty.fields()[position];
            self.owner = ty.name.clone();
            self.enter_embedded(ty, field);
            self.fields.push(key.clone());
            let (slot, is_new) = map.entry_or_null(key);
            if !given.insert(&field.name, is_new) {
                self.complain("duplicate", &field.name);
                members.disturb();
            }
            self.enter(&field.name);
            self.value(&field.ty, slot)?;
            members.add(position, field, slot);
            self.strict_path.truncate(path_len);
            self.fields.truncate(depth);
            self.owner = owner.clone();
        }
        members.finish(ty, map);
        Ok(())
    }

    /// Adds the embedded structs through which a field is reached, the outermost first.
    fn enter_embedded(&mut self, ty: &Struct, field: &StructField) {
        let Some(at) = field.embedded else { return };
        let inner = &ty.embedded()[at].message;
        self.fields.push(inner.name.clone());
        if let Some(field) = inner.field(&field.name) {
            self.enter_embedded(inner, field);
        }
    }

    fn type_meta_field(&mut self, key: &str, map: &mut Map) -> Result<(), SyntaxError> {
        if map.contains_key(key) {
            self.complain("duplicate", key);
        }
        let text = FieldType {
            shape: FieldShape::String,
            go: "string".into(),
        };
        let first = self.scanner.peek()?;
        let slot = map.entry(key);
        if first == b'n' {
            return self.scanner.null();
        }
        self.scalar(&text, first, slot)
    }

    fn map(&mut self, item: &FieldType, slot: &mut Value) -> Result<(), SyntaxError> {
        let map = slot.make_map();
        let path_len = self.strict_path.len();
        let mut given = GivenKeys::new(map);
        self.scanner.open_map()?;
        while let Some(key) = self.scanner.key()? {
            let (slot, is_new) = map.entry_or_null(key.clone());
            if !given.insert(&key, is_new) {
                self.complain("duplicate", &key);
            }
            self.enter(&key);
            let mut value = Value::Null;
            self.value(item, &mut value)?;
            *slot = zero_if_null(item, value);
            self.strict_path.truncate(path_len);
        }
        map.sort();
        Ok(())
    }

    fn list(&mut self, item: &FieldType, slot: &mut Value) -> Result<(), SyntaxError> {
        let path_len = self.strict_path.len();
        let mut items = Vec::new();
        self.scanner.open_list()?;
        while self.scanner.item()? {
            self.enter_item(items.len());
            let mut value = Value::Null;
            self.value(item, &mut value)?;
            items.push(zero_if_null(item, value));
            self.strict_path.truncate(path_len);
        }
        *slot = Value::List(items);
        Ok(())
    }

    fn enter(&mut self, key: &str) {
        if !self.strict_path.is_empty() {
            self.strict_path.push('.');
        }
        self.strict_path += key;
    }

    fn enter_item(&mut self, index: usize) {
        self.strict_path.push('[');
        self.strict_path += itoa::Buffer::new().format(index);
        self.strict_path.push(']');
    }

    fn complain(&mut self, what: &str, key: &str) {
        let path = match self.strict_path.as_str() {
            "" => key.to_string(),
            path => format!("{path}.{key}"),
        };
        let complaint = format!("{what} field {}", json::quote(&path));
        if self.complaints.len() < MAX_COMPLAINTS && self.seen.insert(complaint.clone()) {
            self.complaints.push(complaint);
        }
    }

    /// Skips the next value and returns its type in Go's words.
    fn skip_word(&mut self) -> Result<&'static str, SyntaxError> {
        let word = match self.scanner.peek()? {
            b'{' => "object",
            b'[' => "array",
            b'"' => "string",
            b't' | b'f' => "bool",
            b'n' => "null",
            _ => "number",
        };
        json::skip(&mut self.scanner)?;
        Ok(word)
    }

    fn mismatch(&mut self, found: impl std::fmt::Display, go: &str) {
        let message = self.mismatch_message(found, go);
        self.fail(message);
    }

    fn mismatch_message(&self, found: impl std::fmt::Display, go: &str) -> String {
        let fields: Vec<&str> = self.fields.iter().map(Str::as_str).collect();
        let (owner, field) = (&self.owner, fields.join("."));
        format!("json: cannot unmarshal {found} into Go struct field {owner}.{field} of type {go}")
    }

    fn fail(&mut self, message: String) {
        self.first_error.get_or_insert(message);
    }

    /// Records an error of an `UnmarshalJSON`, at which Go stops.
    fn give_up(&mut self, message: String) {
        self.fatal.get_or_insert(message);
    }
}

/// Inside lists and maps Go has no absent values: null is the zero value. Bytes come back empty
/// from the storage.
fn zero_if_null(ty: &FieldType, value: Value) -> Value {
    match (value, &ty.shape) {
        (Value::Null, FieldShape::Bytes) => "".into(),
        (Value::Null, _) => zero(ty),
        (value, _) => value,
    }
}

/// The keys of a map that were decoded, to report duplicates. They are those of the map itself,
/// unless the map is decoded again because the key of the map is a duplicate.
struct GivenKeys(Option<HashSet<Str>>);

impl GivenKeys {
    /// None of the keys of `map`.
    fn new(map: &Map) -> GivenKeys {
        GivenKeys((!map.is_empty()).then(HashSet::new))
    }

    /// Adds a key; returns whether it was not given before. `is_new` says whether the map lacked it.
    fn insert(&mut self, key: &Str, is_new: bool) -> bool {
        match &mut self.0 {
            Some(given) => given.insert(key.clone()),
            None => is_new,
        }
    }
}
