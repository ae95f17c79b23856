//! Every type that ships with us survives every codec: what goes out as JSON, YAML or protobuf comes back
//! as it was.

use std::sync::LazyLock;

use mizzen_kinds::{KindCatalog, catalog};
use mizzen_object::schema::{Alternative, FieldShape, FieldType, Struct, canonical};
use mizzen_object::{decode, proto};
use mizzen_value::{Map, Value, json, yaml};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn every_type_survives_every_codec(seed in any::<u64>()) {
        static CATALOG: LazyLock<KindCatalog> = LazyLock::new(catalog);
        let mut names: Vec<_> = CATALOG.schemas.types.keys().collect();
        names.sort();
        for name in names {
            let ty = &CATALOG.schemas.types[name];
            let mut value = Generator { state: seed | 1, n_fields: 200 }.object(ty);
            canonical(ty, &mut value);
            check(name, ty, &value)?;
        }
    }
}

fn check(name: &str, ty: &Struct, value: &Value) -> Result<(), TestCaseError> {
    let text = json::to_string(value);
    let decoded = decode::decode(ty, text.as_bytes())
        .map_err(|error| TestCaseError::fail(format!("{error:?}")))?;
    prop_assert_eq!(&decoded.value, value, "{} in JSON: {}", name, text);
    prop_assert_eq!(decoded.complaints, Vec::<String>::new());

    let text = yaml::write(value);
    let document = yaml::read(text.as_bytes())
        .map_err(|error| TestCaseError::fail(format!("{error}: {text}")))?;
    prop_assert_eq!(&document.value, value, "{} in YAML: {}", name, text);

    let mut message = Vec::new();
    proto::encode_message(ty, value, &mut message);
    let decoded = proto::decode_message(ty, &message);
    prop_assert_eq!(decoded.as_ref(), Ok(value), "{} in protobuf", name);
    Ok(())
}

/// Makes values of any type from a seed.
struct Generator {
    state: u64,
    /// How many fields may still be set.
    n_fields: usize,
}

impl Generator {
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

    fn alternative(&mut self, or: Alternative, inner: &Struct) -> Value {
        match or {
            _ if self.below(2) == 0 => self.object(inner),
            Alternative::Bool => (self.below(2) == 1).into(),
            Alternative::List => vec![self.object(inner), self.object(inner)].into(),
            Alternative::Strings => vec![self.pick(&["", "a"])].into(),
        }
    }
}
