//! Request information: the verb, the resource and the object of a request, derived once from method and URI.
//!
//! Authorization, audit, flow control, metrics, admission and dispatch read the [`RequestInfo`] of a
//! request and nothing else. Its fields are private and [`RequestInfo::new`] is the only function
//! that derives a verb, so that what is authorized is what is executed.
//!
//! Kubernetes: endpoints/request/requestinfo.go.

use std::borrow::Cow;

use http::{Method, Uri};
use mizzen_object::select::{FieldSelector, LabelSelector};
use mizzen_object::validate::names;
use mizzen_value::Str;
use mizzen_value::percent::decode;

use crate::RequestQuery;

/// The verb and the target of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestInfo {
    verb: Cow<'static, str>,
    target: RequestTarget,
    /// The one name that the field selector of a list or watch allows.
    selected_name: Str,
}

/// The target of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestTarget {
    /// A non-resource path, decoded.
    NonResource(String),
    /// A resource path.
    Resource(ResourcePath),
}

/// A path below a group and version.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourcePath {
    /// The API group.
    pub group: Str,
    /// The version.
    pub version: Str,
    /// The plural name.
    pub resource: Str,
    /// Empty where the path has none, or an empty one.
    pub namespace: Str,
    /// Whether the path names a namespace, even an empty one.
    pub has_namespace: bool,
    /// Empty for the whole collection.
    pub name: Str,
    /// Empty for the object itself.
    pub subresource: Str,
    /// What follows the subresource, for proxies.
    pub rest: Vec<String>,
    /// Whether the path begins with a verb, the legacy form: `/api/v1/watch/…`, `/api/v1/proxy/…`.
    pub verb_in_path: bool,
    /// Whether no handler is registered there: `//api/v1/pods`, `/apis//v1/pods`.
    pub unrouted: bool,
}

impl Default for RequestTarget {
    fn default() -> RequestTarget {
        RequestTarget::NonResource(String::new())
    }
}

/// The path ends where a resource must follow: `/api/v1/watch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unable to determine kind and namespace from url")]
pub struct MissingResource;

impl RequestInfo {
    /// Derives the info from method, path and query.
    pub fn new(
        method: &Method,
        uri: &Uri,
        query: &RequestQuery,
    ) -> Result<RequestInfo, MissingResource> {
        let path = decode(uri.path());
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Ok(RequestInfo::non_resource(method, path)),
        };
        let (verb_in_path, rest) = match rest {
            ["watch" | "proxy"] => return Err(MissingResource),
            ["watch", rest @ ..] => (Some("watch"), rest),
            ["proxy", rest @ ..] => (Some("proxy"), rest),
            rest => (None, rest),
        };
        let unrouted = path.starts_with("//") || parts[0] == "apis" && group.is_empty();
        let target = ResourcePath {
            group: group.into(),
            version: version.into(),
            verb_in_path: verb_in_path.is_some(),
            unrouted,
            ..ResourcePath::parse(rest, verb_in_path == Some("proxy"))
        };
        let verb = verb_in_path.unwrap_or_else(|| verb(method, target.name.is_empty(), query));
        let is_selecting = verb_in_path.is_none() && matches!(verb, "list" | "watch");
        let selected_name = if is_selecting {
            selected_name(query)
        } else {
            Str::default()
        };
        Ok(RequestInfo {
            verb: verb.into(),
            target: RequestTarget::Resource(target),
            selected_name,
        })
    }

    fn non_resource(method: &Method, path: Cow<str>) -> RequestInfo {
        let verb = match method.as_str() {
            "GET" => "get".into(),
            "POST" => "post".into(),
            other => other.to_ascii_lowercase().into(),
        };
        RequestInfo {
            verb,
            target: RequestTarget::NonResource(path.into_owned()),
            selected_name: Str::default(),
        }
    }

    /// The info of a request that the server makes to itself.
    pub fn of_server(method: &Method, path: ResourcePath) -> RequestInfo {
        let verb = verb(method, path.name.is_empty(), &RequestQuery::default());
        RequestInfo {
            verb: verb.into(),
            target: RequestTarget::Resource(path),
            selected_name: Str::default(),
        }
    }

    /// The verb as in RBAC rules: `list`, `update`; for a non-resource path the method in lower case. Empty for a method
    /// that resources do not have.
    pub fn verb(&self) -> &str {
        &self.verb
    }

    /// What the path names.
    pub fn target(&self) -> &RequestTarget {
        &self.target
    }

    /// The path, if it is a resource path.
    pub fn resource(&self) -> Option<&ResourcePath> {
        match &self.target {
            RequestTarget::Resource(path) => Some(path),
            RequestTarget::NonResource(_) => None,
        }
    }

    /// The object name: that of the path, or the only one that a list selects.
    pub fn name(&self) -> &str {
        match self.resource() {
            Some(path) if !path.name.is_empty() => &path.name,
            _ => &self.selected_name,
        }
    }

    /// Whether authorizers may use the selectors of the query. Kubernetes: not with a verb in the path, because not all of
    /// those endpoints apply selectors.
    pub fn has_selectors(&self) -> bool {
        matches!(self.verb(), "list" | "watch" | "deletecollection")
            && self.resource().is_some_and(|path| !path.verb_in_path)
    }
}

