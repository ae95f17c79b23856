//! The CEL environments of admission expressions: variables and result types.
//!
//! Validation of policies and webhooks compiles expressions here, and so does their evaluation.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use mizzen_cel::{CompileProgramError, Environment, Program, Type, Version, library};
use mizzen_object::{Path, ViolationReason, Violations};
use mizzen_value::Str;

/// Kubernetes: a new expression has the libraries of the release before, so that this can be undone; they are the
/// same, so there is no second environment (cel/environment/base.go).
const VERSION: Version = (1, 36);

/// What an expression can use besides `object`, `oldObject`, `namespaceObject` and `request`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpressionVariables {
    /// `params`.
    pub params: bool,
    /// `authorizer` and `authorizer.requestResource`.
    pub authorizer: bool,
    /// The types that changes are made of.
    pub patches: bool,
}

/// What an expression must yield.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpressionResult {
    /// Anything.
    Anything,
    /// Whether something holds.
    Bool,
    /// Text.
    Text,
    /// Text, or nothing.
    TextOrNull,
    /// A part of an object, to be merged into it.
    Object,
    /// The operations of a JSON Patch.
    Patch,
}

/// Why there is no program for an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpressionError {
    /// Whether it is not the text that is wrong.
    pub internal: bool,
    /// What is wrong.
    pub detail: String,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl ExpressionError {
    fn invalid(detail: String) -> ExpressionError {
        ExpressionError {
            internal: false,
            detail,
        }
    }

    /// Says it about a field.
    pub fn tell(&self, expression: &str, path: &Path, violations: &mut Violations) {
        match self.internal {
            true => violations.push(
                ViolationReason::Internal,
                path,
                format!("Internal error: {}", self.detail),
            ),
            false => violations.invalid(path, expression, &self.detail),
        }
    }
}

/// Compiles the expressions of one policy or webhook.
#[derive(Debug, Default)]
pub struct ExpressionCompiler {
    /// The types of `variables` so far; none if there is no such thing.
    variables: Option<Arc<HashMap<Str, Type>>>,
    /// What is used instead of the usual environment.
    typed: Option<Environment>,
}

impl ExpressionCompiler {
    /// For a policy: what is declared can be used as `variables`.
    pub fn composing() -> ExpressionCompiler {
        ExpressionCompiler {
            variables: Some(Arc::default()),
            typed: None,
        }
    }

    /// For a policy whose objects have known types.
    pub fn typed(environment: Environment) -> ExpressionCompiler {
        ExpressionCompiler {
            typed: Some(environment),
            ..ExpressionCompiler::composing()
        }
    }

    /// Compiles an expression.
    pub fn compile(
        &self,
        text: &str,
        scope: ExpressionVariables,
        wanted: ExpressionResult,
    ) -> Result<Program, ExpressionError> {
        match &self.variables {
            None => compile_in(scope.environment(), text, wanted),
            Some(variables) => compile_in(&self.environment(scope, variables), text, wanted),
        }
    }

    /// Compiles a variable, which later expressions can use even if there is something wrong with it.
    pub fn declare(
        &mut self,
        name: &str,
        text: &str,
        scope: ExpressionVariables,
    ) -> Result<Program, ExpressionError> {
        let program = self.compile(text, scope, ExpressionResult::Anything);
        let kind = program
            .as_ref()
            .map_or(Type::Dyn, |program| declared(program.result_type()));
        Arc::make_mut(self.variables.get_or_insert_default()).insert(name.into(), kind);
        program
    }

    fn environment(
        &self,
        scope: ExpressionVariables,
        variables: &Arc<HashMap<Str, Type>>,
    ) -> Environment {
        let base = self
            .typed
            .as_ref()
            .unwrap_or_else(|| scope.environment())
            .clone();
        base.with_fields(VARIABLES, variables.clone())
            .with_variable("variables", Type::object(VARIABLES))
    }
}

/// Compiles an expression that has other variables than those of admission.
pub fn compile_in(
    environment: &Environment,
    text: &str,
    wanted: ExpressionResult,
) -> Result<Program, ExpressionError> {
    let program = environment.compile(text).map_err(|error| match error {
        CompileProgramError::Compile(issues) => {
            ExpressionError::invalid(format!("compilation failed: {issues}"))
        }
        CompileProgramError::Program(_) => ExpressionError {
            internal: true,
            detail: error.to_string(),
        },
    })?;
    wanted.check(program.result_type())?;
    Ok(program)
}

const VARIABLES: &str = "kubernetes.variables";

/// The type of a variable for later expressions: `dyn` unless it is plain data.
fn declared(kind: &Type) -> Type {
    match kind {
        Type::List(items) => Type::list(declared(items)),
        Type::Map(pair) => Type::map(declared(&pair.0), declared(&pair.1)),
        Type::Bool | Type::Int | Type::Uint | Type::Double | Type::String | Type::Bytes => {
            kind.clone()
        }
        Type::Null | Type::Duration | Type::Timestamp => kind.clone(),
        _ => Type::Dyn,
    }
}

impl ExpressionResult {
    fn check(self, found: &Type) -> Result<(), ExpressionError> {
        let allowed = match self {
            ExpressionResult::Anything => return Ok(()),
            ExpressionResult::Bool => vec![Type::Bool],
            ExpressionResult::Text => vec![Type::String],
            ExpressionResult::TextOrNull => vec![Type::String, Type::Null],
            ExpressionResult::Object => vec![Type::object("Object")],
            ExpressionResult::Patch => vec![Type::list(Type::object("JSONPatch"))],
        };
        if allowed.contains(found) {
            return Ok(());
        }
        let names: Vec<String> = allowed.iter().map(shown).collect();
        let wanted = match &names[..] {
            [name] => name.clone(),
            _ => format!("one of [{}]", names.join(" ")),
        };
        Err(ExpressionError::invalid(format!(
            "must evaluate to {wanted} but got {}",
            shown(found)
        )))
    }
}

