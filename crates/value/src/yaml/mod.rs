//! YAML 1.1 as Kubernetes' clients and servers read and write it: `yes` is true, `010` is eight,
//! and every key becomes a string, because the result is JSON.
//!
//! Parsing goes `cursor` (characters) → `scan` and `lexeme` (tokens) → `compose` (nodes) →
//! `construct` (a value); `scalar` resolves plain scalars. Printing is `write`; `style` chooses
//! quotes. `plain` is a fast path for JSON.
//!
//! Errors are those of go-yaml, oddities included, because clients see them in a Status.

mod compose;
mod construct;
mod cursor;
mod lexeme;
mod plain;
mod scalar;
mod scan;
mod style;
mod write;

pub use write::write;

use crate::Value;
use crate::json;

/// A parsed document.
#[derive(Debug, Clone, PartialEq)]
pub struct YamlDocument {
    /// Its value. The last of duplicate keys wins. Maps are sorted by key.
    pub value: Value,
    /// The error of a strict decoder: duplicate keys.
    pub complaint: Option<String>,
}

impl YamlDocument {
    /// The document as JSON text.
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        json::write(&self.value, &mut out);
        out
    }
}

/// Parses the first document of a stream. A stream without documents is `null`.
pub fn read(text: &[u8]) -> Result<YamlDocument, YamlError> {
    if let Some(value) = plain::read(text) {
        return Ok(YamlDocument {
            value,
            complaint: None,
        });
    }
    let document = compose::compose(text).and_then(|tree| match tree {
        Some(tree) => construct::construct(&tree),
        None => Ok(YamlDocument {
            value: Value::Null,
            complaint: None,
        }),
    });
    document.map_err(|error| *error)
}

/// Errors are boxed to keep the stack frames of the recursive parser small.
type Result<T, E = Box<YamlError>> = std::result::Result<T, E>;

/// The first document of a stream as JSON text.
pub fn to_json(text: &[u8]) -> Result<Vec<u8>, YamlError> {
    Ok(read(text)?.to_json())
}

/// Why a text is not YAML that can be converted to JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// A syntax error. The line is 0 where upstream names none.
    #[error("yaml: {}{problem}", at(*.line))]
    Syntax {
        /// The line that upstream reports.
        line: usize,
        /// The problem.
        problem: &'static str,
    },
    /// It is nested too deeply.
    #[error("yaml: exceeded max depth of {0}")]
    Depth(usize),
    /// An alias without an anchor.
    #[error("yaml: unknown anchor '{0}' referenced")]
    Anchor(String),
    /// An alias inside of its own anchor.
    #[error("yaml: anchor '{0}' value contains itself")]
    Recursion(String),
    /// Aliases expand to too many nodes.
    #[error("yaml: document contains excessive aliasing")]
    Aliases,
    /// A scalar does not match its tag.
    #[error("yaml: cannot decode {found} `{text}` as a {wanted}")]
    Tag {
        /// Its type.
        found: &'static str,
        /// Its text.
        text: String,
        /// The type of its tag.
        wanted: String,
    },
    /// A scalar tagged as binary is not base64.
    #[error("yaml: !!binary value contains invalid base64 data")]
    Binary,
    /// The value of a merge key is not a map.
    #[error("yaml: map merge requires map or sequence of maps as the value")]
    Merge,
    /// A map or list is used as a key.
    #[error("yaml: invalid map key: {0}")]
    Key(String),
    /// A key that JSON cannot express.
    #[error("unsupported map key of type: {ty}, key: {key}, value: {value}")]
    UnsupportedKey {
        /// Its Go type.
        ty: &'static str,
        /// The key.
        key: String,
        /// Its value.
        value: String,
    },
    /// A number that JSON cannot express.
    #[error("json: unsupported value: {0}")]
    Number(&'static str),
}

fn at(line: usize) -> String {
    if line == 0 {
        String::new()
    } else {
        format!("line {line}: ")
    }
}

/// The maximum nesting depth. Upstream allows 10,000.
const MAX_DEPTH: usize = 300;

#[cfg(test)]
mod tests;
