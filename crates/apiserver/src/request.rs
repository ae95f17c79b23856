//! A request on its way through the handler chain, and its query.

mod info;

use std::borrow::Cow;
use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use mizzen_object::User;
use mizzen_value::percent::decode;
use tokio::time::Instant;
use tracing::Span;
use tracing::field::Empty;

use crate::aggregation::RequestStreams;
use crate::audit::AuditRecord;
use crate::deadline::Deadline;
use crate::flowcontrol::FlowTicket;
use crate::header;
pub use info::{RequestInfo, RequestTarget, ResourcePath};

/// The timeout of requests that the server makes to itself.
const OWN_TIMEOUT: u64 = 60;

/// A request on its way through the server.
pub struct Request {
    /// The method.
    pub method: Method,
    /// What the request does, and to what.
    pub info: RequestInfo,
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

/// The query parameters of a request.
#[derive(Debug, Clone, Default)]
pub struct RequestQuery(Vec<(String, String)>);

/// Go: a query with more pairs than this is ignored (net/url, CVE-2025-61726).
const MAX_PAIRS: usize = 10_000;

impl RequestQuery {
    /// The query of a URI.
    pub fn parse(uri: &Uri) -> RequestQuery {
        let query = uri.query().unwrap_or_default();
        if query.bytes().filter(|byte| *byte == b'&').count() >= MAX_PAIRS {
            return RequestQuery::default();
        }
        // Go: pairs with an invalid escape or a semicolon are ignored.
        let is_escape =
            |text: &str| text.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
        let is_valid = |pair: &str| {
            !pair.is_empty() && !pair.contains(';') && pair.split('%').skip(1).all(is_escape)
        };
        let pairs = query.split('&').filter(|pair| is_valid(pair));
        RequestQuery(
            pairs
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (
                        decode(&key.replace('+', " ")).into_owned(),
                        decode(&value.replace('+', " ")).into_owned(),
                    )
                })
                .collect(),
        )
    }

    /// The first value of `key`, even if it is empty.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|pair| pair.0 == key)
            .map(|pair| pair.1.as_str())
    }

    /// The first value of `key`, `""` if there is none.
    pub fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or_default()
    }

    /// All values of `key`.
    pub fn all(&self, key: &str) -> Vec<&str> {
        self.0
            .iter()
            .filter(|pair| pair.0 == key)
            .map(|pair| pair.1.as_str())
            .collect()
    }

    /// A boolean. Kubernetes: every value is true except "false" and "0".
    pub fn bool(&self, key: &str) -> Option<bool> {
        self.get(key)
            .map(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    /// An integer; the error is Go's.
    pub fn int(&self, key: &str) -> Result<Option<i64>, String> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let numeric = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let problem = if numeric {
            "value out of range"
        } else {
            "invalid syntax"
        };
        let error = || {
            format!(
                "strconv.ParseInt: parsing {}: {problem}",
                mizzen_value::json::quote(text)
            )
        };
        if !numeric {
            return Err(error());
        }
        text.parse().map(Some).map_err(|_| error())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_pairs_of_a_query_are_ignored() {
        let query = RequestQuery::parse(&"/?a=%zz&b=%4&c=%é&d=1;e=2&%z=1&f=%41".parse().unwrap());
        assert_eq!(query.0, [("f".to_string(), "A".to_string())]);
    }

    #[test]
    fn query_values_are_decoded() {
        let query = RequestQuery::parse(&"/?a=x%2Cy+z&watch&n=5&bad=x&f=FALSE".parse().unwrap());
        assert_eq!(query.text("a"), "x,y z");
        assert_eq!(
            (query.bool("watch"), query.bool("f"), query.bool("none")),
            (Some(true), Some(false), None)
        );
        assert_eq!(query.int("n"), Ok(Some(5)));
        assert_eq!(
            query.int("bad"),
            Err("strconv.ParseInt: parsing \"x\": invalid syntax".into())
        );
    }
}
