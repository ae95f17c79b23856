//! exec, attach and port-forward: tunnels to the kubelet of a pod's node.
//!
//! The client's upgrade is forwarded, and bytes are copied in both directions, whether it is SPDY or WebSocket: a kubelet that
//! declares `ExtendWebSocketsToKubelet` supports both. For other kubelets upstream translates the newest subprotocols of
//! WebSocket to SPDY (core/pod/rest/subresources.go); here they are refused, and kubectl falls back to SPDY.

use http::{HeaderMap, Request as Outward, header};
use mizzen_object::Status;
use mizzen_value::{Value, value};

use super::kubelet;
use crate::ControlPlane;
use mizzen_apiserver::admission;
use mizzen_apiserver::aggregation::{hop_by_hop, join};
use mizzen_apiserver::authorization::secondary;
use mizzen_apiserver::request::{Request, RequestQuery};
use mizzen_apiserver::response::{Body, Response};
use mizzen_apiserver::verbs::ResourceCall;
use mizzen_transport::{SendError, whole};

/// The feature of kubelets that support the subprotocols of [`needs_translation`].
const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";

pub(super) async fn connect(call: &ResourceCall<'_>) -> Result<Response, Status> {
    secondary::authorize_connect(call, call.request.info.verb()).await?;
    let stream = call.path.subresource.as_str();
    let query = &call.request.query;
    if query.get("dryRun").is_some() {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    let mut options = StreamOptions::read(query, stream)?;
    admission::admit_connect(call, &mut options.object).await?;
    let location = location(call, &options).await?;
    if !hop_by_hop::is_upgrade(&call.request.headers) {
        return Err(Status::bad_request("Upgrade request required"));
    }
    if needs_translation(&call.request.headers)
        && !kubelet::declares(call.server, &location.node, WEBSOCKETS).await?
    {
        let node = &location.node;
        return Err(Status::bad_request(format!(
            "unable to upgrade: the kubelet of node {node} does not declare {WEBSOCKETS}, use SPDY"
        )));
    }
    tunnel(call, &location.address, &location.path).await
}

/// The options of a stream.
struct StreamOptions<'a> {
    /// The subresource.
    stream: &'a str,
    /// The options as an object, which admission may change.
    object: Value,
}

impl<'a> StreamOptions<'a> {
    fn read(query: &RequestQuery, stream: &'a str) -> Result<StreamOptions<'a>, Status> {
        let kind = match stream {
            "exec" => "PodExecOptions",
            "attach" => "PodAttachOptions",
            _ => "PodPortForwardOptions",
        };
        let mut object = value!({ "kind": (kind), "apiVersion": "v1" });
        if stream == "portforward" {
            let ports = ports(query).map_err(Status::bad_request)?;
            set_list(&mut object, "ports", ports.into_iter().map(i64::from));
            return Ok(StreamOptions { stream, object });
        }
        for flag in ["stdin", "stdout", "stderr", "tty"] {
            if query.bool(flag).unwrap_or(false) {
                object.set(flag, true);
            }
        }
        let container = query.text("container");
        if !container.is_empty() {
            object.set("container", container);
        }
        if stream == "exec" {
            set_list(&mut object, "command", query.all("command"));
        }
        Ok(StreamOptions { stream, object })
    }

    /// The query for the kubelet, in the order in which Go writes it.
    fn query(&self) -> String {
        let object = &self.object;
        let commands = object["command"].list().iter();
        let mut pairs: Vec<String> = commands
            .map(|word| format!("command={}", query_escape(word.str())))
            .collect();
        for (flag, name) in [
            ("stderr", "error"),
            ("stdin", "input"),
            ("stdout", "output"),
            ("tty", "tty"),
        ] {
            if object[flag].bool() {
                pairs.push(format!("{name}=1"));
            }
        }
        let ports = object["ports"].list().iter();
        let ports: Vec<String> = ports.map(|port| port.int().to_string()).collect();
        if !ports.is_empty() {
            pairs.push(format!("port={}", ports.join("%2C")));
        }
        if pairs.is_empty() {
            String::new()
        } else {
            format!("?{}", pairs.join("&"))
        }
    }
}

/// Sets a list, unless it is empty.
fn set_list<T: Into<Value>>(object: &mut Value, field: &str, items: impl IntoIterator<Item = T>) {
    let items: Vec<Value> = items.into_iter().map(Into::into).collect();
    if !items.is_empty() {
        object.set(field, items);
    }
}

/// Kubernetes: several parameters, or one with commas (meta/v1/conversion.go).
fn ports(query: &RequestQuery) -> Result<Vec<u16>, String> {
    let all = query.all("ports");
    let texts = all.iter().flat_map(|text| text.split(','));
    let port = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let problem = if is_number {
            "value out of range"
        } else {
            "invalid syntax"
        };
        let shown = mizzen_value::json::quote(text);
        let error =
            |_| format!("cannot convert to []int32: strconv.ParseUint: parsing {shown}: {problem}");
        if !is_number {
            return Err(error(()));
        }
        text.parse().map_err(|_| error(()))
    };
    texts.map(port).collect()
}