impl ResourcePath {
    /// Parses the part of a path after group, version and legacy verb.
    fn parse(parts: &[&str], is_proxy: bool) -> ResourcePath {
        let (namespace, parts) = match parts {
            // `namespaces` is a collection, an object, or the prefix of namespaced resources.
            ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize", ..] => {
                (None, parts)
            }
            ["namespaces", namespace, parts @ ..] => (Some(*namespace), parts),
            _ => (None, parts),
        };
        let part = |at: usize| parts.get(at).copied().unwrap_or_default();
        ResourcePath {
            resource: part(0).into(),
            namespace: namespace.unwrap_or_default().into(),
            has_namespace: namespace.is_some(),
            name: part(1).into(),
            // Kubernetes: the path after the name belongs to the proxied server.
            subresource: if is_proxy { "" } else { part(2) }.into(),
            rest: parts.iter().skip(3).map(|part| part.to_string()).collect(),
            ..ResourcePath::default()
        }
    }

    /// The namespace of the request. Kubernetes: a namespace is inside itself.
    pub fn scope(&self) -> &str {
        match self.resource.as_str() {
            "namespaces" if !self.has_namespace => &self.name,
            _ => &self.namespace,
        }
    }
}

fn verb(method: &Method, is_collection: bool, query: &RequestQuery) -> &'static str {
    match method.as_str() {
        "GET" | "HEAD" if !is_collection => "get",
        "GET" | "HEAD" if query.bool("watch").unwrap_or(false) => "watch",
        "GET" | "HEAD" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if is_collection => "deletecollection",
        "DELETE" => "delete",
        _ => "",
    }
}

