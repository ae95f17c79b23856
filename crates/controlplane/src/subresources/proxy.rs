//! `pods/NAME/proxy`, `services/NAME/proxy` and `nodes/NAME/proxy`: proxies requests to a pod or a node.
//!
//! The address of a pod on a simulated node is invented, so such a pod is reached through its node, by a tunnel to the port.
//! Any other pod is dialled, as upstream (core/pod/strategy.go, core/service/storage/storage.go). A node is its kubelet,
//! unless the request names another port (core/node/strategy.go).

use std::net::IpAddr;

use http::{HeaderValue, Method, Request as Outward, header};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use mizzen_object::Status;
use mizzen_registry::Key;
use mizzen_value::{Value, value};
use tokio::io::{AsyncRead, AsyncWrite};

use super::kubelet;
use super::proxy_html::{self, PageEncoding};
use super::proxy_links::LinkRewriter;
use crate::ControlPlane;
use mizzen_apiserver::admission;
use mizzen_apiserver::aggregation::{hop_by_hop, join};
use mizzen_apiserver::request::{Request, ResourcePath};
use mizzen_apiserver::response::{self, Body, Response};
use mizzen_apiserver::verbs::{ResourceCall, check_key};
use mizzen_transport::{Outgoing, SendError, clean_path, dial, whole};

/// How much of a node's error is read.
const MAX_ERROR: usize = 1_000;

