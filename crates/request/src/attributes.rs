//! The attributes of a request, for authorizers, audit policies and flow schemas.
//!
//! Kubernetes: apiserver/pkg/authorization/authorizer/interfaces.go.

use mizzen_object::User;

use crate::{RequestInfo, RequestQuery, RequestTarget};

/// What is authorized: a user, a verb and a target.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    /// The user of the request.
    pub user: &'a User,
    /// The verb: `list`, `update`; for a non-resource path the method in lower case.
    pub verb: &'a str,
    /// What is accessed.
    pub target: AttributesTarget<'a>,
}

impl<'a> Attributes<'a> {
    /// The attributes of a request of `user`.
    pub fn of_request(
        user: &'a User,
        info: &'a RequestInfo,
        query: &'a RequestQuery,
    ) -> Attributes<'a> {
        let selector = |name: &str| {
            if info.has_selectors() {
                query.text(name)
            } else {
                ""
            }
        };
        let target = match info.target() {
            RequestTarget::NonResource(path) => AttributesTarget::NonResource(path),
            RequestTarget::Resource(path) => AttributesTarget::Resource(ResourceAttributes {
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
            user,
            verb: info.verb(),
            target,
        }
    }

    /// Whether the request is long-running. Kubernetes: controlplane/apiserver/config.go.
    pub fn is_long_running(&self) -> bool {
        let lasts = match self.target {
            AttributesTarget::Resource(resource) => {
                matches!(
                    resource.subresource,
                    "attach" | "exec" | "proxy" | "log" | "portforward"
                )
            }
            AttributesTarget::NonResource(path) => path.starts_with("/debug/pprof/"),
        };
        lasts || matches!(self.verb, "watch" | "proxy")
    }
}

/// The target of a request.
#[derive(Debug, Clone, Copy)]
pub enum AttributesTarget<'a> {
    /// A resource.
    Resource(ResourceAttributes<'a>),
    /// A non-resource path.
    NonResource(&'a str),
}

/// The resource attributes of a request. Fields that do not apply are empty.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResourceAttributes<'a> {
    /// The API group.
    pub group: &'a str,
    /// The version; `*` for any.
    pub version: &'a str,
    /// The resource (plural name).
    pub resource: &'a str,
    /// The subresource.
    pub subresource: &'a str,
    /// The namespace.
    pub namespace: &'a str,
    /// The name of the object.
    pub name: &'a str,
    /// The field selector, as sent.
    pub fields: &'a str,
    /// The label selector, as sent.
    pub labels: &'a str,
}