/// The only name that the field selector allows. Kubernetes: empty if any list option cannot be decoded.
fn selected_name(query: &RequestQuery) -> Str {
    let fields = query.text("fieldSelector");
    if !fields.contains("metadata.name") {
        return Str::default();
    }
    let Ok(fields) = FieldSelector::parse(fields) else {
        return Str::default();
    };
    let name = fields.exact("metadata.name").unwrap_or_default();
    let is_decoded = query.int("limit").is_ok()
        && query.int("timeoutSeconds").is_ok()
        && LabelSelector::parse(query.text("labelSelector")).is_ok();
    match is_decoded && names::is_path_segment_name(name).is_empty() {
        true => name.into(),
        false => Str::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(method: &str, uri: &str) -> RequestInfo {
        let (method, uri): (Method, Uri) = (method.parse().unwrap(), uri.parse().unwrap());
        RequestInfo::new(&method, &uri, &RequestQuery::parse(&uri)).unwrap()
    }

    /// `verb group/version/namespace/resource/name/subresource`, or `verb path` of a non-resource path.
    #[track_caller]
    fn check(method: &str, uri: &str, expected: &str) {
        let info = info(method, uri);
        let shown = match info.target() {
            RequestTarget::NonResource(path) => path.clone(),
            RequestTarget::Resource(path) => [
                &path.group,
                &path.version,
                path.scope(),
                &path.resource,
                info.name(),
                &path.subresource,
            ]
            .join("/"),
        };
        assert_eq!(
            format!("{} {shown}", info.verb()),
            expected,
            "{method} {uri}"
        );
    }

    #[test]
    fn paths_are_split_into_their_parts() {
        check(
            "GET",
            "/apis/apps/v1/namespaces/a/deployments/b/scale",
            "get apps/v1/a/deployments/b/scale",
        );
        check(
            "GET",
            "/api/v1/namespaces/a/status",
            "get /v1/a/namespaces/a/status",
        );
        check(
            "GET",
            "/api/v1/namespaces/a/status/more",
            "get /v1/a/namespaces/a/status",
        );
        check("PUT", "/api/v1/namespaces/a", "update /v1/a/namespaces/a/");
        check(
            "GET",
            "/api/v1/namespaces//pods//status",
            "list /v1//pods//status",
        );
        check(
            "GET",
            "/api/v1/nodes/n/proxy/some/page",
            "get /v1//nodes/n/proxy",
        );
        check("GET", "/apis/apps/v1/", "get /apis/apps/v1/");
        check("GET", "/", "get /");
        check("FETCH", "/%6detrics", "fetch /metrics");
    }

    #[test]
    fn encoded_and_repeated_slashes_split_like_any_other() {
        check(
            "GET",
            "/api/v1/namespaces/a/pods/x%3Ay/",
            "get /v1/a/pods/x:y/",
        );
        check(
            "DELETE",
            "/api/v1/namespaces/a/pods%2Fx",
            "delete /v1/a/pods/x/",
        );
        check(
            "DELETE",
            "/api/v1/namespaces/a/pods%2F",
            "deletecollection /v1/a/pods//",
        );
        check("GET", "//api/v1/pods", "list /v1//pods//");
        assert!(info("GET", "//api/v1/pods").resource().unwrap().unrouted);
        assert!(info("GET", "/apis//v1/pods").resource().unwrap().unrouted);
        assert!(!info("GET", "/api/v1//pods").resource().unwrap().unrouted);
    }

    #[test]
    fn a_method_on_a_path_is_a_verb() {
        for (method, named, collection) in [
            ("GET", "get", "list"),
            ("HEAD", "get", "list"),
            ("POST", "create", "create"),
            ("PUT", "update", "update"),
            ("PATCH", "patch", "patch"),
            ("DELETE", "delete", "deletecollection"),
            ("OPTIONS", "", ""),
        ] {
            check(method, "/api/v1/nodes/n", &format!("{named} /v1//nodes/n/"));
            check(
                method,
                "/api/v1/nodes",
                &format!("{collection} /v1//nodes//"),
            );
            check(method, "/api/v1/watch/nodes/n", "watch /v1//nodes/n/");
            check(
                method,
                "/api/v1/proxy/nodes/n/status",
                "proxy /v1//nodes/n/",
            );
        }
    }

    #[test]
    fn only_a_collection_is_watched_by_a_parameter() {
        check("GET", "/api/v1/nodes?watch", "watch /v1//nodes//");
        check("GET", "/api/v1/nodes?watch=0", "list /v1//nodes//");
        check("GET", "/api/v1/nodes/n?watch=true", "get /v1//nodes/n/");
        check(
            "DELETE",
            "/api/v1/nodes?watch=true",
            "deletecollection /v1//nodes//",
        );
    }

    #[test]
    fn a_name_is_selected_by_a_field_selector_of_a_list_or_watch() {
        check(
            "GET",
            "/api/v1/nodes?fieldSelector=metadata.name%3Dn",
            "list /v1//nodes/n/",
        );
        check(
            "GET",
            "/api/v1/nodes?watch&fieldSelector=metadata.name%3Dn",
            "watch /v1//nodes/n/",
        );
        check(
            "GET",
            "/api/v1/nodes?fieldSelector=metadata.name!%3Dn",
            "list /v1//nodes//",
        );
        check(
            "GET",
            "/api/v1/nodes?fieldSelector=metadata.name%3D..",
            "list /v1//nodes//",
        );
        check(
            "GET",
            "/api/v1/nodes?limit=x&fieldSelector=metadata.name%3Dn",
            "list /v1//nodes//",
        );
        check(
            "GET",
            "/api/v1/nodes?labelSelector=a%20b&fieldSelector=metadata.name%3Dn",
            "list /v1//nodes//",
        );
        check(
            "DELETE",
            "/api/v1/nodes?fieldSelector=metadata.name%3Dn",
            "deletecollection /v1//nodes//",
        );
        check(
            "GET",
            "/api/v1/watch/nodes?fieldSelector=metadata.name%3Dn",
            "watch /v1//nodes//",
        );
        check(
            "GET",
            "/api/v1/nodes/m?fieldSelector=metadata.name%3Dn",
            "get /v1//nodes/m/",
        );
    }

    #[test]
    fn a_verb_without_a_resource_is_an_error() {
        for path in ["/api/v1/watch", "/apis/apps/v1/watch/", "/api/v1/proxy"] {
            let uri: Uri = path.parse().unwrap();
            assert_eq!(
                RequestInfo::new(&Method::GET, &uri, &RequestQuery::default()),
                Err(MissingResource)
            );
        }
    }
}
