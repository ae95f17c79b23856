//! Acting as somebody else: headers say as whom, and permissions say who may.
//!
//! Kubernetes has two ways of allowing it (endpoints/filters/impersonation). The old one asks for the verb
//! `impersonate` on each part of the other user. The constrained ones ask for `impersonate:MODE` on each part and for
//! `impersonate-on:MODE:VERB` on what is done then. They are tried first, except that the way in which a user last
//! succeeded comes before all others; the first refusal is the one that is told.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use http::HeaderMap;
use mizzen_object::validate::names;
use mizzen_object::{Status, Str, Value, json};
use tokio::time::Instant;

use super::request::Wanted;
use super::{Attributes, Resource, Target, forbidden};
use crate::audit::Layer;
use crate::authenticate::peer::{extra, texts};
use crate::identity::{MASTERS, User};
use crate::request::Request;
use crate::server::Inner;

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA: &str = "impersonate-extra-";

const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Makes the request that of the user whom its headers name, if its own user may act as them.
pub(crate) async fn impersonate(server: &Inner, request: &mut Request) -> Result<(), Status> {
    if !request.headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(());
    }
    let started = Instant::now();
    let Some(wanted) = read(&mut request.headers)? else { return Ok(()) };
    let (user, mode) = find(server, request, &wanted).await?;
    request.record.took(Layer::Impersonation, started);
    request.record.impersonates(&user, &mode.constraint());
    request.user = user;
    Ok(())
}

/// Whom the headers name. They are taken away, for nobody further on should care.
fn read(headers: &mut HeaderMap) -> Result<Option<User>, Status> {
    let first = |name: &str| texts(headers, name).into_iter().next().unwrap_or_default();
    let user = User {
        name: first(USER),
        uid: first(UID),
        groups: texts(headers, GROUP),
        extra: extra(headers, EXTRA),
    };
    let nameless = user.name.is_empty();
    if nameless && !is_only_a_name(&user) {
        let shown = go_syntax(&user);
        return Err(Status::bad_request(format!("requested {shown} without impersonating a user name")));
    }
    let names: Vec<_> =
        headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
    names.iter().for_each(|name| drop(headers.remove(name)));
    Ok((!nameless).then_some(user))
}

async fn find(server: &Inner, request: &Request, wanted: &User) -> Result<(User, Mode), Status> {
    let (mut refused, habits) = (None, &server.access.habits);
    for mode in habits.order(&request.user).filter(|mode| mode.fits(&request.user, wanted)) {
        let attempt = Attempt { server, request, mode: &mode };
        match attempt.check(wanted).await {
            Ok(user) => {
                habits.remember(&request.user, mode);
                return Ok((user, mode));
            }
            Err(status) => drop(refused.get_or_insert(status)),
        }
    }
    Err(refused.unwrap_or_else(|| Status::internal("all impersonation modes failed")))
}

/// A way of acting as somebody else.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    /// A service account acts as the node that it runs on.
    AssociatedNode,
    /// Somebody acts as a node.
    ArbitraryNode,
    /// Somebody acts as a service account.
    ServiceAccount,
    /// Somebody acts as any other user.
    UserInfo,
    /// The old way.
    Legacy,
}

impl Mode {
    const ALL: [Mode; 5] =
        [Mode::AssociatedNode, Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy];

    fn name(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "associated-node",
            Mode::ArbitraryNode => "arbitrary-node",
            Mode::ServiceAccount => "serviceaccount",
            Mode::UserInfo => "user-info",
            Mode::Legacy => "",
        }
    }

    fn verb(self) -> String {
        match self {
            Mode::Legacy => "impersonate".into(),
            mode => format!("impersonate:{}", mode.name()),
        }
    }

    /// What auditors are told of why it was allowed.
    fn constraint(self) -> String {
        if self == Mode::Legacy { String::new() } else { self.verb() }
    }

    fn fits(self, user: &User, wanted: &User) -> bool {
        let (node, account) = (node(&wanted.name), service_account(&wanted.name));
        match self {
            Mode::AssociatedNode => {
                let own = user.extra["authentication.kubernetes.io/node-name"].list();
                let runs_on = matches!(own, [own] if node == Some(own.str()));
                is_only_a_name(wanted) && service_account(&user.name).is_some() && runs_on
            }
            Mode::ArbitraryNode => is_only_a_name(wanted) && node.is_some(),
            Mode::ServiceAccount => is_only_a_name(wanted) && account.is_some(),
            Mode::UserInfo => node.is_none() && account.is_none(),
            Mode::Legacy => true,
        }
    }
}

/// The way in which users last succeeded.
#[derive(Default)]
pub(crate) struct Habits(Mutex<HashMap<Str, Mode>>);

/// How many users' ways are remembered.
const MAX_HABITS: usize = 1024;

