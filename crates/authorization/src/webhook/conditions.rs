//! Match conditions: CEL expressions that limit the requests sent to a webhook.

use std::collections::HashSet;
use std::sync::OnceLock;

use mizzen_apiextensions::expression::{ExpressionResult, compile_in};
use mizzen_cel as cel;
use mizzen_cel::{Environment, EvalLimits, Program, Type};
use mizzen_object::{Path, Violations, aggregate};
use mizzen_value::{Str, Value};

/// The maximum number of conditions.
const MAX: usize = 64;
/// The cost limit of one.
const COST: u64 = 1_000_000;

/// Expressions that must all be true.
#[derive(Debug, Default)]
pub(crate) struct MatchConditions(Vec<(Str, Program)>);

impl MatchConditions {
    /// Compiles expressions and adds their violations.
    pub(crate) fn compile(
        expressions: &[&str],
        path: &Path,
        violations: &mut Violations,
    ) -> MatchConditions {
        let mut conditions = MatchConditions::default();
        if expressions.len() > MAX {
            violations.too_many(path, expressions.len(), MAX);
            return conditions;
        }
        let mut seen = HashSet::new();
        for (index, expression) in expressions.iter().enumerate() {
            let item = path.index(index);
            let path = item.child("expression");
            if expression.trim().is_empty() {
                violations.required(path, "");
            } else if !seen.insert(expression) {
                violations.duplicate(path, *expression);
            } else {
                match compile_in(environment(), expression, ExpressionResult::Bool) {
                    Ok(program) => conditions.0.push(((*expression).into(), program)),
                    Err(refusal) => refusal.tell(expression, &path, violations),
                }
            }
        }
        conditions
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all are true for a request. A false one takes precedence over one that fails.
    pub(crate) fn evaluate(&self, request: &Value) -> Result<bool, String> {
        let variables = [("request", cel::Value::data(request))];
        let mut problems = Vec::new();
        for (text, program) in &self.0 {
            match program
                .evaluate(
                    &variables,
                    EvalLimits {
                        cost: COST,
                        interrupted: None,
                    },
                )
                .value
            {
                Ok(cel::Value::Bool(true)) => {}
                Ok(cel::Value::Bool(false)) => return Ok(false),
                Ok(_) => {
                    problems.push(format!(
                        "cel evaluation error: expression '{text}' eval result type should be bool"
                    ));
                }
                Err(error) => {
                    problems.push(format!(
                        "cel evaluation error: expression '{text}' resulted in error: {error}"
                    ));
                }
            }
        }
        aggregate(problems).map_or(Ok(true), Err)
    }
}

/// The CEL environment of conditions.
fn environment() -> &'static Environment {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let environment = Environment::new((1, 36)).with_variable(
            "request",
            Type::object("kubernetes.SubjectAccessReviewSpec"),
        );
        object_types()
            .into_iter()
            .fold(environment, |environment, (name, fields)| {
                let fields = fields
                    .into_iter()
                    .map(|(field, kind)| (Str::from(field), kind));
                environment.with_object(&format!("kubernetes.{name}"), fields)
            })
    })
}

type Fields = Vec<(&'static str, Type)>;

/// The object types of the environment.
fn object_types() -> [(&'static str, Fields); 6] {
    use Type::String as Text;
    let object = |name: &str| Type::object(&format!("kubernetes.{name}"));
    let texts = || Type::list(Text);
    let selector = || {
        vec![
            ("rawSelector", Text),
            ("requirements", Type::list(object("SelectorRequirement"))),
        ]
    };
    let names = [
        "namespace",
        "verb",
        "group",
        "version",
        "resource",
        "subresource",
        "name",
    ];
    let mut resource: Fields = names.map(|name| (name, Text)).into();
    resource.push(("fieldSelector", object("FieldSelectorAttributes")));
    resource.push(("labelSelector", object("LabelSelectorAttributes")));
    let request = vec![
        ("resourceAttributes", object("ResourceAttributes")),
        ("nonResourceAttributes", object("NonResourceAttributes")),
        ("user", Text),
        ("groups", texts()),
        ("extra", Type::map(Text, texts())),
        ("uid", Text),
    ];
    let path = vec![("path", Text), ("verb", Text)];
    let requirement = vec![("key", Text), ("operator", Text), ("values", texts())];
    [
        ("SubjectAccessReviewSpec", request),
        ("ResourceAttributes", resource),
        ("NonResourceAttributes", path),
        ("FieldSelectorAttributes", selector()),
        ("LabelSelectorAttributes", selector()),
        ("SelectorRequirement", requirement),
    ]
}
