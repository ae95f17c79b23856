//! String functions of the language.

use super::cost;
use crate::function::{CallSite, Function, Overload, OverloadFn};
use crate::types::Type;
use crate::value::{EvalError, Outcome, Value};

pub(super) fn functions() -> Vec<Function> {
    let member = |id, run: OverloadFn| {
        Overload::member(id, vec![Type::String, Type::String], Type::Bool, run)
    };
    let global = |id, run: OverloadFn| {
        Overload::global(id, vec![Type::String, Type::String], Type::Bool, run)
    };
    vec![
        Function::new(
            "contains",
            vec![
                member("contains_string", |_, arguments| {
                    apply_predicate(arguments, |text, part| text.contains(part))
                })
                .costs(cost::of_contains, cost::estimate_contains),
            ],
        ),
        Function::new(
            "endsWith",
            vec![
                member("ends_with_string", |_, arguments| {
                    apply_predicate(arguments, |text, part| text.ends_with(part))
                })
                .costs(cost::of_first, cost::estimate_affix),
            ],
        ),
        Function::new(
            "startsWith",
            vec![
                member("starts_with_string", |_, arguments| {
                    apply_predicate(arguments, |text, part| text.starts_with(part))
                })
                .costs(cost::of_first, cost::estimate_affix),
            ],
        ),
        Function::new(
            "matches",
            vec![
                global("matches", matches).with_pattern(1),
                member("matches_string", matches)
                    .costs(cost::of_matches, cost::estimate_matches)
                    .with_pattern(1),
            ],
        ),
    ]
}

fn apply_predicate<'a>(arguments: &[Value], holds: fn(&str, &str) -> bool) -> Outcome<'a> {
    match arguments {
        [Value::String(text), Value::String(part)] => Ok(Value::Bool(holds(text, part))),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn matches<'a>(site: &CallSite, arguments: &[Value<'a>]) -> Outcome<'a> {
    let [Value::String(text), Value::String(pattern)] = arguments else {
        return Err(EvalError::no_such_overload());
    };
    let matches = site.regexp(pattern).is_match(text);
    matches
        .map(Value::Bool)
        .map_err(|error| EvalError::new(error.to_string()))
}
