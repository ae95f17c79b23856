//! Decoding of custom resources: a map in which only the metadata is typed.
//!
//! Kubernetes: the text is decoded to an unstructured map, then the metadata is decoded again with
//! its type, undeclared fields are pruned, and embedded objects get typed metadata, too
//! (apiextensions-apiserver's unstructuredSchemaCoercer). Complaints come in that order.

use std::collections::HashSet;

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
    let mut value = match decoder.scanner.peek()? {
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
    let mut complaints = decoder.complaints;
    if value["kind"].as_str() == Some("") || value["kind"].is_null() {
        return Err(DecodeError::NoKind(
            String::from_utf8_lossy(text).into_owned(),
        ));
    }
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
        let mut given = HashSet::new();
        self.scanner.open_map()?;
        while let Some(key) = self.scanner.key()? {
            if !given.insert(key.clone()) {
                self.complain("duplicate", &key);
            }
            self.enter(&key);
            let value = self.unstructured()?;
            map.insert(key, value);
            self.strict_path.truncate(length);
        }
        Ok(Value::Map(map))
    }

    fn unstructured_list(&mut self) -> Result<Value, SyntaxError> {
        let mut items = Vec::new();
        let length = self.strict_path.len();
        self.scanner.open_list()?;
        while self.scanner.item()? {
            self.strict_path += &format!("[{}]", items.len());
            items.push(self.unstructured()?);
            self.strict_path.truncate(length);
        }
        Ok(Value::List(items))
    }
}