/// Go: `url.QueryEscape`.
fn query_escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(byte))
            }
            b' ' => escaped.push('+'),
            _ => escaped += &format!("%{byte:02X}"),
        }
    }
    escaped
}

/// The kubelet and the path of a stream.
struct StreamLocation {
    node: String,
    address: String,
    path: String,
}

async fn location(
    call: &ResourceCall<'_>,
    options: &StreamOptions<'_>,
) -> Result<StreamLocation, Status> {
    let pod = call
        .server
        .registry
        .read(call.resource, &call.key(), "")
        .await?
        .value();
    let (kind, below) = match options.stream {
        "portforward" => ("portForward", String::new()),
        stream => {
            let requested = options.object["container"].str();
            (stream, format!("/{}", kubelet::container(&pod, requested)?))
        }
    };
    let node = pod["spec"]["nodeName"].str();
    if node.is_empty() {
        let name = &call.path.name;
        return Err(Status::bad_request(format!(
            "pod {name} does not have a host assigned"
        )));
    }
    let (namespace, name) = (
        pod["metadata"]["namespace"].str(),
        pod["metadata"]["name"].str(),
    );
    let path = format!("/{kind}/{namespace}/{name}{below}{}", options.query());
    Ok(StreamLocation {
        node: node.to_owned(),
        address: kubelet::address(call.server, node).await?,
        path,
    })
}

