//! What is not an object: discovery, OpenAPI, version, metrics. Health has a file of its own.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, header};
use mizzen_object::{GroupVersionKind, Status, Value, json};

use crate::aggregation;
use crate::answer::{self, Accept, Answer, Form, Offer, negotiate_among};
use crate::discovery::{self, Group, is_built_in};
use crate::health;
use crate::openapi::OpenApi;
use crate::openid;
use crate::request::Request;
use crate::server::Inner;

/// The paths that exist besides groups and their versions.
const OTHERS: [&str; 7] = [
    openid::CONFIGURATION,
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    openid::KEYS,
    "/version",
];

/// All of them.
fn others(server: &Inner) -> Vec<String> {
    OTHERS.into_iter().map(String::from).chain(health::paths(server)).collect()
}

/// Answers a request for a page. A slash at the end of its path does not count, but for health checks.
pub(crate) async fn answer(server: &Arc<Inner>, request: &Request, path: &str) -> Result<Answer, Status> {
    let is_check = ["/healthz", "/livez", "/readyz"].iter().any(|check| path.starts_with(check));
    let path = match path.strip_suffix('/') {
        Some("") => "/",
        Some(trimmed) if !is_check && path != "//" => trimmed,
        _ => path,
    };
    if let Some(page) = server.fairness.page(path, !request.query.text("includeRequestDetails").is_empty()) {
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
    // Kubernetes: these are registered by their exact paths; other pages may have a trailing slash.
    let is_exact = request.uri.path() == path;
    match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Ok(health::answer(server, request, &parts).await),
        ["metrics"] if is_exact => Ok(answer::answer(200, METRICS_TYPE, server.metrics.text(server))),
        ["openapi", "v2"] if is_exact => openapi_v2(server, request).await,
        ["openapi", "v3"] if is_exact => openapi_index(server).await,
        ["openapi", "v3", ..] => openapi_v3(server, request, path).await,
        _ => document(server, request, &parts),
    }
}

const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

fn document(server: &Arc<Inner>, request: &Request, parts: &[&str]) -> Result<Answer, Status> {
    let found = |name: &str| server.catalog.group(name);
    let value = match parts {
        [""] | ["index.html"] => {
            return Ok(raw_json(&discovery::root_paths(&aggregation::groups(server), &others(server))));
        }
        ["version"] => return version(request),
        ["api"] => return roots(server, request, true),
        ["apis"] => return roots(server, request, false),
        ["api", version] => resource_list(&found("").ok_or_else(Status::no_such_resource)?, version)?,
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
        ["version", ..] | [".well-known", "openid-configuration", ..] | ["openid", "v1", "jwks", ..] => {
            return Err(Status::no_such_resource());
        }
        _ => return Ok(not_found()),
    };
    let restful = is_restful(parts);
    if restful {
        read_only(request)?;
    }
    Ok(answer::value(&kind_of(&value), None, &value, accept(request, restful)?, 200))
}

/// A document that is no object. Kubernetes: it is always indented JSON, whatever the client accepts.
fn raw_json(value: &Value) -> Answer {
    let accept = Accept { pretty: true, ..Accept::JSON };
    answer::value(&kind_of(value), None, value, accept, 200)
}

