//! The bytes below messages: numbers of variable length, and fields with their number and wire type.

use mizzen_value::json::SyntaxError;
use mizzen_value::quantity::QuantityError;

/// Why bytes are no object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtoError {
    /// There are none.
    #[error("empty data")]
    Empty,
    /// They do not begin as an object does.
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    Prefix,
    /// Nothing follows the beginning.
    #[error("empty body")]
    NoBody,
    /// They end in the midst of something.
    #[error("unexpected EOF")]
    End,
    /// A number has more than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// A length that no memory has.
    #[error("proto: negative length found during unmarshaling")]
    Length,
    /// A field has no number that fields have.
    #[error("proto: illegal tag {0} (wire type {1})")]
    Tag(i32, u64),
    /// A field is encoded in no way that there is.
    #[error("proto: illegal wireType {0}")]
    WireType(u8),
    /// A group ends that never began.
    #[error("proto: wiretype end group for non-group")]
    EndOfGroup,
    /// A field is encoded as something else than it is.
    #[error("proto: wrong wireType = {wire_type} for field {field}")]
    Field {
        /// The field's name in JSON.
        field: String,
        /// How it is encoded.
        wire_type: u8,
    },
    /// Messages nest too deep.
    #[error("exceeded max depth")]
    Depth,
    /// There are too many messages.
    #[error("exceeded max number of messages")]
    Messages,
    /// A quantity is none.
    #[error(transparent)]
    Quantity(#[from] QuantityError),
    /// What should be JSON inside is not.
    #[error(transparent)]
    Json(#[from] SyntaxError),
    /// A number that JSON cannot write.
    #[error("unsupported value: {0}")]
    Number(String),
    /// Something that is neither a number nor text.
    #[error("impossible IntOrString.Type")]
    IntOrString,
}

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LENGTH: u8 = 2;
const GROUP: u8 = 3;
const END_GROUP: u8 = 4;
const FIXED32: u8 = 5;

/// How deep groups, which nobody has used for long, may nest in a field that is skipped.
const MAX_GROUPS: usize = 100;

/// Appends a number, seven bits a byte, the lowest first.
pub(super) fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// How many bytes [`put_varint`] appends.
pub(super) fn varint_len(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

fn put_key(tag: u32, wire_type: u8, out: &mut Vec<u8>) {
    put_varint(u64::from(tag) << 3 | u64::from(wire_type), out);
}

/// Appends a field that is a whole number or a truth value.
pub fn put_int(tag: u32, number: i64, out: &mut Vec<u8>) {
    put_key(tag, VARINT, out);
    put_varint(number as u64, out);
}

/// Appends a field that is a float.
pub(super) fn put_float(tag: u32, number: f64, out: &mut Vec<u8>) {
    put_key(tag, FIXED64, out);
    out.extend_from_slice(&number.to_le_bytes());
}

/// Appends the beginning of a field of `length` bytes, which the caller appends.
pub(super) fn put_header(tag: u32, length: usize, out: &mut Vec<u8>) {
    put_key(tag, LENGTH, out);
    put_varint(length as u64, out);
}

/// Appends a field that is text or bytes.
pub fn put_bytes(tag: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_header(tag, bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Appends a field that is a message, whose fields `body` appends.
pub fn put_message(tag: u32, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    put_key(tag, LENGTH, out);
    // Most messages are short enough for a length of one byte; room for more is made when it is known.
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

/// The content of a field.
#[derive(Debug, Clone, Copy)]
pub enum Content<'a> {
    /// A number.
    Varint(u64),
    /// A float.
    Fixed64(u64),
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
    /// Read past: nothing of ours is encoded so.
    Other(u8),
}

impl<'a> Content<'a> {
    fn wire_type(&self) -> u8 {
        match self {
            Content::Varint(_) => VARINT,
            Content::Fixed64(_) => FIXED64,
            Content::Bytes(_) => LENGTH,
            Content::Other(wire_type) => *wire_type,
        }
    }

    fn wrong<T>(&self, field: &str) -> Result<T, ProtoError> {
        Err(ProtoError::Field {
            field: field.into(),
            wire_type: self.wire_type(),
        })
    }

    /// The number that `field` should be.
    pub fn varint(&self, field: &str) -> Result<u64, ProtoError> {
        match self {
            Content::Varint(number) => Ok(*number),
            _ => self.wrong(field),
        }
    }

    /// The float that `field` should be.
    pub(super) fn float(&self, field: &str) -> Result<f64, ProtoError> {
        match self {
            Content::Fixed64(bits) => Ok(f64::from_bits(*bits)),
            _ => self.wrong(field),
        }
    }

    /// The bytes that `field` should be.
    pub fn bytes(&self, field: &str) -> Result<&'a [u8], ProtoError> {
        match self {
            Content::Bytes(bytes) => Ok(bytes),
            _ => self.wrong(field),
        }
    }
}

/// Reads the fields of a message one by one.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads a message.
    pub fn new(message: &'a [u8]) -> Reader<'a> {
        Reader { rest: message }
    }

    /// The next field's number and content, or `None` at the end.
    pub fn field(&mut self) -> Result<Option<(u32, Content<'a>)>, ProtoError> {
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
        // Kubernetes: the number is cut to 32 bits before it is looked at.
        match (key >> 3) as i32 {
            tag @ 1.. => Ok((tag as u32, (key & 7) as u8)),
            tag => Err(ProtoError::Tag(tag, key)),
        }
    }

    fn content(&mut self, wire_type: u8, n_groups: usize) -> Result<Content<'a>, ProtoError> {
        Ok(match wire_type {
            VARINT => Content::Varint(self.varint()?),
            FIXED64 => {
                let bytes = self.take(8)?.try_into().map_err(|_| ProtoError::End)?;
                Content::Fixed64(u64::from_le_bytes(bytes))
            }
            LENGTH => {
                let length = self.varint()?;
                let length = i64::try_from(length).map_err(|_| ProtoError::Length)?;
                Content::Bytes(self.take(usize::try_from(length).map_err(|_| ProtoError::Length)?)?)
            }
            GROUP if n_groups < MAX_GROUPS => self.group(n_groups + 1)?,
            GROUP => return Err(ProtoError::Depth),
            FIXED32 => {
                self.take(4)?;
                Content::Other(FIXED32)
            }
            _ => return Err(ProtoError::WireType(wire_type)),
        })
    }

    fn group(&mut self, n_groups: usize) -> Result<Content<'a>, ProtoError> {
        loop {
            match self.key()? {
                (_, END_GROUP) => return Ok(Content::Other(GROUP)),
                (_, wire_type) => self.content(wire_type, n_groups)?,
            };
        }
    }

    /// The next number.
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

    /// Whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], ProtoError> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or(ProtoError::End)?;
        self.rest = rest;
        Ok(taken)
    }
}
