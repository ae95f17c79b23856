//! Authorizes requests, and what they need beyond their own verb.
//!
//! `mizzen-authorization` decides; this module asks it for a request and audits the decision.

pub(crate) mod escalation;
mod reload;
pub mod secondary;

pub(crate) use reload::reload_on_change;

use std::fmt::Display;

use http::Uri;
use mizzen_audit::Layer;
use mizzen_authorization::{Attributes, Decision, escape_html, forbidden, impersonated_user};
use mizzen_object::Status;
use mizzen_value::json::quote;
use tokio::time::Instant;

use crate::request::Request;
use crate::response::{self, Response};
use crate::server::ServerParts;

/// Why a request is not authorized.
#[derive(Debug)]
pub(crate) enum AuthorizationError {
    /// 403: the user is not allowed.
    Forbidden(Box<Status>),
    /// 500: an authorizer failed.
    Failed(String),
}

impl AuthorizationError {
    /// The response. Kubernetes: an internal error is plain text, not a Status
    /// (handlers/responsewriters/errors.go).
    pub(crate) fn into_response(
        self,
        request: &Request,
        refuse: impl FnOnce(&Status) -> Response,
    ) -> Response {
        match self {
            AuthorizationError::Forbidden(status) => refuse(&status),
            AuthorizationError::Failed(problem) => internal_error(&request.uri, problem),
        }
    }
}

/// 500 in plain text, for errors before a handler is found.
pub(crate) fn internal_error(uri: &Uri, problem: impl Display) -> Response {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let text = format!("Internal Server Error: {}: {problem}\n", quote(path));
    response::text(500, escape_html(&text))
}

/// Authorizes a request.
pub(crate) async fn authorize_request(
    server: &ServerParts,
    request: &Request,
) -> Result<(), AuthorizationError> {
    let attributes = request.attributes();
    let (decision, took) = server.authorization.authorize_request(&attributes).await;
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

/// Replaces the user of the request by the impersonated one, if that is authorized.
pub(crate) async fn impersonate(server: &ServerParts, request: &mut Request) -> Result<(), Status> {
    let Some(wanted) = impersonated_user(&mut request.headers)? else {
        return Ok(());
    };
    let started = Instant::now();
    let attributes = request.attributes();
    let found = server.authorization.impersonate(&attributes, &wanted).await;
    let took = started.elapsed();
    request.record.add_latency(Layer::Impersonation, took);
    let (user, constraint) = found?;
    request.record.set_impersonated_user(&user, &constraint);
    request.user = user;
    Ok(())
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