/// Answers with what the process behind the object answers.
pub(super) async fn connect(call: &ResourceCall<'_>) -> Result<Response, Status> {
    let ResourceCall {
        request,
        path,
        resource,
        ..
    } = call;
    let methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
    if !methods.contains(&request.method.as_str()) {
        return Err(Status::no_such_method());
    }
    check_key(resource.kind(), &path.namespace, &path.name)?;
    if request.query.get("dryRun").is_some() {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    proxy_request(call).await
}

async fn proxy_request(call: &ResourceCall<'_>) -> Result<Response, Status> {
    let request = call.request;
    let below = proxied_path(&admitted_path(call).await?, request.uri.path());
    let location = match call.path.resource.as_str() {
        "pods" => ProxyLocation::of_pod(call).await?,
        "nodes" => ProxyLocation::of_node(call).await?,
        _ => ProxyLocation::of_service(call).await?,
    };
    let is_upgrade = hop_by_hop::is_upgrade(&request.headers);
    if below.is_empty() && !is_upgrade && matches!(request.method, Method::GET | Method::HEAD) {
        return Ok(redirect_to_slash(request));
    }
    let unreachable = |SendError(why)| {
        Status::failure(
            503,
            "ServiceUnavailable",
            format!("error trying to reach service: {why}"),
        )
    };
    let response = send(call, &location, &below, is_upgrade)
        .await
        .map_err(unreachable)?;
    match response {
        (response, Some(client)) if response.status() == 101 => {
            Ok(join(response, Some(client), request.record.clone()))
        }
        (response, _) => {
            let (mut head, body) = response.into_parts();
            hop_by_hop::strip(&mut head.headers);
            for name in CORS {
                head.headers.remove(name);
            }
            let host = request.headers.get(header::HOST);
            let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
            let server = location.host_and_port();
            let links = LinkRewriter::new(request.uri.path(), &below, server, host);
            links.rewrite_location(&mut head.headers)?;
            head.version = http::Version::default();
            // Kubernetes: the page of a redirect stays as it is.
            let page = PageEncoding::of(&head.headers)
                .filter(|_| !head.headers.contains_key(header::LOCATION));
            let body = match page {
                Some(encoding) if !body.is_end_stream() => {
                    head.headers.remove(header::CONTENT_LENGTH);
                    proxy_html::page(body, encoding, links)
                }
                _ => Body::relay(body),
            };
            Ok(Response::from_parts(head, body))
        }
    }
}

/// The part of the path after `proxy`.
fn below(request: &Request, path: &ResourcePath) -> String {
    let mut below: String = path.rest.iter().flat_map(|part| ["/", part]).collect();
    if request.uri.path().ends_with('/') && !below.ends_with('/') {
        below.push('/');
    }
    below
}

/// The path as admission leaves it, below the proxied server.
async fn admitted_path(call: &ResourceCall<'_>) -> Result<String, Status> {
    let kind = match call.path.resource.as_str() {
        "pods" => "PodProxyOptions",
        "nodes" => "NodeProxyOptions",
        _ => "ServiceProxyOptions",
    };
    let below = below(call.request, call.path);
    let mut options = value!({ "kind": (kind), "apiVersion": "v1" });
    if !below.is_empty() {
        options.set("path", below);
    }
    admission::admit_connect(call, &mut options).await?;
    Ok(options["path"].str().to_owned())
}

/// The path that the proxied server gets. Kubernetes: cleaned like a file path, so that `..` cannot escape; a trailing slash
/// stays (util/net, JoinPreservingTrailingSlash), and that of the request is added (util/proxy, upgradeaware.go).
fn proxied_path(below: &str, requested: &str) -> String {
    let mut path = match below {
        "" => String::new(),
        below => clean_path(below),
    };
    if (below.ends_with('/') || requested.ends_with('/')) && !path.ends_with('/') {
        path.push('/');
    }
    path
}

/// The target of a request.
struct ProxyLocation {
    is_https: bool,
    route: ProxyRoute,
    /// The address of the pod, or the address or name of the node.
    host: String,
    port: String,
}

/// How the target is reached.
enum ProxyRoute {
    /// A pod: directly, or through its node if that is simulated.
    Pod(Box<Value>),
    /// A kubelet, with the credentials of this server.
    Kubelet,
    /// Another port of a node.
    NodePort,
}

impl ProxyLocation {
    /// `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`. The default port is the first of the pod.
    async fn of_pod(call: &ResourceCall<'_>) -> Result<ProxyLocation, Status> {
        let requested = &call.path.name;
        let invalid = || {
            Status::bad_request(format!(
                "invalid pod request {}",
                mizzen_value::json::quote(requested)
            ))
        };
        let (scheme, name, port) = split(requested).ok_or_else(invalid)?;
        let key = Key::new(&call.path.namespace, name);
        let pod = call.server.registry.read(call.resource, &key, "");
        let pod = pod.await?.value();
        let containers = pod["spec"]["containers"].list();
        let first = containers
            .iter()
            .find_map(|container| container["ports"].list().first());
        let port = match (port, first) {
            ("", Some(first)) => first["containerPort"].int().to_string(),
            (port, _) => port.to_owned(),
        };
        let host = match pod["status"]["podIPs"].list() {
            [] => String::new(),
            [first, ..] => first["ip"].str().to_owned(),
        };
        if !host.parse().is_ok_and(is_global_unicast) {
            return Err(Status::bad_request("address not allowed"));
        }
        Ok(ProxyLocation {
            is_https: scheme == "https",
            route: ProxyRoute::Pod(Box::new(pod)),
            host,
            port,
        })
    }

    /// The kubelet of a node, or another port of the node.
    async fn of_node(call: &ResourceCall<'_>) -> Result<ProxyLocation, Status> {
        let requested = &call.path.name;
        let invalid = || {
            Status::bad_request(format!(
                "invalid node request {}",
                mizzen_value::json::quote(requested)
            ))
        };
        let (scheme, name, port) = split(requested).ok_or_else(invalid)?;
        let (host, kubelet_port) = kubelet::endpoint(call.server, name).await?;
        let kubelet_port = kubelet_port.to_string();
        let is_kubelet = port.is_empty() || port == kubelet_port;
        // The kubelet of a simulated node listens on a local address; no other local port is proxied.
        if !is_kubelet || !call.server.client.services().is_simulated(name) {
            check_hostname(&host).await.map_err(Status::bad_request)?;
        }
        Ok(match is_kubelet {
            true => ProxyLocation {
                is_https: true,
                route: ProxyRoute::Kubelet,
                host,
                port: kubelet_port,
            },
            false => ProxyLocation {
                is_https: scheme == "https",
                route: ProxyRoute::NodePort,
                host,
                port: port.to_owned(),
            },
        })
    }

    /// A random endpoint of a Service. The port is that of the Service, by number or name.
    async fn of_service(call: &ResourceCall<'_>) -> Result<ProxyLocation, Status> {
        let requested = &call.path.name;
        let shown = mizzen_value::json::quote(requested);
        let invalid = || Status::bad_request(format!("invalid service request {shown}"));
        let (scheme, name, port) = split(requested).ok_or_else(invalid)?;
        let key = Key::new(&call.path.namespace, name);
        let mut port = port.to_owned();
        if let Ok(number) = port.parse::<i64>() {
            let service = call.server.registry.read(call.resource, &key, "");
            let service = service.await?.value();
            let ports = service["spec"]["ports"].list();
            port = match ports.iter().find(|known| known["port"].int() == number) {
                Some(known) => known["name"].str().to_owned(),
                None => {
                    let name = mizzen_value::json::quote(name);
                    return Err(unavailable(format!(
                        "no service port {number} found for service {name}"
                    )));
                }
            };
        }
        let endpoints = call
            .server
            .catalog
            .get("", "v1", "endpoints")
            .ok_or_else(Status::no_such_resource)?;
        // Kubernetes: a missing Endpoints object is reported as a missing Service.
        let missing = |status: Status| match status.code {
            404 => Status::not_found(&call.resource.kind().resource(), name),
            _ => status,
        };
        let endpoints = call
            .server
            .registry
            .read(&endpoints, &key, "")
            .await
            .map_err(missing)?
            .value();
        let mut found = Vec::new();
        for subset in endpoints["subsets"].list() {
            let Some(port) = subset["ports"]
                .list()
                .iter()
                .find(|known| known["name"].str() == port)
            else {
                continue;
            };
            for address in subset["addresses"].list() {
                let pod = endpoint_pod(call, address).await;
                found.extend(pod.map(|pod| (pod, address["ip"].str(), port["port"].int())));
            }
        }
        if found.is_empty() {
            return Err(unavailable(format!(
                "no endpoints available for service {shown}"
            )));
        }
        let mut bytes = [0; 2];
        call.server.registry.random().fill(&mut bytes);
        let (pod, host, port) =
            found.swap_remove(usize::from(u16::from_le_bytes(bytes)) % found.len());
        Ok(ProxyLocation {
            is_https: scheme == "https",
            route: ProxyRoute::Pod(Box::new(pod)),
            host: host.into(),
            port: port.to_string(),
        })
    }

    /// The host of its URL, with the port that was requested.
    fn host_and_port(&self) -> String {
        match self.port.as_str() {
            "" if self.host.contains(':') => format!("[{}]", self.host),
            "" => self.host.clone(),
            port => kubelet::join_host_port(&self.host, port),
        }
    }

    fn number(&self) -> Result<u16, SendError> {
        match (self.port.as_str(), self.is_https) {
            ("", false) => Ok(80),
            ("", true) => Ok(443),
            (port, _) => port
                .parse()
                .map_err(|_| SendError(format!("dial tcp: lookup tcp/{port}: unknown port"))),
        }
    }
}

fn unavailable(message: String) -> Status {
    Status::failure(503, "ServiceUnavailable", message)
}

/// Kubernetes: apimachinery/pkg/util/net/port_split.go.
fn split(id: &str) -> Option<(&str, &str, &str)> {
    let (scheme, name, port) = match id.split(':').collect::<Vec<_>>()[..] {
        [name] => ("", name, ""),
        [name, port] => ("", name, port),
        [scheme, name, port] => (scheme, name, port),
        _ => return None,
    };
    (!name.is_empty() && matches!(scheme, "" | "http" | "https")).then_some((scheme, name, port))
}

/// The pod of an address. Kubernetes: only pods are proxied, so that a client cannot reach other addresses. There may be
/// very many addresses, so only a pod that the cache does not have is read from the store.
async fn endpoint_pod(call: &ResourceCall<'_>, address: &Value) -> Option<Value> {
    let target = &address["targetRef"];
    if target["namespace"].str() != call.path.namespace {
        return None;
    }
    let pods = call.server.catalog.get("", "v1", "pods")?;
    let key = Key::new(&call.path.namespace, target["name"].str());
    let pod = call.server.registry.find(&pods, &key).await.ok()?.value();
    let has = pod["status"]["podIPs"]
        .list()
        .iter()
        .any(|known| known["ip"].str() == address["ip"].str());
    has.then_some(pod)
}

/// Go: `net.IP.IsGlobalUnicast`.
fn is_global_unicast(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || is_link_local)
}

