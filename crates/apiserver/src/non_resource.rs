//! Non-resource paths: discovery, OpenAPI, version, metrics. Health checks are in `health.rs`.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use mizzen_object::Status;
use mizzen_openapi::{OpenApi, SpecDocument};
use mizzen_value::{Value, json};

use crate::aggregation::{self, OtherServer};
use crate::content::{self, CacheableDocument, empty, http_date, set};
use crate::decode::stated_kind;
use crate::discovery::{self, Group, is_built_in};
use crate::extend::NonResourceRequest;
use crate::health;
use crate::log_files;
use crate::openid;
use crate::request::Request;
use crate::response::{
    self, Accept, AggregatedDiscoveryAccept, Response, ResponseEncoding, clauses,
};
use crate::server::ServerParts;

/// The paths besides API groups and their versions.
const NON_API_PATHS: [&str; 8] = [
    openid::CONFIGURATION,
    "/metrics",
    "/metrics/slis",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    openid::KEYS,
    "/version",
];

/// Every path that this server has besides API groups and their versions.
fn non_api_paths(server: &ServerParts) -> Vec<String> {
    let handled = server.options.non_resource_handlers.listed_paths();
    let logs = server
        .options
        .log_directory
        .iter()
        .map(|_| "/logs".to_owned());
    NON_API_PATHS
        .into_iter()
        .map(String::from)
        .chain(health::paths(server))
        .chain(handled)
        .chain(logs)
        .chain(zpages(server))
        .collect()
}

/// The paths of `/statusz` and `/flagz`, if they exist.
fn zpages(server: &ServerParts) -> impl Iterator<Item = String> {
    let pages = server.options.zpages.iter();
    pages.flat_map(|_| ["/flagz".to_owned(), "/statusz".to_owned()])
}

/// Serves a non-resource path. A trailing slash is ignored, except for health checks.
pub(crate) async fn serve(
    server: &Arc<ServerParts>,
    request: &Request,
    path: &str,
) -> Result<Response, Status> {
    let is_check = ["/healthz", "/livez", "/readyz"]
        .iter()
        .any(|check| path.starts_with(check));
    let whole_path = path;
    if let Some(response) = handled(server, request, path).await {
        return Ok(response);
    }
    let path = match path.strip_suffix('/') {
        Some("") => "/",
        Some(trimmed) if !is_check && path != "//" => trimmed,
        _ => path,
    };
    if let Some(zpages) = &server.options.zpages {
        match request.uri.path() {
            "/statusz" => {
                let paths = match &server.options.component {
                    None => non_api_paths(server),
                    Some(_) => {
                        let handled = server.options.non_resource_handlers.listed_paths();
                        let paths = health::paths(server).into_iter().chain(handled);
                        paths.chain(self::zpages(server)).collect()
                    }
                };
                return zpages.statusz(server, request, &paths);
            }
            "/flagz" => return zpages.flagz(request),
            _ => {}
        }
    }
    if server.options.component.is_some() && !is_check {
        return Ok(not_found());
    }
    let has_details = !request.query.text("includeRequestDetails").is_empty();
    if let Some(text) = server.flow_control.dump(path, has_details) {
        let media_type = "text/plain; charset=utf-8";
        return Ok(response::with_body(200, media_type, text));
    }
    let issuer = match path {
        openid::CONFIGURATION => openid::configuration(server, request),
        openid::KEYS => openid::keys(server, request),
        _ => None,
    };
    if let Some(answer) = issuer {
        require_get(request)?;
        return answer;
    }
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    if let (["logs", ..], Some(directory)) = (parts.as_slice(), &server.options.log_directory) {
        require_get(request)?;
        return log_files::serve(directory, whole_path).await;
    }
    // Kubernetes: these are registered by their exact paths; other paths may have a trailing slash.
    let is_exact = request.uri.path() == path;
    match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => {
            Ok(health::serve_health(server, request, &parts).await)
        }
        ["metrics"] if is_exact => Ok(metrics(server, request, false)),
        ["metrics", "slis"] if is_exact => Ok(metrics(server, request, true)),
        ["openapi", "v2"] if is_exact => openapi_v2(server, request).await,
        ["openapi", "v3"] if is_exact => openapi_index(server, request).await,
        ["openapi", "v3", ..] => openapi_v3(server, request).await,
        _ => document(server, request, &parts),
    }
}

