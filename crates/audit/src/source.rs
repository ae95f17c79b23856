//! The source of a request: the addresses in proxy headers, the remote address, and the user agent.
//!
//! Kubernetes: all addresses but the last can be forged by the client
//! (apimachinery/pkg/util/net/http.go).

use std::net::IpAddr;

use http::HeaderMap;

use mizzen_request::header;

/// The length at which user agents are truncated.
const MAX_AGENT: usize = 1024;

/// The source addresses, the farthest first.
pub(super) fn source_addresses(headers: &HeaderMap, connected: Option<IpAddr>) -> Vec<IpAddr> {
    let forwarded = header::text(headers, "x-forwarded-for");
    let mut addresses: Vec<IpAddr> = forwarded
        .split(',')
        .filter_map(|part| parse_address(part.trim()))
        .collect();
    if let Some(address) = parse_address(&header::text(headers, "x-real-ip"))
        && !addresses.contains(&address)
    {
        addresses.push(address);
    }
    let connected = connected.map(|address| address.to_canonical());
    if let Some(address) = connected
        && addresses.last() != Some(&address)
    {
        addresses.push(address);
    }
    addresses
}

fn parse_address(text: &str) -> Option<IpAddr> {
    text.parse()
        .ok()
        .map(|address: IpAddr| address.to_canonical())
}

/// The user agent, truncated.
pub(super) fn user_agent(headers: &HeaderMap) -> String {
    let agent = headers
        .get(http::header::USER_AGENT)
        .map(|value| value.as_bytes())
        .unwrap_or_default();
    match agent.get(..MAX_AGENT) {
        Some(start) if agent.len() > MAX_AGENT => {
            format!("{}...TRUNCATED", String::from_utf8_lossy(start))
        }
        _ => String::from_utf8_lossy(agent).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(forwarded: &str, real: &str, connected: &str, expected: &[&str]) {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", forwarded.parse().unwrap());
        headers.insert("x-real-ip", real.parse().unwrap());
        let addresses = source_addresses(&headers, connected.parse().ok());
        assert_eq!(
            addresses
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>(),
            expected
        );
    }

    #[test]
    fn proxies_come_before_the_remote_address() {
        check("", "", "10.0.0.1", &["10.0.0.1"]);
        check(
            "1.2.3.4, 5.6.7.8, junk",
            "9.9.9.9",
            "10.0.0.1",
            &["1.2.3.4", "5.6.7.8", "9.9.9.9", "10.0.0.1"],
        );
        check("1.2.3.4", "1.2.3.4", "1.2.3.4", &["1.2.3.4"]);
        check(
            "10.0.0.1,1.2.3.4",
            "",
            "10.0.0.1",
            &["10.0.0.1", "1.2.3.4", "10.0.0.1"],
        );
        check("::1", "", "::ffff:10.0.0.1", &["::1", "10.0.0.1"]);
        check("é, 1.2.3.4", "é", "10.0.0.1", &["1.2.3.4", "10.0.0.1"]);
        check("", "", "", &[]);
    }

    #[track_caller]
    fn check_agent(length: usize, expected: usize) {
        let mut headers = HeaderMap::new();
        headers.insert("user-agent", "a".repeat(length).parse().unwrap());
        assert_eq!(user_agent(&headers).len(), expected);
    }

    #[test]
    fn a_long_user_agent_is_truncated() {
        check_agent(10, 10);
        check_agent(1024, 1024);
        check_agent(1025, 1024 + "...TRUNCATED".len());
    }
}
