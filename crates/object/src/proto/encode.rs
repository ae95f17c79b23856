//! Encoding of messages.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::wire::{put_bytes, put_float, put_int, put_message};
use super::{is_pointer, is_wrapped};
use crate::schema::{Alternative, Embedded, FieldShape, FieldType, Struct, StructField};
use mizzen_value::Value;
use mizzen_value::json;
use mizzen_value::time::{self, Moment};

/// Appends the message of `value`. Absent fields are encoded as Go's zero values.
///
/// `value` is canonical; what does not match its type counts as zero.
pub fn encode_message(ty: &Struct, value: &Value, out: &mut Vec<u8>) {
    for (tag, part) in parts(ty) {
        match part {
            MessagePart::Field(field) => put_field(field, &value[field.name.as_str()], out),
            MessagePart::Embedded(inner) => {
                put_message(tag, out, |out| encode_message(&inner.message, value, out))
            }
        }
    }
}

enum MessagePart<'a> {
    Field(&'a StructField),
    Embedded(&'a Embedded),
}

/// The parts of a message by ascending field number.
fn parts(ty: &Struct) -> Vec<(u32, MessagePart<'_>)> {
    let fields = ty
        .fields()
        .iter()
        .filter(|field| field.embedded.is_none() && field.tag > 0);
    let fields = fields.map(|field| (field.tag, MessagePart::Field(field)));
    let embedded = ty
        .embedded()
        .iter()
        .map(|inner| (inner.tag, MessagePart::Embedded(inner)));
    let mut parts: Vec<_> = fields.chain(embedded).collect();
    parts.sort_unstable_by_key(|(tag, _)| *tag);
    parts
}

fn put_field(field: &StructField, value: &Value, out: &mut Vec<u8>) {
    match &field.ty.shape {
        FieldShape::List(_) | FieldShape::Bytes if value.is_null() => {}
        FieldShape::List(item) if !is_wrapped(&field.ty) => {
            value
                .list()
                .iter()
                .for_each(|value| put_value(field.tag, item, value, out));
        }
        FieldShape::Map(item) => put_map(field.tag, item, value, out),
        _ if value.is_null() && is_pointer(field.presence) => {}
        _ => put_value(field.tag, &field.ty, value, out),
    }
}

/// A map is a list of entry messages, sorted by key.
fn put_map(tag: u32, item: &FieldType, value: &Value, out: &mut Vec<u8>) {
    let Some(map) = value.as_map() else { return };
    let mut put = |key: &str, value: &Value| {
        put_message(tag, out, |out| {
            put_bytes(1, key.as_bytes(), out);
            if !matches!((&item.shape, value), (FieldShape::Bytes, Value::Null)) {
                put_value(2, item, value, out);
            }
        });
    };
    if map.keys().is_sorted() {
        map.iter().for_each(|(key, value)| put(key, value));
    } else {
        let mut members: Vec<_> = map.iter().collect();
        members.sort_unstable_by_key(|(key, _)| *key);
        members.into_iter().for_each(|(key, value)| put(key, value));
    }
}

fn put_value(tag: u32, ty: &FieldType, value: &Value, out: &mut Vec<u8>) {
    match &ty.shape {
        FieldShape::Bool => put_int(tag, value.bool().into(), out),
        FieldShape::Int32 | FieldShape::Int64 => put_int(tag, value.int(), out),
        FieldShape::Float => put_float(tag, value.as_f64().unwrap_or_default(), out),
        FieldShape::String => put_bytes(tag, value.str().as_bytes(), out),
        FieldShape::Bytes => put_bytes(tag, &STANDARD.decode(value.str()).unwrap_or_default(), out),
        FieldShape::Time => put_message(tag, out, |out| {
            put_moment(Moment::parse(value.str()).ok(), false, out)
        }),
        FieldShape::MicroTime => {
            put_message(tag, out, |out| {
                put_moment(Moment::parse_micro(value.str()).ok(), true, out)
            });
        }
        FieldShape::Duration => {
            let nanos = time::duration_nanos(value.str()).unwrap_or_default();
            put_message(tag, out, |out| put_int(1, nanos, out));
        }
        FieldShape::Quantity => {
            let text = Some(value.str()).filter(|text| !text.is_empty());
            put_message(tag, out, |out| {
                put_bytes(1, text.unwrap_or("0").as_bytes(), out)
            });
        }
        FieldShape::IntOrString => put_message(tag, out, |out| {
            put_int(1, value.as_str().is_some().into(), out);
            put_int(2, value.int(), out);
            put_bytes(3, value.str().as_bytes(), out);
        }),
        FieldShape::Raw | FieldShape::Json => put_message(tag, out, |out| {
            if !value.is_null() {
                let mut text = Vec::with_capacity(64);
                json::write(value, &mut text);
                put_bytes(1, &text, out);
            }
        }),
        FieldShape::Or(or, inner) => put_message(tag, out, |out| put_or(*or, inner, value, out)),
        FieldShape::List(item) => put_message(tag, out, |out| {
            value
                .list()
                .iter()
                .for_each(|value| put_value(1, item, value, out));
        }),
        FieldShape::Map(item) => put_message(tag, out, |out| put_map(1, item, value, out)),
        FieldShape::Struct(inner) => put_message(tag, out, |out| encode_message(inner, value, out)),
    }
}

/// Go's zero time is an empty message.
fn put_moment(moment: Option<Moment>, with_micros: bool, out: &mut Vec<u8>) {
    let Some(moment) = moment.filter(|moment| !moment.is_zero()) else {
        return;
    };
    put_int(1, moment.seconds, out);
    put_int(
        2,
        if with_micros {
            (moment.nanos / 1000 * 1000).into()
        } else {
            0
        },
        out,
    );
}

fn put_or(or: Alternative, inner: &Struct, value: &Value, out: &mut Vec<u8>) {
    let is_schema = value.as_map().is_some();
    let put_schema =
        |tag, value, out: &mut _| put_message(tag, out, |out| encode_message(inner, value, out));
    match or {
        Alternative::Bool => {
            put_int(1, i64::from(is_schema || value.bool()), out);
            if is_schema {
                put_schema(2, value, out);
            }
        }
        _ if is_schema => put_schema(1, value, out),
        Alternative::List => value
            .list()
            .iter()
            .for_each(|value| put_schema(2, value, out)),
        Alternative::Strings => {
            value
                .list()
                .iter()
                .for_each(|name| put_bytes(2, name.str().as_bytes(), out));
        }
    }
}
