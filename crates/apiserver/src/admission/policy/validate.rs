//! Validating policies: what must hold of a request, and what follows if it does not.

use mizzen_object::{Cause, Status, Str, Value, cel};
use mizzen_registry::Key;

use super::binding::{Action, Binding};
use super::configuration::Bound;
use super::scene::{BUDGET, OutOfBudget, Scene, Sight};
use super::spec::{Expression, Policy, Validation};
use super::{conditions, is_exempt};
use crate::admission::forbidden_for;
use crate::admission::webhook::Attributes;

/// The longest message that an expression may compute.
const MAX_MESSAGE: usize = 5 * 1024;

/// Asks the policies that a write concerns. All of them are heard, for they may want to warn; of several refusals the
/// client gets the first.
pub(crate) async fn validate(attributes: &Attributes<'_>) -> Result<(), Status> {
    let server = attributes.call.server;
    let in_force = server.policies.validating.in_force(&server.registry);
    let found = in_force.about(&attributes.call.resource.kind().plural);
    if found.is_empty() || is_exempt(attributes) {
        return Ok(());
    }
    let mut hearing = Hearing { attributes, refusal: None };
    for bound in found {
        hearing.hear(&bound).await?;
    }
    hearing.refusal.map_or(Ok(()), Err)
}

/// A request before the policies.
struct Hearing<'a> {
    attributes: &'a Attributes<'a>,
    refusal: Option<Status>,
}

/// What is held against a request.
struct Objection {
    message: String,
    reason: Str,
}

impl Objection {
    fn new(message: impl Into<String>) -> Objection {
        Objection { message: message.into(), reason: "Invalid".into() }
    }
}

/// What a policy says: what is held against the request, and what went wrong with notes for auditors, which is held
/// against it whatever the binding says.
#[derive(Default)]
struct Opinion {
    objections: Vec<Objection>,
    failures: Vec<String>,
}

impl Opinion {
    /// One that could not be formed. Whether that is held against the request is up to the policy.
    fn failed(policy: &Policy, why: String) -> Opinion {
        match policy.ignores_failure {
            true => Opinion::default(),
            false => Opinion { objections: vec![Objection::new(why)], failures: Vec::new() },
        }
    }
}

impl Hearing<'_> {
    async fn hear(&mut self, bound: &Bound) -> Result<(), Status> {
        let (policy, attributes) = (&bound.policy, self.attributes);
        let version = match policy.version(attributes) {
            Ok(Some(version)) => version,
            Ok(None) => return Ok(()),
            Err(why) => {
                self.misconfigured(policy, None, &why);
                return Ok(());
            }
        };
        let mut scene = None;
        for binding in &bound.bindings {
            let params = match binding.params(policy, attributes).await {
                Ok(params) => params,
                Err(why) => {
                    self.misconfigured(policy, Some(binding), &why);
                    continue;
                }
            };
            for params in params {
                if scene.is_none() {
                    scene = Some(conditions::scene(attributes, &version).await?);
                }
                if let Some(scene) = &mut scene {
                    scene.namespace = namespace(attributes)?;
                    scene.params = params;
                    let opinion = opinion(policy, scene).await;
                    self.weigh(policy, binding, opinion);
                }
            }
        }
        Ok(())
    }

    fn misconfigured(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        if !policy.ignores_failure {
            let what = if binding.is_some() { "binding" } else { "policy" };
            let objection = Objection::new(format!("failed to configure {what}: {why}"));
            self.refuse(policy, binding, objection);
        }
    }

    fn weigh(&mut self, policy: &Policy, binding: &Binding, opinion: Opinion) {
        for objection in opinion.objections {
            if binding.actions.contains(&Action::Warn) {
                let (policy, binding, message) = (&policy.name, &binding.name, &objection.message);
                self.attributes.call.notes.warn(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {message}"
                ));
            }
            if binding.actions.contains(&Action::Deny) {
                self.refuse(policy, Some(binding), objection);
            }
        }
        for failure in opinion.failures {
            self.refuse(policy, Some(binding), Objection::new(failure));
        }
    }

    fn refuse(&mut self, policy: &Policy, binding: Option<&Binding>, objection: Objection) {
        let attributes = self.attributes;
        self.refusal.get_or_insert_with(|| refusal(attributes, policy, binding, objection));
    }
}

