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
use mizzen_object::{Status, User};
use tokio::time::Instant;

use crate::audit::Layer;
use crate::authentication::peer::extra_from_headers;
use crate::header::texts;
use crate::request::Request;
use crate::server::ServerParts;
use attempt::ImpersonationAttempt;
pub(super) use attempt::denial_reason;
use go_format::go_syntax;
pub(super) use go_format::go_value;
pub(crate) use metrics::ImpersonationMetrics;
pub(crate) use mode::LastModes;
pub(super) use mode::associated_node;
use mode::{ImpersonationMode, is_only_a_name};

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";

/// Replaces the user of the request by the impersonated one, if that is authorized.
pub(crate) async fn impersonate(server: &ServerParts, request: &mut Request) -> Result<(), Status> {
    if !request
        .headers
        .keys()
        .any(|name| name.as_str().starts_with("impersonate-"))
    {
        return Ok(());
    }
    let Some(wanted) = wanted_user(&mut request.headers)? else {
        return Ok(());
    };
    let started = Instant::now();
    let found = authorize_modes(server, request, &wanted).await;
    let took = started.elapsed();
    request.record.add_latency(Layer::Impersonation, took);
    server
        .authorization
        .impersonations
        .observe_attempt(found.as_ref().ok().map(|(_, mode)| *mode), took);
    let (user, mode) = found?;
    request
        .record
        .set_impersonated_user(&user, &mode.constraint());
    request.user = user;
    Ok(())
}

/// The user in the headers, which are removed.
fn wanted_user(headers: &mut HeaderMap) -> Result<Option<User>, Status> {
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

async fn authorize_modes(
    server: &ServerParts,
    request: &Request,
    wanted: &User,
) -> Result<(User, ImpersonationMode), Status> {
    let (mut refused, habits) = (None, &server.authorization.last_modes);
    for mode in habits
        .modes_for(&request.user)
        .filter(|mode| mode.applies(&request.user, wanted))
    {
        match ImpersonationAttempt::new(server, request, mode)
            .check(wanted)
            .await
        {
            Ok(user) => {
                habits.record(&request.user, mode);
                return Ok((user, mode));
            }
            Err(status) => drop(refused.get_or_insert(status)),
        }
    }
    Err(refused.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::headers;

    #[test]
    fn headers_name_a_user_and_are_taken_away() {
        let mut headers = headers(&[
            ("impersonate-user", "jane"),
            ("impersonate-group", "a"),
            ("impersonate-extra-a%2Fb", "c"),
        ]);
        let user = wanted_user(&mut headers).unwrap().unwrap();
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
        let user = wanted_user(&mut headers).unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jürgen", "ß"));
        assert_eq!(user.groups, ["\u{fffd}"]);
        assert!(headers.is_empty());
    }

    #[test]
    fn parts_of_a_user_need_a_name() {
        assert_eq!(
            wanted_user(&mut headers(&[("impersonate-group", "é")]))
                .unwrap_err()
                .code,
            400
        );
        let status = wanted_user(&mut headers(&[("impersonate-group", "a")])).unwrap_err();
        let shown = r#"&user.DefaultInfo{Name:"", UID:"", Groups:[]string{"a"}, Extra:map[string][]string(nil)}"#;
        assert_eq!(
            status.message,
            format!("requested {shown} without impersonating a user name")
        );
        assert_eq!(status.code, 400);
    }
}
