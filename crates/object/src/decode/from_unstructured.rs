//! Conversion of untyped values to typed objects, with the errors of Go's converter.
//!
//! Kubernetes: a strategic merge patch is applied to unstructured maps, which are converted to
//! typed objects without going through JSON. That converter (`runtime.FromUnstructured`) has its
//! own messages and rules: it stops at the first type error, in field order, and integers that are
//! too large lose their upper bits.
//!
//! Invariant: the result is canonical.

use super::unstructured::{self, Pruning};
use super::{DecodeError, Decoded, decode, zero_if_null};
use crate::schema::{Alternative, CanonicalMembers, FieldShape, FieldType, Struct};
use mizzen_value::go_base64;
use mizzen_value::json;
use mizzen_value::quantity;
use mizzen_value::time;
use mizzen_value::{Map, Str, Value, go_int};

/// Converts `value` to an object of type `ty`. Unknown fields are dropped and reported; those of a
/// custom kind stay. Kubernetes: an applied object is not decoded, so nothing is pruned from it,
/// nulls included.
pub fn from_unstructured(ty: &Struct, value: Value) -> Result<Decoded, DecodeError> {
    if let Some(rest) = ty.rest() {
        return unstructured::decode_value(ty, rest, value, Pruning::Skipped);
    }
    let mut converter = UnstructuredConverter::default();
    let value = converter.top(ty, value).map_err(DecodeError::Type)?;
    converter.complaints.sort();
    Ok(Decoded {
        value,
        complaints: converter.complaints,
    })
}

#[derive(Default)]
struct UnstructuredConverter {
    complaints: Vec<String>,
    /// The current path: `spec.containers[0]`.
    path: String,
}

impl UnstructuredConverter {
    fn top(&mut self, ty: &Struct, value: Value) -> Result<Value, String> {
        match value {
            Value::Map(map) => self.named(ty, map),
            _ => self.named(ty, Map::default()),
        }
    }

    /// Converts a struct with `kind` and `apiVersion`.
    fn named(&mut self, ty: &Struct, mut map: Map) -> Result<Value, String> {
        let text = FieldType {
            shape: FieldShape::String,
            go: "string".into(),
        };
        let mut result = Map::with_capacity(map.len());
        for name in ["kind", "apiVersion"] {
            if ty.field(name).is_none()
                && let Some(value) = map.remove(name)
            {
                result.insert(name, self.value(&text, value)?);
            }
        }
        self.fields(ty, map, result)
    }

    fn value(&mut self, ty: &FieldType, value: Value) -> Result<Value, String> {
        match (&ty.shape, value) {
            (_, Value::Null) => Ok(Value::Null),
            (FieldShape::Struct(inner), value) => self.structure(inner, value),
            (FieldShape::Map(item), value) => self.map(item, value),
            (FieldShape::List(item), value) => self.list(item, value),
            (FieldShape::Raw | FieldShape::Json, mut value) => {
                json::rewrite(&mut value);
                Ok(value)
            }
            (FieldShape::Or(or, inner), value) => alternative(*or, inner, value),
            (_, value) => scalar(ty, value),
        }
    }

    fn structure(&mut self, ty: &Struct, value: Value) -> Result<Value, String> {
        let Value::Map(map) = value else {
            return Err(format!("cannot restore struct from: {}", kind(&value)));
        };
        if ty.is_kind() {
            return self.named(ty, map);
        }
        let result = Map::with_capacity(map.len());
        self.fields(ty, map, result)
    }

    /// Converts the members in the order of the fields, which is that of Go's errors, and adds them
    /// to `result`.
    fn fields(&mut self, ty: &Struct, map: Map, mut result: Map) -> Result<Value, String> {
        let mut known = Vec::with_capacity(map.len());
        for (name, value) in map {
            match ty.position(&name) {
                Some(position) => known.push((position, name, value)),
                None => self.below(&name, |converter| {
                    let complaint = format!("unknown field \"{}\"", converter.path);
                    converter.complaints.push(complaint);
                }),
            }
        }
        known.sort_unstable_by_key(|(position, ..)| *position);
        let mut members = CanonicalMembers::default();
        for (position, name, value) in known {
            let field = &ty.fields()[position];
            let value = self.below(&name, |converter| converter.value(&field.ty, value))?;
            members.add(position, field, &value);
            result.insert(name, value);
        }
        members.finish(ty, &mut result);
        Ok(Value::Map(result))
    }

    fn map(&mut self, item: &FieldType, value: Value) -> Result<Value, String> {
        let Value::Map(map) = value else {
            return Err(format!("cannot restore map from {}", kind(&value)));
        };
        let members = map
            .into_iter()
            .map(|(key, value)| Ok((key, zero_if_null(item, self.value(item, value)?))));
        let mut map = members.collect::<Result<Map, String>>()?;
        map.sort();
        Ok(Value::Map(map))
    }

