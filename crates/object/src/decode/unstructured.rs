//! Decoding of custom resources: a map in which only the metadata is typed.
//!
//! Kubernetes: the text is decoded to an unstructured map, then the metadata is decoded again with
//! its type, undeclared fields are pruned, and embedded objects get typed metadata, too
//! (apiextensions-apiserver's unstructuredSchemaCoercer). Complaints come in that order.

use super::{DecodeError, Decoded, JsonDecoder};
use crate::patch::{go_text, go_type_verb};
use crate::schema::{Struct, canonical};
use crate::structural::{Structural, typed_metadata};
use mizzen_value::json::{self, SyntaxError};
use mizzen_value::{Map, Value};

/// Whether undeclared fields, and nulls that the schema does not allow, are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pruning {
    Done,
    Skipped,
}

/// Decodes an object whose schema is `rest`.
pub(super) fn decode(
    ty: &Struct,
    rest: &Structural,
    text: &[u8],
    pruning: Pruning,
) -> Result<Decoded, DecodeError> {
    let mut decoder = JsonDecoder::new(text);
    let value = match decoder.scanner.peek()? {
        b'{' | b'n' => decoder.unstructured()?,
        _ => {
            let word = decoder.skip_word()?;
            let message = format!(
                "json: cannot unmarshal {word} into Go value of type map[string]interface {{}}"
            );
            decoder.scanner.end()?;
            return Err(DecodeError::Type(message));
        }
    };
    decoder.scanner.end()?;
    if let Some(error) = decoder.first_error {
        return Err(DecodeError::Type(error));
    }
    if value["kind"].as_str() == Some("") || value["kind"].is_null() {
        return Err(DecodeError::NoKind(
            String::from_utf8_lossy(text).into_owned(),
        ));
    }
    coerce(ty, rest, value, pruning, decoder.complaints)
}

/// Decodes an object whose schema is `rest` and whose text was parsed before.
pub(super) fn decode_value(
    ty: &Struct,
    rest: &Structural,
    mut value: Value,
    pruning: Pruning,
) -> Result<Decoded, DecodeError> {
    if !matches!(value, Value::Map(_) | Value::Null) {
        let word = value.go_word();
        return Err(DecodeError::Type(format!(
            "json: cannot unmarshal {word} into Go value of type map[string]interface {{}}"
        )));
    }
    if let Some(literal) = json::overflow(&value) {
        return Err(DecodeError::Type(json::overflow_error(literal)));
    }
    if value["kind"].as_str() == Some("") || value["kind"].is_null() {
        return Err(DecodeError::NoKind(json::to_string(&value)));
    }
    free_numbers(&mut value);
    coerce(ty, rest, value, pruning, Vec::new())
}

/// Numbers as Go decodes them into `interface{}`.
fn free_numbers(value: &mut Value) {
    match value {
        Value::Number(literal) => *value = json::free_number(literal).unwrap_or_default(),
        Value::List(items) => items.iter_mut().for_each(free_numbers),
        Value::Map(map) => map.values_mut().for_each(free_numbers),
        _ => {}
    }
}

/// Prunes and coerces a decoded object, and brings it into canonical form.
fn coerce(
    ty: &Struct,
    rest: &Structural,
    mut value: Value,
    pruning: Pruning,
    mut complaints: Vec<String>,
) -> Result<Decoded, DecodeError> {
    let unknown = match shape(ty, rest, value.make_map(), pruning) {
        Ok(unknown) => unknown,
        Err(problem) => {
            return Err(DecodeError::Shape {
                object: value,
                problem,
            });
        }
    };
    complaints.extend(
        unknown
            .iter()
            .map(|path| format!("unknown field {}", json::quote(path))),
    );
    canonical(ty, &mut value);
    Ok(Decoded { value, complaints })
}

/// Prunes and coerces an unstructured object; returns the paths of unknown fields.
fn shape(
    ty: &Struct,
    rest: &Structural,
    object: &mut Map,
    pruning: Pruning,
) -> Result<Vec<String>, String> {
    for name in ["kind", "apiVersion"] {
        if let Some(odd) = object.get(name).filter(|value| value.as_str().is_none()) {
            let (found, go) = (go_text(odd), go_type_verb(odd));
            return Err(format!(
                ".{name} accessor error: {found} is of the type {go}, expected string"
            ));
        }
    }
    let object_meta = ty.field("metadata").and_then(|field| field.ty.as_struct());
    let mut unknown = Vec::new();
    if let (Some(object_meta), Some(metadata)) = (object_meta, object.get_mut("metadata")) {
        let (typed, paths) = typed_metadata(metadata, object_meta)?;
        unknown.extend(paths.iter().map(|path| format!("metadata.{path}")));
        *metadata = typed;
    }
    let mut value = Value::Map(std::mem::take(object));
    // Kubernetes: an object of another kind than the schema's is left alone.
    let mut coerced = Ok(Vec::new());
    if ty.is_of(value["apiVersion"].str(), value["kind"].str()) {
        if pruning == Pruning::Done {
            unknown.extend(rest.prune(&mut value));
        }
        if let Some(object_meta) = object_meta {
            coerced = rest.coerce(&mut value, object_meta);
        }
    }
    // The error shows the metadata that could not be coerced.
    if let Value::Map(map) = value {
        *object = map;
    }
    unknown.extend(coerced?);
    Ok(unknown)
}

impl JsonDecoder<'_> {
    /// Decodes any value; the last of duplicate keys wins and is reported.
    fn unstructured(&mut self) -> Result<Value, SyntaxError> {
        match self.scanner.peek()? {
            b'{' => self.unstructured_map(),
            b'[' => self.unstructured_list(),
            b'-' | b'0'..=b'9' => {
                let literal = self.scanner.number()?;
                let number = json::free_number(literal);
                if number.is_none() {
                    self.fail(json::overflow_error(literal));
                }
                Ok(number.unwrap_or_default())
            }
            _ => json::read(&mut self.scanner),
        }
    }

    fn unstructured_map(&mut self) -> Result<Value, SyntaxError> {
        let mut map = Map::default();
        let length = self.strict_path.len();
        self.scanner.open_map()?;
        while let Some(key) = self.scanner.key()? {
            let (slot, is_new) = map.entry_or_null(key.clone());
            if !is_new {
                self.complain("duplicate", &key);
            }
            self.enter(&key);
            *slot = self.unstructured()?;
            self.strict_path.truncate(length);
        }
        Ok(Value::Map(map))
    }

    fn unstructured_list(&mut self) -> Result<Value, SyntaxError> {
        let mut items = Vec::new();
        let length = self.strict_path.len();
        self.scanner.open_list()?;
        while self.scanner.item()? {
            self.enter_item(items.len());
            items.push(self.unstructured()?);
            self.strict_path.truncate(length);
        }
        Ok(Value::List(items))
    }
}
