//! What an expression needs to write a JSON patch.

use super::{cost, text};
use crate::cel::{Environment, Library, Outcome, Site, Type, Value};

/// With `jsonpatch.escapeKey` and the type `JSONPatch`, which only expressions that change objects have. A patch
/// is a map from the names of its fields.
pub fn with_json_patch(environment: Environment) -> Environment {
    let texts = ["op", "path", "from"].map(|field| (field.into(), Type::String));
    let fields = texts.into_iter().chain([("value".into(), Type::Dyn)]);
    environment.with_library(library()).with_object("JSONPatch", fields)
}

/// `jsonpatch.escapeKey` alone.
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