    fn list(&mut self, item: &FieldType, value: Value) -> Result<Value, String> {
        let Value::List(items) = value else {
            return Err(format!("cannot restore slice from {}", kind(&value)));
        };
        let length = self.path.len();
        let mut result = Vec::with_capacity(items.len());
        for (index, value) in items.into_iter().enumerate() {
            self.path.push('[');
            self.path += itoa::Buffer::new().format(index);
            self.path.push(']');
            result.push(zero_if_null(item, self.value(item, value)?));
            self.path.truncate(length);
        }
        Ok(Value::List(result))
    }

    /// Kubernetes: the path of a map's value lacks the key.
    fn below<T>(&mut self, name: &str, convert: impl FnOnce(&mut UnstructuredConverter) -> T) -> T {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path += name;
        let result = convert(self);
        self.path.truncate(length);
        result
    }
}

/// Types with their own `UnmarshalJSON`, which ignore unknown fields.
fn alternative(or: Alternative, inner: &Struct, value: Value) -> Result<Value, String> {
    match (or, value) {
        (_, Value::Map(mut map)) => {
            map.retain(|name, _| inner.field(name).is_some());
            let text = json::to_string(&Value::Map(map));
            decode(inner, text.as_bytes())
                .map(|decoded| decoded.value)
                .map_err(|error| error.to_string())
        }
        (Alternative::Bool, value @ Value::Bool(_)) => Ok(value),
        (Alternative::Bool, _) => Err("boolean or JSON schema expected".into()),
        (Alternative::List, Value::List(items)) => {
            let schemas = items
                .into_iter()
                .map(|item| alternative(Alternative::List, inner, item));
            Ok(schemas.collect::<Result<Vec<_>, _>>()?.into())
        }
        (Alternative::Strings, Value::List(items)) => {
            match items.iter().find(|item| item.as_str().is_none()) {
                Some(odd) => Err(wrong(odd.go_word(), "string")),
                None => Ok(Value::List(items)),
            }
        }
        _ => Ok(Value::Null),
    }
}

fn scalar(ty: &FieldType, value: Value) -> Result<Value, String> {
    match (&ty.shape, value) {
        (FieldShape::Bool, value @ Value::Bool(_)) => Ok(value),
        (FieldShape::String, value @ Value::String(_)) => Ok(value),
        (FieldShape::Int32, Value::Int(int)) => Ok(Value::Int((int as i32).into())),
        (FieldShape::Int64, value @ Value::Int(_)) => Ok(value),
        (FieldShape::Int32 | FieldShape::Int64, value @ Value::Number(_)) => {
            let number = value.as_f64().unwrap_or_default();
            match number.trunc() == number {
                true => scalar(ty, Value::Int(go_int(number))),
                false => Err(format!("cannot convert float64 to {}", ty.go)),
            }
        }
        (FieldShape::Float, value @ (Value::Int(_) | Value::Number(_))) => {
            Ok(json::float(value.as_f64().unwrap_or_default()))
        }
        (FieldShape::String, Value::Int(_)) => Err(format!("cannot convert int64 to {}", ty.go)),
        (FieldShape::Bytes, Value::String(text)) => go_base64::canonical(&text)
            .map(Value::from)
            .map_err(|error| format!("error decoding from json: {error}")),
        (FieldShape::Bytes, value) => Err(format!("cannot restore slice from {}", kind(&value))),
        (FieldShape::Quantity, value) => {
            let text: Str = match value {
                Value::String(text) => text,
                other => json::to_string(&other).into(),
            };
            quantity::canonical(&text)
                .map(Value::from)
                .map_err(|error| error.to_string())
        }
        (FieldShape::IntOrString, Value::Int(int)) if i32::try_from(int).is_ok() => {
            Ok(Value::Int(int))
        }
        (FieldShape::IntOrString, value @ Value::String(_)) => Ok(value),
        (FieldShape::IntOrString, value @ (Value::Int(_) | Value::Number(_))) => {
            let number = format!("number {}", json::to_string(&value));
            Err(wrong(&number, "int32"))
        }
        (FieldShape::IntOrString, other) => Err(wrong(other.go_word(), "int32")),
        (FieldShape::Time | FieldShape::MicroTime | FieldShape::Duration, value) => {
            moment(&ty.shape, &value)
        }
        _ => Err(format!("unrecognized type: {}", go_kind(&ty.shape))),
    }
}

fn moment(shape: &FieldShape, value: &Value) -> Result<Value, String> {
    let Value::String(text) = value else {
        return Err(wrong(value.go_word(), "string"));
    };
    match shape {
        FieldShape::Time => time::parse_time(text)
            .map(Value::from)
            .map_err(|error| error.to_string()),
        FieldShape::MicroTime => time::parse_micro_time(text)
            .map(Value::from)
            .map_err(|error| error.to_string()),
        _ => time::parse_duration(text)
            .map(Value::from)
            .map_err(|error| error.to_string()),
    }
}