impl Habits {
    fn order(&self, user: &User) -> impl Iterator<Item = Mode> + use<> {
        let usual = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&user.name).copied();
        usual.into_iter().chain(Mode::ALL.into_iter().filter(move |mode| Some(*mode) != usual))
    }

    fn remember(&self, user: &User, mode: Mode) {
        let mut habits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if habits.len() >= MAX_HABITS {
            habits.clear();
        }
        habits.insert(user.name.clone(), mode);
    }
}

struct Attempt<'a> {
    server: &'a Inner,
    request: &'a Request,
    mode: &'a Mode,
}

impl Attempt<'_> {
    async fn check(&self, wanted: &User) -> Result<User, Status> {
        if *self.mode != Mode::Legacy {
            let asked = Wanted::new(self.request);
            let attributes = asked.attributes(self.request);
            let verb = format!("impersonate-on:{}:{}", self.mode.name(), attributes.verb);
            self.ask(&Attributes { verb: &verb, ..attributes }).await?;
        }
        let mut user = wanted.clone();
        self.check_name(&mut user).await?;
        if !wanted.uid.is_empty() {
            self.check_part(AUTHENTICATION, "uids", "", &wanted.uid).await?;
        }
        self.check_groups(&wanted.groups).await?;
        self.check_extra(&wanted.extra).await?;
        join_groups(&mut user);
        Ok(user)
    }

    /// Kubernetes: the old way has users and groups in the core group.
    fn group(&self) -> &'static str {
        if *self.mode == Mode::Legacy { "" } else { AUTHENTICATION }
    }

    async fn check_name(&self, user: &mut User) -> Result<(), Status> {
        let name = user.name.clone();
        let mut resource = Resource { group: self.group(), resource: "users", name: &name, ..self.version() };
        if let Some(node) = node(&name).filter(|_| *self.mode != Mode::Legacy) {
            // Who may act as the node they run on may do so on every node.
            let shown = if *self.mode == Mode::AssociatedNode { "*" } else { node };
            resource = Resource { resource: "nodes", name: shown, ..resource };
            user.groups = vec!["system:nodes".into()];
        }
        if let Some((namespace, account)) = service_account(&name) {
            resource = Resource { resource: "serviceaccounts", namespace, name: account, ..resource };
            if user.groups.is_empty() {
                let own = format!("system:serviceaccounts:{namespace}");
                user.groups = vec!["system:serviceaccounts".into(), own.into()];
            }
        }
        self.ask_for(resource).await
    }

    async fn check_groups(&self, groups: &[Str]) -> Result<(), Status> {
        for group in groups.iter().filter(|_| *self.mode != Mode::Legacy) {
            let why = match group.as_str() {
                "" => "impersonating the empty string group is not allowed",
                MASTERS => "impersonating the system:masters group is not allowed",
                _ => continue,
            };
            return Err(self.refuse("groups", group, why));
        }
        for group in groups {
            self.check_part(self.group(), "groups", "", group).await?;
        }
        Ok(())
    }

    async fn check_extra(&self, extra: &Value) -> Result<(), Status> {
        for (key, values) in extra.entries() {
            if *self.mode != Mode::Legacy {
                check_extra_key(key, values).map_err(|why| self.refuse("userextras", "", &why))?;
            }
            for value in values.list() {
                self.check_part(AUTHENTICATION, "userextras", key, value.str()).await?;
            }
        }
        Ok(())
    }

    fn version(&self) -> Resource<'static> {
        Resource { version: "v1", ..Resource::default() }
    }

    async fn check_part(&self, group: &str, resource: &str, part: &str, name: &str) -> Result<(), Status> {
        self.ask_for(Resource { group, resource, subresource: part, name, ..self.version() }).await
    }

    async fn ask_for(&self, resource: Resource<'_>) -> Result<(), Status> {
        let (verb, target) = (self.mode.verb(), Target::Resource(resource));
        self.ask(&Attributes { user: &self.request.user, verb: &verb, target }).await
    }

    async fn ask(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let decision = self.server.access.authorizers.authorize(attributes).await;
        match decision.is_allowed() {
            true => Ok(()),
            false => Err(forbidden(attributes, &decision.reason().to_string())),
        }
    }

    fn refuse(&self, resource: &str, name: &str, why: &str) -> Status {
        let group = if resource == "groups" { self.group() } else { AUTHENTICATION };
        let target = Target::Resource(Resource { group, resource, name, ..self.version() });
        forbidden(&Attributes { user: &self.request.user, verb: &self.mode.verb(), target }, why)
    }
}

fn check_extra_key(key: &str, values: &Value) -> Result<(), String> {
    let problem = match key {
        "" => "the empty string key in extra".to_string(),
        _ if values.list().iter().any(|value| value.str().is_empty()) => {
            "the empty string value in extra".to_string()
        }
        _ if key != key.to_lowercase() => {
            return Err(format!(
                "impersonating a non-lowercase key in extra is not allowed: {}",
                json::quote(key)
            ));
        }
        _ => return Ok(()),
    };
    Err(format!("impersonating {problem} is not allowed"))
}

