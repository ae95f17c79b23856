//! Validating policies: denials, warnings and audit annotations.

use std::collections::BTreeMap;
use std::time::Duration;

use mizzen_cel as cel;
use mizzen_object::{Cause, Status};
use mizzen_registry::Key;
use mizzen_value::{Str, Value, json, value};
use tokio::time::Instant;

use super::activation::{
    BUDGET, ExpressionBatch, OptionalVariables, OutOfBudget, PolicyActivation,
};
use super::binding::{PolicyBinding, ValidationAction};
use super::configuration::BoundPolicy;
use super::spec::{PolicyExpression, PolicySpec, Validation};
use super::{conditions, is_exempt};
use crate::admission::webhook::VersionedAttributes;
use crate::admission::{annotate, forbidden_for};

/// The longest message that an expression may compute.
const MAX_MESSAGE: usize = 5 * 1024;
/// The longest audit annotation.
const MAX_ANNOTATION: usize = 10 * 1024;

/// Evaluates the policies that match a write. All of them run, because they may warn; the client gets the first denial.
pub(crate) async fn validate(attributes: &VersionedAttributes<'_>) -> Result<(), Status> {
    if is_exempt(attributes) {
        return Ok(());
    }
    let server = attributes.call.server;
    let in_force = server
        .policies
        .validating
        .in_force(server.cluster_registry())?;
    let found = in_force.about(&attributes.call.resource.kind().plural);
    let mut evaluation = PolicyEvaluation {
        attributes,
        denial: None,
    };
    for bound in found {
        evaluation.evaluate_policy(&bound).await?;
    }
    evaluation.denial.map_or(Ok(()), Err)
}

/// The evaluation of one request.
struct PolicyEvaluation<'a> {
    attributes: &'a VersionedAttributes<'a>,
    denial: Option<Status>,
}

/// A failed validation or evaluation.
struct PolicyDecision {
    message: String,
    reason: Str,
    /// The index of the validation.
    at: usize,
    /// The label in metrics.
    error_type: &'static str,
}

impl PolicyDecision {
    fn new(message: impl Into<String>) -> PolicyDecision {
        PolicyDecision {
            message: message.into(),
            reason: "Invalid".into(),
            at: 0,
            error_type: "invalid_error",
        }
    }
}

/// The result of a policy: failures and audit annotations.
#[derive(Default)]
struct ValidateResult {
    decisions: Vec<PolicyDecision>,
    notes: AuditAnnotations,
}

/// The audit annotations of a policy.
#[derive(Default)]
struct AuditAnnotations {
    texts: Vec<(Str, String)>,
    /// Their errors, which deny the request whatever the binding's actions.
    failures: Vec<String>,
}

impl ValidateResult {
    /// The result of a policy that could not be evaluated. Its `failurePolicy` decides.
    fn failed(policy: &PolicySpec, why: String) -> ValidateResult {
        match policy.ignores_failure {
            true => ValidateResult::default(),
            false => ValidateResult {
                decisions: vec![PolicyDecision::new(why)],
                ..ValidateResult::default()
            },
        }
    }
}

