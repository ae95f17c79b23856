//! Hop-by-hop headers: those of one connection, which a proxy does not forward.
//!
//! Kubernetes: the rules of Go's `httputil.ReverseProxy`. For an upgrade upstream does not use it and forwards every header;
//! here the same headers are removed as from other requests, except those of the upgrade.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue, header};

use mizzen_request::header::texts;

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

/// Whether a request asks for an upgrade. Kubernetes: by its `Connection` header (util/httpstream).
pub fn is_upgrade(headers: &HeaderMap) -> bool {
    texts(headers, header::CONNECTION)
        .iter()
        .any(|connection| connection.to_ascii_lowercase().contains("upgrade"))
}

/// The headers of a request from `client`, as they are forwarded.
pub fn forwarded(headers: &HeaderMap, client: Option<IpAddr>, is_upgrade: bool) -> HeaderMap {
    let mut forwarded = headers.clone();
    strip(&mut forwarded);
    if texts(headers, header::TE).iter().any(|te| {
        te.split(',')
            .any(|token| token.trim().eq_ignore_ascii_case("trailers"))
    }) {
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
    // The client comes after the proxies of the request, in one header.
    if let Some(client) = client {
        let hops = forwarded.get_all(X_FORWARDED_FOR).iter();
        let mut hops: Vec<Vec<u8>> = hops.map(|hop| hop.as_bytes().to_vec()).collect();
        hops.push(client.to_string().into_bytes());
        if let Ok(hops) = HeaderValue::from_bytes(&hops.join(&b", "[..])) {
            forwarded.insert(X_FORWARDED_FOR, hops);
        }
    }
    forwarded
}

/// Removes the headers that `Connection` names, and the hop-by-hop ones.
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
    fn a_client_is_appended_to_the_proxies_of_its_request() {
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
