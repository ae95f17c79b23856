//! The HTTP requests of probes and hooks (upstream: pkg/probe/http).
//!
//! Kubernetes: certificates are not verified, and redirects are followed on the same host.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, Uri};
use mizzen_transport::{CallLimit, Client, RedirectingCall, SendError, Target, Trust, read_body};
use mizzen_value::Value;
use mizzen_value::clock::Clock;
use tokio::time::Instant;

/// Kubernetes: the most of a body that is read (pkg/probe/http, `maxRespBodyLength`).
const MAX_BODY: usize = 10 << 10;
/// The version in the header User-Agent.
const VERSION: &str = "1.36";

/// A request that an action describes.
pub(super) struct HttpAction {
    url: String,
    headers: HeaderMap,
}

impl HttpAction {
    /// The request of an `httpGet` at the address of its pod. `agent` is `probe` or `lifecycle`.
    pub(super) fn new(
        container: &Value,
        action: &Value,
        address: &str,
        agent: &str,
    ) -> Result<HttpAction, String> {
        let port = port(container, &action["port"])?;
        let scheme = match action["scheme"].str() {
            "HTTPS" => "https",
            _ => "http",
        };
        let authority = authority(host(action, address), port);
        let path = path(action["path"].str());
        Ok(HttpAction {
            url: format!("{scheme}://{authority}{path}"),
            headers: headers(action, agent)?,
        })
    }

    /// The status and the start of the body. The error reads as that of Go's client.
    pub(super) async fn send(self, until: Instant) -> Result<(u16, String), String> {
        let client = Client::new(Arc::new(NoTime), None);
        let call = RedirectingCall {
            method: Method::GET,
            url: self.url,
            headers: self.headers,
            body: Bytes::new(),
            stays_on_host: true,
        };
        let response = call.send(&client, until, target).await;
        let response = response.map_err(|SendError(message)| timed_out(message))?;
        let status = response.status().as_u16();
        let limit = CallLimit {
            until,
            bytes: MAX_BODY,
        };
        let body = read_body(response.into_body(), limit).await;
        Ok((
            status,
            String::from_utf8_lossy(&body.unwrap_or_default()).into_owned(),
        ))
    }

    /// The same request without TLS.
    pub(super) fn in_plaintext(container: &Value, action: &Value, address: &str) -> HttpAction {
        let mut plain = action.clone();
        plain.set("scheme", "HTTP");
        let mut request = HttpAction::new(container, &plain, address, "lifecycle")
            .expect("the request was made before");
        request.headers.remove(http::header::AUTHORIZATION);
        request
    }
}

/// Certificates are not verified, so no time is needed.
struct NoTime;

impl Clock for NoTime {
    fn now(&self) -> (i64, u32) {
        (0, 0)
    }
}

fn target(uri: &Uri) -> Result<Target, SendError> {
    let target = Target::at(uri, &Trust::Anyone)?;
    Ok(Target {
        http2: false,
        ..target
    })
}

/// Go: what a client with a time limit says.
fn timed_out(message: String) -> String {
    match message.ends_with("context deadline exceeded") {
        true => format!("{message} (Client.Timeout exceeded while awaiting headers)"),
        false => message,
    }
}

/// Kubernetes: the headers Accept and User-Agent have defaults; an empty Accept removes it.
fn headers(action: &Value, agent: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for header in action["httpHeaders"].list() {
        let (name, value) = (header["name"].str(), header["value"].str());
        let invalid = || format!("net/http: invalid header field {name:?}");
        let name: HeaderName = name.parse().map_err(|_| invalid())?;
        headers.append(name, HeaderValue::from_str(value).map_err(|_| invalid())?);
    }
    if !headers.contains_key(USER_AGENT) {
        let agent = HeaderValue::try_from(format!("kube-{agent}/{VERSION}"));
        headers.insert(USER_AGENT, agent.map_err(|error| error.to_string())?);
    }
    match headers.get(ACCEPT) {
        None => drop(headers.insert(ACCEPT, HeaderValue::from_static("*/*"))),
        Some(accept) if accept.is_empty() => drop(headers.remove(ACCEPT)),
        Some(_) => {}
    }
    Ok(headers)
}

/// A path with a slash at its start, and with what a request line must not have encoded.
fn path(path: &str) -> String {
    let mut text = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        text.push('/');
    }
    let path = path.split('#').next().unwrap_or_default();
    for byte in path.bytes() {
        match byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte) {
            true => text.push(char::from(byte)),
            false => text += &format!("%{byte:02X}"),
        }
    }
    text
}

/// A port by number, or by its name in the container.
pub(super) fn port(container: &Value, port: &Value) -> Result<u16, String> {
    let number = match port {
        Value::Int(number) => *number,
        name => {
            let mut ports = container["ports"].list().iter();
            let found = ports.find(|port| port["name"] == *name);
            // Kubernetes: a name may be a number (pkg/probe, `ResolveContainerPort`).
            let by_number = || name.str().parse().unwrap_or_default();
            found.map_or_else(by_number, |port| port["containerPort"].int())
        }
    };
    u16::try_from(number)
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("invalid port number: {number}"))
}

/// The host of an action: its own, or the pod's address.
pub(super) fn host<'a>(action: &'a Value, address: &'a str) -> &'a str {
    match action["host"].str() {
        "" => address,
        host => host,
    }
}

/// A host and a port, with brackets around an address of IPv6.
pub(super) fn authority(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        _ => format!("{host}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[track_caller]
    fn check(action: Value, expected: &str) {
        let container = value!({ "ports": [{ "name": "web", "containerPort": 8080 }] });
        let made = HttpAction::new(&container, &action, "10.0.0.1", "probe");
        let shown = made.map(|made| {
            let headers = made.headers.iter();
            let headers: Vec<String> = headers
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
                .collect();
            format!("{} {}", made.url, headers.join(", "))
        });
        assert_eq!(shown.unwrap_or_else(|error| error), expected);
    }

    #[test]
    fn a_request_has_the_url_and_the_headers_of_its_action() {
        let usual = "user-agent: kube-probe/1.36, accept: */*";
        check(
            value!({ "port": "web", "path": "healthz?a=b c" }),
            &format!("http://10.0.0.1:8080/healthz?a=b%20c {usual}"),
        );
        check(
            value!({ "port": 1, "scheme": "HTTPS", "host": "::1" }),
            &format!("https://[::1]:1/ {usual}"),
        );
        let own = value!([
            { "name": "Accept", "value": "" }, { "name": "User-Agent", "value": "me" },
            { "name": "Host", "value": "a.test" },
        ]);
        check(
            value!({ "port": "81", "httpHeaders": own }),
            "http://10.0.0.1:81/ host: a.test, user-agent: me",
        );
        check(value!({ "port": "none" }), "invalid port number: 0");
        let odd = value!([{ "name": "a", "value": "b\nc" }]);
        check(
            value!({ "port": 1, "httpHeaders": odd }),
            "net/http: invalid header field \"a\"",
        );
    }
}