/// Everybody is in one of the two groups that say whether they are known.
fn join_groups(user: &mut User) {
    let has = |group: &str| user.groups.iter().any(|own| own == group);
    let missing = match user.name.as_str() {
        "system:anonymous" => (!has(UNAUTHENTICATED)).then_some(UNAUTHENTICATED),
        _ => (!has(UNAUTHENTICATED) && !has(AUTHENTICATED)).then_some(AUTHENTICATED),
    };
    user.groups.extend(missing.map(Str::from));
}

fn is_only_a_name(user: &User) -> bool {
    user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty()
}

fn node(name: &str) -> Option<&str> {
    let node = name.strip_prefix("system:node:")?;
    names::is_dns1123_subdomain(node).is_empty().then_some(node)
}

/// The namespace and name in `system:serviceaccount:NAMESPACE:NAME`.
pub(crate) fn service_account(name: &str) -> Option<(&str, &str)> {
    let (namespace, account) = name.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let sound =
        names::is_dns1123_label(namespace).is_empty() && names::is_dns1123_subdomain(account).is_empty();
    sound.then_some((namespace, account))
}

/// A user as Go shows one for people who debug.
fn go_syntax(user: &User) -> String {
    let list = |texts: Vec<String>| match texts.is_empty() {
        true => "[]string(nil)".to_string(),
        false => format!("[]string{{{}}}", texts.join(", ")),
    };
    let mut keys: Vec<(&str, &Value)> = user.extra.entries().collect();
    keys.sort_by_key(|(key, _)| *key);
    let extra: Vec<String> = keys
        .iter()
        .map(|(key, values)| {
            let values = values.list().iter().map(|value| json::quote(value.str())).collect();
            format!("{}:{}", json::quote(key), list(values))
        })
        .collect();
    let extra = match extra.is_empty() {
        true => "map[string][]string(nil)".to_string(),
        false => format!("map[string][]string{{{}}}", extra.join(", ")),
    };
    let groups = list(user.groups.iter().map(|group| json::quote(group)).collect());
    let (name, uid) = (json::quote(&user.name), json::quote(&user.uid));
    format!("&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{groups}, Extra:{extra}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn headers_name_a_user_and_are_taken_away() {
        let mut headers = headers(&[
            ("impersonate-user", "jane"),
            ("impersonate-group", "a"),
            ("impersonate-extra-a%2Fb", "c"),
        ]);
        let user = read(&mut headers).unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.groups.as_slice()), ("jane", ["a".into()].as_slice()));
        assert_eq!(user.extra["a/b"].list()[0].str(), "c");
        assert!(headers.is_empty());
    }

    #[test]
    fn parts_of_a_user_need_a_name() {
        let status = read(&mut headers(&[("impersonate-group", "a")])).unwrap_err();
        let shown =
            r#"&user.DefaultInfo{Name:"", UID:"", Groups:[]string{"a"}, Extra:map[string][]string(nil)}"#;
        assert_eq!(status.message, format!("requested {shown} without impersonating a user name"));
        assert_eq!(status.code, 400);
    }

    #[track_caller]
    fn check_groups(name: &str, groups: &[&str], expected: &[&str]) {
        let groups = groups.iter().map(|group| Str::from(*group)).collect();
        let mut user = User { name: name.into(), groups, ..User::default() };
        join_groups(&mut user);
        assert_eq!(user.groups, expected);
    }

    #[test]
    fn everybody_is_known_or_not() {
        check_groups("jane", &[], &["system:authenticated"]);
        check_groups("jane", &["system:unauthenticated"], &["system:unauthenticated"]);
        check_groups("system:anonymous", &["a"], &["a", "system:unauthenticated"]);
    }

    #[test]
    fn the_usual_way_comes_first_and_few_are_remembered() {
        let (habits, jane) = (Habits::default(), User { name: "jane".into(), ..User::default() });
        assert_eq!(habits.order(&jane).next(), Some(Mode::AssociatedNode));
        habits.remember(&jane, Mode::Legacy);
        let order: Vec<Mode> = habits.order(&jane).collect();
        assert_eq!((order[0], order.len()), (Mode::Legacy, 5));
        for n in 0..MAX_HABITS {
            habits.remember(&User { name: n.to_string().into(), ..User::default() }, Mode::Legacy);
        }
        assert!(habits.0.lock().unwrap().len() <= MAX_HABITS);
    }

    #[test]
    fn a_mode_fits_whom_it_is_for() {
        let fitting = |name: &str, groups: Vec<Str>| -> Vec<&str> {
            let wanted = User { name: name.into(), groups, ..User::default() };
            let modes = Mode::ALL.iter().filter(|mode| mode.fits(&User::default(), &wanted));
            modes.map(|mode| mode.name()).collect()
        };
        assert_eq!(fitting("jane", vec!["a".into()]), ["user-info", ""]);
        assert_eq!(fitting("system:node:n1", vec![]), ["arbitrary-node", ""]);
        assert_eq!(fitting("system:serviceaccount:a:b", vec![]), ["serviceaccount", ""]);
        assert_eq!(fitting("system:serviceaccount:a:b", vec!["x".into()]), [""]);
    }
}
