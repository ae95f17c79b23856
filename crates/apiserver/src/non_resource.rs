//! What is not an object: discovery, OpenAPI, version, metrics. Health has a file of its own.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use mizzen_object::{GroupVersionKind, Status};
use mizzen_value::{Value, json};

use crate::aggregation::{self, OtherServer};
use crate::answer::{self, Accept, Answer, Encoding, clauses};
use crate::content::{self, Content, empty, http_date, set};
use crate::discovery::{self, Group, is_built_in};
use crate::extend::NonResourceRequest;
use crate::health;
use crate::log_files;
use crate::openid;
use crate::request::Request;
use crate::server::Inner;
use mizzen_openapi::{OpenApi, SpecDocument};

/// The paths that exist besides groups and their versions.
const OTHERS: [&str; 8] = [
    openid::CONFIGURATION,
    "/metrics",
    "/metrics/slis",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    openid::KEYS,
    "/version",
];

/// All of them.
fn others(server: &Inner) -> Vec<String> {
    let handled = server
        .options
        .non_resource_handlers
        .iter()
        .flat_map(|handler| handler.listed_paths());
    let logs = server
        .options
        .log_directory
        .iter()
        .map(|_| "/logs".to_owned());
    OTHERS
        .into_iter()
        .map(String::from)
        .chain(health::paths(server))
        .chain(handled)
        .chain(logs)
        .chain(zpages(server))
        .collect()
}

/// The paths of `/statusz` and `/flagz`, if they exist.
fn zpages(server: &Inner) -> impl Iterator<Item = String> {
    let pages = server.options.zpages.iter();
    pages.flat_map(|_| ["/flagz".to_owned(), "/statusz".to_owned()])
}

/// The paths that `/statusz` lists: those of an API server, or of a component.
fn listed(server: &Inner) -> Vec<String> {
    match &server.options.component {
        None => others(server),
        Some(_) => {
            let handlers = server.options.non_resource_handlers.iter();
            let handled = handlers.flat_map(|handler| handler.listed_paths());
            let paths = health::paths(server).into_iter().chain(handled);
            paths.chain(zpages(server)).collect()
        }
    }
}

/// Answers a request for a page. A slash at the end of its path does not count, but for health checks.
pub(crate) async fn answer(
    server: &Arc<Inner>,
    request: &Request,
    path: &str,
) -> Result<Answer, Status> {
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
            "/statusz" => return zpages.statusz(server, request, &listed(server)),
            "/flagz" => return zpages.flagz(request),
            _ => {}
        }
    }
    if server.options.component.is_some() && !is_check {
        return Ok(not_found());
    }
    if let Some(page) = server.fairness.page(
        path,
        !request.query.text("includeRequestDetails").is_empty(),
    ) {
        return Ok(page);
    }
    let issuer = match path {
        openid::CONFIGURATION => openid::configuration(server, request),
        openid::KEYS => openid::keys(server, request),
        _ => None,
    };
    if let Some(answer) = issuer {
        read_only(request)?;
        return answer;
    }
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    if let (["logs", ..], Some(directory)) = (parts.as_slice(), &server.options.log_directory) {
        read_only(request)?;
        return log_files::serve(directory, whole_path).await;
    }
    // Kubernetes: these are registered by their exact paths; other pages may have a trailing slash.
    let is_exact = request.uri.path() == path;
    match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Ok(health::answer(server, request, &parts).await),
        ["metrics"] if is_exact => Ok(metrics(server, request)),
        ["metrics", "slis"] if is_exact => Ok(health_check_metrics(server, request)),
        ["openapi", "v2"] if is_exact => openapi_v2(server, request).await,
        ["openapi", "v3"] if is_exact => openapi_index(server, request).await,
        ["openapi", "v3", ..] => openapi_v3(server, request).await,
        _ => document(server, request, &parts),
    }
}

