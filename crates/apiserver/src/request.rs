//! A request on its way through the handler chain.

use std::borrow::Cow;
use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use mizzen_flowcontrol::FlowTicket;
use mizzen_object::User;
use mizzen_registry::Resource;
use mizzen_request::{Attributes, header};
pub use mizzen_request::{RequestInfo, RequestQuery, RequestTarget, ResourcePath};
use tokio::time::Instant;
use tracing::Span;
use tracing::field::Empty;

use mizzen_audit::AuditRecord;

use crate::aggregation::RequestStreams;
use crate::catalog::Route;
use crate::deadline::Deadline;

/// The timeout of requests that the server makes to itself.
const OWN_TIMEOUT: u64 = 60;

/// A request on its way through the server.
pub struct Request {
    /// The method.
    pub method: Method,
    /// What the request does, and to what.
    pub info: RequestInfo,
    /// Where the path leads; none for a non-resource path.
    pub(crate) route: Option<Route>,
    /// The query of the URI.
    pub query: RequestQuery,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The user, authenticated and perhaps impersonated.
    pub user: User,
    /// The URI.
    pub uri: Uri,
    /// The unread body and the upgrade, for proxies.
    pub streams: RequestStreams,
    /// The client's address; `None` for this process.
    pub address: Option<IpAddr>,
    pub(crate) deadline: Deadline,
    /// The audit record.
    pub record: AuditRecord,
    /// The state of priority and fairness.
    pub(crate) ticket: FlowTicket,
}

impl Request {
    /// A request that the server makes to itself.
    pub fn of_server(method: Method, path: ResourcePath) -> Request {
        let mut headers = HeaderMap::new();
        headers.insert(
            http::header::USER_AGENT,
            http::HeaderValue::from_static("kube-apiserver"),
        );
        let (info, user) = (
            RequestInfo::of_server(&method, path),
            User::master("system:apiserver"),
        );
        let (query, body) = (RequestQuery::default(), Bytes::new());
        Request {
            method,
            info,
            route: None,
            query,
            headers,
            body,
            user,
            uri: Uri::default(),
            streams: RequestStreams::default(),
            address: None,
            deadline: Deadline::new(Instant::now(), OWN_TIMEOUT),
            record: AuditRecord::default(),
            ticket: FlowTicket::default(),
        }
    }

    /// The resource that the path names, if this server stores it.
    pub(crate) fn resource(&self) -> Option<&Resource> {
        self.route.as_ref()?.resource.as_ref().ok()
    }

    /// The attributes, for authorizers, audit policies and flow schemas.
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes::of_request(&self.user, &self.info, &self.query)
    }

    /// The text of a header, `""` if it is missing.
    pub fn header(&self, name: &str) -> Cow<'_, str> {
        header::text(&self.headers, name)
    }

    /// The tracing span of the request. `user` and `code` are recorded later.
    pub(crate) fn span(&self) -> Span {
        tracing::debug_span!(
            "request",
            audit_id = self.headers.get("audit-id").and_then(|id| id.to_str().ok()),
            user = Empty,
            verb = self.info.verb(),
            resource = self.info.resource().map_or("", |path| &*path.resource),
            path = self.uri.path(),
            code = Empty,
        )
    }
}

/// Headers for tests.
#[cfg(test)]
pub(crate) fn headers(list: &[(&'static str, &str)]) -> http::HeaderMap {
    let mut headers = http::HeaderMap::new();
    for (name, value) in list {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}
