//! The spec of a policy, with compiled expressions.

use mizzen_apiextensions::expression::{
    ExpressionCompiler, ExpressionError, ExpressionResult, ExpressionVariables,
};
use mizzen_cel::Program;
use mizzen_object::GroupVersionKind;
use mizzen_value::{Str, Value};

use crate::admission::webhook::matching::Matching;
use crate::decode;

/// An expression: its text and its program.
#[derive(Debug)]
pub(super) struct PolicyExpression {
    pub text: Str,
    pub compiled: Result<Program, ExpressionError>,
}

impl PolicyExpression {
    pub(super) fn new(
        compiler: &ExpressionCompiler,
        text: &str,
        scope: ExpressionVariables,
        expected: ExpressionResult,
    ) -> PolicyExpression {
        PolicyExpression {
            text: text.into(),
            compiled: compiler.compile(text, scope, expected),
        }
    }
}

/// Variables by name; of duplicates the last one counts.
pub(super) type Variables = Vec<(Str, PolicyExpression)>;

/// A validating or a mutating policy.
#[derive(Debug)]
pub(super) struct PolicySpec {
    pub name: Str,
    pub matching: Matching,
    /// `spec.paramKind`.
    pub param_kind: Option<GroupVersionKind>,
    /// `failurePolicy: Ignore`.
    pub ignores_failure: bool,
    /// `reinvocationPolicy: IfNeeded`.
    pub reinvoked: bool,
    pub variables: Variables,
    /// `matchConditions`.
    pub conditions: Vec<PolicyExpression>,
    pub validations: Vec<Validation>,
    pub annotations: Vec<(Str, PolicyExpression)>,
    pub mutations: Vec<Mutation>,
}

/// A validation of a request.
#[derive(Debug)]
pub(super) struct Validation {
    pub expression: PolicyExpression,
    /// `messageExpression`.
    pub message_expression: Option<PolicyExpression>,
    pub message: Str,
    pub reason: Str,
}

/// A change to an object.
#[derive(Debug)]
pub(super) enum Mutation {
    /// An apply configuration.
    Apply(PolicyExpression),
    /// A JSON patch.
    Patch(PolicyExpression),
}

impl PolicySpec {
    pub(super) fn parse(policy: &Value) -> PolicySpec {
        let (spec, mut compiler) = (&policy["spec"], ExpressionCompiler::composing());
        let param_kind = spec.get("paramKind").map(decode::stated_kind);
        let scope = ExpressionVariables {
            params: param_kind.is_some(),
            authorizer: true,
            patches: false,
        };
        let variables = spec["variables"].list().iter().map(|variable| {
            let (name, text) = (variable["name"].str(), variable["expression"].str());
            let compiled = compiler.declare(name, text, scope);
            (
                Str::from(name),
                PolicyExpression {
                    text: text.into(),
                    compiled,
                },
            )
        });
        let variables = variables.collect();
        let texts = |list: &str, field: &str, expected: ExpressionResult| {
            let texts = spec[list].list().iter().map(|item| item[field].str());
            texts
                .map(|text| PolicyExpression::new(&compiler, text, scope, expected))
                .collect()
        };
        PolicySpec {
            name: policy["metadata"]["name"].str().into(),
            matching: Matching::parse(&spec["matchConstraints"]),
            param_kind,
            ignores_failure: spec["failurePolicy"].str() == "Ignore",
            reinvoked: spec["reinvocationPolicy"].str() == "IfNeeded",
            variables,
            conditions: texts("matchConditions", "expression", ExpressionResult::Bool),
            annotations: spec["auditAnnotations"]
                .list()
                .iter()
                .map(|item| {
                    let text = item["valueExpression"].str();
                    let expression =
                        PolicyExpression::new(&compiler, text, scope, ExpressionResult::TextOrNull);
                    (item["key"].str().into(), expression)
                })
                .collect(),
            validations: spec["validations"]
                .list()
                .iter()
                .map(|validation| Validation::parse(&compiler, scope, validation))
                .collect(),
            mutations: spec["mutations"]
                .list()
                .iter()
                .map(|mutation| Mutation::parse(&compiler, scope, mutation))
                .collect(),
        }
    }
}

impl Validation {
    fn parse(
        compiler: &ExpressionCompiler,
        scope: ExpressionVariables,
        validation: &Value,
    ) -> Validation {
        let message = validation["messageExpression"].str();
        let messages = ExpressionVariables {
            authorizer: false,
            ..scope
        };
        let computed =
            || PolicyExpression::new(compiler, message, messages, ExpressionResult::Text);
        Validation {
            expression: PolicyExpression::new(
                compiler,
                validation["expression"].str(),
                scope,
                ExpressionResult::Bool,
            ),
            message_expression: (!message.is_empty()).then(computed),
            message: validation["message"].str().trim().into(),
            reason: validation["reason"].as_str().unwrap_or("Invalid").into(),
        }
    }
}

impl Mutation {
    fn parse(
        compiler: &ExpressionCompiler,
        scope: ExpressionVariables,
        mutation: &Value,
    ) -> Mutation {
        let scope = ExpressionVariables {
            patches: true,
            ..scope
        };
        let expression = |field: &str, expected: ExpressionResult| {
            PolicyExpression::new(
                compiler,
                mutation[field]["expression"].str(),
                scope,
                expected,
            )
        };
        match mutation["patchType"].str() {
            "JSONPatch" => Mutation::Patch(expression("jsonPatch", ExpressionResult::Patch)),
            _ => Mutation::Apply(expression("applyConfiguration", ExpressionResult::Object)),
        }
    }
}
