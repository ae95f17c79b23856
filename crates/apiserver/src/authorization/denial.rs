//! Responses to requests that are not authorized: 403, or 500 if authorization failed.

use std::fmt::Display;

use http::Uri;
use mizzen_object::{GroupResource, Status};
use mizzen_value::json::quote;

use super::{Attributes, AttributesTarget, ResourceAttributes};
use crate::request::Request;
use crate::response::{self, Response};

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

/// 403 with the denied action, and the reason if there is one.
pub(crate) fn forbidden(attributes: &Attributes, reason: &str) -> Status {
    let mut why = attributes.denied_action();
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    match attributes.target {
        AttributesTarget::NonResource(_) => {
            let message = format!("forbidden: {why}");
            Status {
                details: Some(Box::default()),
                ..Status::failure(403, "Forbidden", message)
            }
        }
        AttributesTarget::Resource(ResourceAttributes {
            group,
            resource,
            name,
            ..
        }) => {
            let resource = GroupResource {
                group: group.into(),
                resource: resource.into(),
            };
            Status::forbidden(&resource, name, &why)
        }
    }
}

impl Attributes<'_> {
    /// `User "jane" cannot list resource "pods" in API group "" in the namespace "default"`.
    fn denied_action(&self) -> String {
        let (user, verb) = (quote(&self.user.name), self.verb);
        let text = match self.target {
            AttributesTarget::NonResource(path) => {
                format!("User {user} cannot {verb} path {}", quote(path))
            }
            AttributesTarget::Resource(ResourceAttributes {
                group,
                resource,
                subresource,
                namespace,
                ..
            }) => {
                let what = match subresource {
                    "" => quote(resource),
                    subresource => quote(&format!("{resource}/{subresource}")),
                };
                let place = match namespace {
                    "" => "at the cluster scope".to_string(),
                    namespace => format!("in the namespace {}", quote(namespace)),
                };
                format!(
                    "User {user} cannot {verb} resource {what} in API group {} {place}",
                    quote(group)
                )
            }
        };
        escape_html(&text)
    }
}

/// Escapes text for HTML.
pub(crate) fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::User;

    #[track_caller]
    fn check(verb: &str, target: AttributesTarget, reason: &str, expected: &str) {
        let user = User {
            name: "jane".into(),
            ..User::default()
        };
        assert_eq!(
            forbidden(
                &Attributes {
                    user: &user,
                    verb,
                    target
                },
                reason
            )
            .message,
            expected
        );
    }

    #[test]
    fn a_denial_names_user_verb_resource_and_namespace() {
        let pods = ResourceAttributes {
            resource: "pods",
            namespace: "y",
            ..ResourceAttributes::default()
        };
        check(
            "list",
            AttributesTarget::Resource(pods),
            "",
            r#"pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "y""#,
        );
        let scale = ResourceAttributes {
            group: "apps",
            resource: "deployments",
            subresource: "scale",
            name: "d",
            ..ResourceAttributes::default()
        };
        check(
            "get",
            AttributesTarget::Resource(scale),
            "RBAC: no",
            r#"deployments.apps "d" is forbidden: User "jane" cannot get resource "deployments/scale" in API group "apps" at the cluster scope: RBAC: no"#,
        );
        let nothing = ResourceAttributes {
            group: "apps",
            resource: "",
            name: "y",
            namespace: "x",
            ..ResourceAttributes::default()
        };
        check(
            "get",
            AttributesTarget::Resource(nothing),
            "",
            r#".apps "y" is forbidden: User "jane" cannot get resource "" in API group "apps" in the namespace "x""#,
        );
        check(
            "get",
            AttributesTarget::NonResource("/metrics"),
            "",
            r#"forbidden: User "jane" cannot get path "/metrics""#,
        );
    }

    #[test]
    fn a_refusal_is_no_html() {
        check(
            "get",
            AttributesTarget::NonResource("/<a>"),
            "",
            r#"forbidden: User "jane" cannot get path "/&lt;a&gt;""#,
        );
    }
}
