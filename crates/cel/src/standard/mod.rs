//! The standard library: operators, conversions, strings, time.

mod arithmetic;
mod compare;
mod convert;
mod cost;
mod index;
mod text;
mod time;
mod zone;

use super::function::{Function, Library, Overload, OverloadFn};
use super::parser;
use super::types::Type;
use super::value::{EvalError, MapVal, Value};
pub(super) use compare::{compare, equal};
pub(super) use convert::{parse_duration, parse_timestamp, show, to_text, written_offset};
pub(super) use cost::{call_cost, comparison_cost};
pub(super) use index::{missing, qualify};

/// The standard library, in parts that came with different versions.
pub(super) fn libraries() -> Vec<Library> {
    let types = [
        Type::Bool,
        Type::Bytes,
        Type::Double,
        Type::Duration,
        Type::Int,
        Type::Null,
        Type::String,
        Type::Timestamp,
        Type::Uint,
        Type::list(Type::Dyn),
        Type::map(Type::Dyn, Type::Dyn),
        Type::type_of(Type::Dyn),
        Type::Dyn,
    ];
    let parts = [
        logic(),
        arithmetic::functions(),
        compare::functions(),
        index::functions(),
        convert::functions(),
        text::functions(),
        time::functions(),
    ];
    vec![
        Library::new("cel.lib.std", (1, 0), parts.into_iter().flatten().collect())
            .with_macros(parser::standard())
            .with_types(types.to_vec()),
        Library::new("cel.lib.optional.syntax", (1, 28), optional())
            .with_macros(parser::optional()),
        Library::new("cel.lib.ext.comprev2", (1, 32), vec![map_insert()])
            .with_macros(parser::two_variables()),
    ]
}

/// Whether values match parameter types.
pub(super) fn accepts(parameters: &[Type], arguments: &[Value]) -> bool {
    parameters.len() == arguments.len()
        && parameters
            .iter()
            .zip(arguments)
            .all(|(kind, value)| is_a(value, kind))
}

fn is_a(value: &Value, kind: &Type) -> bool {
    match (kind, value) {
        (Type::Dyn | Type::Parameter(_), _)
        | (Type::Null, Value::Null)
        | (Type::Bool, Value::Bool(_))
        | (Type::Int, Value::Int(_))
        | (Type::Uint, Value::Uint(_))
        | (Type::Double, Value::Double(_))
        | (Type::String, Value::String(_))
        | (Type::Bytes, Value::Bytes(_))
        | (Type::Duration, Value::Duration(_))
        | (Type::Timestamp, Value::Timestamp(..))
        | (Type::Type(_), Value::Type(_))
        | (Type::Map(_), Value::Map(_)) => true,
        // The items are checked, too: an overload for a list of strings does not match a list of
        // numbers.
        (Type::List(kind), Value::List(list)) => list
            .iter()
            .all(|item| item.is_ok_and(|item| is_a(&item, kind))),
        (Type::Nullable(inner), _) => matches!(value, Value::Null) || is_a(value, inner),
        (Type::Opaque(..), Value::Optional(_)) => kind.inside_optional().is_some(),
        (Type::Opaque(name, _) | Type::Object(name), Value::Opaque(opaque)) => {
            name == opaque.type_name()
        }
        (Type::Object(_), Value::Map(_)) => true,
        _ => false,
    }
}

/// Declarations of what the interpreter implements itself: these are never run.
fn logic() -> Vec<Function> {
    let a = || Type::parameter("A");
    let global = |name, id, parameters, result| {
        Function::new(name, vec![Overload::global(id, parameters, result, refuse)])
    };
    let not: OverloadFn = |_, arguments| match arguments {
        [Value::Bool(bool)] => Ok(Value::Bool(!bool)),
        _ => Err(EvalError::no_such_overload()),
    };
    vec![
        global("_?_:_", "conditional", vec![Type::Bool, a(), a()], a()),
        global(
            "_&&_",
            "logical_and",
            vec![Type::Bool, Type::Bool],
            Type::Bool,
        ),
        global(
            "_||_",
            "logical_or",
            vec![Type::Bool, Type::Bool],
            Type::Bool,
        ),
        global(
            "@not_strictly_false",
            "not_strictly_false",
            vec![Type::Bool],
            Type::Bool,
        ),
        global("_==_", "equals", vec![a(), a()], Type::Bool),
        global("_!=_", "not_equals", vec![a(), a()], Type::Bool),
        Function::new(
            "!_",
            vec![Overload::global(
                "logical_not",
                vec![Type::Bool],
                Type::Bool,
                not,
            )],
        ),
    ]
}

