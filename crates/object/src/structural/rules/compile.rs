//! Compilation of the rules of a node.

use super::ValidationRule;
use super::declare::DeclaredNode;
use mizzen_cel::{CompileProgramError, DeclType, Environment, Program, Type, Version};

/// The compiled rules of a node.
#[derive(Debug)]
pub(super) struct Compiled {
    /// The declared type of the value; `None` if CEL cannot access it.
    pub shape: Option<DeclType>,
    /// In the order of the schema.
    pub rules: Vec<CompiledRule>,
    /// Whether any rule refers to `oldSelf`.
    pub uses_old_self: bool,
}

#[derive(Debug, Default)]
pub(super) struct CompiledRule {
    /// `None` if it is empty; the error if it does not compile.
    pub program: Option<Result<Program, String>>,
    /// The `messageExpression`. `None` if it is empty, or if the rule does not compile.
    pub message: Option<Result<Program, String>>,
    /// Whether it refers to `oldSelf`.
    pub uses_old_self: bool,
}

/// The CEL environment version of rules.
const VERSION: Version = (1, 36);

impl Compiled {
    pub(super) fn new(rules: &[ValidationRule], declared: DeclaredNode) -> Compiled {
        let shape = declared.shape("selfType");
        let rules: Vec<CompiledRule> = match &shape {
            Some(shape) => compile_all(rules, shape),
            None => Vec::new(),
        };
        let uses_old_self = rules.iter().any(|rule| rule.uses_old_self);
        Compiled {
            shape,
            rules,
            uses_old_self,
        }
    }
}

fn compile_all(rules: &[ValidationRule], shape: &DeclType) -> Vec<CompiledRule> {
    let kind = shape.static_type();
    let base = Environment::new(VERSION)
        .with_shape(shape)
        .with_variable("self", kind.clone());
    let certain = base.clone().with_variable("oldSelf", kind.clone());
    let optional = base.with_variable("oldSelf", Type::optional(kind));
    let one = |rule: &ValidationRule| {
        compile(
            rule,
            if rule.optional_old_self {
                &optional
            } else {
                &certain
            },
        )
    };
    rules.iter().map(one).collect()
}

fn compile(rule: &ValidationRule, environment: &Environment) -> CompiledRule {
    if rule.rule.trim().is_empty() {
        return CompiledRule::default();
    }
    let program = match program(&rule.rule, environment, &Type::Bool, "") {
        Ok(program) => program,
        Err(error) => {
            return CompiledRule {
                program: Some(Err(error)),
                ..CompiledRule::default()
            };
        }
    };
    let message = Some(&rule.message_expression).filter(|text| !text.is_empty());
    CompiledRule {
        uses_old_self: program.refers_to("oldSelf"),
        program: Some(Ok(program)),
        message: message
            .map(|text| self::program(text, environment, &Type::String, "messageExpression ")),
    }
}

/// Compiles a program of a result type; `what` starts the error message.
fn program(
    text: &str,
    environment: &Environment,
    kind: &Type,
    what: &str,
) -> Result<Program, String> {
    let program = environment.compile(text).map_err(|error| match error {
        CompileProgramError::Compile(error) => format!("{what}compilation failed: {error}"),
        CompileProgramError::Program(error) if what.is_empty() => {
            format!("program instantiation failed: {error}")
        }
        CompileProgramError::Program(error) => format!("{what}instantiation failed: {error}"),
    })?;
    if program.result_type() == kind {
        return Ok(program);
    }
    let what = if what.is_empty() {
        "cel expression "
    } else {
        what
    };
    Err(format!("{what}must evaluate to a {kind}"))
}