fn wrong(found: &str, go: &str) -> String {
    format!("json: cannot unmarshal {found} into Go value of type {go}")
}

/// The `reflect.Kind` of an untyped value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::List(_) => "slice",
        Value::Map(_) => "map",
    }
}

fn go_kind(shape: &FieldShape) -> &'static str {
    match shape {
        FieldShape::Bool => "bool",
        FieldShape::Int32 => "int32",
        FieldShape::Int64 => "int64",
        FieldShape::Float => "float64",
        _ => "string",
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::schema::parse;

    const TYPES: &str = "
group example
version v1
type Thing
  1 text string(Word)
  2 count ?int32
  3 size int64
  4 flag bool
  5 secret bytes
  6 amount Quantity
  7 port ?IntOrString
  8 when Time
  9 words []string
  10 labels map[string]string
  11 parts []Part
  12 named map[string]Part
  13 raw RawExtension
  14 last Part
type Part
  1 name string
";

    #[track_caller]
    fn check(text: &str, expect: Expect) {
        let types = parse([("test.kinds", TYPES)]).unwrap();
        let value = json::parse(text.as_bytes()).unwrap();
        let answer = match from_unstructured(&types.types["example/v1.Thing"], value) {
            Ok(Decoded { value, complaints }) => [vec![json::to_string(&value)], complaints]
                .concat()
                .join("\n"),
            Err(error) => format!("error: {error}"),
        };
        expect.assert_eq(&answer);
    }

    #[test]
    fn integers_are_truncated() {
        check(
            r#"{"count":4294967298,"size":2.0}"#,
            expect![[r#"{"count":2,"size":2}"#]],
        );
        check(r#"{"count":1e30}"#, expect![[r#"{"count":0}"#]]);
        check(
            r#"{"count":1.5}"#,
            expect!["error: cannot convert float64 to int32"],
        );
    }

    #[test]
    fn type_errors_equal_go() {
        check(
            r#"{"text":5}"#,
            expect!["error: cannot convert int64 to v1.Word"],
        );
        check(
            r#"{"text":true}"#,
            expect!["error: unrecognized type: string"],
        );
        check(
            r#"{"count":"x"}"#,
            expect!["error: unrecognized type: int32"],
        );
        check(r#"{"flag":1}"#, expect!["error: unrecognized type: bool"]);
        check(
            r#"{"words":"x"}"#,
            expect!["error: cannot restore slice from string"],
        );
        check(
            r#"{"labels":["x"]}"#,
            expect!["error: cannot restore map from slice"],
        );
        check(
            r#"{"labels":{"a":1}}"#,
            expect!["error: cannot convert int64 to string"],
        );
        check(
            r#"{"parts":[1]}"#,
            expect!["error: cannot restore struct from: int64"],
        );
        check(
            r#"{"kind":[]}"#,
            expect!["error: unrecognized type: string"],
        );
    }

    #[test]
    fn types_with_unmarshal_json_have_their_own_errors() {
        check(
            r#"{"secret":"not base64!"}"#,
            expect!["error: error decoding from json: illegal base64 data at input byte 3"],
        );
        check(
            r#"{"amount":true}"#,
            expect![
                "error: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            ],
        );
        check(r#"{"amount":1.5}"#, expect![[r#"{"amount":"1500m"}"#]]);
        check(
            r#"{"port":1.5}"#,
            expect!["error: json: cannot unmarshal number 1.5 into Go value of type int32"],
        );
        check(
            r#"{"port":[1]}"#,
            expect!["error: json: cannot unmarshal array into Go value of type int32"],
        );
        check(
            r#"{"when":1}"#,
            expect!["error: json: cannot unmarshal number into Go value of type string"],
        );
    }

    #[test]
    fn the_first_type_error_is_reported() {
        check(
            r#"{"last":1,"flag":1,"bogus":1}"#,
            expect!["error: unrecognized type: bool"],
        );
    }

    #[test]
    fn unknown_fields_are_left_out_and_reported_in_order() {
        check(
            r#"{"kind":"Thing","z":1,"parts":[{"name":"a"},{"x":1}],"named":{"k":{"y":1}},"raw":{"b":1.50,"a":{}}}"#,
            expect![[r#"
                {"kind":"Thing","parts":[{"name":"a"},{}],"named":{"k":{}},"raw":{"a":{},"b":1.5}}
                unknown field "named.y"
                unknown field "parts[1].x"
                unknown field "z""#]],
        );
    }

    #[test]
    fn null_counts_as_absent() {
        check(
            r#"{"text":null,"labels":{"a":null},"words":[null]}"#,
            expect![[r#"{"words":[""],"labels":{"a":""}}"#]],
        );
    }
}