impl PolicyEvaluation<'_> {
    async fn evaluate_policy(&mut self, bound: &BoundPolicy) -> Result<(), Status> {
        let (policy, attributes) = (&bound.policy, self.attributes);
        let version = match policy.version(attributes) {
            Ok(Some(version)) => version,
            Ok(None) => return Ok(()),
            Err(why) => {
                self.misconfigured(policy, None, &why);
                return Ok(());
            }
        };
        let (mut activation, mut collected) = (None, BTreeMap::default());
        for binding in &bound.bindings {
            let params = match binding.params(policy, attributes).await {
                Ok(params) => params,
                Err(why) => {
                    self.misconfigured(policy, Some(binding), &why);
                    continue;
                }
            };
            for params in params {
                if activation.is_none() {
                    activation = Some(conditions::activation(attributes, &version).await?);
                }
                if let Some(activation) = &mut activation {
                    activation.namespace = namespace(attributes)?;
                    activation.params = params;
                    let began = Instant::now();
                    let result = validate_with(policy, activation).await;
                    collect(&mut collected, &result.notes);
                    self.observe((policy, binding), &result, began.elapsed());
                    self.enforce(policy, binding, result);
                }
            }
        }
        for (key, texts) in collected {
            annotate(
                attributes.call,
                &format!("{}/{key}", policy.name),
                &texts.join(", "),
            );
        }
        Ok(())
    }

    fn misconfigured(&mut self, policy: &PolicySpec, binding: Option<&PolicyBinding>, why: &str) {
        if !policy.ignores_failure {
            let what = if binding.is_some() {
                "binding"
            } else {
                "policy"
            };
            let decision = PolicyDecision::new(format!("failed to configure {what}: {why}"));
            self.deny(policy, binding, decision);
        }
    }

    /// Kubernetes: each action of a failed validation is counted, a success as `allow`.
    fn observe(
        &self,
        (policy, binding): (&PolicySpec, &PolicyBinding),
        result: &ValidateResult,
        took: Duration,
    ) {
        let metrics = &self.attributes.call.server.metrics.admission;
        let names = (&*policy.name, &*binding.name);
        if result.decisions.is_empty() {
            metrics.observe_validating_policy(names, "no_error", "allow", took);
        }
        for decision in &result.decisions {
            for action in &binding.actions {
                let action = match action {
                    ValidationAction::Deny => "deny",
                    ValidationAction::Warn => "warn",
                    ValidationAction::Audit => "audit",
                };
                metrics.observe_validating_policy(names, decision.error_type, action, took);
            }
        }
    }

    fn enforce(&mut self, policy: &PolicySpec, binding: &PolicyBinding, result: ValidateResult) {
        for decision in result.decisions {
            if binding.actions.contains(&ValidationAction::Warn) {
                let (policy, binding, message) = (&policy.name, &binding.name, &decision.message);
                self.attributes.call.notes.warn(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': {message}"
                ));
            }
            if binding.actions.contains(&ValidationAction::Audit) {
                self.annotate_failure(policy, binding, &decision);
            }
            if binding.actions.contains(&ValidationAction::Deny) {
                self.deny(policy, Some(binding), decision);
            }
        }
        for failure in result.notes.failures {
            self.deny(policy, Some(binding), PolicyDecision::new(failure));
        }
    }

    /// Adds the audit annotation of a failed validation. Kubernetes: only the first of several.
    fn annotate_failure(
        &self,
        policy: &PolicySpec,
        binding: &PolicyBinding,
        decision: &PolicyDecision,
    ) {
        if !self.attributes.call.request.record.is_open() {
            return;
        }
        let actions = binding
            .actions
            .iter()
            .map(|action| Value::from(action.word()))
            .collect::<Vec<_>>();
        let failure = value!({
            "message": (decision.message.as_str()),
            "policy": (&policy.name),
            "binding": (&binding.name),
            "expressionIndex": (decision.at as i64),
            "validationActions": actions,
        });
        let text = json::to_string(&Value::List(vec![failure]));
        annotate(
            self.attributes.call,
            "validation.policy.admission.k8s.io/validation_failure",
            &text,
        );
    }

    fn deny(
        &mut self,
        policy: &PolicySpec,
        binding: Option<&PolicyBinding>,
        decision: PolicyDecision,
    ) {
        let attributes = self.attributes;
        self.denial
            .get_or_insert_with(|| denial(attributes, policy, binding, decision));
    }
}

