//! Authorizes one impersonation mode, part by part.

use std::borrow::Cow;

use mizzen_object::validate::names::domain_prefixed_path;
use mizzen_object::{MASTERS, Path, Status, User, Violations};
use mizzen_value::{Str, Value, json, value};
use tokio::time::Instant;

use super::mode::{ImpersonationMode, node_name, service_account};
use crate::{
    Attributes, AttributesTarget, ResourceAttributes, ServerAuthorization, denial_reason, forbidden,
};

const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const AUTHENTICATION: &str = "authentication.k8s.io";
/// Kubernetes: with at least that many values, a permission for all of them is checked first.
const MANY: usize = 4;

/// An attempt to impersonate in one mode.
pub(super) struct ImpersonationAttempt<'a> {
    authorization: &'a ServerAuthorization,
    /// The request as the requesting user.
    attributes: Attributes<'a>,
    mode: ImpersonationMode,
    /// The requesting user, as authorizers see it.
    user: Cow<'a, User>,
}

impl<'a> ImpersonationAttempt<'a> {
    pub(super) fn new(
        authorization: &'a ServerAuthorization,
        attributes: Attributes<'a>,
        mode: ImpersonationMode,
    ) -> ImpersonationAttempt<'a> {
        let user = match mode {
            ImpersonationMode::AssociatedNode => Cow::Owned(without_node(attributes.user)),
            _ => Cow::Borrowed(attributes.user),
        };
        ImpersonationAttempt {
            authorization,
            attributes,
            mode,
            user,
        }
    }

    /// The impersonated user, if it is authorized.
    pub(super) async fn check(&self, wanted: &User) -> Result<User, Status> {
        if self.is_constrained() {
            let verb = self.attributes.verb;
            let verb = format!("impersonate-on:{}:{verb}", self.mode.name());
            self.authorize(&Attributes {
                user: &self.user,
                verb: &verb,
                ..self.attributes
            })
            .await?;
        }
        let mut user = wanted.clone();
        self.check_name(&mut user).await?;
        if !wanted.uid.is_empty() {
            self.check_part(AUTHENTICATION, "uids", "", &wanted.uid)
                .await?;
        }
        self.check_groups(&wanted.groups).await?;
        self.check_extra(&wanted.extra).await?;
        add_authentication_group(&mut user);
        Ok(user)
    }

    fn is_constrained(&self) -> bool {
        self.mode != ImpersonationMode::Legacy
    }

    /// Kubernetes: the legacy mode has users and groups in the core group.
    fn group(&self) -> &'static str {
        if self.is_constrained() {
            AUTHENTICATION
        } else {
            ""
        }
    }

    async fn check_name(&self, user: &mut User) -> Result<(), Status> {
        let name = user.name.clone();
        let mut resource = ResourceAttributes {
            group: self.group(),
            resource: "users",
            name: &name,
            ..version()
        };
        if let Some(node) = node_name(&name).filter(|_| self.is_constrained()) {
            // A permission for the associated node is for every node.
            let shown = if self.mode == ImpersonationMode::AssociatedNode {
                "*"
            } else {
                node
            };
            resource = ResourceAttributes {
                resource: "nodes",
                name: shown,
                ..resource
            };
            user.groups = vec!["system:nodes".into()];
        }
        if let Some((namespace, account)) = service_account(&name) {
            resource = ResourceAttributes {
                resource: "serviceaccounts",
                namespace,
                name: account,
                ..resource
            };
            if user.groups.is_empty() {
                let own = format!("system:serviceaccounts:{namespace}");
                user.groups = vec!["system:serviceaccounts".into(), own.into()];
            }
        }
        self.authorize_resource(resource).await
    }

    async fn check_groups(&self, groups: &[Str]) -> Result<(), Status> {
        let has = |group: &str| self.is_constrained() && groups.iter().any(|own| own == group);
        if has("") {
            return Err(self.deny(
                "groups",
                "",
                "impersonating the empty string group is not allowed",
            ));
        }
        if has(MASTERS) {
            let why = "impersonating the system:masters group is not allowed";
            return Err(self.deny("groups", MASTERS, why));
        }
        let all = self.is_constrained() && groups.len() >= MANY;
        if all
            && self
                .check_part(self.group(), "groups", "", "*")
                .await
                .is_ok()
        {
            return Ok(());
        }
        for group in groups {
            self.check_part(self.group(), "groups", "", group).await?;
        }
        Ok(())
    }

    async fn check_extra(&self, extra: &Value) -> Result<(), Status> {
        if self.is_constrained() {
            let checked = extra
                .entries()
                .try_for_each(|(key, values)| check_key(key, values));
            checked.map_err(|why| self.deny("userextras", "", &why))?;
        }
        let n_values: usize = extra.entries().map(|(_, values)| values.list().len()).sum();
        let all = self.is_constrained() && (n_values >= MANY || extra.entries().count() >= MANY);
        if all
            && self
                .check_part(AUTHENTICATION, "userextras", "*", "*")
                .await
                .is_ok()
        {
            return Ok(());
        }
        for (key, values) in extra.entries() {
            for value in values.list() {
                self.check_part(AUTHENTICATION, "userextras", key, value.str())
                    .await?;
            }
        }
        Ok(())
    }

    async fn check_part(
        &self,
        group: &str,
        resource: &str,
        part: &str,
        name: &str,
    ) -> Result<(), Status> {
        self.authorize_resource(ResourceAttributes {
            group,
            resource,
            subresource: part,
            name,
            ..version()
        })
        .await
    }

    async fn authorize_resource(&self, resource: ResourceAttributes<'_>) -> Result<(), Status> {
        let (verb, target) = (self.mode.verb(), AttributesTarget::Resource(resource));
        self.authorize(&Attributes {
            user: &self.user,
            verb: &verb,
            target,
        })
        .await
    }

    async fn authorize(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        let (started, access) = (Instant::now(), self.authorization);
        let decision = access.authorizers.authorize(attributes).await;
        access.impersonations.observe_authorization(
            self.mode,
            decision.is_allowed(),
            started.elapsed(),
        );
        match decision.is_allowed() {
            true => Ok(()),
            false => Err(forbidden(attributes, &denial_reason(decision.reason()))),
        }
    }

    fn deny(&self, resource: &str, name: &str, why: &str) -> Status {
        let target = AttributesTarget::Resource(ResourceAttributes {
            group: AUTHENTICATION,
            resource,
            name,
            ..version()
        });
        forbidden(
            &Attributes {
                user: &self.user,
                verb: &self.mode.verb(),
                target,
            },
            why,
        )
    }
}