/// Kubernetes: go-restful serves this path, and only as JSON (server/routes/version.go).
fn version(request: &Request) -> Result<Answer, Status> {
    read_only(request)?;
    answer::negotiate_json(&request.headers)?;
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

/// Documents have no other form; `restful` says whether go-restful serves them.
fn accept(request: &Request, restful: bool) -> Result<Accept, Status> {
    let offer = Offer { tables: true, protobuf: true, restful };
    let accept = negotiate_among(&request.headers, &request.query, false, offer)?;
    let accept = Accept { kept: request.record.wants_response(), ..accept };
    if accept.form != Form::Whole {
        return Err(answer::not_acceptable());
    }
    Ok(accept)
}

fn not_found() -> Answer {
    answer::text(404, "404 page not found\n")
}

/// 404 and not a word.
fn nothing() -> Answer {
    let mut answer = Answer::new(Bytes::new().into());
    *answer.status_mut() = http::StatusCode::NOT_FOUND;
    answer
}

fn resource_list(group: &Group, version: &str) -> Result<Value, Status> {
    let version = group.version(version).ok_or_else(Status::no_such_resource)?;
    Ok(discovery::resource_list(group, version))
}

/// `/api` and `/apis`, which have an aggregated form too.
fn roots(server: &Arc<Inner>, request: &Request, core: bool) -> Result<Answer, Status> {
    if core {
        read_only(request)?;
    }
    let groups = &*aggregation::groups(server);
    let accepted = request.header("accept");
    for clause in accepted.split(',') {
        if is_aggregated(clause) {
            let chosen = groups.iter().filter(|group| group.name.is_empty() == core);
            let mut value = discovery::aggregated(chosen);
            aggregation::stale(server, &mut value);
            value.set("apiVersion", "apidiscovery.k8s.io/v2");
            return Ok(discovery_answer(request, &value));
        }
    }
    let value = match core {
        true if server.catalog.group("").is_none() => return Ok(not_found()),
        true => discovery::core_versions(&server.options.advertise),
        false => discovery::group_list(groups),
    };
    Ok(answer::value(&kind_of(&value), None, &value, accept(request, core)?, 200))
}

/// Whether a clause of the `Accept` header asks for aggregated discovery. Kubernetes: `v2beta1` is no longer served.
fn is_aggregated(clause: &str) -> bool {
    let mut parts = clause.split(';').map(str::trim);
    let json = matches!(parts.next(), Some("application/json" | "*/*"));
    let parts: Vec<&str> = parts.collect();
    let asked = ["g=apidiscovery.k8s.io", "v=v2", "as=APIGroupDiscoveryList"];
    json && asked.iter().all(|asked| parts.contains(asked))
}

fn discovery_answer(request: &Request, value: &Value) -> Answer {
    let text = json::to_string(value) + "\n";
    let media_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let tag = crate::openapi::hash(text.as_bytes());
    let mut answer = tagged(request, media_type, text.into(), &tag);
    answer.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    answer
}

/// An answer that a client may have already.
fn tagged(request: &Request, media_type: &'static str, body: Bytes, tag: &str) -> Answer {
    let quoted = format!("\"{tag}\"");
    let known = request.header("if-none-match").split(',').any(|known| known.trim() == quoted);
    let mut answer = match known {
        true => answer::answer(304, media_type, Bytes::new()),
        false => answer::answer(200, media_type, body),
    };
    if let Ok(value) = HeaderValue::from_str(&quoted) {
        answer.headers_mut().insert(header::ETAG, value);
    }
    answer
}

fn kind_of(value: &Value) -> GroupVersionKind {
    GroupVersionKind { group: "".into(), version: "v1".into(), kind: value["kind"].str().into() }
}

/// Writing a document takes milliseconds the first time, which nobody else should wait for.
async fn written<T: Send + 'static>(
    server: &Arc<Inner>,
    write: impl FnOnce(&Inner) -> T + Send + 'static,
) -> Result<T, Status> {
    let server = server.clone();
    tokio::task::spawn_blocking(move || write(&server)).await.map_err(Status::internal)
}

/// Whether OpenAPI v2 is sent as protobuf, for the first clause that can be served; none if none can. Kubernetes:
/// kube-openapi compares media types letter by letter (pkg/handler/handler.go).
fn openapi_v2_form(accept: &str) -> Option<bool> {
    if accept.trim().is_empty() {
        return Some(false);
    }
    accept.split(',').find_map(|clause| match clause.split(';').next().unwrap_or_default().trim() {
        "application/json" | "application/*" | "*/*" => Some(false),
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
        | "application/com.github.proto-openapi.spec.v2.v1.0+protobuf" => Some(true),
        _ => None,
    })
}

async fn openapi_v2(server: &Arc<Inner>, request: &Request) -> Result<Answer, Status> {
    let Some(proto) = openapi_v2_form(&request.header("accept")) else {
        let mut answer = nothing();
        *answer.status_mut() = http::StatusCode::NOT_ACCEPTABLE;
        return Ok(answer);
    };
    let document = written(server, move |server| aggregation::openapi_v2(server, proto)).await?;
    let media_type = match proto {
        true => "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
        false => "application/json",
    };
    Ok(tagged(request, media_type, document.bytes.clone(), &document.hash))
}

async fn openapi_index(server: &Arc<Inner>) -> Result<Answer, Status> {
    // Kubernetes: the index is JSON that says it is text.
    let index = written(server, |server| server.catalog.with_openapi(OpenApi::v3_index)).await?;
    Ok(answer::text(200, aggregation::openapi_index(server, index)))
}

async fn openapi_v3(server: &Arc<Inner>, request: &Request, path: &str) -> Result<Answer, Status> {
    let name = path.trim_start_matches("/openapi/v3/").to_string();
    if let Some(other) = server.aggregation.document_elsewhere(&name) {
        return Ok(aggregation::pass_on(server, request, &other).await);
    }
    let Some(document) =
        written(server, move |server| server.catalog.with_openapi(|openapi| openapi.v3(&name))).await?
    else {
        return Ok(nothing());
    };
    let asked = request.query.text("hash");
    if !asked.is_empty() && asked != document.hash {
        return Ok(moved(&format!("{path}?hash={}", document.hash)));
    }
    let mut answer = tagged(request, "application/json", document.bytes.clone(), &document.hash);
    if !asked.is_empty() {
        let forever = HeaderValue::from_static("public, immutable, max-age=31536000");
        answer.headers_mut().insert(header::CACHE_CONTROL, forever);
    }
    answer.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    Ok(answer)
}

fn moved(location: &str) -> Answer {
    let mut answer = answer::text(301, "");
    if let Ok(location) = HeaderValue::from_str(location) {
        answer.headers_mut().insert(header::LOCATION, location);
    }
    answer
}
