//! Validating policies: what must hold of a request, and what follows if it does not.

use std::collections::BTreeMap;

use mizzen_cel as cel;
use mizzen_object::{Cause, Status};
use mizzen_registry::Key;
use mizzen_value::{Str, Value, json, value};

use super::binding::{Action, Binding};
use super::configuration::Bound;
use super::scene::{BUDGET, OutOfBudget, Scene, Sight};
use super::spec::{Expression, Policy, Validation};
use super::{conditions, is_exempt};
use crate::admission::webhook::Attributes;
use crate::admission::{annotate, forbidden_for};

/// The longest message that an expression may compute.
const MAX_MESSAGE: usize = 5 * 1024;
/// The longest note for auditors.
const MAX_NOTE: usize = 10 * 1024;

/// Asks the policies that a write concerns. All of them are heard, for they may want to warn; of several refusals the
/// client gets the first.
pub(crate) async fn validate(attributes: &Attributes<'_>) -> Result<(), Status> {
    let server = attributes.call.server;
    let in_force = server.policies.validating.in_force(&server.registry)?;
    let found = in_force.about(&attributes.call.resource.kind().plural);
    if found.is_empty() || is_exempt(attributes) {
        return Ok(());
    }
    let mut hearing = Hearing {
        attributes,
        refusal: None,
    };
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
    /// The validation that does not hold, by its place.
    at: usize,
}

impl Objection {
    fn new(message: impl Into<String>) -> Objection {
        Objection {
            message: message.into(),
            reason: "Invalid".into(),
            at: 0,
        }
    }
}

/// What a policy says: what is held against the request, and what auditors are told.
#[derive(Default)]
struct Opinion {
    objections: Vec<Objection>,
    notes: Notes,
}

/// What a policy has to say to auditors.
#[derive(Default)]
struct Notes {
    texts: Vec<(Str, String)>,
    /// What went wrong with them, which is held against the request whatever the binding says.
    failures: Vec<String>,
}

impl Opinion {
    /// One that could not be formed. Whether that is held against the request is up to the policy.
    fn failed(policy: &Policy, why: String) -> Opinion {
        match policy.ignores_failure {
            true => Opinion::default(),
            false => Opinion {
                objections: vec![Objection::new(why)],
                ..Opinion::default()
            },
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
        let (mut scene, mut told) = (None, BTreeMap::default());
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
                    collect(&mut told, &opinion.notes);
                    self.weigh(policy, binding, opinion);
                }
            }
        }
        for (key, texts) in told {
            annotate(
                attributes.call,
                &format!("{}/{key}", policy.name),
                &texts.join(", "),
            );
        }
        Ok(())
    }

    fn misconfigured(&mut self, policy: &Policy, binding: Option<&Binding>, why: &str) {
        if !policy.ignores_failure {
            let what = if binding.is_some() {
                "binding"
            } else {
                "policy"
            };
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
            if binding.actions.contains(&Action::Audit) {
                self.remember(policy, binding, &objection);
            }
            if binding.actions.contains(&Action::Deny) {
                self.refuse(policy, Some(binding), objection);
            }
        }
        for failure in opinion.notes.failures {
            self.refuse(policy, Some(binding), Objection::new(failure));
        }
    }

    /// Notes for auditors what does not hold. Kubernetes: of several they are told the first.
    fn remember(&self, policy: &Policy, binding: &Binding, objection: &Objection) {
        if !self.attributes.call.request.record.is_open() {
            return;
        }
        let actions = binding
            .actions
            .iter()
            .map(|action| Value::from(action.word()))
            .collect::<Vec<_>>();
        let failure = value!({
            "message": (objection.message.as_str()),
            "policy": (&policy.name),
            "binding": (&binding.name),
            "expressionIndex": (objection.at as i64),
            "validationActions": actions,
        });
        let text = json::to_string(&Value::List(vec![failure]));
        annotate(
            self.attributes.call,
            "validation.policy.admission.k8s.io/validation_failure",
            &text,
        );
    }

    fn refuse(&mut self, policy: &Policy, binding: Option<&Binding>, objection: Objection) {
        let attributes = self.attributes;
        self.refusal
            .get_or_insert_with(|| refusal(attributes, policy, binding, objection));
    }
}

