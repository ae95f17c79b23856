//! What does another server serve? Asked when it is looked for, kept until it says something else.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, header};
use http_body_util::{BodyExt as _, Limited};
use mizzen_object::User;
use mizzen_value::{Str, Value, json};
use tokio::time::timeout;

use super::proxy::speak_for;
use super::table::Entry;
use crate::outgoing::{Client, SendError, whole};

/// Kubernetes: how long a server may take to say what it serves (status/remote/remote_available_controller.go).
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take to send all of its OpenAPI.
const LONG_PATIENCE: Duration = Duration::from_secs(30);
/// The largest list of resources.
const MAX_LIST: usize = 4 * 1024 * 1024;
/// The largest OpenAPI document.
const MAX_DOCUMENT: usize = 32 * 1024 * 1024;

/// What a server has said.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Learned {
    /// Its resources, as items of an `APIResourceList`.
    pub resources: Vec<Value>,
    /// Whether it was not to be reached since.
    pub stale: bool,
    /// Where its OpenAPI v3 document is, if it has one.
    pub v3: Option<Str>,
    /// Its OpenAPI v2 document, and the tag by which that is known.
    pub v2: Option<(Str, Arc<Value>)>,
}

/// Whether the server is there; if so, its resources. The error is the message of its condition.
pub(super) async fn look(client: &Client, entry: &Entry) -> Result<Vec<Value>, String> {
    let target = entry
        .target(client, true)
        .map_err(|status| status.message)?;
    let url = format!("https://{}{}", target.address, entry.path());
    let failed = |why: String| format!("failing or missing response from {url}: {why}");
    let asked = Ask {
        client,
        entry,
        path: &entry.path(),
        tag: "",
        limit: MAX_LIST,
    };
    match timeout(PATIENCE, asked.get()).await {
        Err(_) => {
            let why = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
            Err(failed(format!("Get {}: {why}", json::quote(&url))))
        }
        Ok(Err(SendError(why))) => Err(failed(format!("Get {}: {why}", json::quote(&url)))),
        Ok(Ok(page)) if !(200..300).contains(&page.code) => {
            Err(failed(format!("bad status from {url}: {}", page.code)))
        }
        Ok(Ok(page)) => {
            let list = json::parse(&page.body).unwrap_or_default();
            Ok(list["resources"].list().to_vec())
        }
    }
}

/// What the server says in OpenAPI, on top of what it said before.
pub(super) async fn read_openapi(client: &Client, entry: &Entry, learned: &mut Learned) {
    let name = entry.path().trim_start_matches('/').to_owned();
    let index = Ask {
        client,
        entry,
        path: "/openapi/v3",
        tag: "",
        limit: MAX_LIST,
    };
    learned.v3 = match timeout(PATIENCE, index.get()).await {
        Ok(Ok(page)) if page.code == 200 => {
            let index = json::parse(&page.body).unwrap_or_default();
            index["paths"][name.as_str()]["serverRelativeURL"]
                .as_str()
                .map(Str::from)
        }
        _ => None,
    };
    let tag = learned
        .v2
        .as_ref()
        .map_or("", |(tag, _)| tag.as_str())
        .to_owned();
    let document = Ask {
        client,
        entry,
        path: "/openapi/v2",
        tag: &tag,
        limit: MAX_DOCUMENT,
    };
    match timeout(LONG_PATIENCE, document.get()).await {
        Ok(Ok(page)) if page.code == 304 => {}
        Ok(Ok(page)) if page.code == 200 => {
            learned.v2 = json::parse(&page.body)
                .ok()
                .map(|document| (page.tag, Arc::new(document)));
        }
        _ => learned.v2 = None,
    }
}

/// A question that this server itself has.
struct Ask<'a> {
    client: &'a Client,
    entry: &'a Entry,
    path: &'a str,
    /// The tag of what we have.
    tag: &'a str,
    limit: usize,
}

struct Page {
    code: u16,
    tag: Str,
    body: Bytes,
}

impl Ask<'_> {
    async fn get(&self) -> Result<Page, SendError> {
        let target = self
            .entry
            .target(self.client, true)
            .map_err(|status| SendError(status.message))?;
        let url = format!("https://{}{}", target.address, self.path);
        let mut request = Request::get(url)
            .body(whole(Bytes::new()))
            .map_err(|error| SendError(error.to_string()))?;
        *request.headers_mut() = self.headers()?;
        let (head, body) = self.client.send(&target, request).await?.into_parts();
        let body = Limited::new(body, self.limit).collect().await;
        let body = body
            .map_err(|error| SendError(error.to_string()))?
            .to_bytes();
        let tag = head
            .headers
            .get(header::ETAG)
            .and_then(|tag| tag.to_str().ok())
            .unwrap_or_default();
        Ok(Page {
            code: head.status.as_u16(),
            tag: tag.into(),
            body,
        })
    }

    fn headers(&self) -> Result<HeaderMap, SendError> {
        let mut headers = HeaderMap::new();
        // Kubernetes: this user may always ask.
        let user = User {
            groups: vec![crate::MASTERS.into()],
            ..User::master("system:kube-aggregator")
        };
        speak_for(&user, &mut headers)?;
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        if let Ok(tag) = HeaderValue::from_str(self.tag)
            && !self.tag.is_empty()
        {
            headers.insert(header::IF_NONE_MATCH, tag);
        }
        Ok(headers)
    }
}
