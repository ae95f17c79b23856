//! What a TLS connection proves about its client, and the user of each request on it.
//!
//! A client certificate names its user. A front proxy names the user of a request in headers, which
//! are trusted because of the proxy's certificate.

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use mizzen_object::User;
use mizzen_request::header::texts;
use mizzen_value::Value;
use mizzen_value::percent::decode;
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::{Certified, ProxyHeaders};

/// Identifies a client by its certificate chain.
pub type Identify = Arc<dyn Fn(&[CertificateDer<'static>]) -> PeerIdentity + Send + Sync>;

/// The identity of a client by its certificate.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum PeerIdentity {
    /// The client has no certificate.
    #[default]
    NoCertificate,
    /// A user.
    User(User),
    /// A front proxy, and the user of its own requests, if its certificate names one.
    FrontProxy(Option<User>),
    /// The certificate is not signed by a trusted authority.
    InvalidCertificate,
    /// The certificate is verified with each request.
    Certified(Certified),
}

/// The result of certificate authentication, before any token is read.
#[derive(Debug, Clone, PartialEq)]
pub enum PeerClaim {
    /// There is no certificate.
    None,
    /// The certificate, or a front proxy, names the user.
    Authenticated(User),
    /// A front proxy whose headers have not been read, and the user of its own requests.
    FrontProxy(Option<User>),
    /// The certificate is invalid. A valid token may still authenticate the request.
    Failed,
}

/// The claim and the remote address of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestOrigin {
    /// What the connection proves.
    pub claim: PeerClaim,
    /// None within the process.
    pub address: Option<IpAddr>,
}

impl PeerIdentity {
    /// The claim of a request on this connection.
    pub fn claim(&self) -> PeerClaim {
        match self {
            PeerIdentity::NoCertificate => PeerClaim::None,
            PeerIdentity::InvalidCertificate => PeerClaim::Failed,
            PeerIdentity::User(user) => PeerClaim::Authenticated(user.clone()),
            PeerIdentity::FrontProxy(own) => PeerClaim::FrontProxy(own.clone()),
            PeerIdentity::Certified(certified) => certified.peer().claim(),
        }
    }
}

impl PeerClaim {
    /// Reads the headers of a front proxy.
    pub(super) fn resolve_front_proxy(
        self,
        names: &ProxyHeaders,
        headers: &HeaderMap,
    ) -> PeerClaim {
        match self {
            PeerClaim::FrontProxy(own) => match (names.user(headers), own) {
                (Some(user), _) | (None, Some(user)) => PeerClaim::Authenticated(user),
                (None, None) => PeerClaim::Failed,
            },
            known => known,
        }
    }
}

/// The extra fields in headers with one of some prefixes, by the rest of their names.
pub fn extra_from_headers<'a>(
    headers: &HeaderMap,
    prefixes: impl IntoIterator<Item = &'a str>,
) -> Value {
    let mut extra = Value::object();
    for prefix in prefixes {
        for name in headers.keys() {
            let Some(key) = strip_prefix_ignore_case(name.as_str(), prefix) else {
                continue;
            };
            let values = texts(headers, name)
                .iter()
                .map(Value::from)
                .collect::<Vec<_>>();
            // Kubernetes: a key with an invalid escape is taken as it is
            // (request/headerrequest/requestheader.go).
            let is_escape = |code: &str| {
                code.len() >= 2 && code.bytes().take(2).all(|byte| byte.is_ascii_hexdigit())
            };
            let key = match key.split('%').skip(1).all(is_escape) {
                true => decode(key),
                false => key.into(),
            };
            let all = extra.entry(&key).make_list();
            all.extend(values);
        }
    }
    extra
}

/// The rest of a header name after a prefix, ignoring case.
pub(super) fn strip_prefix_ignore_case<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    let (start, rest) = name.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(peer: PeerIdentity, name: &str, expected: PeerClaim) {
        let headers = HeaderMap::from_iter([(
            http::HeaderName::from_static("x-remote-user"),
            name.parse().unwrap(),
        )]);
        assert_eq!(
            peer.claim()
                .resolve_front_proxy(&ProxyHeaders::default(), &headers),
            expected
        );
    }

    #[test]
    fn a_front_proxy_without_user_headers_is_its_own_user_or_rejected() {
        let own = || User::component("proxy");
        let jane = || {
            PeerClaim::Authenticated(User {
                extra: Value::object(),
                ..User::component("jane")
            })
        };
        check(PeerIdentity::FrontProxy(None), "jane", jane());
        check(PeerIdentity::FrontProxy(Some(own())), "jane", jane());
        check(PeerIdentity::FrontProxy(None), "", PeerClaim::Failed);
        check(
            PeerIdentity::FrontProxy(Some(own())),
            "",
            PeerClaim::Authenticated(own()),
        );
    }

    #[test]
    fn proxy_headers_of_other_clients_are_ignored() {
        check(PeerIdentity::NoCertificate, "jane", PeerClaim::None);
        check(PeerIdentity::InvalidCertificate, "jane", PeerClaim::Failed);
        check(
            PeerIdentity::User(User::component("joe")),
            "jane",
            PeerClaim::Authenticated(User::component("joe")),
        );
    }
}
