//! The spec of a policy, with compiled expressions.

use mizzen_apiextensions::expression::{Compiler, Refusal, Scope, Wanted};
use mizzen_cel::Program;
use mizzen_object::GroupVersionKind;
use mizzen_value::{Str, Value};

use crate::admission::webhook::matching::Matching;
use crate::decode;

/// An expression: its text and its program.
#[derive(Debug)]
pub(super) struct PolicyExpression {
    pub text: Str,
    pub compiled: Result<Program, Refusal>,
}

impl PolicyExpression {
    pub(super) fn new(
        compiler: &Compiler,
        text: &str,
        scope: Scope,
        expected: Wanted,
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
pub(super) struct Policy {
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

impl Policy {
    pub(super) fn parse(policy: &Value) -> Policy {
        let (spec, mut compiler) = (&policy["spec"], Compiler::composing());
        let param_kind = spec.get("paramKind").map(decode::stated_kind);
        let scope = Scope {
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
        let texts = |list: &str, field: &str, expected: Wanted| {
            let texts = spec[list].list().iter().map(|item| item[field].str());
            texts
                .map(|text| PolicyExpression::new(&compiler, text, scope, expected))
                .collect()
        };
        Policy {
            name: policy["metadata"]["name"].str().into(),
            matching: Matching::parse(&spec["matchConstraints"]),
            param_kind,
            ignores_failure: spec["failurePolicy"].str() == "Ignore",
            reinvoked: spec["reinvocationPolicy"].str() == "IfNeeded",
            variables,
            conditions: texts("matchConditions", "expression", Wanted::Bool),
            annotations: spec["auditAnnotations"]
                .list()
                .iter()
                .map(|item| {
                    let text = item["valueExpression"].str();
                    let expression =
                        PolicyExpression::new(&compiler, text, scope, Wanted::TextOrNull);
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
    fn parse(compiler: &Compiler, scope: Scope, validation: &Value) -> Validation {
        let message = validation["messageExpression"].str();
        let messages = Scope {
            authorizer: false,
            ..scope
        };
        let computed = || PolicyExpression::new(compiler, message, messages, Wanted::Text);
        Validation {
            expression: PolicyExpression::new(
                compiler,
                validation["expression"].str(),
                scope,
                Wanted::Bool,
            ),
            message_expression: (!message.is_empty()).then(computed),
            message: validation["message"].str().trim().into(),
            reason: validation["reason"].as_str().unwrap_or("Invalid").into(),
        }
    }
}

impl Mutation {
    fn parse(compiler: &Compiler, scope: Scope, mutation: &Value) -> Mutation {
        let scope = Scope {
            patches: true,
            ..scope
        };
        let expression = |field: &str, expected: Wanted| {
            PolicyExpression::new(
                compiler,
                mutation[field]["expression"].str(),
                scope,
                expected,
            )
        };
        match mutation["patchType"].str() {
            "JSONPatch" => Mutation::Patch(expression("jsonPatch", Wanted::Patch)),
            _ => Mutation::Apply(expression("applyConfiguration", Wanted::Object)),
        }
    }
}
