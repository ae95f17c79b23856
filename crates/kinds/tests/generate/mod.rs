//! Objects of any shape, from a seed.
//!
//! `MIZZEN_SEED` chooses another run, `MIZZEN_ROUNDS` a longer one; whatever fails says its seed.

#![allow(dead_code, reason = "each test needs a part of it")]

use std::ops::Range;

use mizzen_object::schema::{Alternative, FieldShape, FieldType, Struct, StructField, canonical};
use mizzen_value::{Map, Value, json};

/// The seeds of a run.
pub(crate) fn seeds(n_rounds: u64) -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first = number("MIZZEN_SEED").unwrap_or(1);
    first..first + number("MIZZEN_ROUNDS").unwrap_or(n_rounds)
}

/// A seed for `shape` or `noise` that has little to do with its neighbours.
pub(crate) fn scatter(seed: u64, n: u64) -> u64 {
    (seed.wrapping_mul(31).wrapping_add(n)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// An object that `shape` gives its outline and `noise` a deviation from it.
pub(crate) fn object(ty: &Struct, shape: u64, noise: u64) -> Value {
    let mut generator = Generator {
        shape: Dice(shape | 1),
        noise: Dice(noise | 1),
        depth: 0,
    };
    let mut value = generator.object(ty);
    canonical(ty, &mut value);
    value
}

struct Dice(u64);

impl Dice {
    /// A number below `n`.
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }
}

struct Generator {
    shape: Dice,
    noise: Dice,
    depth: usize,
}

impl Generator {
    fn object(&mut self, ty: &Struct) -> Value {
        self.depth += 1;
        let mut map = Map::default();
        for field in ty.fields() {
            // Only some fields, and fewer further down, so that recursive types come to an end.
            if self.shape.below(1 + self.depth * self.depth) < 2 {
                let value = self.field(field);
                if self.noise.below(6) > 0 {
                    map.insert(field.name.clone(), value);
                }
            }
        }
        self.depth -= 1;
        map.into()
    }

    fn field(&mut self, field: &StructField) -> Value {
        let mut value = self.value(&field.ty);
        if let (Some(key), Value::List(items), Some(item)) =
            (&field.patch.key, &mut value, field.ty.item())
        {
            let key_type = item
                .as_struct()
                .and_then(|item| item.field(key))
                .map(|key| key.ty.clone());
            // Now and then keys repeat.
            let divisor = if self.noise.below(20) == 0 { 2 } else { 1 };
            for (index, item) in items.iter_mut().enumerate() {
                let index = (index / divisor) as i64;
                match key_type.as_ref().map(|ty| &ty.shape) {
                    Some(FieldShape::Int32) => item.set(key, index + 1),
                    _ => item.set(key, format!("k{index}")),
                }
            }
        }
        if field.patch.merge {
            self.shuffle(&mut value);
        }
        value
    }

    /// Leaves some items out and moves one.
    fn shuffle(&mut self, value: &mut Value) {
        let Value::List(items) = value else { return };
        items.retain(|_| self.noise.below(4) > 0);
        if items.len() > 1 && self.noise.below(2) == 0 {
            let (from, to) = (self.noise.below(items.len()), self.noise.below(items.len()));
            items.swap(from, to);
        }
    }

    fn value(&mut self, ty: &FieldType) -> Value {
        match &ty.shape {
            FieldShape::Bool => (self.noise.below(2) == 1).into(),
            FieldShape::Int32 | FieldShape::Int64 => (self.noise.below(3) as i64).into(),
            FieldShape::Float => json::number(["0", "1.5", "-3"][self.noise.below(3)]),
            FieldShape::String => self.pick(&["", "a", "b", "c"]),
            FieldShape::Bytes => self.pick(&["aGk=", "/wA="]),
            FieldShape::Time => self.pick(&["2024-02-29T12:00:00Z", "2024-03-01T00:00:00Z"]),
            FieldShape::MicroTime => {
                self.pick(&["2024-02-29T12:00:00.000001Z", "2024-02-29T12:00:00.000000Z"])
            }
            FieldShape::Duration => self.pick(&["0s", "1h30m0s"]),
            FieldShape::Quantity => self.pick(&["0", "100m", "1Gi"]),
            FieldShape::IntOrString if self.noise.below(2) == 0 => 8080.into(),
            FieldShape::IntOrString => self.pick(&["", "http"]),
            FieldShape::Raw | FieldShape::Json => {
                let texts = [r#"{"a":{},"b":[1,"x"]}"#, r#"{"a":{"c":{"d":1}}}"#];
                json::parse(texts[self.noise.below(2)].as_bytes()).expect("it is JSON")
            }
            FieldShape::Or(or, inner) => self.alternative(*or, inner),
            FieldShape::List(item) => (0..self.shape.below(4))
                .map(|_| self.value(item))
                .collect::<Vec<_>>()
                .into(),
            FieldShape::Map(item) => {
                let keys = &["a", "b", "c"][..self.shape.below(4)];
                keys.iter()
                    .map(|key| (*key, self.value(item)))
                    .collect::<Map>()
                    .into()
            }
            FieldShape::Struct(inner) => self.object(inner),
        }
    }

    fn pick(&mut self, choices: &[&str]) -> Value {
        choices[self.noise.below(choices.len())].into()
    }

    fn alternative(&mut self, or: Alternative, inner: &Struct) -> Value {
        match or {
            _ if self.shape.below(2) == 0 => self.object(inner),
            Alternative::Bool => (self.noise.below(2) == 1).into(),
            Alternative::List => vec![self.object(inner), self.object(inner)].into(),
            Alternative::Strings => vec![self.pick(&["a", "b"])].into(),
        }
    }
}
