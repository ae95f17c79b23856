//! Impersonation: the `Impersonate-*` headers, and who may use them.
//!
//! Kubernetes has two ways of authorizing it (endpoints/filters/impersonation). The legacy one
//! needs the verb `impersonate` on each part of the user. The constrained modes need
//! `impersonate:MODE` on each part and `impersonate-on:MODE:VERB` on the action. They are tried
//! first, except that a user's last successful mode comes before all; the first denial is reported.
//! Upstream caches a success for ten seconds; here authorizers are asked each time, so that a
//! revoked permission counts at once.

mod attempt;
mod go_format;
mod metrics;
mod mode;

use http::HeaderMap;
use mizzen_authentication::extra_from_headers;
use mizzen_object::{Status, User};
use mizzen_request::header::texts;
use tokio::time::Instant;

use crate::{Attributes, ServerAuthorization};
use attempt::ImpersonationAttempt;
use go_format::go_syntax;
pub use go_format::go_value;
pub(crate) use metrics::ImpersonationMetrics;
pub(crate) use mode::LastModes;
pub use mode::associated_node;
use mode::{ImpersonationMode, is_only_a_name};

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";

impl ServerAuthorization {
    /// Authorizes a request's user to impersonate `wanted`. Returns the impersonated user and the constraint that
    /// allowed it.
    pub async fn impersonate(
        &self,
        attributes: &Attributes<'_>,
        wanted: &User,
    ) -> Result<(User, String), Status> {
        let started = Instant::now();
        let found = self.authorize_modes(attributes, wanted).await;
        let mode = found.as_ref().ok().map(|(_, mode)| *mode);
        self.impersonations.observe_attempt(mode, started.elapsed());
        found.map(|(user, mode)| (user, mode.constraint()))
    }

    async fn authorize_modes(
        &self,
        attributes: &Attributes<'_>,
        wanted: &User,
    ) -> Result<(User, ImpersonationMode), Status> {
        let (mut refused, user) = (None, attributes.user);
        let modes = self.last_modes.modes_for(user);
        for mode in modes.filter(|mode| mode.applies(user, wanted)) {
            let attempt = ImpersonationAttempt::new(self, *attributes, mode);
            match attempt.check(wanted).await {
                Ok(impersonated) => {
                    self.last_modes.record(user, mode);
                    return Ok((impersonated, mode));
                }
                Err(status) => drop(refused.get_or_insert(status)),
            }
        }
        Err(refused.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
    }
}

/// The user in the headers of impersonation, which are removed; none if there are none.
pub fn impersonated_user(headers: &mut HeaderMap) -> Result<Option<User>, Status> {
    let mut names = headers.keys();
    if !names.any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(None);
    }
    let first = |name: &str| texts(headers, name).into_iter().next().unwrap_or_default();
    let user = User {
        name: first(USER),
        uid: first(UID),
        groups: texts(headers, GROUP),
        extra: extra_from_headers(headers, [EXTRA]),
    };
    let nameless = user.name.is_empty();
    if nameless && !is_only_a_name(&user) {
        let shown = go_syntax(&user);
        return Err(Status::bad_request(format!(
            "requested {shown} without impersonating a user name"
        )));
    }
    let names: Vec<_> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("impersonate-"))
        .cloned()
        .collect();
    names.iter().for_each(|name| drop(headers.remove(name)));
    Ok((!nameless).then_some(user))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = list.iter();
        pairs
            .map(|(name, value)| {
                let name = http::HeaderName::from_static(name);
                (name, value.parse().unwrap())
            })
            .collect()
    }

    #[test]
    fn impersonation_headers_name_a_user_and_are_removed() {
        let mut headers = headers(&[
            ("impersonate-user", "jane"),
            ("impersonate-group", "a"),
            ("impersonate-extra-a%2fb", "c"),
        ]);
        let user = impersonated_user(&mut headers).unwrap().unwrap();
        assert_eq!(
            (user.name.as_str(), user.groups.as_slice()),
            ("jane", ["a".into()].as_slice())
        );
        assert_eq!(user.extra["a/b"].list()[0].str(), "c");
        assert!(headers.is_empty());
    }

    #[test]
    fn a_name_may_have_any_letters() {
        let mut headers = headers(&[("impersonate-user", "jürgen"), ("impersonate-uid", "ß")]);
        headers.append(
            "impersonate-group",
            http::HeaderValue::from_bytes(b"\xff").unwrap(),
        );
        let user = impersonated_user(&mut headers).unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jürgen", "ß"));
        assert_eq!(user.groups, ["\u{fffd}"]);
        assert!(headers.is_empty());
    }

    #[test]
    fn parts_of_a_user_need_a_name() {
        assert_eq!(
            impersonated_user(&mut headers(&[("impersonate-group", "é")]))
                .unwrap_err()
                .code,
            400
        );
        let status = impersonated_user(&mut headers(&[("impersonate-group", "a")])).unwrap_err();
        let shown = r#"&user.DefaultInfo{Name:"", UID:"", Groups:[]string{"a"}, Extra:map[string][]string(nil)}"#;
        assert_eq!(
            status.message,
            format!("requested {shown} without impersonating a user name")
        );
        assert_eq!(status.code, 400);
    }
}
