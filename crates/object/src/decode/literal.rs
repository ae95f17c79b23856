//! Decoding of scalars.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::JsonDecoder;
use crate::schema::{FieldShape, FieldType};
use mizzen_value::Value;
use mizzen_value::json::{self, SyntaxError};
use mizzen_value::{go_base64, quantity, time};

impl JsonDecoder<'_> {
    /// Decodes a value that is neither struct, map nor list; `first` is its first byte, and it is
    /// not null.
    pub(super) fn scalar(
        &mut self,
        ty: &FieldType,
        first: u8,
        slot: &mut Value,
    ) -> Result<(), SyntaxError> {
        match (&ty.shape, first) {
            (FieldShape::Bool, b't' | b'f') => *slot = Value::Bool(self.scanner.bool()?),
            (FieldShape::String, b'"') => *slot = Value::String(self.scanner.string()?),
            (FieldShape::Int32 | FieldShape::Int64, b'-' | b'0'..=b'9') => self.int(ty, slot)?,
            (FieldShape::Float, b'-' | b'0'..=b'9') => self.float(ty, slot)?,
            (FieldShape::Bytes, b'"') => self.bytes(slot)?,
            (FieldShape::Bytes, b'[') => self.byte_list(slot)?,
            (FieldShape::Time | FieldShape::MicroTime | FieldShape::Duration, b'"') => {
                self.moment(ty, slot)?
            }
            (FieldShape::Quantity, _) => self.quantity(first, slot)?,
            (FieldShape::IntOrString, b'"') => *slot = Value::String(self.scanner.string()?),
            (FieldShape::IntOrString, b'-' | b'0'..=b'9') => self.int_or_string(slot)?,
            (FieldShape::Time | FieldShape::MicroTime | FieldShape::Duration, _) => {
                self.own_mismatch("string")?
            }
            (FieldShape::IntOrString, _) => self.own_mismatch("int32")?,
            _ => {
                let word = self.skip_word()?;
                self.mismatch(word, &ty.go);
            }
        }
        Ok(())
    }

    fn int(&mut self, ty: &FieldType, slot: &mut Value) -> Result<(), SyntaxError> {
        let literal = self.scanner.number()?;
        match literal.parse::<i64>() {
            Ok(int) if matches!(ty.shape, FieldShape::Int64) || i32::try_from(int).is_ok() => {
                *slot = Value::Int(int)
            }
            _ => self.mismatch(format_args!("number {literal}"), &ty.go),
        }
        Ok(())
    }

    fn float(&mut self, ty: &FieldType, slot: &mut Value) -> Result<(), SyntaxError> {
        let literal = self.scanner.number()?;
        match literal.parse::<f64>() {
            Ok(float) if float.is_finite() => *slot = json::float(float),
            _ => self.mismatch(format_args!("number {literal}"), &ty.go),
        }
        Ok(())
    }

    fn int_or_string(&mut self, slot: &mut Value) -> Result<(), SyntaxError> {
        let literal = self.scanner.number()?;
        match literal.parse::<i32>() {
            Ok(int) => *slot = Value::Int(int.into()),
            Err(_) => {
                let message = self.mismatch_message(format_args!("number {literal}"), "int32");
                self.give_up(message);
            }
        }
        Ok(())
    }

    fn bytes(&mut self, slot: &mut Value) -> Result<(), SyntaxError> {
        let text = self.scanner.string()?;
        match go_base64::canonical(&text) {
            Ok(canonical) => *slot = canonical.into(),
            Err(error) => self.fail(error),
        }
        Ok(())
    }

    /// Go decodes bytes from a list of numbers, too.
    fn byte_list(&mut self, slot: &mut Value) -> Result<(), SyntaxError> {
        let mut bytes = Vec::new();
        self.scanner.open_list()?;
        while self.scanner.item()? {
            match self.scanner.peek()? {
                b'-' | b'0'..=b'9' => {
                    let literal = self.scanner.number()?;
                    match literal.parse::<u8>() {
                        Ok(byte) => bytes.push(byte),
                        Err(_) => self.mismatch(format_args!("number {literal}"), "uint8"),
                    }
                }
                b'n' => {
                    self.scanner.null()?;
                    bytes.push(0);
                }
                _ => {
                    let word = self.skip_word()?;
                    self.mismatch(word, "uint8");
                }
            }
        }
        *slot = STANDARD.encode(bytes).into();
        Ok(())
    }

    fn moment(&mut self, ty: &FieldType, slot: &mut Value) -> Result<(), SyntaxError> {
        let text = self.scanner.string()?;
        let canonical = match ty.shape {
            FieldShape::Time => time::parse_time(&text).map_err(|error| error.to_string()),
            FieldShape::MicroTime => {
                time::parse_micro_time(&text).map_err(|error| error.to_string())
            }
            _ => time::parse_duration(&text)
                .map(Some)
                .map_err(|error| error.to_string()),
        };
        match canonical {
            Ok(canonical) => *slot = canonical.into(),
            Err(error) => self.give_up(error),
        }
        Ok(())
    }

    fn quantity(&mut self, first: u8, slot: &mut Value) -> Result<(), SyntaxError> {
        let start = self.scanner.offset();
        let text = match first {
            b'"' => self.scanner.string()?,
            _ => {
                json::skip(&mut self.scanner)?;
                String::from_utf8_lossy(self.scanner.slice(start, self.scanner.offset()))
                    .trim()
                    .into()
            }
        };
        match quantity::canonical(&text) {
            Ok(canonical) => *slot = canonical.into(),
            Err(error) => self.give_up(error.to_string()),
        }
        Ok(())
    }

    /// A type with its own `UnmarshalJSON` found another type than `go`.
    fn own_mismatch(&mut self, go: &str) -> Result<(), SyntaxError> {
        let word = self.skip_word()?;
        let message = self.mismatch_message(word, go);
        self.give_up(message);
        Ok(())
    }
}
