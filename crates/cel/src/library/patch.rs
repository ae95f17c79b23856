//! What an expression needs to write a JSON patch.

use super::{cost, text};
use crate::{ANY_OTHER, Environment, Library, Outcome, Site, Type, Value};

/// With `jsonpatch.escapeKey`, the type `JSONPatch` and the types `Object`, `Object.spec` and so on, which only
/// expressions that change objects have.
pub fn with_json_patch(environment: Environment) -> Environment {
    let texts = ["op", "path", "from"].map(|field| (field.into(), Type::String));
    // Kubernetes: other fields are there, but nothing has their type (cel/mutation/jsonpatch.go).
    let others = [
        ("value".into(), Type::Dyn),
        (ANY_OTHER.into(), Type::object("")),
    ];
    let fields = texts.into_iter().chain(others);
    environment
        .with_library(library())
        .with_object("JSONPatch", fields)
        .with_open_object("Object")
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
    Ok(text(arguments, 0)?
        .replace('~', "~0")
        .replace('/', "~1")
        .into())
}
