//! The wire format: varints, and fields with their number and wire type.

use mizzen_value::json::SyntaxError;
use mizzen_value::quantity::QuantityError;

/// Why bytes are not an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtoError {
    /// There are none.
    #[error("empty data")]
    Empty,
    /// The magic number is missing.
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    Prefix,
    /// There is no content after the magic number.
    #[error("empty body")]
    NoBody,
    /// They are truncated.
    #[error("unexpected EOF")]
    End,
    /// A varint has more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// A length is too large.
    #[error("proto: negative length found during unmarshaling")]
    Length,
    /// An invalid field number.
    #[error("proto: illegal tag {0} (wire type {1})")]
    Tag(i32, u64),
    /// An invalid wire type.
    #[error("proto: illegal wireType {0}")]
    WireType(u8),
    /// An end group without a start group.
    #[error("proto: wiretype end group for non-group")]
    EndOfGroup,
    /// A field has the wrong wire type.
    #[error("proto: wrong wireType = {wire_type} for field {field}")]
    Field {
        /// The field's name in JSON.
        field: String,
        /// The wire type.
        wire_type: u8,
    },
    /// Messages are nested too deeply.
    #[error("exceeded max depth")]
    Depth,
    /// There are too many messages.
    #[error("exceeded max number of messages")]
    Messages,
    /// An invalid quantity.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// Embedded JSON is invalid.
    #[error(transparent)]
    Json(#[from] SyntaxError),
    /// A number that JSON cannot express.
    #[error("unsupported value: {0}")]
    Number(String),
    /// Neither an integer nor a string.
    #[error("impossible IntOrString.Type")]
    IntOrString,
}

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LENGTH: u8 = 2;
const GROUP: u8 = 3;
const END_GROUP: u8 = 4;
const FIXED32: u8 = 5;

/// The maximum nesting depth of groups in a skipped field.
const MAX_GROUPS: usize = 100;

pub(super) fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The number of bytes that [`put_varint`] appends.
pub(super) fn varint_len(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

fn put_key(tag: u32, wire_type: u8, out: &mut Vec<u8>) {
    put_varint(u64::from(tag) << 3 | u64::from(wire_type), out);
}

/// Appends an integer or boolean field.
pub fn put_int(tag: u32, number: i64, out: &mut Vec<u8>) {
    put_key(tag, VARINT, out);
    put_varint(number as u64, out);
}

/// Appends a float field.
pub(super) fn put_float(tag: u32, number: f64, out: &mut Vec<u8>) {
    put_key(tag, FIXED64, out);
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends the header of a field of `length` bytes, which the caller appends.
pub(super) fn put_header(tag: u32, length: usize, out: &mut Vec<u8>) {
    put_key(tag, LENGTH, out);
    put_varint(length as u64, out);
}

/// Appends a string or bytes field.
pub fn put_bytes(tag: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_header(tag, bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Appends a message field, whose content `body` appends.
pub fn put_message(tag: u32, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    put_key(tag, LENGTH, out);
    // Most messages have a length of one byte; more space is inserted when the length is known.
    let start = out.len();
    out.push(0);
    body(out);
    let length = out.len() - start - 1;
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out[start] = short,
        _ => {
            let mut prefix = Vec::with_capacity(10);
            put_varint(length as u64, &mut prefix);
            out.splice(start..=start, prefix);
        }
    }
}

/// The value of a field by wire type.
#[derive(Debug, Clone, Copy)]
pub enum WireValue<'a> {
    /// A number.
    Varint(u64),
    /// A float.
    Fixed64(u64),
    /// A string, bytes or a message.
    Bytes(&'a [u8]),
    /// Skipped: no field of Kubernetes uses it.
    Other(u8),
}

impl<'a> WireValue<'a> {
    fn wire_type(&self) -> u8 {
        match self {
            WireValue::Varint(_) => VARINT,
            WireValue::Fixed64(_) => FIXED64,
            WireValue::Bytes(_) => LENGTH,
            WireValue::Other(wire_type) => *wire_type,
        }
    }

    fn wrong<T>(&self, field: &str) -> Result<T, ProtoError> {
        Err(ProtoError::Field {
            field: field.into(),
            wire_type: self.wire_type(),
        })
    }

    /// The integer value of `field`, or a type error.
    pub fn varint(&self, field: &str) -> Result<u64, ProtoError> {
        match self {
            WireValue::Varint(number) => Ok(*number),
            _ => self.wrong(field),
        }
    }

    /// The float value of `field`, or a type error.
    pub(super) fn float(&self, field: &str) -> Result<f64, ProtoError> {
        match self {
            WireValue::Fixed64(bits) => Ok(f64::from_bits(*bits)),
            _ => self.wrong(field),
        }
    }

    /// The bytes of `field`, or a type error.
    pub fn bytes(&self, field: &str) -> Result<&'a [u8], ProtoError> {
        match self {
            WireValue::Bytes(bytes) => Ok(bytes),
            _ => self.wrong(field),
        }
    }
}

/// Reads the fields of a message.
pub struct WireReader<'a> {
    rest: &'a [u8],
}

impl<'a> WireReader<'a> {
    /// A reader of a message.
    pub fn new(message: &'a [u8]) -> WireReader<'a> {
        WireReader { rest: message }
    }

    /// The number and the value of the next field, or `None` at the end.
    pub fn field(&mut self) -> Result<Option<(u32, WireValue<'a>)>, ProtoError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (tag, wire_type) = self.key()?;
        if wire_type == END_GROUP {
            return Err(ProtoError::EndOfGroup);
        }
        Ok(Some((tag, self.content(wire_type, 0)?)))
    }

    fn key(&mut self) -> Result<(u32, u8), ProtoError> {
        let key = self.varint()?;
        // Kubernetes: the number is truncated to 32 bits before it is checked.
        match (key >> 3) as i32 {
            tag @ 1.. => Ok((tag as u32, (key & 7) as u8)),
            tag => Err(ProtoError::Tag(tag, key)),
        }
    }

    fn content(&mut self, wire_type: u8, n_groups: usize) -> Result<WireValue<'a>, ProtoError> {
        Ok(match wire_type {
            VARINT => WireValue::Varint(self.varint()?),
            FIXED64 => {
                let bytes = self.take(8)?.try_into().map_err(|_| ProtoError::End)?;
                WireValue::Fixed64(u64::from_le_bytes(bytes))
            }
            LENGTH => {
                let length = self.varint()?;
                let length = i64::try_from(length).map_err(|_| ProtoError::Length)?;
                WireValue::Bytes(
                    self.take(usize::try_from(length).map_err(|_| ProtoError::Length)?)?,
                )
            }
            GROUP if n_groups < MAX_GROUPS => self.group(n_groups + 1)?,
            GROUP => return Err(ProtoError::Depth),
            FIXED32 => {
                self.take(4)?;
                WireValue::Other(FIXED32)
            }
            _ => return Err(ProtoError::WireType(wire_type)),
        })
    }

    fn group(&mut self, n_groups: usize) -> Result<WireValue<'a>, ProtoError> {
        loop {
            match self.key()? {
                (_, END_GROUP) => return Ok(WireValue::Other(GROUP)),
                (_, wire_type) => self.content(wire_type, n_groups)?,
            };
        }
    }

    pub(super) fn varint(&mut self) -> Result<u64, ProtoError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(ProtoError::End)?;
            self.rest = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(ProtoError::Overflow)
    }

    /// Whether all is read.
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], ProtoError> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or(ProtoError::End)?;
        self.rest = rest;
        Ok(taken)
    }
}
