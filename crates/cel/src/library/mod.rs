//! Which functions do expressions have beyond the language's own?
//!
//! A file each. What a function means is plain Rust; what it is called, which types it takes and what it costs
//! stands below that, in the file's `library`.

/// Functions with their overloads: how each is called, its id, the types of its parameters (the target first) and
/// of its result, its implementation, and what it costs unless that is 1.
macro_rules! functions {
    ($($name:literal { $($call:ident $id:literal ($($parameter:expr),*) -> $result:expr => $run:expr
        $(, costs $cost:expr, $estimate:expr)?;)+ })*) => {
        vec![$($crate::Function::new($name, vec![$(
            $crate::Overload::$call($id, vec![$($parameter),*], $result, $run)$(.costs($cost, $estimate))?
        ),+])),*]
    };
}

mod authorizer;
mod cost;
mod format;
mod ip;
mod lists;
mod network;
mod optionals;
mod patch;
mod quantity;
mod regex;
mod semver;
mod sets;
mod string_format;
mod strings;
#[cfg(test)]
mod tests;
mod url;

use super::function::Library;
use super::standard::{self, compare, equal, to_text};
use super::value::{EvalError, List, Opaque, Value};

pub use authorizer::{
    Authorize, Decision, Question, Resource, Subject, Target, authorizer, resource_check,
};
pub use patch::{library as json_patch, with_json_patch};
pub(super) use string_format::check as check_format;
pub use url::{Url, parse_reference};

/// The libraries of the base environment, each with the version that it came with.
///
/// Kubernetes: `apiserver/pkg/cel/environment/base.go` (string library: version 2, lists: 3, semver: 1).
pub fn libraries() -> Vec<Library> {
    vec![
        url::library(),
        regex::library(),
        lists::comparisons(),
        authorizer::library(),
        optionals::library(),
        quantity::library(),
        strings::library(),
        sets::library(),
        network::ip_library(),
        network::cidr_library(),
        format::library(),
        authorizer::selectors(),
        semver::library(),
        lists::library(),
    ]
}

/// No function makes a longer list: upstream's limit of a call's cost, which each item counts against.
const MAX_ITEMS: usize = 1_000_000;

/// No function makes a longer text: to go through it once would cost more than a call may.
const MAX_TEXT: usize = 10_000_000;

/// A value in a message. What has parts is told by its type only: parts may be shared, and many.
fn show(value: &Value) -> String {
    match value {
        Value::List(_) | Value::Map(_) | Value::Optional(_) => value.type_name().to_string(),
        _ => standard::show(value),
    }
}

fn text<'v>(arguments: &'v [Value], index: usize) -> Result<&'v str, EvalError> {
    arguments
        .get(index)
        .and_then(Value::as_str)
        .ok_or_else(EvalError::no_such_overload)
}

fn int(arguments: &[Value], index: usize) -> Result<i64, EvalError> {
    arguments
        .get(index)
        .and_then(Value::as_int)
        .ok_or_else(EvalError::no_such_overload)
}

fn list<'v, 'a>(arguments: &'v [Value<'a>], index: usize) -> Result<&'v List<'a>, EvalError> {
    arguments
        .get(index)
        .and_then(Value::as_list)
        .ok_or_else(EvalError::no_such_overload)
}

fn opaque<'v, T: Opaque>(arguments: &'v [Value], index: usize) -> Result<&'v T, EvalError> {
    arguments
        .get(index)
        .and_then(Value::as_opaque)
        .ok_or_else(EvalError::no_such_overload)
}

fn texts<'a>(texts: Vec<String>) -> Value<'a> {
    texts
        .into_iter()
        .map(Value::from)
        .collect::<Vec<_>>()
        .into()
}
