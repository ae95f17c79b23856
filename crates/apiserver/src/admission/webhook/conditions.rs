//! Match conditions: expressions that must all hold for a webhook to be called.

use std::sync::{Arc, OnceLock};

use mizzen_object::cel::{
    Budget, Environment, EvalError, Field, Form, Merge, Program, Shape, Type, Value as Cel, library,
};
use mizzen_object::{Status, Str, Value};

use super::attributes::Attributes;
use super::matching::Invocation;
use super::questions::Questions;
use super::review;

/// Kubernetes: what all conditions of a webhook may cost together (apis/cel/config.go).
const COST: u64 = 2_500_000;
/// Kubernetes: what one may cost.
const COST_OF_ONE: u64 = 1_000_000;
/// How often an expression that asks about rights is begun again with the answers so far.
const ROUNDS: usize = 32;

/// The conditions of a webhook.
#[derive(Default)]
pub(crate) struct Conditions(Vec<Condition>);

struct Condition {
    text: Str,
    program: Result<Program, String>,
}

/// What the conditions come to.
enum Verdict {
    Holds,
    Fails,
    Unknown(Vec<String>),
}

impl Conditions {
    /// Reads the `matchConditions` of a webhook.
    pub fn parse(conditions: &[Value]) -> Conditions {
        let read = |condition: &Value| {
            let text = condition["expression"].str();
            let program = environment().compile(text).map_err(|error| format!("compilation error: {error}"));
            Condition { text: text.into(), program }
        };
        Conditions(conditions.iter().map(read).collect())
    }

    /// Whether the webhook is to be called. One condition that does not hold is enough for a no; otherwise one that
    /// has no value is trouble, which the webhook's configuration may want to ignore.
    pub(super) async fn hold(
        &self,
        attributes: &Attributes<'_>,
        invocation: &Invocation,
    ) -> Result<bool, Status> {
        if self.0.is_empty() {
            return Ok(true);
        }
        let review = review::question("v1", "", attributes, invocation).await?;
        let questions = Arc::new(Questions::default());
        for _ in 0..ROUNDS {
            let verdict = self.evaluate(&review["request"], attributes, &questions);
            if !questions.answer(attributes).await {
                return settle(verdict, attributes, invocation);
            }
        }
        let problem = "too many questions to the authorizer".to_owned();
        settle(Verdict::Unknown(vec![problem]), attributes, invocation)
    }

    fn evaluate(&self, request: &Value, attributes: &Attributes, questions: &Arc<Questions>) -> Verdict {
        let own = library::Resource {
            group: request["requestResource"]["group"].str().into(),
            resource: request["requestResource"]["resource"].str().into(),
            subresource: attributes.call.path.subresource.to_string(),
            namespace: attributes.namespace().into(),
            name: attributes.name().into(),
            ..library::Resource::default()
        };
        let request_value = match Cel::shaped(request, request_shape()) {
            Ok(value) => value,
            Err(error) => return Verdict::Unknown(vec![error.to_string()]),
        };
        let variables = [
            ("object", Cel::data(&request["object"])),
            ("oldObject", Cel::data(&request["oldObject"])),
            ("request", request_value),
            ("namespaceObject", Cel::Null),
            ("authorizer", library::authorizer(questions.clone())),
            ("authorizer.requestResource", library::resource_check(questions.clone(), own)),
        ];
        let (mut left, mut problems) = (COST, Vec::new());
        for condition in &self.0 {
            let program = match &condition.program {
                Ok(program) => program,
                Err(problem) => {
                    problems.push(problem.clone());
                    continue;
                }
            };
            let budget = Budget { cost: COST_OF_ONE, interrupted: None };
            let evaluation = program.evaluate(&variables, budget);
            if evaluation.cost > left || matches!(evaluation.value, Err(EvalError::CostLimit)) {
                let spent = "validation failed due to running out of cost budget, no further validation rules will be run";
                return Verdict::Unknown(vec![spent.into()]);
            }
            left -= evaluation.cost;
            match evaluation.value {
                Ok(value) if value.as_bool() == Some(false) => return Verdict::Fails,
                Ok(_) => {}
                Err(error) => {
                    problems.push(format!("expression '{}' resulted in error: {error}", condition.text))
                }
            }
        }
        if problems.is_empty() { Verdict::Holds } else { Verdict::Unknown(problems) }
    }
}

fn settle(verdict: Verdict, attributes: &Attributes, invocation: &Invocation) -> Result<bool, Status> {
    match verdict {
        Verdict::Holds => Ok(true),
        Verdict::Fails => Ok(false),
        Verdict::Unknown(_) if invocation.webhook.ignores_failure => Ok(false),
        Verdict::Unknown(problems) => {
            let why = match problems.as_slice() {
                [one] => one.clone(),
                many => format!("[{}]", many.join(", ")),
            };
            let resource = attributes.call.resource.kind().resource();
            Err(Status::forbidden(&resource, attributes.name(), &why))
        }
    }
}

/// What conditions can use.
fn environment() -> &'static Environment {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        Environment::new((1, 36))
            .with_shape(request_shape())
            .with_variable("object", Type::Dyn)
            .with_variable("oldObject", Type::Dyn)
            .with_variable("request", request_shape().static_type())
            .with_variable("namespaceObject", Type::Dyn)
            .with_variable("authorizer", Type::object("kubernetes.authorization.Authorizer"))
            .with_variable(
                "authorizer.requestResource",
                Type::object("kubernetes.authorization.ResourceCheck"),
            )
    })
}

/// Kubernetes: what is known of a request (admission/plugin/cel/compile.go).
fn request_shape() -> &'static Shape {
    static SHAPE: OnceLock<Shape> = OnceLock::new();
    SHAPE.get_or_init(|| {
        let text = || Shape::new(Form::String);
        let texts = || Shape::new(Form::List(Box::new(text()), Merge::Atomic));
        let object =
            |name: &str, fields: &[&str]| typed(name, fields.iter().map(|field| (*field, text())).collect());
        let kind = || object("kubernetes.GroupVersionKind", &["group", "version", "kind"]);
        let resource = || object("kubernetes.GroupVersionResource", &["group", "version", "resource"]);
        let user = typed(
            "kubernetes.UserInfo",
            vec![
                ("username", text()),
                ("uid", text()),
                ("groups", texts()),
                ("extra", Shape::new(Form::Map(Box::new(texts())))),
            ],
        );
        typed(
            "kubernetes.AdmissionRequest",
            vec![
                ("kind", kind()),
                ("resource", resource()),
                ("subResource", text()),
                ("requestKind", kind()),
                ("requestResource", resource()),
                ("requestSubResource", text()),
                ("name", text()),
                ("namespace", text()),
                ("operation", text()),
                ("userInfo", user),
                ("dryRun", Shape::new(Form::Bool)),
                ("options", Shape::ANY),
            ],
        )
    })
}

/// Kubernetes: fields of a request go by their plain names, `namespace` too, which is escaped elsewhere.
fn typed(name: &str, fields: Vec<(&str, Shape)>) -> Shape {
    let fields =
        fields.into_iter().map(|(name, shape)| (Str::from(name), Field { name: name.into(), shape }));
    Shape::new(Form::Object(name.into(), fields.collect()))
}