/// Kubernetes: it says "is forbidden" whatever the code (policy/validating/dispatcher.go).
fn refusal(
    attributes: &Attributes,
    policy: &Policy,
    binding: Option<&Binding>,
    objection: Objection,
) -> Status {
    let by = binding.map(|binding| format!(" with binding '{}'", binding.name)).unwrap_or_default();
    let message =
        format!("ValidatingAdmissionPolicy '{}'{by} denied request: {}", policy.name, objection.message);
    let mut status = forbidden_for(attributes, &message);
    status.code = match objection.reason.as_str() {
        "Forbidden" => 403,
        "Unauthorized" => 401,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    status.reason = objection.reason;
    let cause = Cause { reason: Str::default(), message, field: String::new() };
    status.details.get_or_insert_default().causes.push(cause);
    status
}

/// The namespace of a request as expressions see it; `null` if there is none.
pub(super) fn namespace(attributes: &Attributes) -> Result<Value, Status> {
    let name = attributes.namespace();
    if name.is_empty() || attributes.is_namespace() {
        return Ok(Value::Null);
    }
    let server = attributes.call.server;
    let namespaces = server.catalog.get("", "v1", "namespaces").ok_or_else(Status::no_such_resource)?;
    let mut namespace = server.registry.get(&namespaces, &Key::new("", name), "")?.value();
    for field in ["kind", "apiVersion"] {
        namespace.remove(field);
    }
    for field in ["managedFields", "ownerReferences"] {
        namespace.entry("metadata").remove(field);
    }
    Ok(namespace)
}

/// What a policy says of a request with one parameter.
async fn opinion(policy: &Policy, scene: &Scene) -> Opinion {
    match conditions::hold(&policy.conditions, &policy.variables, scene).await {
        Ok(true) => {}
        Ok(false) => return Opinion::default(),
        Err(why) => return Opinion::failed(policy, why),
    }
    let objections = match objections(policy, scene).await {
        Ok(objections) => objections,
        Err(error) => return Opinion::failed(policy, error.to_string()),
    };
    match failed_annotations(policy, scene).await {
        Ok(failures) => Opinion { objections, failures },
        Err(error) => Opinion::failed(policy, error.to_string()),
    }
}

async fn objections(policy: &Policy, scene: &Scene) -> Result<Vec<Objection>, OutOfBudget> {
    let expressions: Vec<&Expression> =
        policy.validations.iter().map(|validation| &validation.expression).collect();
    let (verdicts, left) = scene
        .evaluate(&policy.variables, &expressions, Sight::ALL, BUDGET, |value| value.as_bool() == Some(true))
        .await?;
    let messages = messages(policy, scene, left).await;
    let each = policy.validations.iter().zip(verdicts).enumerate();
    let objections = each.filter_map(|(at, (validation, verdict))| match (verdict, &messages) {
        (Err(why), _) => (!policy.ignores_failure).then(|| Objection::new(why)),
        // Kubernetes: even what holds is held against the request if there is nothing left to say why.
        (Ok(_), Err(error)) => {
            (!policy.ignores_failure).then(|| Objection::new(format!("failed messageExpression: {error}")))
        }
        (Ok(true), Ok(_)) => None,
        (Ok(false), Ok(messages)) => {
            let message = messages.get(at).cloned().flatten();
            Some(Objection { message: validation.message(message), reason: validation.reason.clone() })
        }
    });
    Ok(objections.collect())
}

/// The messages that expressions compute, where there are such and they can be used.
async fn messages(policy: &Policy, scene: &Scene, budget: u64) -> Result<Vec<Option<String>>, OutOfBudget> {
    let computed = policy.validations.iter().map(|validation| validation.message_expression.as_ref());
    let expressions: Vec<&Expression> = computed.clone().flatten().collect();
    let sight = Sight { authorizer: false, ..Sight::ALL };
    let text = |value: &cel::Value| value.as_str().map(|text| text.trim().to_owned());
    let (texts, _) = scene.evaluate(&policy.variables, &expressions, sight, budget, text).await?;
    let usable = |text: &String| !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
    let mut texts = texts.into_iter().map(|text| text.ok().flatten().filter(usable));
    Ok(computed.map(|expression| expression.and_then(|_| texts.next().flatten())).collect())
}

impl Validation {
    fn message(&self, computed: Option<String>) -> String {
        match (computed, self.message.as_str()) {
            (Some(computed), _) => computed,
            (None, "") => format!("failed expression: {}", self.expression.text.trim()),
            (None, message) => message.into(),
        }
    }
}

/// What is wrong with notes for auditors; there are no auditors who would want the others.
async fn failed_annotations(policy: &Policy, scene: &Scene) -> Result<Vec<String>, OutOfBudget> {
    if policy.annotations.is_empty() {
        return Ok(Vec::new());
    }
    let expressions: Vec<&Expression> = policy.annotations.iter().collect();
    // Kubernetes: an annotation may name the authorizer, but there is none (policy/validating/validator.go).
    let sight = Sight { authorizer: false, ..Sight::ALL };
    let (results, _) = scene.evaluate(&policy.variables, &expressions, sight, BUDGET, |_| ()).await?;
    let failures = results.into_iter().filter_map(Result::err);
    Ok(if policy.ignores_failure { Vec::new() } else { failures.collect() })
}
