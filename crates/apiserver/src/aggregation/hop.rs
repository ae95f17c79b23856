//! Hop-by-hop headers: those of one connection, which a proxy does not forward.
//!
//! Kubernetes: the rules of Go's `httputil.ReverseProxy`, which upstream proxies with. Upstream dials itself where a
//! request asks for an upgrade and forwards every header then; here the same are removed as from other requests, except
//! what asks for the upgrade.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::header::texts;

/// Hop-by-hop headers, whether or not `Connection` names them.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Whether a request asks for another protocol. Kubernetes: by its `Connection` header (util/httpstream).
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    let asks = |connection: &str| connection.to_ascii_lowercase().contains("upgrade");
    texts(headers, header::CONNECTION)
        .iter()
        .any(|connection| asks(connection))
}

/// The headers of a request from `client` as the next server gets them.
pub fn forwarded(headers: &HeaderMap, client: Option<IpAddr>, is_upgrade: bool) -> HeaderMap {
    let mut forwarded = headers.clone();
    strip(&mut forwarded);
    if texts(headers, header::TE)
        .iter()
        .any(|te| has_token(te, "trailers"))
    {
        forwarded.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    if is_upgrade {
        forwarded.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        forwarded.extend(
            headers
                .get(header::UPGRADE)
                .map(|kind| (header::UPGRADE, kind.clone())),
        );
    }
    append_forwarded_for(&mut forwarded, client);
    forwarded
}

/// Removes the headers that `Connection` names, and those that are hop-by-hop by definition.
pub fn strip(headers: &mut HeaderMap) {
    let connections = texts(headers, header::CONNECTION);
    let named = connections
        .iter()
        .flat_map(|connection| connection.split(','))
        .map(str::trim);
    let named: Vec<HeaderName> = named.filter_map(|name| name.parse().ok()).collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

/// Adds the client to `X-Forwarded-For`, in one header after the proxies that it came through.
fn append_forwarded_for(headers: &mut HeaderMap, client: Option<IpAddr>) {
    let Some(client) = client else { return };
    let mut hops: Vec<Vec<u8>> = headers
        .get_all(X_FORWARDED_FOR)
        .iter()
        .map(|hop| hop.as_bytes().to_vec())
        .collect();
    hops.push(client.to_string().into_bytes());
    if let Ok(hops) = HeaderValue::from_bytes(&hops.join(&b", "[..])) {
        headers.insert(X_FORWARDED_FOR, hops);
    }
}

fn has_token(list: &str, token: &str) -> bool {
    list.split(',')
        .any(|one| one.trim().eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::headers;

    #[track_caller]
    fn check(sent: &[(&'static str, &'static str)], upgrade: bool, expected: &[&str]) {
        let sent = headers(sent);
        assert_eq!(is_upgrade(&sent), upgrade);
        let forwarded = forwarded(&sent, Some([127, 0, 0, 9].into()), upgrade);
        let mut shown: Vec<String> = forwarded
            .iter()
            .map(|(name, text)| format!("{name}: {}", text.to_str().unwrap()))
            .collect();
        shown.sort();
        assert_eq!(shown, expected);
    }

    #[test]
    fn hop_by_hop_headers_and_those_that_connection_names_are_not_forwarded() {
        let sent = [
            ("connection", "X-Secret, keep-alive"),
            ("connection", "x-other,,"),
            ("x-secret", "1"),
            ("x-other", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic abc"),
            ("proxy-authenticate", "Basic"),
            ("te", "gzip, Trailers"),
            ("trailer", "x-a"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("accept", "*/*"),
        ];
        check(
            &sent,
            false,
            &["accept: */*", "te: trailers", "x-forwarded-for: 127.0.0.9"],
        );
        check(&[("te", "gzip")], false, &["x-forwarded-for: 127.0.0.9"]);
    }

    #[test]
    fn a_client_is_appended_to_those_that_its_request_came_through() {
        let sent = [
            ("x-forwarded-for", "10.1.1.1, 10.1.1.2"),
            ("x-forwarded-for", "10.1.1.3"),
        ];
        check(
            &sent,
            false,
            &["x-forwarded-for: 10.1.1.1, 10.1.1.2, 10.1.1.3, 127.0.0.9"],
        );
        check(
            &[("connection", "x-forwarded-for"), sent[0]],
            false,
            &["x-forwarded-for: 127.0.0.9"],
        );
        assert!(forwarded(&HeaderMap::new(), None, false).is_empty());
    }

    #[test]
    fn an_upgrade_is_forwarded_and_nothing_else_of_the_connection() {
        let sent = [
            ("connection", "X-Secret, Upgrade"),
            ("upgrade", "websocket"),
            ("x-secret", "1"),
            ("proxy-authorization", "Basic abc"),
        ];
        check(
            &sent,
            true,
            &[
                "connection: Upgrade",
                "upgrade: websocket",
                "x-forwarded-for: 127.0.0.9",
            ],
        );
    }
}
