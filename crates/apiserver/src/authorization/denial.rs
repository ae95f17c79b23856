//! How a refusal reads: that they may not, or that nobody could tell.

use std::fmt::Display;

use http::Uri;
use mizzen_object::{GroupResource, Status};
use mizzen_value::json::quote;

use super::{Attributes, Resource, Target};
use crate::answer::{self, Answer};
use crate::request::Request;

/// Why a request is not let through.
#[derive(Debug)]
pub(crate) enum AuthorizationError {
    /// Its user may not.
    Forbidden(Box<Status>),
    /// Somebody who had to be asked could not be.
    Failed(String),
}

impl AuthorizationError {
    /// What the client is told. Kubernetes: that nobody could tell is said in plain words, not in a Status
    /// (handlers/responsewriters/errors.go).
    pub(crate) fn into_response(
        self,
        request: &Request,
        refuse: impl FnOnce(&Status) -> Answer,
    ) -> Answer {
        match self {
            AuthorizationError::Forbidden(status) => refuse(&status),
            AuthorizationError::Failed(problem) => internal_error(&request.uri, problem),
        }
    }
}

/// 500 in plain text, for what goes wrong before a handler is found.
pub(crate) fn internal_error(uri: &Uri, problem: impl Display) -> Answer {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let text = format!("Internal Server Error: {}: {problem}\n", quote(path));
    answer::text(500, escape_html(&text))
}

/// 403: who may not do what, and why if there is more to say.
pub(crate) fn forbidden(attributes: &Attributes, reason: &str) -> Status {
    let mut why = sentence(attributes);
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    match attributes.target {
        Target::Page(_) => {
            let message = format!("forbidden: {why}");
            Status {
                details: Some(Box::default()),
                ..Status::failure(403, "Forbidden", message)
            }
        }
        Target::Resource(Resource {
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

/// `User "jane" cannot list resource "pods" in API group "" in the namespace "default"`.
fn sentence(attributes: &Attributes) -> String {
    let (user, verb) = (quote(&attributes.user.name), attributes.verb);
    let text = match attributes.target {
        Target::Page(path) => format!("User {user} cannot {verb} path {}", quote(path)),
        Target::Resource(Resource {
            group,
            resource,
            subresource,
            namespace,
            ..
        }) => {
            let what = quote(&combined(resource, subresource));
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

/// A text that nobody can take for HTML.
pub(crate) fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn combined(resource: &str, subresource: &str) -> String {
    match subresource {
        "" => resource.to_string(),
        subresource => format!("{resource}/{subresource}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::User;

    #[track_caller]
    fn check(verb: &str, target: Target, reason: &str, expected: &str) {
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
    fn a_refusal_says_who_may_not_do_what_and_where() {
        let pods = Resource {
            resource: "pods",
            namespace: "y",
            ..Resource::default()
        };
        check(
            "list",
            Target::Resource(pods),
            "",
            r#"pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "y""#,
        );
        let scale = Resource {
            group: "apps",
            resource: "deployments",
            subresource: "scale",
            name: "d",
            ..Resource::default()
        };
        check(
            "get",
            Target::Resource(scale),
            "RBAC: no",
            r#"deployments.apps "d" is forbidden: User "jane" cannot get resource "deployments/scale" in API group "apps" at the cluster scope: RBAC: no"#,
        );
        let nothing = Resource {
            group: "apps",
            resource: "",
            name: "y",
            namespace: "x",
            ..Resource::default()
        };
        check(
            "get",
            Target::Resource(nothing),
            "",
            r#".apps "y" is forbidden: User "jane" cannot get resource "" in API group "apps" in the namespace "x""#,
        );
        check(
            "get",
            Target::Page("/metrics"),
            "",
            r#"forbidden: User "jane" cannot get path "/metrics""#,
        );
    }

    #[test]
    fn a_refusal_is_no_html() {
        check(
            "get",
            Target::Page("/<a>"),
            "",
            r#"forbidden: User "jane" cannot get path "/&lt;a&gt;""#,
        );
    }
}
