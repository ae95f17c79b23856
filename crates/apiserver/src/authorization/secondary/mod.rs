//! Secondary authorization: what a request needs beyond its own verb, because of what it writes or
//! opens.
//!
//! Kubernetes: strategies that hold an authorizer (pkg/registry). A denial is a violation beside
//! those of validation. Upstream has such checks at other places, too: here `escalation` and
//! `impersonate` beside this folder, certificates and node tokens in `admission`.
//! `docs/threat-model.md` lists all.

mod connect;
mod devices;
mod parameters;

pub use connect::authorize_connect;

use mizzen_authorization::{Attributes, AttributesTarget, Decision, ResourceAttributes};
use mizzen_object::Violations;
use mizzen_registry::BoxFuture;
use mizzen_value::Value;

use crate::verbs::ResourceCall;

/// Authorizes the content of `new`. Denials are added to the `violations` of validation; none if
/// nothing has to be authorized.
pub(crate) fn authorize<'a>(
    call: &'a ResourceCall<'a>,
    new: &'a Value,
    old: Option<&'a Value>,
    violations: &'a mut Violations,
) -> Option<BoxFuture<'a, ()>> {
    let (kind, write) = (call.resource.kind(), AuthorizedWrite { call, new, old });
    match (
        kind.gvk.group.as_str(),
        kind.plural.as_str(),
        call.path.subresource.as_str(),
    ) {
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicies" | "mutatingadmissionpolicies",
            "",
        ) => Some(Box::pin(parameters::authorize_policy(write, violations))),
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings",
            "",
        ) => Some(Box::pin(parameters::authorize_binding(write, violations))),
        // The spec is immutable.
        ("resource.k8s.io", "resourceclaims", "") if old.is_none() => {
            let checked = devices::check_admin_access(write, &new["spec"], violations);
            Some(Box::pin(checked))
        }
        ("resource.k8s.io", "resourceclaimtemplates", "") if old.is_none() => {
            let checked = devices::check_admin_access(write, &new["spec"]["spec"], violations);
            Some(Box::pin(checked))
        }
        ("resource.k8s.io", "resourceclaims", "status") => {
            Some(Box::pin(devices::authorize_status(write, violations)))
        }
        _ => None,
    }
}

/// A validated write.
struct AuthorizedWrite<'a> {
    call: &'a ResourceCall<'a>,
    new: &'a Value,
    old: Option<&'a Value>,
}

impl AuthorizedWrite<'_> {
    /// The decision on another verb and resource.
    async fn authorize(&self, verb: &str, resource: ResourceAttributes<'_>) -> Decision {
        let ResourceCall {
            server, request, ..
        } = self.call;
        let attributes = Attributes {
            user: &request.user,
            verb,
            target: AttributesTarget::Resource(resource),
        };
        server
            .authorization
            .authorizers
            .authorize(&attributes)
            .await
    }
}