/// `/metrics`, and `/metrics/slis` of the health checks. Kubernetes: DELETE resets them
/// (component-base/metrics/legacyregistry); ours resets the metrics of requests.
fn metrics(server: &ServerParts, request: &Request, is_slis: bool) -> Response {
    let (metrics, checks) = (&server.metrics, &server.metrics.health_checks);
    if request.method == Method::DELETE && server.options.resets_metrics {
        match is_slis {
            true => checks.reset(),
            false => metrics.reset(),
        }
        return response::with_body(200, "text/plain; charset=utf-8", "metrics reset\n");
    }
    let text = match is_slis {
        true => checks.text(),
        false => metrics.families(server).to_string(),
    };
    if is_slis && text.is_empty() {
        return empty(StatusCode::OK);
    }
    let mut answer = response::with_body(200, METRICS_TYPE, text);
    // By this header clients see that counters were reset (promhttp).
    let started = HeaderName::from_static("process-start-time-unix");
    set(&mut answer, started, &metrics.started.to_string());
    answer
}

/// The response of the first handler that has the path.
async fn handled(server: &ServerParts, request: &Request, path: &str) -> Option<Response> {
    let request = NonResourceRequest {
        method: &request.method,
        path,
        query: request.uri.query().unwrap_or_default(),
        headers: &request.headers,
        body: &request.body,
    };
    let response = server.options.non_resource_handlers.serve(request).await?;
    Some(response.map(Into::into))
}

const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

fn document(
    server: &Arc<ServerParts>,
    request: &Request,
    parts: &[&str],
) -> Result<Response, Status> {
    let found = |name: &str| server.catalog.group(name);
    let value = match parts {
        [""] | ["index.html"] => {
            return Ok(raw_json(&discovery::root_paths(
                &aggregation::groups(server),
                &non_api_paths(server),
            )));
        }
        ["version"] => return version(request),
        ["api"] => return discovery_root(server, request, true),
        ["apis"] => return discovery_root(server, request, false),
        ["api", version] => {
            resource_list(&found("").ok_or_else(Status::no_such_resource)?, version)?
        }
        ["apis", ""] => return Ok(not_found()),
        ["apis", group] => match aggregation::group(server, group) {
            Some(group) => discovery::group(&group),
            None => return Ok(not_found()),
        },
        // Aggregated servers answer for their own groups.
        ["apis", group, version] => match found(group) {
            // Kubernetes: an unknown version of a custom group is a plain 404.
            Some(group) if group.version(version).is_none() && !is_built_in(&group.name) => {
                return Ok(not_found());
            }
            Some(group) => resource_list(&group, version)?,
            None => return Ok(not_found()),
        },
        // Kubernetes: below a path that go-restful serves, a 404 is a Status.
        ["version", ..]
        | [".well-known", "openid-configuration", ..]
        | ["openid", "v1", "jwks", ..] => {
            return Err(Status::no_such_resource());
        }
        _ => return Ok(not_found()),
    };
    // Kubernetes: go-restful serves these documents, and only GET. The aggregator and the handler of custom resources serve the
    // rest, with any method (kube-aggregator/pkg/apiserver/handler_apis.go,
    // apiextensions-apiserver/pkg/apiserver/customresource_discovery.go).
    let restful = match parts {
        ["version" | "api", ..] | ["apis", "apiregistration.k8s.io"] => true,
        ["apis", group, _] => is_built_in(group),
        _ => false,
    };
    if restful {
        require_get(request)?;
    }
    Ok(discovery_response(
        server,
        &value,
        accept(request, restful)?,
    ))
}

/// The response with a discovery document.
fn discovery_response(server: &ServerParts, value: &Value, accept: Accept) -> Response {
    let ty = server.types.discovery.get(value["kind"].str());
    response::value(&stated_kind(value), ty.map(|ty| &**ty), value, accept, 200)
}

/// A document that is no object. Kubernetes: it is always indented JSON, whatever the client accepts.
fn raw_json(value: &Value) -> Response {
    let accept = Accept {
        pretty: true,
        ..Accept::JSON
    };
    response::value(&stated_kind(value), None, value, accept, 200)
}

/// Kubernetes: go-restful serves this path, and only as JSON (server/routes/version.go).
fn version(request: &Request) -> Result<Response, Status> {
    require_get(request)?;
    response::negotiate_route(&request.headers, &["application/json"])?;
    Ok(raw_json(&discovery::version()))
}

fn require_get(request: &Request) -> Result<(), Status> {
    match request.method.as_str() {
        "GET" => Ok(()),
        _ => Err(Status::no_such_method()),
    }
}