/// `/metrics`. Kubernetes: DELETE resets them (component-base/metrics/legacyregistry); ours resets what is counted of
/// requests.
fn metrics(server: &Inner, request: &Request) -> Answer {
    if request.method == Method::DELETE && server.options.resets_metrics {
        server.metrics.reset();
        return answer::answer(200, "text/plain; charset=utf-8", "metrics reset\n");
    }
    metrics_text(server, server.metrics.families(server).to_string())
}

/// `/metrics/slis`.
fn health_check_metrics(server: &Inner, request: &Request) -> Answer {
    let checks = &server.metrics.health_checks;
    if request.method == Method::DELETE && server.options.resets_metrics {
        checks.reset();
        return answer::answer(200, "text/plain; charset=utf-8", "metrics reset\n");
    }
    match checks.text() {
        text if text.is_empty() => empty(StatusCode::OK),
        text => metrics_text(server, text),
    }
}

/// The response of the first handler that has the path.
async fn handled(server: &Inner, request: &Request, path: &str) -> Option<Answer> {
    let query = request.uri.query().unwrap_or_default();
    let (method, headers, body) = (&request.method, &request.headers, &request.body);
    for handler in &server.options.non_resource_handlers {
        let asked = NonResourceRequest {
            method,
            path,
            query,
            headers,
            body,
        };
        if let Some(response) = handler.serve(asked).await {
            return Some(response.map(Into::into));
        }
    }
    None
}

/// Metrics, with the header by which clients see that counters started again (promhttp).
fn metrics_text(server: &Inner, text: String) -> Answer {
    let mut answer = answer::answer(200, METRICS_TYPE, text);
    let started = HeaderName::from_static("process-start-time-unix");
    set(&mut answer, started, &server.metrics.started.to_string());
    answer
}

const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

fn document(server: &Arc<Inner>, request: &Request, parts: &[&str]) -> Result<Answer, Status> {
    let found = |name: &str| server.catalog.group(name);
    let value = match parts {
        [""] | ["index.html"] => {
            return Ok(raw_json(&discovery::root_paths(
                &aggregation::groups(server),
                &others(server),
            )));
        }
        ["version"] => return version(request),
        ["api"] => return roots(server, request, true),
        ["apis"] => return roots(server, request, false),
        ["api", version] => {
            resource_list(&found("").ok_or_else(Status::no_such_resource)?, version)?
        }
        ["apis", ""] => return Ok(not_found()),
        ["apis", group] => match aggregation::group(server, group) {
            Some(group) => discovery::group(&group),
            None => return Ok(not_found()),
        },
        // What others serve they say themselves.
        ["apis", group, version] => match found(group) {
            // Kubernetes: a custom group says nothing of versions that it does not have.
            Some(group) if group.version(version).is_none() && !is_built_in(&group.name) => {
                return Ok(not_found());
            }
            Some(group) => resource_list(&group, version)?,
            None => return Ok(not_found()),
        },
        // Kubernetes: what go-restful serves answers with a Status for everything below its path.
        ["version", ..]
        | [".well-known", "openid-configuration", ..]
        | ["openid", "v1", "jwks", ..] => {
            return Err(Status::no_such_resource());
        }
        _ => return Ok(not_found()),
    };
    let restful = is_restful(parts);
    if restful {
        read_only(request)?;
    }
    Ok(described(server, &value, accept(request, restful)?))
}

/// A document of discovery.
fn described(server: &Inner, value: &Value, accept: Accept) -> Answer {
    let ty = server.types.discovery.get(value["kind"].str());
    answer::value(&kind_of(value), ty.map(|ty| &**ty), value, accept, 200)
}

/// A document that is no object. Kubernetes: it is always indented JSON, whatever the client accepts.
fn raw_json(value: &Value) -> Answer {
    let accept = Accept {
        pretty: true,
        ..Accept::JSON
    };
    answer::value(&kind_of(value), None, value, accept, 200)
}

