//! The user of a request: from the authenticators, or named by a caller inside this process.

use crate::hooks::{Action, HookContext};
use mizzen_value::{Str, Value};

/// The group that is authorized for everything.
pub const MASTERS: &str = "system:masters";
/// The group of nodes, and the prefix of their names.
const NODES: &str = "system:nodes";
const NODE: &str = "system:node:";

/// The extra field that identifies the credential of a user.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The group of all authenticated users.
const AUTHENTICATED: &str = "system:authenticated";
/// The user and the group of requests without credentials.
const ANONYMOUS: &str = "system:anonymous";
const UNAUTHENTICATED: &str = "system:unauthenticated";

/// The user of a request: upstream's `user.Info`.
///
/// ```
/// use mizzen_object::User;
///
/// let user = User::service_account("default", "web");
/// assert_eq!(user.name, "system:serviceaccount:default:web");
/// assert!(!user.is_master());
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct User {
    /// The name.
    pub name: Str,
    /// The groups.
    pub groups: Vec<Str>,
    /// The UID; may be empty.
    pub uid: Str,
    /// The extra fields: lists of strings by key.
    pub extra: Value,
}

impl User {
    /// The anonymous user.
    pub fn anonymous() -> User {
        User {
            name: ANONYMOUS.into(),
            groups: vec![UNAUTHENTICATED.into()],
            ..User::default()
        }
    }

    /// Whether it is the anonymous user.
    pub fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS || self.groups.iter().any(|group| group == UNAUTHENTICATED)
    }

    /// A member of `system:masters`, for the server itself.
    pub fn master(name: &str) -> User {
        User {
            name: name.into(),
            groups: vec![MASTERS.into(), AUTHENTICATED.into()],
            ..User::default()
        }
    }

    /// A control plane component: `system:…`.
    pub fn component(name: &str) -> User {
        User {
            name: name.into(),
            groups: vec![AUTHENTICATED.into()],
            ..User::default()
        }
    }

    /// A service account.
    pub fn service_account(namespace: &str, name: &str) -> User {
        User {
            name: format!("system:serviceaccount:{namespace}:{name}").into(),
            groups: vec![
                "system:serviceaccounts".into(),
                format!("system:serviceaccounts:{namespace}").into(),
                AUTHENTICATED.into(),
            ],
            ..User::default()
        }
    }

    /// A kubelet.
    pub fn node(name: &str) -> User {
        User {
            name: format!("{NODE}{name}").into(),
            groups: vec![NODES.into(), AUTHENTICATED.into()],
            ..User::default()
        }
    }

    /// The node whose kubelet it is; `None` if it is not a kubelet. Kubernetes: the name may be
    /// empty (pkg/auth/nodeidentifier).
    pub fn node_name(&self) -> Option<&str> {
        self.name
            .strip_prefix(NODE)
            .filter(|_| self.groups.iter().any(|group| group == NODES))
    }

    /// Adds the group `system:authenticated`. Kubernetes: neither the anonymous user nor a member
    /// of `system:unauthenticated` gets it (authentication/group/authenticated_group_adder.go).
    #[must_use]
    pub fn authenticated(mut self) -> User {
        if !self.is_anonymous() && !self.groups.iter().any(|group| group == AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.into());
        }
        self
    }

    /// The context of hooks for an operation of this user.
    pub fn context<'a>(&'a self, action: Action, now: &'a str) -> HookContext<'a> {
        let User {
            name,
            groups,
            uid,
            extra,
        } = self;
        HookContext {
            action,
            now,
            user: name,
            groups,
            uid,
            extra,
        }
    }

    /// Whether it is a member of `system:masters`.
    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, groups: &[&str], expected: &[&str]) {
        let groups = groups.iter().map(|group| Str::from(*group)).collect();
        let user = User {
            name: name.into(),
            groups,
            ..User::default()
        };
        assert_eq!(user.authenticated().groups, expected, "{name}");
    }

    #[test]
    fn the_anonymous_user_is_never_in_the_group_of_authenticated_users() {
        check("jane", &[], &["system:authenticated"]);
        check("jane", &["dev"], &["dev", "system:authenticated"]);
        check(
            "jane",
            &["system:authenticated", "dev"],
            &["system:authenticated", "dev"],
        );
        check(
            "jane",
            &["system:unauthenticated"],
            &["system:unauthenticated"],
        );
        check("system:anonymous", &[], &[]);
        check("system:anonymous", &["dev"], &["dev"]);
    }
}
