//! What does it take to run the rules of a place?

use super::Rule;
use super::declare::Declared;
use mizzen_cel::{Environment, Program, RefuseError, Shape, Type, Version};

/// The rules of a place, ready to be run.
#[derive(Debug)]
pub(super) struct Compiled {
    /// How the data is read; none if expressions cannot see it.
    pub shape: Option<Shape>,
    /// In the order of the schema.
    pub rules: Vec<CompiledRule>,
    /// Whether any rule asks what the value was.
    pub asks_for_old: bool,
}

/// A rule, ready to be run.
#[derive(Debug, Default)]
pub(super) struct CompiledRule {
    /// None if it is empty; why not, if it is none.
    pub program: Option<Result<Program, String>>,
    /// What says what is wrong. None if there is nothing, or no program.
    pub message: Option<Result<Program, String>>,
    /// Whether it asks what the value was.
    pub asks_for_old: bool,
}

/// The version whose language rules are written in.
const VERSION: Version = (1, 36);

impl Compiled {
    pub(super) fn new(rules: &[Rule], declared: Declared) -> Compiled {
        let shape = declared.shape("selfType");
        let rules: Vec<CompiledRule> = match &shape {
            Some(shape) => compile_all(rules, shape),
            None => Vec::new(),
        };
        let asks_for_old = rules.iter().any(|rule| rule.asks_for_old);
        Compiled {
            shape,
            rules,
            asks_for_old,
        }
    }
}

fn compile_all(rules: &[Rule], shape: &Shape) -> Vec<CompiledRule> {
    let kind = shape.static_type();
    let base = Environment::new(VERSION)
        .with_shape(shape)
        .with_variable("self", kind.clone());
    let certain = base.clone().with_variable("oldSelf", kind.clone());
    let optional = base.with_variable("oldSelf", Type::optional(kind));
    let one = |rule: &Rule| {
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

fn compile(rule: &Rule, environment: &Environment) -> CompiledRule {
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
        asks_for_old: program.refers_to("oldSelf"),
        program: Some(Ok(program)),
        message: message
            .map(|text| self::program(text, environment, &Type::String, "messageExpression ")),
    }
}

/// A program of a type; `what` begins the message if it is none.
fn program(
    text: &str,
    environment: &Environment,
    kind: &Type,
    what: &str,
) -> Result<Program, String> {
    let program = environment.compile(text).map_err(|error| match error {
        RefuseError::Compile(error) => format!("{what}compilation failed: {error}"),
        RefuseError::Program(error) if what.is_empty() => {
            format!("program instantiation failed: {error}")
        }
        RefuseError::Program(error) => format!("{what}instantiation failed: {error}"),
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
