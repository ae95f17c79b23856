//! What a user reads who is not allowed to do something.

use mizzen_object::{GroupResource, Status};
use mizzen_value::json::quote;

use super::{Attributes, AttributesTarget, DecisionReason, ResourceAttributes};

/// 403 with the denied action, and the reason if there is one.
pub fn forbidden(attributes: &Attributes, reason: &str) -> Status {
    let mut why = denied_action(attributes);
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

/// `User "jane" cannot list resource "pods" in API group "" in the namespace "default"`.
fn denied_action(attributes: &Attributes) -> String {
    let (user, verb) = (quote(&attributes.user.name), attributes.verb);
    let text = match attributes.target {
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

/// Why authorizers denied something: the evaluation error, and the reason.
pub fn denial_reason(reason: &DecisionReason) -> String {
    let text = reason.to_string();
    match reason.problem() {
        None => text,
        Some(problem) if text.is_empty() => problem.into(),
        Some(problem) => format!("{problem}: {text}"),
    }
}

/// Escapes text for HTML.
pub fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_object::User;

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
    fn a_denial_is_not_html() {
        check(
            "get",
            AttributesTarget::NonResource("/<a>"),
            "",
            r#"forbidden: User "jane" cannot get path "/&lt;a&gt;""#,
        );
    }
}
