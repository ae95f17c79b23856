//! admissionregistration.k8s.io: admission webhooks and admission policies.
//!
//! `mizzen_apiextensions::expression` compiles the expressions of policies and webhooks.

mod binding;
mod check;
mod matching;
mod policy;
mod webhook;

use crate::Behaviour;

pub(super) fn behaviour(version: &str, kind: &str) -> Behaviour {
    let behaviour = match (version, kind) {
        ("v1beta1", "ValidatingWebhookConfiguration") => webhook::VALIDATING_V1BETA1,
        ("v1beta1", "MutatingWebhookConfiguration") => webhook::MUTATING_V1BETA1,
        (_, "ValidatingWebhookConfiguration") => webhook::VALIDATING,
        (_, "MutatingWebhookConfiguration") => webhook::MUTATING,
        (_, "ValidatingAdmissionPolicy") => policy::VALIDATING,
        (_, "MutatingAdmissionPolicy") => policy::MUTATING,
        ("v1alpha1", "ValidatingAdmissionPolicyBinding") => binding::VALIDATING_V1ALPHA1,
        ("v1alpha1", "MutatingAdmissionPolicyBinding") => binding::MUTATING_V1ALPHA1,
        (_, "ValidatingAdmissionPolicyBinding") => binding::VALIDATING,
        (_, "MutatingAdmissionPolicyBinding") => binding::MUTATING,
        _ => return Behaviour::NONE,
    };
    Behaviour {
        warnings: |object, _old, _context| {
            if !object["metadata"]["name"].str().ends_with(STATIC_SUFFIX) {
                return Vec::new();
            }
            vec![format!(
                "metadata.name: names ending with \"{STATIC_SUFFIX}\" are reserved for static manifest-based configurations \
         and cannot be managed via the API"
            )]
        },
        ..behaviour
    }
}

const STATIC_SUFFIX: &str = ".static.k8s.io";