/// Whether a client offers only subprotocols of WebSocket that kubelets know since v1.36: streams that can be closed, and
/// SPDY in a WebSocket.
fn needs_translation(headers: &HeaderMap) -> bool {
    let is_websocket = headers
        .get(header::UPGRADE)
        .is_some_and(|kind| kind.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let lists = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let offered = lists.filter_map(|list| list.to_str().ok());
    let offered = offered.flat_map(|list| list.split(',')).map(str::trim);
    let mut offered = offered.filter(|name| !name.is_empty()).peekable();
    let is_new = |name: &str| name == "v5.channel.k8s.io" || name.starts_with("SPDY/3.1+");
    is_websocket && offered.peek().is_some() && offered.all(is_new)
}

async fn tunnel(call: &ResourceCall<'_>, address: &str, path: &str) -> Result<Response, Status> {
    let client = call
        .request
        .streams
        .take()
        .and_then(|streams| streams.upgrade);
    let Some(client) = client else {
        return Err(Status::unknown("request connection cannot be hijacked"));
    };
    let outward =
        outward(call.request, &format!("https://{address}{path}")).map_err(Status::unknown)?;
    let (target, outward) = (
        kubelet::target(call.server, address),
        outward.map(|()| whole(Default::default())),
    );
    let answered = ControlPlane::of(call.server)
        .kubelets
        .send(&target, outward)
        .await;
    let response = answered
        .map_err(|SendError(why)| Status::unknown(format!("error dialing backend: {why}")))?;
    match response.status().as_u16() {
        101 => Ok(join(response, Some(client), call.request.record.clone())),
        // The client gets the kubelet's own error.
        400.. => {
            let (mut head, body) = response.into_parts();
            hop_by_hop::strip(&mut head.headers);
            head.version = http::Version::default();
            Ok(Response::from_parts(head, Body::relay(body)))
        }
        code => Err(Status::unknown(format!(
            "invalid upgrade response: status code {code}"
        ))),
    }
}

/// The request that the kubelet gets.
fn outward(request: &Request, url: &str) -> Result<Outward<()>, String> {
    let mut outward = Outward::new(());
    *outward.method_mut() = request.method.clone();
    *outward.uri_mut() = url
        .parse()
        .map_err(|error| format!("parse {url:?}: {error}"))?;
    let mut headers = hop_by_hop::forwarded(&request.headers, request.address, true);
    // Credentials are for this server only.
    headers.remove(header::AUTHORIZATION);
    headers.remove(header::HOST);
    *outward.headers_mut() = headers;
    Ok(outward)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[track_caller]
    fn check(stream: &str, text: &str, expected: &str) {
        let uri = format!("/{stream}?{text}").parse().unwrap();
        let query = RequestQuery::parse(&uri);
        let found = StreamOptions::read(&query, stream).map(|options| options.query());
        assert_eq!(
            found.unwrap_or_else(|status| status.message),
            expected,
            "{text}"
        );
    }

    #[test]
    fn options_are_forwarded_as_the_kubelet_reads_them() {
        check(
            "exec",
            "command=sh&command=-c&command=echo+a%26b&stdin=true&stdout=true&stderr=true&tty=true&container=c",
            "?command=sh&command=-c&command=echo+a%26b&error=1&input=1&output=1&tty=1",
        );
        check("exec", "stdout=false&stderr=0&tty", "?tty=1");
        check("attach", "command=ignored&stdout=1", "?output=1");
        check("exec", "", "");
        check("portforward", "", "");
        check("portforward", "ports=80&ports=81,82", "?port=80%2C81%2C82");
        let invalid = "cannot convert to []int32: strconv.ParseUint: parsing";
        check(
            "portforward",
            "ports=x",
            &format!("{invalid} \"x\": invalid syntax"),
        );
        check(
            "portforward",
            "ports=65536",
            &format!("{invalid} \"65536\": value out of range"),
        );
    }

    #[test]
    fn the_newest_subprotocols_of_websocket_need_a_kubelet_that_declares_them() {
        let check = |upgrade: &'static str, lists: &[&'static str]| {
            let mut headers = HeaderMap::new();
            headers.insert(header::UPGRADE, HeaderValue::from_static(upgrade));
            for list in lists {
                let list = HeaderValue::from_static(list);
                headers.append(header::SEC_WEBSOCKET_PROTOCOL, list);
            }
            needs_translation(&headers)
        };
        for lists in [
            &["v5.channel.k8s.io"][..],
            &["SPDY/3.1+portforward.k8s.io"],
            &["v5.channel.k8s.io,", " SPDY/3.1+portforward.k8s.io"],
        ] {
            assert!(check("WebSocket", lists), "{lists:?}");
            assert!(!check("SPDY/3.1", lists), "{lists:?}");
        }
        for lists in [
            &[][..],
            &["v4.channel.k8s.io"],
            &["v5.channel.k8s.io, v4.channel.k8s.io"],
            &["v5.channel.k8s.io", "base64.channel.k8s.io"],
        ] {
            assert!(!check("websocket", lists), "{lists:?}");
        }
    }

    #[test]
    fn options_are_an_object_for_admission() {
        let uri = "/exec?command=ls&stdin=true&container=c".parse().unwrap();
        let options = StreamOptions::read(&RequestQuery::parse(&uri), "exec").unwrap();
        let expected = value!({
            "kind": "PodExecOptions", "apiVersion": "v1", "stdin": true, "container": "c", "command": ["ls"]
        });
        assert_eq!(options.object, expected);
    }
}