/// Negotiates the encoding of a document; `restful` says whether go-restful serves it.
fn accept(request: &Request, restful: bool) -> Result<Accept, Status> {
    let accept = response::negotiate_document(&request.headers, &request.query, restful)?;
    Ok(Accept {
        audited: request.record.wants_response(),
        ..accept
    })
}

fn not_found() -> Response {
    response::text(404, "404 page not found\n")
}

fn resource_list(group: &Group, version: &str) -> Result<Value, Status> {
    let version = group
        .version(version)
        .ok_or_else(Status::no_such_resource)?;
    Ok(discovery::resource_list(group, version))
}

/// `/api` and `/apis`, which also exist as aggregated discovery.
fn discovery_root(
    server: &Arc<ServerParts>,
    request: &Request,
    core: bool,
) -> Result<Response, Status> {
    if core {
        require_get(request)?;
    }
    let groups = &*aggregation::groups(server);
    // Kubernetes: the aggregator serves `/apis/` without the handler of aggregated discovery.
    let aggregated = match core || request.uri.path() == "/apis" {
        true => response::negotiate_aggregated_discovery(&request.headers, &request.query, core),
        false => None,
    };
    if let Some(AggregatedDiscoveryAccept { accept, is_nopeer }) = aggregated {
        let chosen = groups.iter().filter(|group| group.name.is_empty() == core);
        let mut value = discovery::aggregated(chosen);
        aggregation::mark_stale(server, &mut value);
        match &server.peer_proxy {
            _ if is_nopeer => server.metrics.count_nopeer_discovery(),
            Some(peers) if !core => value = peers.merge(value),
            _ => {}
        }
        let accept = Accept {
            audited: request.record.wants_response(),
            ..accept
        };
        return Ok(aggregated_discovery(server, request, &value, accept));
    }
    let value = match core {
        true if server.catalog.group("").is_none() => return Ok(not_found()),
        true => discovery::core_versions(&server.options.external_address()),
        false => discovery::group_list(groups),
    };
    Ok(discovery_response(server, &value, accept(request, core)?))
}

/// Aggregated discovery. Kubernetes: all encodings have the same ETag, that of the JSON without kind and version
/// (endpoints/discovery/aggregated/etag.go).
fn aggregated_discovery(
    server: &ServerParts,
    request: &Request,
    value: &Value,
    accept: Accept,
) -> Response {
    let mut tagged = value.clone();
    tagged.remove("kind");
    tagged.remove("apiVersion");
    let tag = format!(
        "\"{}\"",
        mizzen_openapi::hash(json::to_string(&tagged).as_bytes())
    );
    let mut answer = match request.header("if-none-match") == tag {
        true => empty(StatusCode::NOT_MODIFIED),
        false => discovery_response(server, value, accept),
    };
    let media_type = match accept.encoding {
        ResponseEncoding::Json => {
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        }
        ResponseEncoding::Yaml => {
            "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        }
        ResponseEncoding::Protobuf => {
            "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        }
    };
    if answer.headers().contains_key(header::CONTENT_TYPE) {
        set(&mut answer, header::CONTENT_TYPE, media_type);
    }
    set(&mut answer, header::VARY, "Accept");
    set(&mut answer, header::CACHE_CONTROL, "public");
    set(&mut answer, header::ETAG, &tag);
    answer
}

/// An OpenAPI document.
fn openapi_document(
    server: &ServerParts,
    request: &Request,
    media_type: &'static str,
    document: &SpecDocument,
) -> Response {
    let modified = *document.sent.get_or_init(|| server.registry.now());
    let (body, hash) = (document.bytes.clone(), Some(&*document.hash));
    content::serve(
        request,
        &CacheableDocument {
            media_type,
            body,
            hash,
            modified,
        },
    )
}

/// Renders a document on a blocking thread: the first time takes milliseconds.
async fn render<T: Send + 'static>(
    server: &Arc<ServerParts>,
    render: impl FnOnce(&ServerParts) -> T + Send + 'static,
) -> Result<T, Status> {
    let server = server.clone();
    tokio::task::spawn_blocking(move || render(&server))
        .await
        .map_err(Status::internal)
}

/// Whether an OpenAPI document is sent as protobuf; `None` if no clause can be served. `version` is that of OpenAPI.
/// Kubernetes: kube-openapi compares media types case-sensitively (pkg/handler/handler.go).
fn wants_protobuf(clauses: &[response::AcceptClause], version: &str) -> Option<bool> {
    let subtype = |text: &str| {
        text.strip_prefix("com.github.proto-openapi.spec.")
            .map(|text| text.replace('@', "."))
    };
    let protobuf = format!("{version}.v1.0+protobuf");
    let serve = |clause: &response::AcceptClause| match clause.subkind {
        _ if !matches!(clause.kind, "application" | "*") => None,
        "json" | "*" => Some(false),
        subkind => (subtype(subkind)? == protobuf).then_some(true),
    };
    clauses.iter().find_map(serve)
}

/// The `Accept` header of a request for an OpenAPI document.
fn openapi_accept(request: &Request) -> Cow<'_, str> {
    match request.header("accept") {
        header if header.is_empty() => "*/*".into(),
        header => header,
    }
}