/// Kubernetes: go-restful serves this path, and only as JSON (server/routes/version.go).
fn version(request: &Request) -> Result<Answer, Status> {
    read_only(request)?;
    answer::negotiate_route(&request.headers, &["application/json"])?;
    Ok(raw_json(&discovery::version()))
}

/// Whether go-restful serves a document, which then has no method but GET. Kubernetes: the aggregator and the handler of
/// custom resources serve the others, and look at no method (kube-aggregator/pkg/apiserver/handler_apis.go,
/// apiextensions-apiserver/pkg/apiserver/customresource_discovery.go).
fn is_restful(parts: &[&str]) -> bool {
    match parts {
        ["version" | "api", ..] | ["apis", "apiregistration.k8s.io"] => true,
        ["apis", group, _] => is_built_in(group),
        _ => false,
    }
}

fn read_only(request: &Request) -> Result<(), Status> {
    match request.method.as_str() {
        "GET" => Ok(()),
        _ => Err(Status::no_such_method()),
    }
}

/// The form of a document; `restful` says whether go-restful serves it.
fn accept(request: &Request, restful: bool) -> Result<Accept, Status> {
    let accept = answer::negotiate_document(&request.headers, &request.query, restful)?;
    Ok(Accept {
        kept: request.record.wants_response(),
        ..accept
    })
}

fn not_found() -> Answer {
    answer::text(404, "404 page not found\n")
}

fn resource_list(group: &Group, version: &str) -> Result<Value, Status> {
    let version = group
        .version(version)
        .ok_or_else(Status::no_such_resource)?;
    Ok(discovery::resource_list(group, version))
}

/// `/api` and `/apis`, which have an aggregated form too.
fn roots(server: &Arc<Inner>, request: &Request, core: bool) -> Result<Answer, Status> {
    if core {
        read_only(request)?;
    }
    let groups = &*aggregation::groups(server);
    // Kubernetes: the aggregator serves `/apis/` without the handler of aggregated discovery around it.
    let aggregated = match core || request.uri.path() == "/apis" {
        true => answer::negotiate_aggregated_discovery(&request.headers, &request.query, core),
        false => None,
    };
    if let Some(accept) = aggregated {
        let chosen = groups.iter().filter(|group| group.name.is_empty() == core);
        let mut value = discovery::aggregated(chosen);
        aggregation::stale(server, &mut value);
        let accept = Accept {
            kept: request.record.wants_response(),
            ..accept
        };
        return Ok(aggregated_discovery(server, request, &value, accept));
    }
    let value = match core {
        true if server.catalog.group("").is_none() => return Ok(not_found()),
        true => discovery::core_versions(&server.options.external_address()),
        false => discovery::group_list(groups),
    };
    Ok(described(server, &value, accept(request, core)?))
}

/// Aggregated discovery. Kubernetes: all its encodings have the same tag, that of the JSON without kind and version
/// (endpoints/discovery/aggregated/etag.go).
fn aggregated_discovery(
    server: &Inner,
    request: &Request,
    value: &Value,
    accept: Accept,
) -> Answer {
    let mut tagged = value.clone();
    tagged.remove("kind");
    tagged.remove("apiVersion");
    let tag = format!(
        "\"{}\"",
        mizzen_openapi::hash(json::to_string(&tagged).as_bytes())
    );
    let mut answer = match request.header("if-none-match") == tag {
        true => empty(StatusCode::NOT_MODIFIED),
        false => described(server, value, accept),
    };
    let media_type = match accept.encoding {
        Encoding::Json => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        Encoding::Yaml => "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        Encoding::Protobuf => {
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
    server: &Inner,
    request: &Request,
    media_type: &'static str,
    document: &SpecDocument,
) -> Answer {
    let modified = *document.sent.get_or_init(|| server.registry.now());
    let (body, hash) = (document.bytes.clone(), Some(&*document.hash));
    content::serve(
        request,
        &Content {
            media_type,
            body,
            hash,
            modified,
        },
    )
}

fn kind_of(value: &Value) -> GroupVersionKind {
    let api_version = value["apiVersion"].str();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    GroupVersionKind {
        group: group.into(),
        version: version.into(),
        kind: value["kind"].str().into(),
    }
}

/// Writing a document takes milliseconds the first time, which nobody else should wait for.
async fn written<T: Send + 'static>(
    server: &Arc<Inner>,
    write: impl FnOnce(&Inner) -> T + Send + 'static,
) -> Result<T, Status> {
    let server = server.clone();
    tokio::task::spawn_blocking(move || write(&server))
        .await
        .map_err(Status::internal)
}

