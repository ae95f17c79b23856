//! What a connection proves about who is at its other end, and whom each of its requests is then from.
//!
//! Most clients are who their certificate says. A front proxy is somebody else's voice: it says in headers for whom
//! it asks, and is believed because of its certificate.

use std::net::IpAddr;

use http::HeaderMap;
use mizzen_object::User;
use mizzen_value::Value;

use super::{Certified, ProxyHeaders};
use crate::header::texts;
use mizzen_value::percent::decode;

/// Who a client certificate shows.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Peer {
    /// Nobody: there is no certificate.
    #[default]
    Stranger,
    /// A user.
    User(User),
    /// One who speaks for others, and who they are when they do not, if they are somebody.
    FrontProxy(Option<User>),
    /// Somebody who shows a certificate that nobody vouches for.
    Impostor,
    /// One whose certificate is judged with each request.
    Certified(Certified),
}

/// What is known of a request's user before any token is looked at.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PeerClaim {
    /// Nothing.
    None,
    /// They have proved who they are.
    Authenticated(User),
    /// Their connection has proved that they may speak for others; they may be somebody themselves.
    FrontProxy(Option<User>),
    /// They tried and failed; only a good token helps them now.
    Failed,
}

/// Who is at the other end, and where.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RequestOrigin {
    pub claim: PeerClaim,
    /// None for who is in the same process.
    pub address: Option<IpAddr>,
}

impl Peer {
    /// Whom requests are from.
    pub(crate) fn claim(&self) -> PeerClaim {
        match self {
            Peer::Stranger => PeerClaim::None,
            Peer::Impostor => PeerClaim::Failed,
            Peer::User(user) => PeerClaim::Authenticated(user.clone()),
            Peer::FrontProxy(own) => PeerClaim::FrontProxy(own.clone()),
            Peer::Certified(certified) => certified.peer().claim(),
        }
    }
}

impl PeerClaim {
    /// The same where a front proxy has said for whom it asks.
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

/// What headers with one of some prefixes say, by the rest of their names.
pub(crate) fn extra_from_headers<'a>(
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
            let all = extra.entry(&unescaped(key)).make_list();
            all.extend(values);
        }
    }
    extra
}

/// What follows a prefix in a header's name, in whatever case.
pub(super) fn strip_prefix_ignore_case<'a>(name: &'a str, prefix: &str) -> Option<&'a str> {
    let (start, rest) = name.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Kubernetes: a key with a code that is none is taken as it is (request/headerrequest/requestheader.go).
fn unescaped(key: &str) -> String {
    let is_code =
        |code: &str| code.len() >= 2 && code.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    if key.split('%').skip(1).all(is_code) {
        decode(key).into_owned()
    } else {
        key.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(peer: Peer, name: &str, expected: PeerClaim) {
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
    fn a_front_proxy_that_speaks_for_nobody_is_nobody_unless_it_is_a_user() {
        let own = || User::component("proxy");
        let jane = || {
            PeerClaim::Authenticated(User {
                extra: Value::object(),
                ..User::component("jane")
            })
        };
        check(Peer::FrontProxy(None), "jane", jane());
        check(Peer::FrontProxy(Some(own())), "jane", jane());
        check(Peer::FrontProxy(None), "", PeerClaim::Failed);
        check(
            Peer::FrontProxy(Some(own())),
            "",
            PeerClaim::Authenticated(own()),
        );
    }

    #[test]
    fn others_cannot_speak_for_anybody() {
        check(Peer::Stranger, "jane", PeerClaim::None);
        check(Peer::Impostor, "jane", PeerClaim::Failed);
        check(
            Peer::User(User::component("joe")),
            "jane",
            PeerClaim::Authenticated(User::component("joe")),
        );
    }
}