async fn openapi_v2(server: &Arc<ServerParts>, request: &Request) -> Result<Response, Status> {
    let mut answer = match wants_protobuf(&clauses(&openapi_accept(request)), "v2") {
        None => empty(StatusCode::NOT_ACCEPTABLE),
        Some(proto) => {
            let document =
                render(server, move |server| aggregation::openapi_v2(server, proto)).await?;
            let media_type = match proto {
                true => "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
                false => "application/json",
            };
            openapi_document(server, request, media_type, &document)
        }
    };
    // Kubernetes: this document has a compressing handler of its own.
    answer
        .headers_mut()
        .append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    answer
        .headers_mut()
        .append(header::VARY, HeaderValue::from_static("Accept"));
    Ok(answer)
}

async fn openapi_index(server: &Arc<ServerParts>, request: &Request) -> Result<Response, Status> {
    let index = render(server, |server| {
        server.catalog.with_openapi(OpenApi::v3_index)
    })
    .await?;
    // Kubernetes: the index is JSON with a text media type, always modified now and without an ETag.
    let content = CacheableDocument {
        media_type: "text/plain; charset=utf-8",
        body: aggregation::openapi_index(server, index),
        hash: None,
        modified: server.registry.now(),
    };
    Ok(content::serve(request, &content))
}

/// Kubernetes: kube-openapi/pkg/handler3/handler.go, which sends nothing for an `Accept` header without a clause.
async fn openapi_v3(server: &Arc<ServerParts>, request: &Request) -> Result<Response, Status> {
    let name = request
        .uri
        .path()
        .trim_start_matches("/openapi/v3/")
        .to_string();
    match aggregation::document_server(server, &name) {
        Some(OtherServer::Remote(other)) => {
            return Ok(aggregation::proxy_request(server, request, &other).await);
        }
        Some(OtherServer::Local(local)) => return Box::pin(openapi_v3(&local.0, request)).await,
        None => {}
    }
    if !server.catalog.with_openapi(|openapi| openapi.has_v3(&name)) {
        return Ok(empty(StatusCode::NOT_FOUND));
    }
    let accept = openapi_accept(request);
    let clauses = clauses(&accept);
    if clauses.is_empty() {
        return Ok(empty(StatusCode::OK));
    }
    let mut answer = match wants_protobuf(&clauses, "v3") {
        Some(proto) => openapi_v3_document(server, request, name, proto).await?,
        None => empty(StatusCode::NOT_ACCEPTABLE),
    };
    set(&mut answer, header::VARY, "Accept");
    Ok(answer)
}

async fn openapi_v3_document(
    server: &Arc<ServerParts>,
    request: &Request,
    name: String,
    proto: bool,
) -> Result<Response, Status> {
    let url = format!("/openapi/v3/{name}");
    let document = render(server, move |server| {
        server.catalog.with_openapi(|openapi| {
            if proto {
                openapi.v3_proto(&name)
            } else {
                openapi.v3(&name)
            }
        })
    });
    let Some(document) = document.await? else {
        return Ok(empty(StatusCode::NOT_FOUND));
    };
    let media_type = match proto {
        true => "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
        false => "application/json",
    };
    let hash = request.query.text("hash");
    if hash.is_empty() {
        return Ok(openapi_document(server, request, media_type, &document));
    }
    if hash != document.hash {
        let mut answer = response::with_body(301, media_type, Bytes::new());
        set(&mut answer, header::ETAG, &format!("\"{}\"", document.hash));
        set(
            &mut answer,
            header::LOCATION,
            &format!("{url}?hash={}", document.hash),
        );
        return Ok(answer);
    }
    let mut answer = openapi_document(server, request, media_type, &document);
    set(&mut answer, header::CACHE_CONTROL, "public, immutable");
    // Kubernetes: Go's RFC 1123 form, which is not that of HTTP. A year is 365 days here.
    let expires = server.registry.now() + 365 * 24 * 60 * 60;
    set(&mut answer, header::EXPIRES, &http_date(expires, "UTC"));
    Ok(answer)
}
