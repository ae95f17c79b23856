//! Arbitrary objects from a seed, and the codecs that each of them survives: for tests of kinds.

use crate::schema::{Alternative, FieldShape, FieldType, Struct, canonical};
use crate::{decode, proto};
use mizzen_value::{Map, Str, Value, json, yaml};

/// How many fields an object has at most.
const MAX_FIELDS: usize = 200;

/// An object of a type, in canonical form: some of its fields with ordinary and extreme values. Equal seeds make equal
/// objects. Fields without a protobuf number are left out.
pub fn arbitrary(ty: &Struct, seed: u64) -> Value {
    let mut value = ArbitraryValues::new(seed).object(ty);
    canonical(ty, &mut value);
    value
}

/// An object by an OpenAPI schema. `metadata` is left out.
pub fn arbitrary_by_schema(schema: &Value, seed: u64) -> Value {
    let mut value = ArbitraryValues::new(seed).by_schema(schema);
    for field in ["apiVersion", "kind", "metadata"] {
        value.remove(field);
    }
    value
}

/// Checks that JSON and YAML of a value in canonical form are read as that value.
pub fn check_text(ty: &Struct, value: &Value) -> Result<(), String> {
    let text = json::to_string(value);
    let decoded = decode::decode(ty, text.as_bytes()).map_err(|error| format!("{error:?}"))?;
    if decoded.value != *value || !decoded.complaints.is_empty() {
        let read = json::to_string(&decoded.value);
        return Err(format!(
            "JSON {text} is read as {read}, {:?}",
            decoded.complaints
        ));
    }
    let text = yaml::write(value);
    let document = yaml::read(text.as_bytes()).map_err(|error| format!("{error}: {text}"))?;
    match document.value == *value {
        true => Ok(()),
        false => Err(format!(
            "YAML {text} is read as {}",
            json::to_string(&document.value)
        )),
    }
}

/// Checks that the protobuf message of a value in canonical form is read as that value.
pub fn check_protobuf(ty: &Struct, value: &Value) -> Result<(), String> {
    let mut message = Vec::new();
    proto::encode_message(ty, value, &mut message);
    match proto::decode_message(ty, &message) {
        Ok(decoded) if decoded == *value => Ok(()),
        Ok(decoded) => Err(format!(
            "protobuf of {} is read as {}",
            json::to_string(value),
            json::to_string(&decoded)
        )),
        Err(error) => Err(format!("protobuf of {}: {error:?}", json::to_string(value))),
    }
}

/// Makes values of any type from a seed.
struct ArbitraryValues {
    state: u64,
    /// How many fields may still be set.
    n_fields: usize,
}

impl ArbitraryValues {
    fn new(seed: u64) -> ArbitraryValues {
        // Neighbouring seeds make different objects.
        let state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        ArbitraryValues {
            state,
            n_fields: MAX_FIELDS,
        }
    }

    /// A number below `n`.
    fn below(&mut self, n: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 33) as usize % n
    }

    fn pick(&mut self, choices: &[&str]) -> Value {
        choices[self.below(choices.len())].into()
    }

    fn object(&mut self, ty: &Struct) -> Value {
        let mut map = Map::default();
        // Protobuf does not know what has no number.
        for field in ty.fields().iter().filter(|field| field.tag > 0) {
            // Only some fields, and not too many, so that recursive types come to an end.
            if self.below(2) == 0 && self.n_fields > 0 {
                self.n_fields -= 1;
                map.insert(field.name.clone(), self.value(&field.ty));
            }
        }
        map.into()
    }

    fn value(&mut self, ty: &FieldType) -> Value {
        match &ty.shape {
            FieldShape::Bool => (self.below(2) == 1).into(),
            FieldShape::Int32 => [0, 1, -1, i32::MIN, i32::MAX][self.below(5)].into(),
            FieldShape::Int64 => [0, 1, -1, i64::MIN, i64::MAX][self.below(5)].into(),
            FieldShape::Float => json::number(["0", "1.5", "-3", "1e+30"][self.below(4)]),
            FieldShape::String => {
                self.pick(&["", "a", "yes", "01", "two\nlines\n", "é <&>", "x: y", " "])
            }
            FieldShape::Bytes => self.pick(&["aGk=", "/wA="]),
            FieldShape::Time => self.pick(&["2024-02-29T12:00:00Z", "1969-12-31T23:59:59Z"]),
            FieldShape::MicroTime => {
                self.pick(&["2024-02-29T12:00:00.000001Z", "2024-02-29T12:00:00.000000Z"])
            }
            FieldShape::Duration => self.pick(&["0s", "1h30m0s"]),
            FieldShape::Quantity => self.pick(&["0", "100m", "1Gi", "1e3", "-5"]),
            FieldShape::IntOrString if self.below(2) == 0 => 8080.into(),
            FieldShape::IntOrString => self.pick(&["", "http", "80"]),
            FieldShape::Raw | FieldShape::Json => {
                json::parse(br#"{"b":[1,null,"x"],"a":{}}"#).expect("it is JSON")
            }
            FieldShape::Or(or, inner) => self.alternative(*or, inner),
            FieldShape::List(item) => (0..=self.below(2))
                .map(|_| self.value(item))
                .collect::<Vec<_>>()
                .into(),
            FieldShape::Map(item) => {
                let members = ["k", "a.b/c", ""][..=self.below(3)]
                    .iter()
                    .map(|key| (*key, self.value(item)));
                members.collect::<Map>().into()
            }
            FieldShape::Struct(inner) => self.object(inner),
        }
    }

    /// A value by an OpenAPI schema, as a CustomResourceDefinition has it.
    fn by_schema(&mut self, schema: &Value) -> Value {
        if let choices @ [_, ..] = schema["enum"].list() {
            return choices[self.below(choices.len())].clone();
        }
        if schema["x-kubernetes-int-or-string"].bool() {
            return self.value(&FieldType {
                shape: FieldShape::IntOrString,
                go: Str::default(),
            });
        }
        match schema["type"].str() {
            "boolean" => (self.below(2) == 1).into(),
            "integer" => [0, 1, 7, i64::from(i32::MAX)][self.below(4)].into(),
            "number" => json::number(["0", "1.5", "-3"][self.below(3)]),
            "string" => self.pick(&["", "a", "yes", "01", "two\nlines\n", "é <&>", "x: y", " "]),
            "array" => (0..=self.below(2))
                .map(|_| self.by_schema(&schema["items"]))
                .collect::<Vec<_>>()
                .into(),
            _ => {
                let mut map = Map::default();
                let required = schema["required"].list();
                for (name, property) in schema["properties"].entries() {
                    let is_required = required.iter().any(|known| known.str() == name);
                    if is_required || self.below(2) == 0 {
                        let value = self.by_schema(property);
                        map.insert(name, value);
                    }
                }
                if let Some(members) = schema.get("additionalProperties") {
                    let value = self.by_schema(members);
                    map.insert("k", value);
                }
                map.into()
            }
        }
    }

    fn alternative(&mut self, or: Alternative, inner: &Struct) -> Value {
        match or {
            _ if self.below(2) == 0 => self.object(inner),
            Alternative::Bool => (self.below(2) == 1).into(),
            Alternative::List => vec![self.object(inner), self.object(inner)].into(),
            Alternative::Strings => vec![self.pick(&["", "a"])].into(),
        }
    }
}
