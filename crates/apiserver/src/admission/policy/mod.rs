//! Which rules of the cluster's own have a say in a write? Those that policies and their bindings state.
//!
//! [`Policies`] keeps policies with their bindings as they are stored, compiled once (`configuration`, `spec`).
//! `binding` says whether one applies to a request and with which parameters. Expressions are evaluated over a
//! [`Scene`](scene::Scene): what they see, lazily computed variables included; `questions` answers what they ask about
//! permissions. `validate` turns verdicts into refusals and warnings, `mutate` changes objects by `patch`.
//! Conditions of webhooks are expressions too ([`Conditions`]).
//!
//! Invariant: no evaluation costs more than its budget, and none waits for anything.
//! Invariant: no policy is shown to a policy, so that nobody can lock an administrator out.

mod binding;
mod conditions;
mod configuration;
mod mutate;
mod patch;
mod questions;
mod scene;
mod spec;
mod validate;

pub(crate) use conditions::Conditions;
pub(crate) use configuration::Policies;
pub(crate) use mutate::Rounds;
pub(crate) use validate::validate;

use super::webhook::Attributes;

/// Kubernetes: reviews are not intercepted, because clusters break without them, and neither are policies
/// (kubeapiserver/admission/exclusion/resources.go, plugin/policy/generic/plugin.go).
fn is_exempt(attributes: &Attributes) -> bool {
    let kind = attributes.call.resource.kind();
    match kind.gvk.group.as_str() {
        "authentication.k8s.io" | "authorization.k8s.io" => true,
        "admissionregistration.k8s.io" => {
            let policy = kind
                .gvk
                .kind
                .strip_suffix("Binding")
                .unwrap_or(&kind.gvk.kind);
            matches!(
                policy,
                "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy"
            )
        }
        _ => false,
    }
}
