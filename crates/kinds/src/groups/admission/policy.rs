//! Validating and mutating admission policies.

use mizzen_object::validate::{condition, field, names};
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::Value;

use super::check::Expressions;
use super::matching::{self, FAILURE_POLICIES, REINVOCATION_POLICIES};
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::expression::ExpressionCompiler;

pub(super) const VALIDATING: Behaviour = Behaviour::of::<ValidatingPolicyStrategy>();
pub(super) const MUTATING: Behaviour = Behaviour::of::<MutatingPolicyStrategy>();

pub(super) struct ValidatingPolicyStrategy;

impl KindStrategy for ValidatingPolicyStrategy {
    fn default(policy: &mut Value) {
        default(policy)
    }

    fn validate(
        policy: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if context.action == Action::Status {
            let status = &policy["status"];

            let path = Path::new("status");
            let warnings = path.child("typeChecking");
            let warnings = warnings.child("expressionWarnings");
            for (index, warning) in status
                .at("typeChecking.expressionWarnings")
                .items()
                .enumerate()
            {
                let path = warnings.index(index);
                if warning["warning"].is_empty() {
                    violations.required(path.child("warning"), "");
                }
                if warning["fieldRef"].str().trim().is_empty() {
                    violations.required(path.child("fieldRef"), "");
                }
            }
            condition::conditions(&status["conditions"], &path.child("conditions"), violations);
            return;
        }
        let (spec, path) = (&policy["spec"], Path::new("spec"));
        validate_matching(spec, &path, violations);
        let mut expressions = Expressions::of(spec);
        expressions.validate_conditions(spec, old, &path, violations);
        expressions.validate_variables(spec, &path, violations);
        if spec["validations"].is_empty() && spec["auditAnnotations"].is_empty() {
            for name in ["validations", "auditAnnotations"] {
                let detail = "validations or auditAnnotations must contain at least one item";
                violations.required(path.child(name), detail);
            }
        }
        for (index, validation) in spec["validations"].items().enumerate() {
            expressions.validate_validation(
                validation,
                &path.child("validations").index(index),
                violations,
            );
        }
        expressions.validate_annotations(policy, &path.child("auditAnnotations"), violations);
    }
}

pub(super) struct MutatingPolicyStrategy;

impl KindStrategy for MutatingPolicyStrategy {
    fn default(policy: &mut Value) {
        default(policy)
    }

    fn validate(policy: &Value, old: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        let (spec, path) = (&policy["spec"], Path::new("spec"));
        validate_matching(spec, &path, violations);
        matching::validate_mutating_operations(
            &spec["matchConstraints"],
            &path.child("matchConstraints"),
            violations,
        );
        let mut expressions = Expressions {
            compiler: ExpressionCompiler::composing(),
            ..Expressions::of(spec)
        };
        expressions.validate_conditions(spec, old, &path, violations);
        expressions.validate_variables(spec, &path, violations);
        if spec["mutations"].is_empty() {
            violations.required(
                path.child("mutations"),
                "mutations must contain at least one item",
            );
        }
        for (index, mutation) in spec["mutations"].items().enumerate() {
            expressions.validate_mutation(
                mutation,
                &path.child("mutations").index(index),
                violations,
            );
        }
        match spec["reinvocationPolicy"].str() {
            "" => violations.required(path.child("reinvocationPolicy"), ""),
            policy => field::one_of(
                policy,
                &REINVOCATION_POLICIES,
                &path.child("reinvocationPolicy"),
                violations,
            ),
        }
    }
}

fn default(policy: &mut Value) {
    let spec = policy.entry("spec");
    spec.set_default("failurePolicy", "Fail");
    if let Some(constraints) = spec.get_mut("matchConstraints") {
        matching::default_resources(constraints);
    }
}

fn validate_matching(spec: &Value, path: &Path, violations: &mut Violations) {
    match spec["failurePolicy"].as_str() {
        None => violations.required(path.child("failurePolicy"), ""),
        Some(policy) => field::one_of(
            policy,
            &FAILURE_POLICIES,
            &path.child("failurePolicy"),
            violations,
        ),
    }
    if let Some(kind) = spec.get("paramKind") {
        let path = path.child("paramKind");
        let place = path.child("apiVersion");
        match kind["apiVersion"].str() {
            "" => violations.required(place, ""),
            text => validate_api_version(text, &place, violations),
        }
        match kind["kind"].str() {
            "" => violations.required(path.child("kind"), ""),
            name => {
                let wrong = names::is_dns1035_label(&name.to_lowercase());
                if !wrong.is_empty() {
                    let detail = format!(
                        "may have mixed case, but should otherwise match: {}",
                        wrong.join(",")
                    );
                    violations.invalid(path.child("kind"), name, &detail);
                }
            }
        }
    }
    let (constraints, path) = (&spec["matchConstraints"], path.child("matchConstraints"));
    if constraints.is_null() {
        return violations.required(path, "");
    }
    matching::validate_resources(constraints, &path, violations);
    if constraints["resourceRules"].is_empty() {
        violations.required(path.child("resourceRules"), "");
    }
}

fn validate_api_version(text: &str, path: &Path, violations: &mut Violations) {
    let (group, version) = match text.split('/').collect::<Vec<_>>()[..] {
        [version] => ("", version),
        [group, version] => (group, version),
        _ => {
            return violations.invalid(
                path,
                text,
                &format!("unexpected GroupVersion string: {text}"),
            );
        }
    };
    let wrong = names::is_dns1123_subdomain(group);
    if !group.is_empty() && !wrong.is_empty() {
        violations.invalid(path, group, &wrong.join(","));
    }
    let wrong = names::is_dns1035_label(version);
    if version.is_empty() {
        violations.invalid(path, text, "version must be specified");
    } else if !wrong.is_empty() {
        violations.invalid(path, version, &wrong.join(","));
    }
}
