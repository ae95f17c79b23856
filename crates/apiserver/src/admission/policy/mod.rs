//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy.
//!
//! [`AdmissionPolicies`] keeps the stored policies with their bindings, compiled once (`configuration`, `spec`). `binding` decides
//! whether one applies to a request, and with which parameters. CEL expressions are evaluated over their variables in
//! `activation`, some of them lazily; `authorizer` answers the `authorizer` of expressions. `validate` turns results into denials,
//! warnings and audit annotations, `mutate` changes objects by `patch`. `matchConditions` of webhooks are expressions, too
//! ([`MatchConditions`]).
//!
//! Invariant: no evaluation exceeds its cost budget, and none blocks.
//! Invariant: policies do not apply to policies, so that an administrator cannot be locked out.

mod activation;
mod authorizer;
mod binding;
mod conditions;
mod configuration;
mod mutate;
mod patch;
mod spec;
mod validate;

pub(crate) use conditions::MatchConditions;
pub(crate) use configuration::AdmissionPolicies;
pub(crate) use mutate::PolicyRounds;
pub(crate) use validate::validate;

use super::webhook::VersionedAttributes;

/// Kubernetes: reviews are not intercepted, because clusters break without them, and neither are policies
/// (kubeapiserver/admission/exclusion/resources.go, plugin/policy/generic/plugin.go).
fn is_exempt(attributes: &VersionedAttributes) -> bool {
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