/// Kubernetes: it says "is forbidden" whatever the code (policy/validating/dispatcher.go).
fn refusal(
    attributes: &Attributes,
    policy: &Policy,
    binding: Option<&Binding>,
    objection: Objection,
) -> Status {
    let by = binding
        .map(|binding| format!(" with binding '{}'", binding.name))
        .unwrap_or_default();
    let message = format!(
        "ValidatingAdmissionPolicy '{}'{by} denied request: {}",
        policy.name, objection.message
    );
    let mut status = forbidden_for(attributes, &message);
    status.code = match objection.reason.as_str() {
        "Forbidden" => 403,
        "Unauthorized" => 401,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    status.reason = objection.reason;
    let cause = Cause {
        reason: Str::default(),
        message,
        field: String::new(),
    };
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
    let namespaces = server
        .catalog
        .get("", "v1", "namespaces")
        .ok_or_else(Status::no_such_resource)?;
    let mut namespace = server
        .registry
        .get(&namespaces, &Key::new("", name), "")?
        .value();
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
    match notes(policy, scene).await {
        Ok(notes) => Opinion { objections, notes },
        Err(error) => Opinion::failed(policy, error.to_string()),
    }
}

async fn objections(policy: &Policy, scene: &Scene) -> Result<Vec<Objection>, OutOfBudget> {
    let expressions: Vec<&Expression> = policy
        .validations
        .iter()
        .map(|validation| &validation.expression)
        .collect();
    let (verdicts, left) = scene
        .evaluate(
            &policy.variables,
            &expressions,
            Sight::ALL,
            BUDGET,
            |value| value.as_bool() == Some(true),
        )
        .await?;
    let messages = messages(policy, scene, left).await;
    let each = policy.validations.iter().zip(verdicts).enumerate();
    let objections = each.filter_map(|(at, (validation, verdict))| match (verdict, &messages) {
        (Err(why), _) => (!policy.ignores_failure).then(|| Objection {
            at,
            ..Objection::new(why)
        }),
        // Kubernetes: even what holds is held against the request if there is nothing left to say why.
        (Ok(_), Err(error)) => {
            let why = format!("failed messageExpression: {error}");
            (!policy.ignores_failure).then(|| Objection {
                at,
                ..Objection::new(why)
            })
        }
        (Ok(true), Ok(_)) => None,
        (Ok(false), Ok(messages)) => {
            let message = messages.get(at).cloned().flatten();
            Some(Objection {
                message: validation.message(message),
                reason: validation.reason.clone(),
                at,
            })
        }
    });
    Ok(objections.collect())
}

/// The messages that expressions compute, where there are such and they can be used.
async fn messages(
    policy: &Policy,
    scene: &Scene,
    budget: u64,
) -> Result<Vec<Option<String>>, OutOfBudget> {
    let computed = policy
        .validations
        .iter()
        .map(|validation| validation.message_expression.as_ref());
    let expressions: Vec<&Expression> = computed.clone().flatten().collect();
    let sight = Sight {
        authorizer: false,
        ..Sight::ALL
    };
    let text = |value: &cel::Value| value.as_str().map(|text| text.trim().to_owned());
    let (texts, _) = scene
        .evaluate(&policy.variables, &expressions, sight, budget, text)
        .await?;
    let usable =
        |text: &String| !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
    let mut texts = texts
        .into_iter()
        .map(|text| text.ok().flatten().filter(usable));
    Ok(computed
        .map(|expression| expression.and_then(|_| texts.next().flatten()))
        .collect())
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

/// What auditors are told.
async fn notes(policy: &Policy, scene: &Scene) -> Result<Notes, OutOfBudget> {
    if policy.annotations.is_empty() {
        return Ok(Notes::default());
    }
    let expressions: Vec<&Expression> = policy
        .annotations
        .iter()
        .map(|(_, expression)| expression)
        .collect();
    // Kubernetes: an annotation may name the authorizer, but there is none (policy/validating/validator.go).
    let sight = Sight {
        authorizer: false,
        ..Sight::ALL
    };
    let text = |value: &cel::Value| value.as_str().map(|text| text.trim().to_owned());
    let (results, _) = scene
        .evaluate(&policy.variables, &expressions, sight, BUDGET, text)
        .await?;
    let mut notes = Notes::default();
    for ((key, _), result) in policy.annotations.iter().zip(results) {
        match result {
            Ok(text) => notes.texts.extend(
                text.filter(|text| !text.is_empty())
                    .map(|text| (key.clone(), cut(text))),
            ),
            Err(why) if !policy.ignores_failure => notes.failures.push(why),
            Err(_) => {}
        }
    }
    Ok(notes)
}

/// A note that is not too long.
fn cut(mut text: String) -> String {
    let end = (0..=MAX_NOTE).rev().find(|end| text.is_char_boundary(*end));
    if text.len() > MAX_NOTE {
        text.truncate(end.unwrap_or_default());
    }
    text
}

/// Bindings may have different things to say under one name.
fn collect(told: &mut BTreeMap<Str, Vec<String>>, notes: &Notes) {
    for (key, text) in &notes.texts {
        let texts = told.entry(key.clone()).or_default();
        if !texts.contains(text) {
            texts.push(text.clone());
        }
    }
}