/// A type as cel-go writes it outside its checker.
fn shown(kind: &Type) -> String {
    let parameters: Vec<String> = kind.parameters().into_iter().map(shown).collect();
    match (kind, &parameters[..]) {
        (Type::Nullable(of), _) => format!("wrapper({})", shown(of)),
        (_, []) => kind.name().to_string(),
        (_, parameters) => format!("{}({})", kind.name(), parameters.join(", ")),
    }
}

impl ExpressionVariables {
    /// The environment of expressions that know nothing of the types of objects.
    fn environment(self) -> &'static Environment {
        static KNOWN: [OnceLock<Environment>; 8] = [const { OnceLock::new() }; 8];
        let index = usize::from(self.params)
            | usize::from(self.authorizer) << 1
            | usize::from(self.patches) << 2;
        KNOWN[index].get_or_init(|| self.build())
    }

    fn build(self) -> Environment {
        let mut environment = typed_environment(Type::Dyn, self.params.then_some(Type::Dyn));
        if self.authorizer {
            environment = with_authorizer(environment).with_variable(
                "authorizer.requestResource",
                Type::object("kubernetes.authorization.ResourceCheck"),
            );
        }
        if self.patches {
            library::with_json_patch(environment)
        } else {
            environment
        }
    }
}

/// The environment with `authorizer`.
pub fn with_authorizer(environment: Environment) -> Environment {
    environment.with_variable(
        "authorizer",
        Type::object("kubernetes.authorization.Authorizer"),
    )
}

/// The environment of expressions about objects of a type, perhaps with parameters.
pub fn typed_environment(object: Type, params: Option<Type>) -> Environment {
    let environment = Environment::new(VERSION)
        .with_variable("object", object.clone())
        .with_variable("oldObject", object)
        .with_variable("namespaceObject", Type::object("kubernetes.Namespace"))
        .with_variable("request", Type::object("kubernetes.AdmissionRequest"));

    use Type::String as Text;
    let texts = Type::list(Text);
    let (kind, resource) = (
        "kubernetes.GroupVersionKind",
        "kubernetes.GroupVersionResource",
    );
    let user = [
        ("username", Text),
        ("uid", Text),
        ("groups", texts.clone()),
        ("extra", Type::map(Text, texts)),
    ];
    let request = [
        ("kind", Type::object(kind)),
        ("resource", Type::object(resource)),
        ("subResource", Text),
        ("requestKind", Type::object(kind)),
        ("requestResource", Type::object(resource)),
        ("requestSubResource", Text),
        ("name", Text),
        ("namespace", Text),
        ("operation", Text),
        ("userInfo", Type::object("kubernetes.UserInfo")),
        ("dryRun", Type::Bool),
        ("options", Type::Dyn),
    ];
    let environment = with_fields(
        environment,
        kind,
        &[("group", Text), ("version", Text), ("kind", Text)],
    );
    let environment = with_fields(
        environment,
        resource,
        &[("group", Text), ("version", Text), ("resource", Text)],
    );
    let environment = with_fields(environment, "kubernetes.UserInfo", &user);
    let environment = with_fields(environment, "kubernetes.AdmissionRequest", &request);
    let environment = with_namespace(environment);
    match params {
        Some(kind) => environment.with_variable("params", kind),
        None => environment,
    }
}

fn with_fields(environment: Environment, name: &str, fields: &[(&str, Type)]) -> Environment {
    environment.with_object(
        name,
        fields
            .iter()
            .map(|(name, kind)| (Str::from(*name), kind.clone())),
    )
}

fn with_namespace(environment: Environment) -> Environment {
    use Type::String as Text;
    let (texts, labels) = (Type::list(Text), Type::map(Text, Text));
    let metadata = [
        ("name", Text),
        ("generateName", Text),
        ("namespace", Text),
        ("labels", labels.clone()),
        ("annotations", labels),
        // Kubernetes: it is spelled so, and so there is none (plugin/cel/compile.go).
        ("UID", Text),
        ("creationTimestamp", Type::Timestamp),
        ("deletionGracePeriodSeconds", Type::Int),
        ("deletionTimestamp", Type::Timestamp),
        ("generation", Type::Int),
        ("resourceVersion", Text),
        ("finalizers", texts.clone()),
    ];
    let condition = [
        ("status", Text),
        ("type", Text),
        ("lastTransitionTime", Type::Timestamp),
        ("message", Text),
        ("reason", Text),
    ];
    let status = [
        (
            "conditions",
            Type::list(Type::object("kubernetes.NamespaceCondition")),
        ),
        ("phase", Text),
    ];
    let namespace = [
        ("metadata", Type::object("kubernetes.NamespaceMetadata")),
        ("spec", Type::object("kubernetes.NamespaceSpec")),
        ("status", Type::object("kubernetes.NamespaceStatus")),
    ];
    let environment = with_fields(environment, "kubernetes.NamespaceMetadata", &metadata);
    let environment = with_fields(
        environment,
        "kubernetes.NamespaceSpec",
        &[("finalizers", texts)],
    );
    let environment = with_fields(environment, "kubernetes.NamespaceCondition", &condition);
    let environment = with_fields(environment, "kubernetes.NamespaceStatus", &status);
    with_fields(environment, "kubernetes.Namespace", &namespace)
}
