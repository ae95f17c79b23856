//! The extension libraries, one per file: implementations first, then the declarations in
//! `library`.

/// Declares functions with their overloads: global or member, ID, parameter types (the target
/// first), result type, implementation, and costs unless they are 1.
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
use super::value::{EvalError, ListVal, Opaque, Value};

pub use authorizer::{
    Authorize, AuthorizerCheck, AuthorizerDecision, CheckSubject, CheckTarget, CheckedResource,
    authorizer, resource_check,
};
pub use patch::{library as json_patch, with_json_patch};
pub(super) use string_format::check as check_format;
pub use url::{UrlVal, parse_reference};

/// The libraries of the base environment.
///
/// Kubernetes: `apiserver/pkg/cel/environment/base.go` (string library: version 2, lists: 3,
/// semver: 1).
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

/// The maximum length of a list that a function creates: upstream's cost limit of a call, which
/// each item counts against.
const MAX_ITEMS: usize = 1_000_000;

/// The maximum length of a string that a function creates: traversing a longer one would exceed the
/// cost limit of a call.
const MAX_TEXT: usize = 10_000_000;

/// A value in a message. Lists and maps show only their type, because shared items can be many.
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

fn list<'v, 'a>(arguments: &'v [Value<'a>], index: usize) -> Result<&'v ListVal<'a>, EvalError> {
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
