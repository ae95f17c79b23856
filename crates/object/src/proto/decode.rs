//! Decoding of messages.
//!
//! Repeated fields have protobuf's semantics: the last scalar wins, messages are merged, lists are
//! concatenated. Unknown fields are skipped.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::wire::{ProtoError, WireReader, WireValue};
use super::{MAX_DEPTH, MAX_MESSAGES, is_wrapped};
use crate::schema::{self, Alternative, FieldShape, FieldType, Struct, StructField};
use mizzen_value::json;
use mizzen_value::quantity;
use mizzen_value::time::{self, Moment};
use mizzen_value::{Str, Value};

/// The value of a message, in canonical form.
pub fn decode_message(ty: &Struct, message: &[u8]) -> Result<Value, ProtoError> {
    let mut value = Value::object();
    ProtoDecoder {
        depth: 0,
        n_messages: 0,
    }
    .read_struct(ty, message, &mut value)?;
    schema::canonical(ty, &mut value);
    Ok(value)
}

/// The limits of a decoding: depth and number of messages.
struct ProtoDecoder {
    depth: usize,
    n_messages: usize,
}

impl ProtoDecoder {
    /// Decodes a nested message.
    fn message<'a>(
        &mut self,
        message: &'a [u8],
        mut each: impl FnMut(&mut ProtoDecoder, u32, WireValue<'a>) -> Result<(), ProtoError>,
    ) -> Result<(), ProtoError> {
        self.depth += 1;
        self.n_messages += 1;
        if self.depth > MAX_DEPTH {
            return Err(ProtoError::Depth);
        }
        if self.n_messages > MAX_MESSAGES {
            return Err(ProtoError::Messages);
        }
        let mut reader = WireReader::new(message);
        while let Some((tag, content)) = reader.field()? {
            each(self, tag, content)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn read_struct(
        &mut self,
        ty: &Struct,
        message: &[u8],
        value: &mut Value,
    ) -> Result<(), ProtoError> {
        value.make_map();
        self.message(message, |decoder, tag, content| {
            if let Some(field) = ty
                .fields()
                .iter()
                .find(|field| field.tag == tag && field.embedded.is_none())
            {
                return decoder.field(field, content, value);
            }
            match ty.embedded().iter().find(|inner| inner.tag == tag) {
                Some(inner) => {
                    decoder.read_struct(&inner.message, content.bytes(&inner.message.name)?, value)
                }
                None => Ok(()),
            }
        })
    }

    fn field(
        &mut self,
        field: &StructField,
        content: WireValue,
        parent: &mut Value,
    ) -> Result<(), ProtoError> {
        let slot = parent.entry(&field.name);
        match &field.ty.shape {
            FieldShape::List(item) if !is_wrapped(&field.ty) => {
                self.list(&field.name, item, content, slot)
            }
            FieldShape::Map(item) => self.entry(&field.name, item, content, slot),
            _ => self.value(&field.name, &field.ty, content, slot),
        }
    }

    /// Decodes a list item, or several packed numbers.
    fn list(
        &mut self,
        name: &str,
        item: &FieldType,
        content: WireValue,
        slot: &mut Value,
    ) -> Result<(), ProtoError> {
        let list = slot.make_list();
        let is_number = matches!(
            item.shape,
            FieldShape::Bool | FieldShape::Int32 | FieldShape::Int64
        );
        if let (true, WireValue::Bytes(packed)) = (is_number, content) {
            let mut reader = WireReader::new(packed);
            while !reader.is_empty() {
                list.push(number(item, reader.varint()?));
            }
            return Ok(());
        }
        let mut value = Value::Null;
        self.value(name, item, content, &mut value)?;
        list.push(value);
        Ok(())
    }

    /// Decodes an entry of a map.
    fn entry(
        &mut self,
        name: &str,
        item: &FieldType,
        content: WireValue,
        slot: &mut Value,
    ) -> Result<(), ProtoError> {
        let (mut key, mut value) = (Str::default(), Value::Null);
        self.message(content.bytes(name)?, |decoder, tag, content| match tag {
            1 => {
                key = text(content.bytes(name)?);
                Ok(())
            }
            2 => decoder.value(name, item, content, &mut value),
            _ => Ok(()),
        })?;
        if value.is_null() {
            value = item.zero();
        }
        slot.make_map().insert(key, value);
        Ok(())
    }

    fn value(
        &mut self,
        name: &str,
        ty: &FieldType,
        content: WireValue,
        slot: &mut Value,
    ) -> Result<(), ProtoError> {
        match &ty.shape {
            FieldShape::Bool | FieldShape::Int32 | FieldShape::Int64 => {
                *slot = number(ty, content.varint(name)?)
            }
            FieldShape::Float => *slot = float(content.float(name)?)?,
            FieldShape::String => *slot = text(content.bytes(name)?).into(),
            FieldShape::Bytes => *slot = STANDARD.encode(content.bytes(name)?).into(),
            FieldShape::Struct(inner) => self.read_struct(inner, content.bytes(name)?, slot)?,
            FieldShape::Or(or, inner) => self.or(*or, inner, content.bytes(name)?, slot)?,
            FieldShape::List(item) => self.wrapped_list(name, item, content.bytes(name)?, slot)?,
            FieldShape::Map(item) => self.wrapped_map(name, item, content.bytes(name)?, slot)?,
            _ => *slot = self.literal(name, ty, content.bytes(name)?)?,
        }
        Ok(())
    }

    /// Decodes a type that is a message in protobuf and a scalar in JSON.
    fn literal(&mut self, name: &str, ty: &FieldType, message: &[u8]) -> Result<Value, ProtoError> {
        let (mut int, mut other_int, mut bytes) = (None, 0, None);
        self.message(message, |_, tag, content| {
            match (&ty.shape, tag) {
                (
                    FieldShape::Time
                    | FieldShape::MicroTime
                    | FieldShape::Duration
                    | FieldShape::IntOrString,
                    1,
                ) => {
                    int = Some(content.varint(name)? as i64);
                }
                (FieldShape::Time | FieldShape::MicroTime | FieldShape::IntOrString, 2) => {
                    other_int = content.varint(name)? as i32;
                }
                (FieldShape::IntOrString, 3)
                | (FieldShape::Quantity | FieldShape::Raw | FieldShape::Json, 1) => {
                    bytes = Some(content.bytes(name)?);
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(match ty.shape {
            FieldShape::Time | FieldShape::MicroTime if message.is_empty() => Value::Null,
            FieldShape::Time => moment(int.unwrap_or_default(), 0, Moment::to_string),
            FieldShape::MicroTime => {
                moment(int.unwrap_or_default(), other_int, Moment::to_micro_string)
            }
            FieldShape::Duration => time::duration_text(int.unwrap_or_default()).into(),
            FieldShape::Quantity => quantity(bytes)?,
            FieldShape::IntOrString => match int.unwrap_or_default() {
                0 => other_int.into(),
                1 => text(bytes.unwrap_or_default()).into(),
                _ => return Err(ProtoError::IntOrString),
            },
            _ => match bytes {
                None | Some(b"") => Value::Null,
                Some(json) => {
                    let mut value = json::parse(json)?;
                    // Kubernetes: it is decoded to untyped values and encoded again, as from JSON.
                    if matches!(ty.shape, FieldShape::Json) {
                        json::rewrite(&mut value);
                    }
                    value
                }
            },
        })
    }

    fn wrapped_list(
        &mut self,
        name: &str,
        item: &FieldType,
        message: &[u8],
        slot: &mut Value,
    ) -> Result<(), ProtoError> {
        slot.make_list();
        self.message(message, |decoder, tag, content| match tag {
            1 => decoder.list(name, item, content, slot),
            _ => Ok(()),
        })
    }

    fn wrapped_map(
        &mut self,
        name: &str,
        item: &FieldType,
        message: &[u8],
        slot: &mut Value,
    ) -> Result<(), ProtoError> {
        slot.make_map();
        self.message(message, |decoder, tag, content| match tag {
            1 => decoder.entry(name, item, content, slot),
            _ => Ok(()),
        })
    }

    fn or(
        &mut self,
        or: Alternative,
        inner: &Struct,
        message: &[u8],
        slot: &mut Value,
    ) -> Result<(), ProtoError> {
        let (mut allows, mut schema, mut list) = (false, Value::Null, Vec::new());
        let name = inner.name.as_str();
        self.message(message, |decoder, tag, content| {
            match (or, tag) {
                (Alternative::Bool, 1) => allows = content.varint(name)? != 0,
                (Alternative::Bool, 2) | (_, 1) => {
                    decoder.read_struct(inner, content.bytes(name)?, &mut schema)?;
                }
                (Alternative::List, 2) => {
                    let mut item = Value::Null;
                    decoder.read_struct(inner, content.bytes(name)?, &mut item)?;
                    list.push(item);
                }
                (Alternative::Strings, 2) => list.push(text(content.bytes(name)?).into()),
                _ => {}
            }
            Ok(())
        })?;
        *slot = match or {
            _ if !list.is_empty() => list.into(),
            Alternative::Bool if schema.is_null() => allows.into(),
            _ => schema,
        };
        Ok(())
    }
}

fn number(ty: &FieldType, varint: u64) -> Value {
    match ty.shape {
        FieldShape::Bool => (varint != 0).into(),
        FieldShape::Int32 => (varint as i32).into(),
        _ => (varint as i64).into(),
    }
}

fn float(number: f64) -> Result<Value, ProtoError> {
    match number.is_finite() {
        true => Ok(json::number(&json::write_number(number))),
        false => Err(ProtoError::Number(number.to_string())),
    }
}

/// Text whose invalid bytes are replaced one by one, as Go does when it encodes JSON.
fn text(bytes: &[u8]) -> Str {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.into();
    }
    let mut out = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    out.into()
}

fn moment(seconds: i64, nanos: i32, show: fn(&Moment) -> String) -> Value {
    const SECOND: i32 = 1_000_000_000;
    let seconds = seconds.saturating_add(nanos.div_euclid(SECOND).into());
    let moment = Moment {
        seconds,
        nanos: nanos.rem_euclid(SECOND) as u32,
    };
    if moment.is_zero() {
        Value::Null
    } else {
        show(&moment).into()
    }
}

fn quantity(bytes: Option<&[u8]>) -> Result<Value, ProtoError> {
    Ok(match bytes {
        Some(bytes) => quantity::canonical(&text(bytes))?.into(),
        None => "0".into(),
    })
}
