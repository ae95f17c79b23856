//! What a connection proves about who is at its other end, and whom each of its requests is then from.
//!
//! Most clients are who their certificate says. A front proxy is somebody else's voice: it says in headers for whom
//! it asks, and is believed because of its certificate.

use std::net::IpAddr;

use http::HeaderMap;
use mizzen_object::{Str, Value};

use super::Certified;
use crate::header::{text, texts};
use crate::identity::User;
use crate::request::decode;

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
pub(crate) enum Claim {
    /// Nothing.
    None,
    /// They have proved who they are.
    Proved(User),
    /// Their connection has proved who they are, unless the request says something else.
    Connected(User),
    /// They tried and failed; only a good token helps them now.
    Failed,
}

/// Who is at the other end, and where.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Caller {
    pub claim: Claim,
    /// None for who is in the same process.
    pub address: Option<IpAddr>,
}

/// The headers of front proxies, which upstream makes options of and everybody sets alike.
pub(crate) const USER: &str = "x-remote-user";
/// The header with the user's uid.
pub(crate) const UID: &str = "x-remote-uid";
/// The header with a group; there may be many.
pub(crate) const GROUP: &str = "x-remote-group";
/// What headers begin with that say more about the user.
pub(crate) const EXTRA: &str = "x-remote-extra-";

impl Peer {
    /// Whom a request is from.
    pub(crate) fn claim(&self, headers: &mut HeaderMap) -> Claim {
        match self {
            Peer::Stranger => Claim::None,
            Peer::Impostor => Claim::Failed,
            Peer::User(user) => Claim::Connected(user.clone()),
            Peer::FrontProxy(own) => spoken_for(headers, own),
            Peer::Certified(certified) => certified.peer().claim(headers),
        }
    }
}

/// The user for whom a front proxy asks, or itself. The headers are taken away, so that nobody takes them for the client's own.
fn spoken_for(headers: &mut HeaderMap, own: &Option<User>) -> Claim {
    let (name, uid): (Str, Str) = ((&*text(headers, USER)).into(), (&*text(headers, UID)).into());
    if name.is_empty() {
        return own.clone().map_or(Claim::Failed, Claim::Connected);
    }
    let groups = texts(headers, GROUP).into_iter().filter(|group| !group.is_empty()).collect();
    let user = User { name, uid, groups, extra: extra(headers, EXTRA) }.authenticated();
    for header in [USER, UID, GROUP] {
        headers.remove(header);
    }
    Claim::Proved(user)
}

/// What headers with a prefix say, by the rest of their names.
pub(crate) fn extra(headers: &HeaderMap, prefix: &str) -> Value {
    let mut extra = Value::object();
    for name in headers.keys() {
        let Some(key) = name.as_str().strip_prefix(prefix) else { continue };
        let values = texts(headers, name).iter().map(Value::from).collect::<Vec<_>>();
        let all = extra.entry(&unescaped(key)).make_list();
        all.extend(values);
    }
    extra
}

/// Kubernetes: a key with a code that is none is taken as it is (request/headerrequest/requestheader.go).
fn unescaped(key: &str) -> String {
    let is_code = |code: &str| code.len() >= 2 && code.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    if key.split('%').skip(1).all(is_code) { decode(key) } else { key.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::headers;

    #[test]
    fn a_front_proxy_says_for_whom_it_asks() {
        let mut headers = headers(&[
            ("x-remote-user", "jane"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "dev"),
            ("x-remote-group", ""),
            ("x-remote-group", "ops"),
            ("x-remote-extra-acme.com%2fproject", "one"),
        ]);
        let Claim::Proved(user) = Peer::FrontProxy(None).claim(&mut headers) else { panic!("nobody") };
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
        assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(user.extra["acme.com/project"].list()[0].str(), "one");
        assert!(headers.get("x-remote-user").is_none());
    }

    #[test]
    fn a_name_may_have_any_letters() {
        let mut headers =
            headers(&[("x-remote-user", "jürgen"), ("x-remote-group", "é"), ("x-remote-uid", "ß")]);
        let Claim::Proved(user) = Peer::FrontProxy(None).claim(&mut headers) else { panic!("nobody") };
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jürgen", "ß"));
        assert_eq!(user.groups, ["é", "system:authenticated"]);
    }

    #[test]
    fn a_front_proxy_that_speaks_for_nobody_is_nobody_unless_it_is_a_user() {
        for mut headers in [HeaderMap::new(), headers(&[("x-remote-user", ""), ("x-remote-user", "jane")])] {
            assert_eq!(Peer::FrontProxy(None).claim(&mut headers), Claim::Failed);
            let own = User::component("proxy");
            assert_eq!(Peer::FrontProxy(Some(own.clone())).claim(&mut headers), Claim::Connected(own));
        }
    }

    #[test]
    fn others_cannot_speak_for_anybody() {
        let mut headers = headers(&[("x-remote-user", "jane")]);
        assert_eq!(Peer::Stranger.claim(&mut headers), Claim::None);
    }
}