/// Kubernetes: isProxyableHostname (core/node/strategy.go).
async fn check_hostname(host: &str) -> Result<(), String> {
    let found: Vec<IpAddr> = match host.parse() {
        Ok(address) => vec![address],
        Err(_) => tokio::net::lookup_host((host, 0))
            .await
            .map_err(|_| format!("lookup {host}: no such host"))?
            .map(|address| address.ip())
            .collect(),
    };
    match found.as_slice() {
        [] => Err("no addresses for hostname".into()),
        all if all.iter().all(|address| is_global_unicast(*address)) => Ok(()),
        _ => Err("address not allowed".into()),
    }
}

/// A connection to a pod or a node.
trait ProxyConnection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ProxyConnection for T {}

/// Sends the request. Returns the response and the client's upgrade, if there is one.
async fn send(
    call: &ResourceCall<'_>,
    location: &ProxyLocation,
    below: &str,
    is_upgrade: bool,
) -> Result<(http::Response<Incoming>, Option<hyper::upgrade::OnUpgrade>), SendError> {
    let address = kubelet::join_host_port(&location.host, location.number()?);
    let take_body = || match call.request.streams.take() {
        Some(streams) => (streams.body, streams.upgrade),
        None => (whole(call.request.body.clone()), None),
    };
    if let ProxyRoute::Kubelet = location.route {
        let origin = format!("https://{address}");
        let outward = outward(call.request, &origin, below, is_upgrade)?;
        let (body, client) = take_body();
        let kubelet = kubelet::target(call.server, &address);
        let sent = ControlPlane::of(call.server)
            .kubelets
            .send(&kubelet, outward.map(|()| body));
        return Ok((sent.await?, client));
    }
    let mut connection = connect_to(call, location, &address).await?;
    if location.is_https {
        connection = Box::new(
            call.server
                .client
                .secure(&location.host, connection)
                .await?,
        );
    }
    let (mut sender, driver) = http1::handshake::<_, Outgoing>(TokioIo::new(connection))
        .await
        .map_err(connection_error)?;
    tokio::spawn(driver.with_upgrades());
    let outward = outward(call.request, "", below, is_upgrade)?;
    let (body, client) = take_body();
    let response = sender
        .send_request(outward.map(|()| body))
        .await
        .map_err(connection_error)?;
    Ok((response, client))
}

