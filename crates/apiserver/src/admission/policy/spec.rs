//! What does a policy say? Its expressions, compiled once.

use mizzen_apiextensions::expression::{Compiler, Refusal, Scope, Wanted};
use mizzen_cel::Program;
use mizzen_object::GroupVersionKind;
use mizzen_value::{Str, Value};

use crate::admission::webhook::matching::Matching;

/// An expression as it was written and as it is evaluated.
#[derive(Debug)]
pub(super) struct Expression {
    pub text: Str,
    pub compiled: Result<Program, Refusal>,
}

impl Expression {
    pub(super) fn new(compiler: &Compiler, text: &str, scope: Scope, wanted: Wanted) -> Expression {
        Expression {
            text: text.into(),
            compiled: compiler.compile(text, scope, wanted),
        }
    }
}

/// Variables by their names; the last of a name counts.
pub(super) type Variables = Vec<(Str, Expression)>;

/// A policy that validates or one that mutates: each has its own part of this.
#[derive(Debug)]
pub(super) struct Policy {
    pub name: Str,
    pub matching: Matching,
    /// What parameters are, as it is written and as it is found.
    pub param_kind: Option<GroupVersionKind>,
    /// Whether a request goes on if the policy cannot be evaluated.
    pub ignores_failure: bool,
    /// Whether it has its say again when others have changed the object.
    pub reinvoked: bool,
    pub variables: Variables,
    /// What must hold for the policy to have a say at all.
    pub conditions: Vec<Expression>,
    pub validations: Vec<Validation>,
    pub annotations: Vec<(Str, Expression)>,
    pub mutations: Vec<Mutation>,
}

/// What must hold of a request.
#[derive(Debug)]
pub(super) struct Validation {
    pub expression: Expression,
    /// Computes what is said if it does not hold.
    pub message_expression: Option<Expression>,
    pub message: Str,
    pub reason: Str,
}

/// A change to an object.
#[derive(Debug)]
pub(super) enum Mutation {
    /// Something is laid over it.
    Apply(Expression),
    /// Operations are carried out one by one.
    Patch(Expression),
}

impl Policy {
    pub(super) fn parse(policy: &Value) -> Policy {
        let (spec, mut compiler) = (&policy["spec"], Compiler::composing());
        let param_kind = spec.get("paramKind").map(kind_of);
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
                Expression {
                    text: text.into(),
                    compiled,
                },
            )
        });
        let variables = variables.collect();
        let texts = |list: &str, field: &str, wanted: Wanted| {
            let texts = spec[list].list().iter().map(|item| item[field].str());
            texts
                .map(|text| Expression::new(&compiler, text, scope, wanted))
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
                    let expression = Expression::new(&compiler, text, scope, Wanted::TextOrNull);
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

fn kind_of(said: &Value) -> GroupVersionKind {
    let (group, version) = said["apiVersion"]
        .str()
        .split_once('/')
        .unwrap_or(("", said["apiVersion"].str()));
    GroupVersionKind {
        group: group.into(),
        version: version.into(),
        kind: said["kind"].str().into(),
    }
}

impl Validation {
    fn parse(compiler: &Compiler, scope: Scope, validation: &Value) -> Validation {
        let message = validation["messageExpression"].str();
        let messages = Scope {
            authorizer: false,
            ..scope
        };
        let computed = || Expression::new(compiler, message, messages, Wanted::Text);
        Validation {
            expression: Expression::new(
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
        let expression = |field: &str, wanted: Wanted| {
            Expression::new(compiler, mutation[field]["expression"].str(), scope, wanted)
        };
        match mutation["patchType"].str() {
            "JSONPatch" => Mutation::Patch(expression("jsonPatch", Wanted::Patch)),
            _ => Mutation::Apply(expression("applyConfiguration", Wanted::Object)),
        }
    }
}