fn version() -> ResourceAttributes<'static> {
    ResourceAttributes {
        version: "v1",
        ..ResourceAttributes::default()
    }
}

/// The service account as authorizers see it. Kubernetes: only the keys of what its token says of
/// pod and node, so that a permission is for every node (impersonation/mode.go).
fn without_node(user: &User) -> User {
    let mut keys: Vec<&str> = user.extra.entries().map(|(key, _)| key).collect();
    keys.sort_unstable();
    let keys: Vec<Value> = keys.into_iter().map(Value::from).collect();
    let extra = value!({ "authentication.kubernetes.io/associated-node-keys": (keys) });
    User {
        extra,
        ..user.clone()
    }
}

/// Kubernetes: the legacy mode does not check keys (impersonation/mode.go).
fn check_key(key: &str, values: &Value) -> Result<(), String> {
    let refuse = |what: &str| Err(format!("impersonating {what} is not allowed"));
    if key.is_empty() {
        return refuse("the empty string key in extra");
    }
    let mut violations = Violations::default();
    domain_prefixed_path(key, &Path::new("extra").child("key"), &mut violations);
    if let Some(problems) = violations.aggregate() {
        return Err(format!(
            "impersonating an invalid key in extra is not allowed: {problems}"
        ));
    }
    if key != key.to_lowercase() {
        let key = json::quote(key);
        return Err(format!(
            "impersonating a non-lowercase key in extra is not allowed: {key}"
        ));
    }
    match values.list() {
        [] => refuse("empty values in extra"),
        values if values.iter().any(|value| value.str().is_empty()) => {
            refuse("the empty string value in extra")
        }
        _ => Ok(()),
    }
}

/// Every user is in the group of authenticated or of unauthenticated users.
fn add_authentication_group(user: &mut User) {
    let has = |group: &str| user.groups.iter().any(|own| own == group);
    let missing = match user.name.as_str() {
        "system:anonymous" => (!has(UNAUTHENTICATED)).then_some(UNAUTHENTICATED),
        _ => (!has(UNAUTHENTICATED) && !has(AUTHENTICATED)).then_some(AUTHENTICATED),
    };
    user.groups.extend(missing.map(Str::from));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_extra(key: &str, values: &[&str], expected: Result<(), &str>) {
        let values: Vec<Value> = values.iter().map(|value| Value::from(*value)).collect();
        assert_eq!(
            check_key(key, &values.into()),
            expected.map_err(String::from),
            "{key}"
        );
    }

    #[test]
    fn a_key_is_a_path_with_a_domain_in_small_letters() {
        check_extra("example.com/team", &["a", "b"], Ok(()));
        check_extra(
            "",
            &["a"],
            Err("impersonating the empty string key in extra is not allowed"),
        );
        check_extra(
            "team",
            &["a"],
            Err(
                "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: \"team\": must be a \
                 domain-prefixed path (such as \"acme.io/foo\")",
            ),
        );
        check_extra(
            "example.com/Team",
            &["a"],
            Err("impersonating a non-lowercase key in extra is not allowed: \"example.com/Team\""),
        );
        check_extra(
            "example.com/team",
            &[],
            Err("impersonating empty values in extra is not allowed"),
        );
        let empty = "impersonating the empty string value in extra is not allowed";
        check_extra("example.com/team", &["a", ""], Err(empty));
    }

    #[test]
    fn the_node_of_a_token_is_not_forwarded() {
        let extra = value!({ "b": ["n1"], "a": ["p1"] });
        let user = without_node(&User {
            extra,
            ..User::service_account("x", "y")
        });
        assert_eq!(
            json::to_string(&user.extra),
            r#"{"authentication.kubernetes.io/associated-node-keys":["a","b"]}"#
        );
        assert_eq!(user.name, "system:serviceaccount:x:y");
    }

    #[track_caller]
    fn check_groups(name: &str, groups: &[&str], expected: &[&str]) {
        let groups = groups.iter().map(|group| Str::from(*group)).collect();
        let mut user = User {
            name: name.into(),
            groups,
            ..User::default()
        };
        add_authentication_group(&mut user);
        assert_eq!(user.groups, expected);
    }

    #[test]
    fn every_user_is_authenticated_or_unauthenticated() {
        check_groups("jane", &[], &["system:authenticated"]);
        check_groups(
            "jane",
            &["system:unauthenticated"],
            &["system:unauthenticated"],
        );
        check_groups("system:anonymous", &["a"], &["a", "system:unauthenticated"]);
    }
}
