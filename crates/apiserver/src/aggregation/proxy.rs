//! Passing a request on to the server that it is for, and its answer back, while they come.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Request as Outward, Response, Uri, header};
use hyper::body::Incoming;
use mizzen_object::User;
use mizzen_value::Value;
use tokio::time::timeout;

use super::table::Entry;
use super::{hop, upgrade};
use crate::answer::{self, Answer, Body};
use crate::outgoing::{SendError, whole};
use crate::request::Request;
use crate::server::Inner;

/// Kubernetes: how long a server may take to say what it serves (apiserver/pkg/util/proxy/proxy.go).
const DISCOVERY: Duration = Duration::from_secs(5);

/// Passes a request on. Who asks is said in headers, which the other server believes because of our certificate.
pub(crate) async fn pass_on(server: &Inner, request: &Request, entry: &Entry) -> Answer {
    if !entry.available {
        return unavailable();
    }
    let upgraded = hop::is_upgrade(&request.headers);
    let Ok(target) = entry.target(&server.client, !upgraded) else {
        return unavailable();
    };
    let streams = request.streams.take();
    let (body, asked) = match streams {
        Some(streams) => (streams.body, streams.upgrade),
        None => (whole(request.body.clone()), None),
    };
    let outward = match outward(request, &target.address, upgraded) {
        Ok(outward) => outward,
        Err(error) => return unreachable(error),
    };
    let sent = server.client.send(&target, outward.map(|()| body));
    let is_discovery = request.uri.path().trim_matches('/') == entry.path().trim_matches('/');
    let answered = match is_discovery {
        true => timeout(DISCOVERY, sent)
            .await
            .unwrap_or_else(|_| Err(SendError("context deadline exceeded".into()))),
        false => sent.await,
    };
    match answered {
        Ok(response) if response.status() == 101 => {
            upgrade::join(response, asked, request.record.clone())
        }
        Ok(response) => inward(response),
        Err(error) => unreachable(error),
    }
}

/// The request as the other server gets it.
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
    let mut headers = hop::forwarded(&request.headers, request.address, upgraded);
    // What proves who asks is for this server alone.
    headers.remove(header::AUTHORIZATION);
    headers.remove(header::HOST);
    speak_for(&request.user, &mut headers)?;
    *outward.headers_mut() = headers;
    Ok(outward)
}

/// The headers in which we say for whom we ask. Kubernetes: whatever those are called in which we are told
/// (transport.SetAuthProxyHeaders).
const USER: &str = "x-remote-user";
const UID: &str = "x-remote-uid";
const GROUP: &str = "x-remote-group";
const EXTRA: &str = "x-remote-extra-";

/// Says for whom we ask, to the last letter, or fails: a part of somebody is somebody else.
pub(super) fn speak_for(user: &User, headers: &mut HeaderMap) -> Result<(), SendError> {
    let forged: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("x-remote-"))
        .cloned()
        .collect();
    for name in forged {
        headers.remove(name);
    }
    let mut say = |name: &str, text: &str| {
        let unsayable =
            |what: &str| SendError(format!("net/http: invalid header field {what} {name:?}"));
        let key: HeaderName = name.parse().map_err(|_| unsayable("name"))?;
        headers.append(
            key,
            HeaderValue::from_str(text).map_err(|_| unsayable("value for"))?,
        );
        Ok(())
    };
    say(USER, &user.name)?;
    if !user.uid.is_empty() {
        say(UID, &user.uid)?;
    }
    for group in &user.groups {
        say(GROUP, group)?;
    }
    for (key, values) in user.extra.entries() {
        let name = format!("{}{}", EXTRA, escape(key));
        for value in values.list() {
            say(&name, Value::str(value))?;
        }
    }
    Ok(())
}

/// A key as a part of a header's name: what cannot stand there is written as its code.
fn escape(key: &str) -> String {
    let mut escaped = String::new();
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z'
            | b'A'..=b'Z'
            | b'0'..=b'9'
            | b'!'
            | b'#'
            | b'$'
            | b'&'
            | b'\''
            | b'*'
            | b'+'
            | b'-'
            | b'.'
            | b'^'
            | b'_'
            | b'`'
            | b'|'
            | b'~' => escaped.push(char::from(byte)),
            _ => escaped += &format!("%{byte:02X}"),
        }
    }
    escaped
}

/// The answer as the client gets it.
fn inward(response: Response<Incoming>) -> Answer {
    let (mut head, body) = response.into_parts();
    if head.status.is_redirection() && head.headers.contains_key(header::LOCATION) {
        return plain(
            502,
            "the backend attempted to redirect this request, which is not permitted",
        );
    }
    hop::strip(&mut head.headers);
    head.version = http::Version::default();
    Answer::from_parts(head, Body::relay(body))
}

fn unavailable() -> Answer {
    plain(503, "service unavailable")
}

fn unreachable(SendError(why): SendError) -> Answer {
    plain(503, &format!("error trying to reach service: {why}"))
}

fn plain(code: u16, text: &str) -> Answer {
    answer::text(code, format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    #[test]
    fn nobody_can_say_for_whom_we_ask_but_us() {
        let mut headers = HeaderMap::new();
        headers.insert("x-remote-user", HeaderValue::from_static("root"));
        headers.insert("x-remote-extra-evil", HeaderValue::from_static("yes"));
        let user = User {
            name: "jane".into(),
            groups: vec!["a".into(), "b".into()],
            uid: "7".into(),
            extra: value!({ "acme.com/project": ["one"] }),
        };
        speak_for(&user, &mut headers).unwrap();
        let mut said: Vec<String> = headers
            .iter()
            .map(|(name, text)| format!("{name}: {}", text.to_str().unwrap()))
            .collect();
        said.sort();
        let expected = [
            "x-remote-extra-acme.com%2fproject: one",
            "x-remote-group: a",
            "x-remote-group: b",
            "x-remote-uid: 7",
            "x-remote-user: jane",
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn a_name_is_passed_on_whole_or_not_at_all() {
        let mut headers = HeaderMap::new();
        speak_for(&User::component("jürgen"), &mut headers).unwrap();
        assert_eq!(headers["x-remote-user"].as_bytes(), "jürgen".as_bytes());
        let refused = speak_for(&User::component("jane\nroot"), &mut headers).unwrap_err();
        assert_eq!(
            refused.0,
            "net/http: invalid header field value for \"x-remote-user\""
        );
    }
}
