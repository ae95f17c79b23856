//! What a request wants to do, as roles put it.

use std::borrow::Cow;
use std::time::Duration;

use mizzen_object::select::FieldSelector;
use mizzen_object::validate::names;
use tokio::time::Instant;

use super::{Attributes, Decision, Reason, Refusal, Resource, Target, forbidden};
use crate::audit::Layer;
use crate::metrics::Authorized;
use crate::request::{self, Request, ResourcePath};
use crate::server::Inner;

/// Lets a request through or refuses it.
pub(crate) async fn check(server: &Inner, request: &Request) -> Result<(), Refusal> {
    if request.user.is_master() {
        server.metrics.results.authorized(Authorized::Allowed, Duration::ZERO);
        remember(request, &Decision::Allow(Reason::default()));
        return Ok(());
    }
    let started = Instant::now();
    let wanted = Wanted::new(request);
    let attributes = wanted.attributes(request);
    let decision = server.access.authorizers.authorize(&attributes).await;
    let took = started.elapsed();
    server.metrics.results.authorized(result(&decision), took);
    request.record.add(Layer::Authorization, took);
    remember(request, &decision);
    let reason = decision.reason();
    match (decision.is_allowed(), reason.problem()) {
        (true, _) => Ok(()),
        (false, Some(problem)) => Err(Refusal::Undecided(problem.into())),
        (false, None) => Err(Refusal::Forbidden(Box::new(forbidden(&attributes, &reason.to_string())))),
    }
}

/// Kubernetes: what goes wrong on the way to a yes does not count (endpoints/filters/metrics.go).
fn result(decision: &Decision) -> Authorized {
    match (decision, decision.reason().problem()) {
        (Decision::Allow(_), _) => Authorized::Allowed,
        (_, Some(_)) => Authorized::Error,
        (Decision::Deny(_), None) => Authorized::Denied,
        (Decision::NoOpinion(_), None) => Authorized::NoOpinion,
    }
}

/// Notes for auditors what was decided, and why.
fn remember(request: &Request, decision: &Decision) {
    let (record, reason) = (&request.record, decision.reason());
    if !record.is_open() {
        return;
    }
    let word = match (decision.is_allowed(), reason.problem()) {
        (true, _) => "allow",
        (false, None) => "forbid",
        (false, Some(_)) => return record.annotate("authorization.k8s.io/reason", "internal error"),
    };
    record.annotate("authorization.k8s.io/decision", word);
    record.annotate("authorization.k8s.io/reason", reason.to_string());
}

/// What has to be worked out about a request before it can be asked whether it may.
pub(crate) struct Wanted {
    verb: Cow<'static, str>,
    name: String,
}

impl Wanted {
    /// Works it out.
    pub fn new(request: &Request) -> Wanted {
        match (&request.target, verb_of(request)) {
            (request::Target::Resource(path), verb) => {
                Wanted { verb: verb.into(), name: name(request, path) }
            }
            (request::Target::Page(_), "") => {
                Wanted { verb: request.method.as_str().to_ascii_lowercase().into(), name: String::new() }
            }
            (request::Target::Page(_), verb) => Wanted { verb: verb.into(), name: String::new() },
        }
    }

    /// The request as authorizers see it.
    pub fn attributes<'a>(&'a self, request: &'a Request) -> Attributes<'a> {
        let plain = asked(request);
        let target = match plain.target {
            Target::Resource(resource) if self.has_selectors(request) => {
                Target::Resource(Resource { name: &self.name, ..resource })
            }
            Target::Resource(resource) => {
                Target::Resource(Resource { name: &self.name, fields: "", labels: "", ..resource })
            }
            page => page,
        };
        Attributes { verb: &self.verb, target, ..plain }
    }

    /// Kubernetes: the old form of watching cannot be trusted to heed selectors, so they do not count there.
    fn has_selectors(&self, request: &Request) -> bool {
        let is_old = matches!(&request.target, request::Target::Resource(path) if path.watch);
        !is_old && matches!(&*self.verb, "list" | "watch" | "deletecollection")
    }
}

/// The request as it was sent: what flow schemas are asked about.
pub(crate) fn asked(request: &Request) -> Attributes<'_> {
    let target = match &request.target {
        request::Target::Page(path) => Target::Page(path),
        request::Target::Resource(path) => Target::Resource(Resource {
            group: &path.group,
            version: &path.version,
            resource: &path.resource,
            subresource: &path.subresource,
            namespace: namespace(path),
            name: &path.name,
            fields: request.query.text("fieldSelector"),
            labels: request.query.text("labelSelector"),
        }),
    };
    Attributes { user: &request.user, verb: verb_of(request), target }
}

/// What a request does; empty if it is a page's and in no way that is known.
pub(crate) fn verb_of(request: &Request) -> &'static str {
    match (&request.target, request.method.as_str()) {
        (request::Target::Resource(path), _) => verb(request, path),
        (_, "GET") => "get",
        (_, "HEAD") => "head",
        (_, "POST") => "post",
        (_, "PUT") => "put",
        (_, "PATCH") => "patch",
        (_, "DELETE") => "delete",
        (_, "OPTIONS") => "options",
        _ => "",
    }
}

/// Kubernetes: a namespace is inside itself (endpoints/request/requestinfo.go).
pub(crate) fn namespace(path: &ResourcePath) -> &str {
    match path.resource.as_str() {
        "namespaces" if path.namespace.is_empty() => &path.name,
        _ => &path.namespace,
    }
}

/// Who lists with a selector for one name asks for that one.
pub(crate) fn name(request: &Request, path: &ResourcePath) -> String {
    if !path.name.is_empty() || !matches!(request.method.as_str(), "GET" | "HEAD") {
        return path.name.to_string();
    }
    let fields = FieldSelector::parse(request.query.text("fieldSelector")).unwrap_or_default();
    let name = fields.exact("metadata.name").unwrap_or_default();
    if names::is_path_segment_name(name).is_empty() { name.to_string() } else { String::new() }
}

fn verb(request: &Request, path: &ResourcePath) -> &'static str {
    let all = path.name.is_empty();
    match request.method.as_str() {
        _ if path.watch => "watch",
        "GET" | "HEAD" if !all => "get",
        "GET" | "HEAD" if request.query.bool("watch").unwrap_or(false) => "watch",
        "GET" | "HEAD" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" if all => "deletecollection",
        "DELETE" => "delete",
        _ => "",
    }
}
