//! Applies a mutation to an object.

use mizzen_cel as cel;
use mizzen_cel::MapVal;
use mizzen_object::managed_fields;
use mizzen_object::patch::JsonPatch;
use mizzen_object::schema::Struct;
use mizzen_value::{Value, json, value};

use super::activation::{BUDGET, ExpressionBatch, OptionalVariables, PolicyActivation};
use super::spec::{Mutation, PolicyExpression, PolicySpec};

/// The object after a mutation. The error is upstream's.
pub(super) async fn mutated(
    mutation: &Mutation,
    policy: &PolicySpec,
    activation: &PolicyActivation,
    schema: &Struct,
) -> Result<Value, String> {
    let change = match mutation {
        Mutation::Apply(expression) => evaluate(expression, policy, activation, part).await?,
        Mutation::Patch(expression) => evaluate(expression, policy, activation, operations).await?,
    }?;
    let mut object = activation.object.clone();
    match mutation {
        Mutation::Apply(_) => apply_part(schema, &mut object, change)?,
        Mutation::Patch(_) => apply_operations(&mut object, &change)?,
    }
    Ok(object)
}

async fn evaluate<T>(
    expression: &PolicyExpression,
    policy: &PolicySpec,
    activation: &PolicyActivation,
    read: impl Fn(&cel::Value) -> T,
) -> Result<T, String> {
    if let Err(error) = &expression.compiled {
        return Err(error.to_string());
    }
    let evaluation = ExpressionBatch {
        variables: &policy.variables,
        expressions: &[expression],
        optional: OptionalVariables::ALL,
        budget: BUDGET,
    };
    let results = activation.evaluate(evaluation, read).await;
    let (mut results, _) = results.map_err(|error| error.to_string())?;
    results
        .pop()
        .unwrap_or_else(|| Err("there is no expression".into()))
}

/// A part of an object.
fn part(value: &cel::Value) -> Result<Value, String> {
    let data = value.to_data().ok_or_else(|| {
        format!(
            "unsupported return type from ApplyConfiguration expression: {}",
            value.type_name()
        )
    })?;
    check_types(value)?;
    Ok(data)
}

/// Kubernetes: the type of an object names its field path, and must match it (cel/mutation/dynamic/objects.go).
fn check_types(value: &cel::Value) -> Result<(), String> {
    let mut wrong = Vec::new();
    if let Some(kind) = value.as_map().and_then(MapVal::kind) {
        check_type(value, kind, &mut wrong);
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("type mismatch: {}", wrong.join("\n")))
    }
}

fn check_type(value: &cel::Value, path: &str, wrong: &mut Vec<String>) {
    match value {
        cel::Value::List(list) => list
            .iter()
            .flatten()
            .for_each(|item| check_type(&item, path, wrong)),
        cel::Value::Map(map) => {
            if let Some(kind) = map.kind().filter(|kind| *kind != path) {
                let (kind, path) = (json::quote(kind), json::quote(path));
                wrong.push(format!(
                    "unexpected type name {kind}, expected {path}, which matches field name path from root Object type"
                ));
            }
            for key in map.keys() {
                let Some(Ok(member)) = map.get(&key) else {
                    continue;
                };
                match (map.kind(), key.as_str()) {
                    (Some(_), Some(name)) => check_type(&member, &format!("{path}.{name}"), wrong),
                    _ => check_type(&member, path, wrong),
                }
            }
        }
        _ => {}
    }
}

fn apply_part(schema: &Struct, object: &mut Value, mut part: Value) -> Result<(), String> {
    for field in ["kind", "apiVersion"] {
        part.set(field, object[field].clone());
    }
    managed_fields::apply_structured_merge(schema, object, part)
        .map_err(|error| format!("error applying patch: {error}"))
}

/// The operations of a JSON Patch.
fn operations(value: &cel::Value) -> Result<Value, String> {
    let wrong = || String::from("type mismatch: JSONPatchType.expression should evaluate to array");
    let items = value
        .as_list()
        .ok_or_else(wrong)?
        .to_vec()
        .map_err(|error| error.to_string())?;
    items
        .iter()
        .map(|item| operation(item.as_map().ok_or_else(wrong)?))
        .collect::<Result<Vec<_>, _>>()
        .map(Value::List)
}

fn operation(fields: &MapVal) -> Result<Value, String> {
    let field = |name: &str| fields.field(name).and_then(Result::ok);
    let text = |name: &str| {
        field(name)
            .and_then(|value| value.as_str().map(str::to_owned))
            .unwrap_or_default()
    };
    let mut operation = value!({ "op": (text("op")), "path": (text("path")) });
    if !text("from").is_empty() {
        operation.set("from", text("from"));
    }
    if let Some(value) = field("value") {
        let problem = "JSONPath valueExpression evaluated to a type that could not marshal to JSON";
        operation.set("value", value.to_data().ok_or(problem)?);
        check_types(&value)?;
    }
    Ok(operation)
}

fn apply_operations(object: &mut Value, operations: &Value) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("JSON Patch: {error}");
    let patch =
        JsonPatch::parse(json::to_string(operations).as_bytes()).map_err(|error| failed(&error))?;
    let mut patched = object.clone();
    match patch.apply(&mut patched) {
        Ok(()) => *object = patched,
        // A failed test means no change.
        Err(error) if error.is_failed_test() => {}
        Err(error) => return Err(failed(&error)),
    }
    Ok(())
}
