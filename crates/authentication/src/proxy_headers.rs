//! The headers in which front proxies name the user: `X-Remote-…` unless configured.

use std::sync::{Arc, LazyLock};

use http::{HeaderMap, HeaderName};
use mizzen_object::User;
use mizzen_request::header::{text, texts};
use mizzen_value::Str;
use parking_lot::RwLock;

use super::peer::{extra_from_headers, strip_prefix_ignore_case};

/// Header names, in any case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyHeaders {
    /// The user name; the first non-empty header counts.
    pub users: Vec<String>,
    /// The uid; the first non-empty header counts.
    pub uids: Vec<String>,
    /// The groups.
    pub groups: Vec<String>,
    /// Prefixes of extra fields.
    pub extras: Vec<String>,
}

impl Default for ProxyHeaders {
    fn default() -> ProxyHeaders {
        let [users, uids, groups, extras] = [
            "X-Remote-User",
            "X-Remote-Uid",
            "X-Remote-Group",
            "X-Remote-Extra-",
        ]
        .map(|name| vec![name.into()]);
        ProxyHeaders {
            users,
            uids,
            groups,
            extras,
        }
    }
}

/// Header names that can be replaced while requests are served. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct SharedProxyHeaders(Arc<RwLock<Arc<ProxyHeaders>>>);

impl SharedProxyHeaders {
    /// The current names.
    pub fn current(&self) -> Arc<ProxyHeaders> {
        self.0.read().clone()
    }

    /// Replaces the names.
    pub fn replace(&self, names: ProxyHeaders) {
        *self.0.write() = Arc::new(names);
    }
}

impl From<ProxyHeaders> for SharedProxyHeaders {
    fn from(names: ProxyHeaders) -> SharedProxyHeaders {
        SharedProxyHeaders(Arc::new(RwLock::new(Arc::new(names))))
    }
}

static STANDARD: LazyLock<ProxyHeaders> = LazyLock::new(ProxyHeaders::default);

impl ProxyHeaders {
    /// The user that a front proxy names, if it does.
    pub(super) fn user(&self, headers: &HeaderMap) -> Option<User> {
        let first = |names: &[String]| -> Str {
            let mut said = names.iter().map(|name| text(headers, name));
            said.find(|text| !text.is_empty())
                .map(|text| (&*text).into())
                .unwrap_or_default()
        };
        let name = Some(first(&self.users)).filter(|name| !name.is_empty())?;
        let groups = self.groups.iter().flat_map(|name| texts(headers, name));
        let groups = groups.filter(|group| !group.is_empty()).collect();
        let extra = extra_from_headers(headers, self.extras.iter().map(String::as_str));
        Some(
            User {
                name,
                uid: first(&self.uids),
                groups,
                extra,
            }
            .authenticated(),
        )
    }

    /// Removes the headers of every request, so that no later component or server trusts them.
    pub(super) fn remove_from(&self, headers: &mut HeaderMap) {
        let is_theirs =
            |name: &&HeaderName| self.matches(name.as_str()) || STANDARD.matches(name.as_str());
        let theirs: Vec<HeaderName> = headers.keys().filter(is_theirs).cloned().collect();
        theirs.iter().for_each(|name| drop(headers.remove(name)));
    }

    fn matches(&self, name: &str) -> bool {
        let mut whole = self.users.iter().chain(&self.uids).chain(&self.groups);
        whole.any(|own| own.eq_ignore_ascii_case(name))
            || self
                .extras
                .iter()
                .any(|prefix| strip_prefix_ignore_case(name, prefix).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = list.iter();
        pairs
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn a_front_proxy_names_the_user() {
        let said = headers(&[
            ("x-remote-user", "jane"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "dev"),
            ("x-remote-group", ""),
            ("x-remote-group", "ops"),
            ("x-remote-extra-acme.com%2fproject", "one"),
        ]);
        let user = ProxyHeaders::default().user(&said).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
        assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(user.extra["acme.com/project"].list()[0].str(), "one");
    }

    #[test]
    fn a_name_may_have_any_letters() {
        let said = headers(&[
            ("x-remote-user", "jürgen"),
            ("x-remote-group", "é"),
            ("x-remote-uid", "ß"),
        ]);
        let user = ProxyHeaders::default().user(&said).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jürgen", "ß"));
        assert_eq!(user.groups, ["é", "system:authenticated"]);
    }

    #[test]
    fn an_empty_header_names_no_user() {
        assert_eq!(ProxyHeaders::default().user(&HeaderMap::new()), None);
        let said = headers(&[
            ("x-remote-user", ""),
            ("x-remote-user", "jane"),
            ("x-remote-group", "dev"),
        ]);
        assert_eq!(ProxyHeaders::default().user(&said), None);
    }

    #[test]
    fn header_names_are_configurable_and_the_first_match_wins() {
        let names = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let own = ProxyHeaders {
            users: names(&["X-Mesh-User", "X-Remote-User"]),
            uids: names(&["X-Mesh-Uid"]),
            groups: names(&["X-Mesh-Group", "X-Remote-Group"]),
            extras: names(&["X-Mesh-", "X-Remote-Extra-"]),
        };
        let mut said = headers(&[
            ("x-mesh-user", ""),
            ("x-remote-user", "jane"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "dev"),
            ("x-mesh-group", "ops"),
            ("x-mesh-team", "blue"),
            ("x-remote-extra-team", "red"),
            ("accept", "*/*"),
        ]);
        let user = own.user(&said).unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", ""));
        assert_eq!(user.groups, ["ops", "dev", "system:authenticated"]);
        let team: Vec<&str> = user.extra["team"]
            .list()
            .iter()
            .map(|text| text.str())
            .collect();
        assert_eq!(team, ["blue", "red"]);
        own.remove_from(&mut said);
        assert_eq!(
            said.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
            ["accept"]
        );
    }
}