fn connection_error(error: hyper::Error) -> SendError {
    let is_lost = error.is_incomplete_message() || error.is_canceled() || error.is_closed();
    SendError(if is_lost {
        "EOF".into()
    } else {
        error.to_string()
    })
}

async fn connect_to(
    call: &ResourceCall<'_>,
    location: &ProxyLocation,
    address: &str,
) -> Result<Box<dyn ProxyConnection>, SendError> {
    let simulated = match &location.route {
        ProxyRoute::Pod(pod) => Some((pod, pod["spec"]["nodeName"].str())),
        _ => None,
    };
    let is_simulated = |node: &str| call.server.client.services().is_simulated(node);
    let Some((pod, node)) = simulated.filter(|(_, node)| is_simulated(node)) else {
        return Ok(Box::new(dial(address).await?));
    };
    let metadata = &pod["metadata"];
    let (namespace, name) = (metadata["namespace"].str(), metadata["name"].str());
    let kubelet = kubelet::address(call.server, node).await;
    let kubelet = kubelet.map_err(|status| SendError(status.message))?;
    let url = format!(
        "https://{kubelet}/tunnel/{namespace}/{name}?port={}",
        location.number()?
    );
    let request = Outward::get(url)
        .header(header::CONNECTION, "Upgrade")
        .header(header::UPGRADE, "tcp")
        .body(whole(Default::default()))
        .map_err(|error| SendError(error.to_string()))?;
    let response = ControlPlane::of(call.server)
        .kubelets
        .send(&kubelet::target(call.server, &kubelet), request)
        .await?;
    if response.status() == 101 {
        return Ok(Box::new(TokioIo::new(
            hyper::upgrade::on(response)
                .await
                .map_err(connection_error)?,
        )));
    }
    let why = Limited::new(response.into_body(), MAX_ERROR)
        .collect()
        .await;
    let why = why
        .map(|why| String::from_utf8_lossy(&why.to_bytes()).into_owned())
        .unwrap_or_default();
    Err(SendError(format!("dial tcp {address}: {why}")))
}

