//! The JSON patch library.

use super::{cost, text};
use crate::{ANY_OTHER, Environment, Library, Type};

/// Adds `jsonpatch.escapeKey`, the type `JSONPatch` and the open type `Object`, which only mutating
/// expressions have.
pub fn with_json_patch(environment: Environment) -> Environment {
    let texts = ["op", "path", "from"].map(|field| (field.into(), Type::String));
    // Kubernetes: other fields exist, but no value has their type (cel/mutation/jsonpatch.go).
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
            global "string_jsonpatch_escapeKey_string" (Type::String) -> Type::String =>
                |_, it| Ok(text(it, 0)?.replace('~', "~0").replace('/', "~1").into()),
                costs cost::traverse, cost::estimate_traverse_sized;
        }
    };
    Library::new("kubernetes.jsonpatch", (1, 0), functions)
}