/// Kubernetes: the message says "is forbidden" whatever the code (policy/validating/dispatcher.go).
fn denial(
    attributes: &VersionedAttributes,
    policy: &PolicySpec,
    binding: Option<&PolicyBinding>,
    decision: PolicyDecision,
) -> Status {
    let by = binding
        .map(|binding| format!(" with binding '{}'", binding.name))
        .unwrap_or_default();
    let message = format!(
        "ValidatingAdmissionPolicy '{}'{by} denied request: {}",
        policy.name, decision.message
    );
    let mut status = forbidden_for(attributes, &message);
    status.code = match decision.reason.as_str() {
        "Forbidden" => 403,
        "Unauthorized" => 401,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    status.reason = decision.reason;
    let cause = Cause {
        reason: Str::default(),
        message,
        field: String::new(),
    };
    status.details.get_or_insert_default().causes.push(cause);
    status
}

/// The variable `namespaceObject`; `null` if there is none.
pub(super) fn namespace(attributes: &VersionedAttributes) -> Result<Value, Status> {
    let name = attributes.namespace();
    if name.is_empty() || attributes.is_namespace() {
        return Ok(Value::Null);
    }
    let (registry, namespaces) = attributes.call.server.namespaces()?;
    let namespace = registry.get(&namespaces, &Key::new("", name), "")?;
    let mut namespace = namespace.value();
    for field in ["kind", "apiVersion"] {
        namespace.remove(field);
    }
    for field in ["managedFields", "ownerReferences"] {
        namespace.entry("metadata").remove(field);
    }
    Ok(namespace)
}

/// Evaluates a policy with one parameter.
async fn validate_with(policy: &PolicySpec, activation: &PolicyActivation) -> ValidateResult {
    match conditions::hold(&policy.conditions, &policy.variables, activation).await {
        Ok(true) => {}
        Ok(false) => return ValidateResult::default(),
        Err(why) => return ValidateResult::failed(policy, why),
    }
    let decisions = match decisions(policy, activation).await {
        Ok(decisions) => decisions,
        Err(error) => {
            let mut result = ValidateResult::failed(policy, error.to_string());
            let decisions = result.decisions.iter_mut();
            decisions.for_each(|decision| decision.error_type = "out_of_budget");
            return result;
        }
    };
    match notes(policy, activation).await {
        Ok(notes) => ValidateResult { decisions, notes },
        Err(error) => ValidateResult::failed(policy, error.to_string()),
    }
}

async fn decisions(
    policy: &PolicySpec,
    activation: &PolicyActivation,
) -> Result<Vec<PolicyDecision>, OutOfBudget> {
    let expressions: Vec<&PolicyExpression> = policy
        .validations
        .iter()
        .map(|validation| &validation.expression)
        .collect();
    let (verdicts, left) = activation
        .evaluate(
            ExpressionBatch {
                variables: &policy.variables,
                expressions: &expressions,
                optional: OptionalVariables::ALL,
                budget: BUDGET,
            },
            |value| value.as_bool() == Some(true),
        )
        .await?;
    let messages = messages(policy, activation, left).await;
    let each = policy.validations.iter().zip(verdicts).enumerate();
    let decisions = each.filter_map(|(at, (validation, verdict))| match (verdict, &messages) {
        (Err(why), _) => (!policy.ignores_failure).then(|| PolicyDecision {
            at,
            ..PolicyDecision::new(why)
        }),
        // Kubernetes: without budget for messages even a successful validation fails.
        (Ok(_), Err(error)) => {
            let why = format!("failed messageExpression: {error}");
            (!policy.ignores_failure).then(|| PolicyDecision {
                at,
                ..PolicyDecision::new(why)
            })
        }
        (Ok(true), Ok(_)) => None,
        (Ok(false), Ok(messages)) => {
            let message = messages.get(at).cloned().flatten();
            Some(PolicyDecision {
                message: validation.message(message),
                reason: validation.reason.clone(),
                at,
                error_type: "no_error",
            })
        }
    });
    Ok(decisions.collect())
}

/// The messages of `messageExpression`, where it exists and its result is usable.
async fn messages(
    policy: &PolicySpec,
    activation: &PolicyActivation,
    budget: u64,
) -> Result<Vec<Option<String>>, OutOfBudget> {
    let computed = policy
        .validations
        .iter()
        .map(|validation| validation.message_expression.as_ref());
    let expressions: Vec<&PolicyExpression> = computed.clone().flatten().collect();
    let evaluation = ExpressionBatch {
        variables: &policy.variables,
        expressions: &expressions,
        optional: OptionalVariables {
            authorizer: false,
            ..OptionalVariables::ALL
        },
        budget,
    };
    let text = |value: &cel::Value| value.as_str().map(|text| text.trim().to_owned());
    let (texts, _) = activation.evaluate(evaluation, text).await?;
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

/// Evaluates the audit annotations.
async fn notes(
    policy: &PolicySpec,
    activation: &PolicyActivation,
) -> Result<AuditAnnotations, OutOfBudget> {
    if policy.annotations.is_empty() {
        return Ok(AuditAnnotations::default());
    }
    let expressions: Vec<&PolicyExpression> = policy
        .annotations
        .iter()
        .map(|(_, expression)| expression)
        .collect();
    // Kubernetes: audit annotations have no authorizer (policy/validating/validator.go).
    let evaluation = ExpressionBatch {
        variables: &policy.variables,
        expressions: &expressions,
        optional: OptionalVariables {
            authorizer: false,
            ..OptionalVariables::ALL
        },
        budget: BUDGET,
    };
    let text = |value: &cel::Value| value.as_str().map(|text| text.trim().to_owned());
    let (results, _) = activation.evaluate(evaluation, text).await?;
    let mut notes = AuditAnnotations::default();
    for ((key, _), result) in policy.annotations.iter().zip(results) {
        match result {
            Ok(text) => notes
                .texts
                .extend(text.filter(|text| !text.is_empty()).map(|text| {
                    let mut end = text.len().min(MAX_ANNOTATION);
                    while !text.is_char_boundary(end) {
                        end -= 1;
                    }
                    (key.clone(), text[..end].to_owned())
                })),
            Err(why) if !policy.ignores_failure => notes.failures.push(why),
            Err(_) => {}
        }
    }
    Ok(notes)
}

/// Collects the annotations of several bindings under one key.
fn collect(collected: &mut BTreeMap<Str, Vec<String>>, notes: &AuditAnnotations) {
    for (key, text) in &notes.texts {
        let texts = collected.entry(key.clone()).or_default();
        if !texts.contains(text) {
            texts.push(text.clone());
        }
    }
}
