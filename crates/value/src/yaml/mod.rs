//! YAML as Kubernetes' clients and servers read and write it: version 1.1, where `yes` is true and `010` is
//! eight, and on the way to JSON, so that every key becomes text.
//!
//! Reading goes `cursor` (characters) → `scan` and `lexeme` (tokens) → `compose` (nodes) → `construct` (a
//! value, aliases followed); `scalar` says what a plain word means. Writing is `write`, and `style` says how
//! a text must be quoted. `plain` is a short cut for what is plain JSON.
//!
//! What is refused, and in which words, is go-yaml's verdict, oddities included: clients see it in a Status.

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

/// A document as read.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// What it says. Of a repeated key the last one counts. Maps are sorted by key.
    pub value: Value,
    /// What a strict reader would refuse, in upstream's words: repeated keys.
    pub complaint: Option<String>,
}

impl Document {
    /// The document as JSON text.
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1024);
        json::write(&self.value, &mut out);
        out
    }
}

/// Reads the first document of a stream and nothing after it. A stream without documents is `null`.
pub fn read(text: &[u8]) -> Result<Document, YamlError> {
    if let Some(value) = plain::read(text) {
        return Ok(Document {
            value,
            complaint: None,
        });
    }
    let document = compose::compose(text).and_then(|tree| match tree {
        Some(tree) => construct::construct(&tree),
        None => Ok(Document {
            value: Value::Null,
            complaint: None,
        }),
    });
    document.map_err(|error| *error)
}

/// Errors are boxed inside: reading recurses, and what it returns at each step takes stack.
type Result<T, E = Box<YamlError>> = std::result::Result<T, E>;

/// The first document of a stream as JSON text.
pub fn to_json(text: &[u8]) -> Result<Vec<u8>, YamlError> {
    Ok(read(text)?.to_json())
}

/// Why a text is no YAML that can be made JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// It does not follow the grammar. The line is 0 where upstream names none.
    #[error("yaml: {}{problem}", at(*.line))]
    Syntax {
        /// The line in which upstream sees the problem.
        line: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// It nests deeper than we follow.
    #[error("yaml: exceeded max depth of {0}")]
    Depth(usize),
    /// An alias stands for nothing.
    #[error("yaml: unknown anchor '{0}' referenced")]
    Anchor(String),
    /// An alias stands inside what it stands for.
    #[error("yaml: anchor '{0}' value contains itself")]
    Recursion(String),
    /// Aliases blow it up.
    #[error("yaml: document contains excessive aliasing")]
    Aliases,
    /// A scalar is not what its tag says.
    #[error("yaml: cannot decode {found} `{text}` as a {wanted}")]
    Tag {
        /// What it is.
        found: &'static str,
        /// Its text.
        text: String,
        /// What its tag says.
        wanted: String,
    },
    /// A scalar tagged as binary is not base64.
    #[error("yaml: !!binary value contains invalid base64 data")]
    Binary,
    /// What is merged is no map.
    #[error("yaml: map merge requires map or sequence of maps as the value")]
    Merge,
    /// A map or list is a key.
    #[error("yaml: invalid map key: {0}")]
    Key(String),
    /// A key that JSON cannot have.
    #[error("unsupported map key of type: {ty}, key: {key}, value: {value}")]
    UnsupportedKey {
        /// Its type in Go.
        ty: &'static str,
        /// The key.
        key: String,
        /// What stands under it.
        value: String,
    },
    /// A number that JSON cannot have.
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

/// How deep lists and maps may nest. Upstream allows 10,000; nothing real comes near either.
const MAX_DEPTH: usize = 300;

#[cfg(test)]
mod tests;
