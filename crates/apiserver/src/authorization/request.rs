//! Authorizes requests.

use std::time::Duration;

use mizzen_object::Status;
use tokio::time::Instant;

use super::{
    Attributes, AttributesTarget, AuthorizationError, Decision, DecisionReason, ResourceAttributes,
    forbidden,
};
use crate::audit::Layer;
use crate::metrics::AuthorizationOutcome;
use crate::request::{self, Request};
use crate::server::ServerParts;

/// Authorizes a request.
pub(crate) async fn authorize_request(
    server: &ServerParts,
    request: &Request,
) -> Result<(), AuthorizationError> {
    if request.user.is_master() {
        server
            .metrics
            .auth
            .record_authorization(AuthorizationOutcome::Allowed, Duration::ZERO);
        annotate_decision(request, &Decision::Allow(DecisionReason::default()));
        return Ok(());
    }
    let started = Instant::now();
    let attributes = request_attributes(request);
    let decision = server
        .authorization
        .authorizers
        .authorize(&attributes)
        .await;
    let took = started.elapsed();
    // Kubernetes: an evaluation error does not count if the request is allowed
    // (endpoints/filters/metrics.go).
    let outcome = match (&decision, decision.reason().problem()) {
        (Decision::Allow(_), _) => AuthorizationOutcome::Allowed,
        (_, Some(_)) => AuthorizationOutcome::Error,
        (Decision::Deny(_), None) => AuthorizationOutcome::Denied,
        (Decision::NoOpinion(_), None) => AuthorizationOutcome::NoOpinion,
    };
    server.metrics.auth.record_authorization(outcome, took);
    request.record.add_latency(Layer::Authorization, took);
    annotate_decision(request, &decision);
    let reason = decision.reason();
    match (decision.is_allowed(), reason.problem()) {
        (true, _) => Ok(()),
        (false, Some(problem)) => Err(AuthorizationError::Failed(problem.into())),
        (false, None) => Err(AuthorizationError::Forbidden(Box::new(forbidden(
            &attributes,
            &reason.to_string(),
        )))),
    }
}

/// Authorizes an action besides the request's own verb. Kubernetes: withAuthorization
/// (handlers/update.go).
pub(crate) async fn authorize(
    server: &ServerParts,
    attributes: &Attributes<'_>,
) -> Result<(), Status> {
    let decision = server.authorization.authorizers.authorize(attributes).await;
    let reason = decision.reason();
    match (decision.is_allowed(), reason.problem()) {
        (true, _) => Ok(()),
        (false, Some(problem)) => Err(Status::internal(problem)),
        (false, None) => Err(forbidden(attributes, &reason.to_string())),
    }
}

/// Adds the decision and its reason to the audit annotations.
fn annotate_decision(request: &Request, decision: &Decision) {
    let (record, reason) = (&request.record, decision.reason());
    if !record.is_open() {
        return;
    }
    let word = match (decision.is_allowed(), reason.problem()) {
        (true, _) => "allow",
        (false, None) => "forbid",
        (false, Some(_)) => {
            return record.annotate("authorization.k8s.io/reason", "internal error");
        }
    };
    record.annotate("authorization.k8s.io/decision", word);
    record.annotate("authorization.k8s.io/reason", reason.to_string());
}

/// The attributes of a request, for authorizers, audit policies and flow schemas.
pub(crate) fn request_attributes(request: &Request) -> Attributes<'_> {
    let info = &request.info;
    let selector = |name: &str| {
        if info.has_selectors() {
            request.query.text(name)
        } else {
            ""
        }
    };
    let target = match info.target() {
        request::RequestTarget::NonResource(path) => AttributesTarget::NonResource(path),
        request::RequestTarget::Resource(path) => AttributesTarget::Resource(ResourceAttributes {
            group: &path.group,
            version: &path.version,
            resource: &path.resource,
            subresource: &path.subresource,
            namespace: path.scope(),
            name: info.name(),
            fields: selector("fieldSelector"),
            labels: selector("labelSelector"),
        }),
    };
    Attributes {
        user: &request.user,
        verb: info.verb(),
        target,
    }
}
