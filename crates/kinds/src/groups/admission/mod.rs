//! admissionregistration.k8s.io: who else has a say in what is stored?
//!
//! Expressions are only looked for here; whether they compile is the business of whoever runs them.

mod binding;
mod matching;
mod policy;
mod webhook;

use mizzen_object::{Context, Value};

use crate::Behaviour;

pub(super) fn behaviour(kind: &str) -> Behaviour {
    let behaviour = match kind {
        "ValidatingWebhookConfiguration" => webhook::VALIDATING,
        "MutatingWebhookConfiguration" => webhook::MUTATING,
        "ValidatingAdmissionPolicy" => policy::VALIDATING,
        "MutatingAdmissionPolicy" => policy::MUTATING,
        "ValidatingAdmissionPolicyBinding" => binding::VALIDATING,
        "MutatingAdmissionPolicyBinding" => binding::MUTATING,
        _ => return Behaviour::NONE,
    };
    Behaviour { warnings, ..behaviour }
}

const STATIC_SUFFIX: &str = ".static.k8s.io";

fn warnings(object: &Value, _old: Option<&Value>, _context: &Context) -> Vec<String> {
    if !object["metadata"]["name"].str().ends_with(STATIC_SUFFIX) {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: names ending with \"{STATIC_SUFFIX}\" are reserved for static manifest-based configurations \
         and cannot be managed via the API"
    )]
}