fn optional() -> Vec<Function> {
    let (key, value) = (|| Type::parameter("K"), || Type::parameter("V"));
    let (some, list, map) = (
        || Type::optional(value()),
        || Type::list(value()),
        || Type::map(key(), value()),
    );
    let index = |id, target, key, result| Overload::global(id, vec![target, key], result, refuse);
    let or = |name, id, other, result| {
        Function::new(
            name,
            vec![Overload::member(id, vec![some(), other], result, refuse)],
        )
    };
    vec![
        or("or", "optional_or_optional", some(), some()),
        or("orValue", "optional_orValue_value", value(), value()),
        Function::new(
            "_?._",
            vec![index(
                "select_optional_field",
                Type::Dyn,
                Type::String,
                some(),
            )],
        ),
        Function::new(
            "_[?_]",
            vec![
                index("list_optindex_optional_int", list(), Type::Int, some()),
                index(
                    "optional_list_optindex_optional_int",
                    Type::optional(list()),
                    Type::Int,
                    some(),
                ),
                index("map_optindex_optional_value", map(), key(), some()),
                index(
                    "optional_map_optindex_optional_value",
                    Type::optional(map()),
                    key(),
                    some(),
                ),
            ],
        ),
        Function::new(
            "_[_]",
            vec![
                index(
                    "optional_list_index_int",
                    Type::optional(list()),
                    Type::Int,
                    some(),
                ),
                index(
                    "optional_map_index_value",
                    Type::optional(map()),
                    key(),
                    some(),
                ),
            ],
        ),
    ]
}

fn map_insert() -> Function {
    let map = || Type::map(Type::parameter("K"), Type::parameter("V"));
    let pair = vec![map(), Type::parameter("K"), Type::parameter("V")];
    Function::new(
        "cel.@mapInsert",
        vec![
            Overload::global(
                "@mapInsert_map_key_value",
                pair,
                map(),
                |_, arguments| match arguments {
                    [Value::Map(map), key, value] => {
                        insert(map, &MapVal::new([(key.clone(), value.clone())]))
                    }
                    _ => Err(EvalError::no_such_overload()),
                },
            ),
            Overload::global(
                "@mapInsert_map_map",
                vec![map(), map()],
                map(),
                |_, arguments| match arguments {
                    [Value::Map(map), Value::Map(more)] => insert(map, &Some(more.clone())),
                    _ => Err(EvalError::no_such_overload()),
                },
            ),
        ],
    )
}

fn insert<'a>(map: &MapVal<'a>, more: &Option<MapVal<'a>>) -> super::Outcome<'a> {
    let more = more.as_ref().ok_or_else(EvalError::no_such_overload)?;
    let mut entries = Vec::with_capacity(map.len() + more.len());
    for source in [map, more] {
        for key in source.keys() {
            let value = source.get(&key).ok_or_else(EvalError::no_such_overload)??;
            entries.push((key, value));
        }
    }
    for (key, _) in &entries[map.len()..] {
        if map.get(key).is_some() {
            return Err(EvalError::new(format!(
                "insert failed: key {} already exists",
                show(key)
            )));
        }
    }
    MapVal::new(entries)
        .map(Value::Map)
        .ok_or_else(EvalError::no_such_overload)
}

fn refuse<'a>(_: &super::CallSite, _: &[Value<'a>]) -> super::Outcome<'a> {
    Err(EvalError::no_such_overload())
}
