//! Proxies a request to an aggregated server; both bodies are streamed.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Request as Outward, Uri, header};
use mizzen_object::User;
use mizzen_outgoing::{SendError, Target, whole};
use mizzen_value::Value;
use tokio::time::timeout;

use super::api_services::ApiService;
use super::{hop_by_hop, upgrade};
use crate::request::Request;
use crate::response::{self, Body, Response};
use crate::server::ServerParts;

/// Kubernetes: the timeout of a discovery request (apiserver/pkg/util/proxy/proxy.go).
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Proxies a request. The user is in headers, which the other server trusts because of our client certificate.
pub(crate) async fn proxy_request(
    server: &ServerParts,
    request: &Request,
    entry: &ApiService,
) -> Response {
    if !entry.available {
        return unavailable();
    }
    let http2 = !hop_by_hop::is_upgrade(&request.headers);
    let Ok(target) = entry.target(&server.client, http2) else {
        return unavailable();
    };
    let forwarded = forward(server, request, &target, HeaderMap::new());
    let is_discovery = request.uri.path().trim_matches('/') == entry.path().trim_matches('/');
    let answer = match is_discovery {
        true => timeout(DISCOVERY_TIMEOUT, forwarded)
            .await
            .unwrap_or_else(|_| unreachable(SendError("context deadline exceeded".into()))),
        false => forwarded.await,
    };
    if answer.status().is_redirection() && answer.headers().contains_key(header::LOCATION) {
        return plain(
            502,
            "the backend attempted to redirect this request, which is not permitted",
        );
    }
    answer
}

/// Sends a request to another server, with the user and `added` in its headers. Its failure is a response, too.
pub(crate) async fn forward(
    server: &ServerParts,
    request: &Request,
    target: &Target,
    added: HeaderMap,
) -> Response {
    let upgraded = hop_by_hop::is_upgrade(&request.headers);
    let streams = request.streams.take();
    let (body, client) = match streams {
        Some(streams) => (streams.body, streams.upgrade),
        None => (whole(request.body.clone()), None),
    };
    let mut outward = match outward(request, &target.address, upgraded) {
        Ok(outward) => outward,
        Err(error) => return unreachable(error),
    };
    outward.headers_mut().extend(added);
    match server.client.send(target, outward.map(|()| body)).await {
        Ok(response) if response.status() == 101 => {
            upgrade::join(response, client, request.record.clone())
        }
        Ok(response) => {
            let (mut head, body) = response.into_parts();
            hop_by_hop::strip(&mut head.headers);
            head.version = http::Version::default();
            Response::from_parts(head, Body::relay(body))
        }
        Err(error) => unreachable(error),
    }
}

/// The request that the other server gets.
fn outward(request: &Request, address: &str, upgraded: bool) -> Result<Outward<()>, SendError> {
    let path = request
        .uri
        .path_and_query()
        .map_or("/", |path| path.as_str());
    let uri = format!("https://{address}{path}").parse::<Uri>();
    let uri = uri.map_err(|error| SendError(error.to_string()))?;
    let mut outward = Outward::new(());
    *outward.method_mut() = request.method.clone();
    *outward.uri_mut() = uri;
    let mut headers = hop_by_hop::forwarded(&request.headers, request.address, upgraded);
    // Credentials are for this server only.
    headers.remove(header::AUTHORIZATION);
    headers.remove(header::HOST);
    set_auth_proxy_headers(&request.user, &mut headers)?;
    *outward.headers_mut() = headers;
    Ok(outward)
}

/// The authenticating proxy headers. Kubernetes: these names, whatever `--requestheader-*` says
/// (transport.SetAuthProxyHeaders).
const USER: &str = "x-remote-user";
const UID: &str = "x-remote-uid";
const GROUP: &str = "x-remote-group";
const EXTRA: &str = "x-remote-extra-";

/// Sets the headers for a user, exactly, or fails: a truncated name would be another user.
pub(crate) fn set_auth_proxy_headers(
    user: &User,
    headers: &mut HeaderMap,
) -> Result<(), SendError> {
    let forged: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("x-remote-"))
        .cloned()
        .collect();
    for name in forged {
        headers.remove(name);
    }
    let mut append = |name: &str, text: &str| {
        let invalid =
            |what: &str| SendError(format!("net/http: invalid header field {what} {name:?}"));
        let key: HeaderName = name.parse().map_err(|_| invalid("name"))?;
        let value = HeaderValue::from_str(text).map_err(|_| invalid("value for"))?;
        headers.append(key, value);
        Ok(())
    };
    append(USER, &user.name)?;
    if !user.uid.is_empty() {
        append(UID, &user.uid)?;
    }
    for group in &user.groups {
        append(GROUP, group)?;
    }
    for (key, values) in user.extra.entries() {
        // Bytes that a header name cannot have are percent-encoded.
        let escape = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
            _ if b"!#$&'*+-.^_`|~".contains(&byte) => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        };
        let name = format!("{EXTRA}{}", key.bytes().map(escape).collect::<String>());
        for value in values.list() {
            append(&name, Value::str(value))?;
        }
    }
    Ok(())
}

fn unavailable() -> Response {
    plain(503, "service unavailable")
}

fn unreachable(SendError(why): SendError) -> Response {
    plain(503, &format!("error trying to reach service: {why}"))
}

fn plain(code: u16, text: &str) -> Response {
    response::text(code, format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    #[test]
    fn clients_cannot_set_auth_proxy_headers() {
        let mut headers = HeaderMap::new();
        headers.insert("x-remote-user", HeaderValue::from_static("root"));
        headers.insert("x-remote-extra-evil", HeaderValue::from_static("yes"));
        let user = User {
            name: "jane".into(),
            groups: vec!["a".into(), "b".into()],
            uid: "7".into(),
            extra: value!({ "acme.com/project": ["one"] }),
        };
        set_auth_proxy_headers(&user, &mut headers).unwrap();
        let mut found: Vec<String> = headers
            .iter()
            .map(|(name, text)| format!("{name}: {}", text.to_str().unwrap()))
            .collect();
        found.sort();
        let expected = [
            "x-remote-extra-acme.com%2fproject: one",
            "x-remote-group: a",
            "x-remote-group: b",
            "x-remote-uid: 7",
            "x-remote-user: jane",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_user_name_is_forwarded_exactly_or_not_at_all() {
        let mut headers = HeaderMap::new();
        set_auth_proxy_headers(&User::component("jürgen"), &mut headers).unwrap();
        assert_eq!(headers["x-remote-user"].as_bytes(), "jürgen".as_bytes());
        let rejected =
            set_auth_proxy_headers(&User::component("jane\nroot"), &mut headers).unwrap_err();
        assert_eq!(
            rejected.0,
            "net/http: invalid header field value for \"x-remote-user\""
        );
    }
}
