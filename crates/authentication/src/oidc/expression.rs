//! CEL expressions over claims and users: compiled once, evaluated for every token.

use std::sync::OnceLock;

use mizzen_cel as cel;
use mizzen_cel::{CompileProgramError, Environment, EvalLimits, Program, Type, escape};
use mizzen_value::{Map, Str, Value};

/// The cost limit of one evaluation.
const BUDGET: u64 = 10_000_000;

/// A compiled expression and its source.
#[derive(Debug)]
pub(super) struct ClaimExpression {
    pub text: Str,
    program: Program,
    input: ExpressionInput,
}

/// The variable of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpressionInput {
    /// `claims`: the claims of the token.
    Claims,
    /// `user`: the mapped user.
    User,
}

impl ExpressionInput {
    fn variable(self) -> &'static str {
        match self {
            ExpressionInput::Claims => "claims",
            ExpressionInput::User => "user",
        }
    }

    fn environment(self) -> &'static Environment {
        static CLAIMS: OnceLock<Environment> = OnceLock::new();
        static USER: OnceLock<Environment> = OnceLock::new();
        match self {
            ExpressionInput::Claims => CLAIMS.get_or_init(|| {
                Environment::new((1, 36))
                    .with_variable("claims", Type::map(Type::String, Type::Dyn))
            }),
            ExpressionInput::User => USER.get_or_init(|| {
                let texts = Type::list(Type::String);
                let fields = [
                    ("username", Type::String),
                    ("uid", Type::String),
                    ("groups", texts.clone()),
                    ("extra", Type::map(Type::String, texts)),
                ];
                Environment::new((1, 36))
                    .with_object(
                        "kubernetes.UserInfo",
                        fields.map(|(name, kind)| (Str::from(name), kind)),
                    )
                    .with_variable("user", Type::object("kubernetes.UserInfo"))
            }),
        }
    }
}

impl ClaimExpression {
    /// Compiles an expression; with `is_rule` it must be boolean. Errors read as upstream's.
    pub(super) fn compile(
        text: &str,
        sees: ExpressionInput,
        is_rule: bool,
    ) -> Result<ClaimExpression, String> {
        let program = sees
            .environment()
            .compile(text)
            .map_err(|error| match error {
                CompileProgramError::Compile(issues) => format!("compilation failed: {issues}"),
                CompileProgramError::Program(_) => error.to_string(),
            })?;
        if is_rule && *program.result_type() != Type::Bool {
            return Err("must evaluate to bool".into());
        }
        Ok(ClaimExpression {
            text: text.into(),
            program,
            input: sees,
        })
    }

    /// Whether it selects a claim.
    pub(super) fn uses_claim(&self, claim: &str) -> bool {
        self.program.selects("claims", claim)
    }

    /// Evaluates the expression and maps its value by `read`.
    pub(super) fn evaluate<T>(
        &self,
        about: &EvaluationData,
        read: impl FnOnce(&cel::Value) -> T,
    ) -> Result<T, String> {
        let variables = [(self.input.variable(), cel::Value::data(&about.0))];
        let evaluation = self.program.evaluate(
            &variables,
            EvalLimits {
                cost: BUDGET,
                interrupted: None,
            },
        );
        let text = &self.text;
        match evaluation.value {
            Ok(value) => Ok(read(&value)),
            Err(error) => Err(format!("expression '{text}' resulted in error: {error}")),
        }
    }
}

/// Data as expressions see it.
///
/// Kubernetes: numbers are doubles, as Go decodes JSON, and a field whose name is no identifier is
/// also found under its escaped name (token/oidc/oidc.go).
pub(super) struct EvaluationData(Value);

impl EvaluationData {
    pub(super) fn new(data: &Value) -> EvaluationData {
        EvaluationData(prepare_data(data))
    }
}

fn prepare_data(data: &Value) -> Value {
    match data {
        Value::Int(number) => Value::Number(number.to_string().into()),
        Value::List(items) => Value::List(items.iter().map(prepare_data).collect()),
        Value::Map(map) => {
            let mut seen = Map::with_capacity(map.len());
            for (key, value) in map.iter() {
                let value = prepare_data(value);
                if let Some(name) = escape(key).filter(|name| name != key) {
                    seen.insert(name, value.clone());
                }
                seen.insert(key, value);
            }
            Value::Map(seen)
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, &str>) {
        let claims = value!({
            "sub": "jane", "exp": 1_800_000_000, "groups": ["a", "b"],
            "acme.com/team": { "lead-of": "x" }, "verified": true
        });
        let read = |value: &cel::Value| value.as_str().unwrap_or("no text").to_owned();
        let found = ClaimExpression::compile(text, ExpressionInput::Claims, false)
            .and_then(|expression| expression.evaluate(&EvaluationData::new(&claims), read));
        assert_eq!(
            found.as_deref(),
            expected.map_err(String::from).as_ref().map(|text| *text),
            "{text}"
        );
    }

    #[test]
    fn claims_are_decoded_as_in_go() {
        check("claims.sub", Ok("jane"));
        check("claims.acme__dot__com__slash__team.lead__dash__of", Ok("x"));
        check("claims['acme.com/team']['lead-of']", Ok("x"));
        check(
            "type(claims.exp) == double ? 'double' : 'other'",
            Ok("double"),
        );
        check("claims.exp == 1800000000 ? 'same' : 'other'", Ok("same"));
        check("claims.groups.join('-')", Ok("a-b"));
        check(
            "claims.mail",
            Err("expression 'claims.mail' resulted in error: no such key: mail"),
        );
    }

    #[test]
    fn a_rule_is_true_or_false() {
        assert!(
            ClaimExpression::compile("claims.sub == 'x'", ExpressionInput::Claims, true).is_ok()
        );
        let refused =
            ClaimExpression::compile("claims.verified", ExpressionInput::Claims, true).map(drop);
        assert_eq!(refused, Err("must evaluate to bool".into()));
        assert!(
            ClaimExpression::compile("user.username.startsWith('a')", ExpressionInput::User, true)
                .is_ok()
        );
        assert!(ClaimExpression::compile("user.name == 'a'", ExpressionInput::User, true).is_err());
        assert!(
            ClaimExpression::compile("user.username == 'a'", ExpressionInput::Claims, true)
                .is_err()
        );
    }
}
