//! What an expression needs to write a JSON patch.

use super::{cost, text};
use crate::cel::{Library, Outcome, Site, Type, Value};

/// `jsonpatch.escapeKey`. Only expressions that change objects have it.
pub fn library() -> Library {
    let functions = functions! {
        "jsonpatch.escapeKey" {
            global "string_jsonpatch_escapeKey_string" (Type::String) -> Type::String => escape_key,
                costs cost::traverse, cost::estimate_traverse_sized;
        }
    };
    Library::new("kubernetes.jsonpatch", (1, 0), functions)
}

fn escape_key<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(text(arguments, 0)?.replace('~', "~0").replace('/', "~1").into())
}
