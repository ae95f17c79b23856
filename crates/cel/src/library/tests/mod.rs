//! Expressions and their values, a table for each library. The expected values are upstream's.

mod cost;
mod lists;
mod network;
mod text;
mod values;

use std::sync::Arc;

use super::{
    Authorize, AuthorizerCheck, AuthorizerDecision, CheckSubject, CheckTarget, authorizer,
    string_format, with_json_patch,
};
use crate::{Environment, EvalLimits, Type, Value};
use mizzen_value::json::quote;

/// Each line: an expression, `=>`, and its value or error.
#[track_caller]
pub(super) fn check(table: &str) {
    let (mut expected, mut found) = (Vec::new(), Vec::new());
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (expression, _) = line.rsplit_once(" => ").expect("a line has an arrow");
        expected.push(line.to_owned());
        found.push(format!("{expression} => {}", evaluate(expression)));
    }
    assert_eq!(found.join("\n"), expected.join("\n"));
}

pub(super) fn environment() -> Environment {
    let authorizer = Type::object("kubernetes.authorization.Authorizer");
    with_json_patch(Environment::new((1, 36))).with_variable("authorizer", authorizer)
}

fn evaluate(expression: &str) -> String {
    let program = match environment().compile(expression) {
        Ok(program) => program,
        Err(error) => {
            return format!(
                "refused: {}",
                error.to_string().lines().next().unwrap_or_default()
            );
        }
    };
    let variables = [("authorizer", authorizer(Arc::new(ReadAuthorizer)))];
    match program
        .evaluate(
            &variables,
            EvalLimits {
                cost: 10_000_000,
                interrupted: None,
            },
        )
        .value
    {
        Ok(value) => show(&value),
        Err(error) => format!("error: {error}"),
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::Optional(None) => "none".into(),
        Value::Optional(Some(value)) => format!("some {}", show(value)),
        Value::Opaque(opaque) => opaque.text().unwrap_or_else(|| opaque.type_name().into()),
        Value::String(text) => quote(text),
        _ => string_format::write_text(value).expect("a value that can be shown"),
    }
}

/// Allows everyone to read, and returns the check as the reason.
#[derive(Debug)]
pub(super) struct ReadAuthorizer;

impl Authorize for ReadAuthorizer {
    fn authorize(&self, question: &AuthorizerCheck) -> AuthorizerDecision {
        let subject = match &question.subject {
            CheckSubject::Requester => String::new(),
            CheckSubject::ServiceAccount { namespace, name } => format!("{namespace}/{name} "),
        };
        let target = match &question.target {
            CheckTarget::Path(path) => path.clone(),
            CheckTarget::Resource(resource) => [
                &resource.group,
                &resource.resource,
                &resource.subresource,
                &resource.namespace,
                &resource.name,
                &resource.field_selector,
                &resource.label_selector,
            ]
            .map(String::as_str)
            .join("|"),
        };
        AuthorizerDecision {
            allowed: question.verb == "get",
            reason: format!("{subject}{} {target}", question.verb),
            error: (question.verb == "fail").then(|| "out of order".into()),
        }
    }
}