/// The request that the pod or the node gets.
fn outward(
    request: &Request,
    origin: &str,
    below: &str,
    is_upgrade: bool,
) -> Result<Outward<()>, SendError> {
    let query = request
        .uri
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let path = if below.is_empty() { "/" } else { below };
    let mut outward = Outward::new(());
    *outward.method_mut() = request.method.clone();
    *outward.uri_mut() = format!("{origin}{path}{query}")
        .parse()
        .map_err(|error| SendError(format!("{error}")))?;
    let mut headers = hop_by_hop::forwarded(&request.headers, request.address, is_upgrade);
    // Credentials are for this server only.
    headers.remove(header::AUTHORIZATION);
    let mut set = |name: &'static str, text: &str| {
        if let Ok(text) = HeaderValue::from_str(text) {
            headers.insert(name, text);
        }
    };
    set("x-forwarded-uri", request.uri.path());
    set("x-forwarded-proto", "https");
    if let Some(host) = request.headers.get(header::HOST) {
        headers.insert("x-forwarded-host", host.clone());
    } else {
        headers.insert(header::HOST, HeaderValue::from_static("localhost"));
    }
    *outward.headers_mut() = headers;
    Ok(outward)
}

/// Kubernetes: CORS headers of a pod are removed.
const CORS: [&str; 6] = [
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "access-control-max-age",
];

/// Kubernetes: without a trailing slash, relative links of a page would not work (issue 4958).
fn redirect_to_slash(request: &Request) -> Response {
    let query = request
        .uri
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let mut response = response::text(301, "");
    response.headers_mut().remove(header::CONTENT_TYPE);
    if let Ok(location) = HeaderValue::from_str(&format!("{}/{query}", request.uri.path())) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_with_or_without_scheme_and_port() {
        assert_eq!(split("web"), Some(("", "web", "")));
        assert_eq!(split("web:80"), Some(("", "web", "80")));
        assert_eq!(split("https:web:"), Some(("https", "web", "")));
        for id in ["ftp:web:80", ":80", "a:b:c:d", ""] {
            assert_eq!(split(id), None, "{id}");
        }
    }

    #[test]
    fn paths_are_cleaned_like_file_paths() {
        for (below, expected) in [
            ("", ""),
            ("/", "/"),
            ("/a//b/", "/a/b/"),
            ("/../../a/./b", "/a/b"),
            ("/a/..", "/"),
            ("/a b?", "/a%20b%3F"),
            // Admission may leave a path without a slash.
            ("a/../../b", "/b"),
        ] {
            assert_eq!(proxied_path(below, "/proxy"), expected, "{below}");
        }
        assert_eq!(proxied_path("", "/proxy/"), "/");
        assert_eq!(proxied_path("/b", "/proxy/a/"), "/b/");
    }

    #[test]
    fn local_addresses_are_not_proxied() {
        let is = |address: &str| is_global_unicast(address.parse().unwrap());
        assert!(is("10.244.0.5") && is("192.168.1.1") && is("fd00::1"));
        for address in [
            "127.0.0.1",
            "::1",
            "169.254.169.254",
            "0.0.0.0",
            "224.0.0.1",
            "fe80::1",
            "255.255.255.255",
        ] {
            assert!(!is(address), "{address}");
        }
    }
}
