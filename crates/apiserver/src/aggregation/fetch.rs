//! Fetches discovery and OpenAPI of aggregated servers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, header};
use http_body_util::{BodyExt as _, Limited};
use mizzen_object::User;
use mizzen_outgoing::{OutgoingClient, SendError, whole};
use mizzen_value::{Str, Value, json};
use tokio::time::timeout;

use super::api_services::ApiService;
use super::proxy::set_auth_proxy_headers;

/// Kubernetes: the timeout of a discovery request (status/remote/remote_available_controller.go).
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of an OpenAPI request.
const OPENAPI_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest list of resources.
const MAX_LIST: usize = 4 * 1024 * 1024;
/// The largest OpenAPI document.
const MAX_DOCUMENT: usize = 32 * 1024 * 1024;

/// The documents of an aggregated server.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RemoteDocuments {
    /// Its resources, as items of an `APIResourceList`.
    pub resources: Vec<Value>,
    /// Whether the last check of the server failed.
    pub stale: bool,
    /// The URL of its OpenAPI v3 document, if it has one.
    pub v3: Option<Str>,
    /// Its OpenAPI v2 document, with its ETag.
    pub v2: Option<(Str, Arc<Value>)>,
}

/// Fetches the resources of a server. The error is the message of its condition.
pub(super) async fn fetch_resources(
    client: &OutgoingClient,
    entry: &ApiService,
) -> Result<Vec<Value>, String> {
    let target = entry
        .target(client, true)
        .map_err(|status| status.message)?;
    let url = format!("https://{}{}", target.address, entry.path());
    let failed = |why: String| format!("failing or missing response from {url}: {why}");
    let request = DocumentRequest {
        client,
        entry,
        path: &entry.path(),
        tag: "",
        limit: MAX_LIST,
    };
    match timeout(DISCOVERY_TIMEOUT, request.get()).await {
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

/// Updates the OpenAPI documents of a server.
pub(super) async fn fetch_openapi(
    client: &OutgoingClient,
    entry: &ApiService,
    documents: &mut RemoteDocuments,
) {
    let name = entry.path().trim_start_matches('/').to_owned();
    let index = DocumentRequest {
        client,
        entry,
        path: "/openapi/v3",
        tag: "",
        limit: MAX_LIST,
    };
    documents.v3 = match timeout(DISCOVERY_TIMEOUT, index.get()).await {
        Ok(Ok(page)) if page.code == 200 => {
            let index = json::parse(&page.body).unwrap_or_default();
            index["paths"][name.as_str()]["serverRelativeURL"]
                .as_str()
                .map(Str::from)
        }
        _ => None,
    };
    let tag = documents
        .v2
        .as_ref()
        .map_or("", |(tag, _)| tag.as_str())
        .to_owned();
    let document = DocumentRequest {
        client,
        entry,
        path: "/openapi/v2",
        tag: &tag,
        limit: MAX_DOCUMENT,
    };
    match timeout(OPENAPI_TIMEOUT, document.get()).await {
        Ok(Ok(page)) if page.code == 304 => {}
        Ok(Ok(page)) if page.code == 200 => {
            documents.v2 = json::parse(&page.body)
                .ok()
                .map(|document| (page.tag, Arc::new(document)));
        }
        _ => documents.v2 = None,
    }
}

/// A GET request by this server itself.
struct DocumentRequest<'a> {
    client: &'a OutgoingClient,
    entry: &'a ApiService,
    path: &'a str,
    /// The ETag of the document that we have.
    tag: &'a str,
    limit: usize,
}

struct FetchedDocument {
    code: u16,
    tag: Str,
    body: Bytes,
}

impl DocumentRequest<'_> {
    async fn get(&self) -> Result<FetchedDocument, SendError> {
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
        Ok(FetchedDocument {
            code: head.status.as_u16(),
            tag: tag.into(),
            body,
        })
    }

    fn headers(&self) -> Result<HeaderMap, SendError> {
        let mut headers = HeaderMap::new();
        // Kubernetes: this user is always authorized.
        let user = User {
            groups: vec![crate::MASTERS.into()],
            ..User::master("system:kube-aggregator")
        };
        set_auth_proxy_headers(&user, &mut headers)?;
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        if let Ok(tag) = HeaderValue::from_str(self.tag)
            && !self.tag.is_empty()
        {
            headers.insert(header::IF_NONE_MATCH, tag);
        }
        Ok(headers)
    }
}
