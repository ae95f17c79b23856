//! Admission policy bindings: validation of parameters and validation actions.

use mizzen_object::validate::{field, names};
use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::Value;

use super::matching;
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::rules;

pub(super) const VALIDATING: Behaviour = Behaviour::of::<ValidatingPolicyBindingStrategy>();
pub(super) const MUTATING: Behaviour = Behaviour::of::<MutatingPolicyBindingStrategy>();

/// Bindings of v1alpha1, which may be in etcd.
pub(super) const VALIDATING_V1ALPHA1: Behaviour = Behaviour {
    default: default_v1alpha1,
    ..VALIDATING
};
pub(super) const MUTATING_V1ALPHA1: Behaviour = Behaviour {
    default: default_v1alpha1,
    ..MUTATING
};

pub(super) struct ValidatingPolicyBindingStrategy;

impl KindStrategy for ValidatingPolicyBindingStrategy {
    fn default(binding: &mut Value) {
        default(binding)
    }

    fn validate(binding: &Value, _: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        let path = Path::new("spec");
        validate_spec(&binding["spec"], &path, violations);
        let actions = &binding["spec"]["validationActions"];
        let path = path.child("validationActions");
        let list = actions.list();
        for (index, action) in list.iter().enumerate() {
            field::one_of(
                action.str(),
                &["Audit", "Deny", "Warn"],
                &path.index(index),
                violations,
            );
            if list[..index].contains(action) {
                violations.duplicate(path.index(index), action.str());
            }
        }
        let has = |wanted: &str| list.iter().any(|action| action.str() == wanted);
        if has("Deny") && has("Warn") {
            let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the \
                      API response and headers serves no purpose)";
            violations.invalid(path, actions.clone(), detail);
        }
        if list.is_empty() {
            violations.required(path, "at least one validation action is required");
        }
    }
}

pub(super) struct MutatingPolicyBindingStrategy;

impl KindStrategy for MutatingPolicyBindingStrategy {
    fn default(binding: &mut Value) {
        default(binding)
    }

    fn validate(binding: &Value, _: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        let path = Path::new("spec");
        validate_spec(&binding["spec"], &path, violations);
        let resources = &binding["spec"]["matchResources"];
        matching::validate_mutating_operations(
            resources,
            &path.child("matchResources"),
            violations,
        );
    }
}

fn default(binding: &mut Value) {
    if let Some(resources) = binding.at_mut("spec.matchResources") {
        matching::default_resources(resources);
    }
}

/// Kubernetes: without a parameter v1alpha1 denies (admissionregistration/v1alpha1/defaults.go).
fn default_v1alpha1(binding: &mut Value) {
    default(binding);
    if let Some(reference) = binding.at_mut("spec.paramRef") {
        reference.set_default("parameterNotFoundAction", "Deny");
    }
}

fn validate_spec(spec: &Value, path: &Path, violations: &mut Violations) {
    rules::required_text(
        &spec["policyName"],
        names::is_dns1123_subdomain,
        &path.child("policyName"),
        violations,
    );
    if let Some(params) = spec.get("paramRef") {
        let path = path.child("paramRef");
        let (name, selector) = (params["name"].str(), params.get("selector"));
        let exclusive = "name and selector are mutually exclusive";
        if !name.is_empty() {
            rules::text(
                name,
                names::is_path_segment_name,
                &path.child("name"),
                violations,
            );
            if selector.is_some() {
                violations.forbidden(path.child("name"), exclusive);
            }
        }
        if let Some(selector) = selector {
            rules::selector(selector, None, &path.child("selector"), violations);
            if !name.is_empty() {
                violations.forbidden(path.child("selector"), exclusive);
            }
        }
        if name.is_empty() && selector.is_none() {
            violations.required(path, "one of name or selector must be specified");
        }
        let place = path.child("parameterNotFoundAction");
        match params["parameterNotFoundAction"].str() {
            "" => violations.required(place, ""),
            action => field::one_of(action, &["Deny", "Allow"], &place, violations),
        }
    }
    if let Some(resources) = spec.get("matchResources") {
        matching::validate_resources(resources, &path.child("matchResources"), violations);
    }
}