/// Whether an OpenAPI document is sent as protobuf, for the best clause that can be served; none if none can.
/// `version` is that of OpenAPI. Kubernetes: kube-openapi compares media types letter by letter (pkg/handler/handler.go).
fn wants_protobuf(clauses: &[answer::Clause], version: &str) -> Option<bool> {
    let of = |text: &str| {
        text.strip_prefix("com.github.proto-openapi.spec.")
            .map(|text| text.replace('@', "."))
    };
    let protobuf = format!("{version}.v1.0+protobuf");
    let serve = |clause: &answer::Clause| match clause.subkind {
        _ if !matches!(clause.kind, "application" | "*") => None,
        "json" | "*" => Some(false),
        subkind => (of(subkind)? == protobuf).then_some(true),
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

async fn openapi_v2(server: &Arc<Inner>, request: &Request) -> Result<Answer, Status> {
    let mut answer = match wants_protobuf(&clauses(&openapi_accept(request)), "v2") {
        None => empty(StatusCode::NOT_ACCEPTABLE),
        Some(proto) => {
            let document =
                written(server, move |server| aggregation::openapi_v2(server, proto)).await?;
            let media_type = match proto {
                true => "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
                false => "application/json",
            };
            openapi_document(server, request, media_type, &document)
        }
    };
    // Kubernetes: a handler of its own compresses this document.
    answer
        .headers_mut()
        .append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    answer
        .headers_mut()
        .append(header::VARY, HeaderValue::from_static("Accept"));
    Ok(answer)
}

async fn openapi_index(server: &Arc<Inner>, request: &Request) -> Result<Answer, Status> {
    let index = written(server, |server| {
        server.catalog.with_openapi(OpenApi::v3_index)
    })
    .await?;
    // Kubernetes: the index is JSON that says it is text, always new and without a tag.
    let content = Content {
        media_type: "text/plain; charset=utf-8",
        body: aggregation::openapi_index(server, index),
        hash: None,
        modified: server.registry.now(),
    };
    Ok(content::serve(request, &content))
}

/// Kubernetes: kube-openapi/pkg/handler3/handler.go, which has nothing to say to a header without a single clause.
async fn openapi_v3(server: &Arc<Inner>, request: &Request) -> Result<Answer, Status> {
    let name = request
        .uri
        .path()
        .trim_start_matches("/openapi/v3/")
        .to_string();
    match aggregation::document_server(server, &name) {
        Some(OtherServer::Remote(other)) => {
            return Ok(aggregation::pass_on(server, request, &other).await);
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
    server: &Arc<Inner>,
    request: &Request,
    name: String,
    proto: bool,
) -> Result<Answer, Status> {
    let url = format!("/openapi/v3/{name}");
    let document = written(server, move |server| {
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
        let mut answer = answer::answer(301, media_type, Bytes::new());
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
    // Kubernetes: in a form that Go calls RFC 1123, which is not that of HTTP. A year is 365 days here.
    let expires = server.registry.now() + 365 * 24 * 60 * 60;
    set(&mut answer, header::EXPIRES, &http_date(expires, "UTC"));
    Ok(answer)
}
