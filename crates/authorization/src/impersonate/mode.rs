//! The impersonation modes, and the last successful mode of each user.

use parking_lot::Mutex;
use std::collections::HashMap;

use mizzen_object::validate::names;
use mizzen_value::Str;

use mizzen_object::User;

/// An impersonation mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ImpersonationMode {
    /// A service account impersonates the node that it runs on.
    AssociatedNode,
    /// A user impersonates a node.
    ArbitraryNode,
    /// A user impersonates a service account.
    ServiceAccount,
    /// A user impersonates any other user.
    UserInfo,
    /// The verb `impersonate`, without constraints.
    Legacy,
}

impl ImpersonationMode {
    pub(super) const ALL: [ImpersonationMode; 5] = [
        ImpersonationMode::AssociatedNode,
        ImpersonationMode::ArbitraryNode,
        ImpersonationMode::ServiceAccount,
        ImpersonationMode::UserInfo,
        ImpersonationMode::Legacy,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            ImpersonationMode::AssociatedNode => "associated-node",
            ImpersonationMode::ArbitraryNode => "arbitrary-node",
            ImpersonationMode::ServiceAccount => "serviceaccount",
            ImpersonationMode::UserInfo => "user-info",
            ImpersonationMode::Legacy => "",
        }
    }

    /// The label in metrics.
    pub(super) fn label(self) -> &'static str {
        if self == ImpersonationMode::Legacy {
            "legacy"
        } else {
            self.name()
        }
    }

    pub(super) fn verb(self) -> String {
        match self {
            ImpersonationMode::Legacy => "impersonate".into(),
            mode => format!("impersonate:{}", mode.name()),
        }
    }

    /// The constraint in audit events.
    pub(super) fn constraint(self) -> String {
        if self == ImpersonationMode::Legacy {
            String::new()
        } else {
            self.verb()
        }
    }

    pub(super) fn applies(self, user: &User, wanted: &User) -> bool {
        let (node, account) = (node_name(&wanted.name), service_account(&wanted.name));
        match self {
            ImpersonationMode::AssociatedNode => {
                is_only_a_name(wanted) && node.is_some() && node == associated_node(user)
            }
            ImpersonationMode::ArbitraryNode => is_only_a_name(wanted) && node.is_some(),
            ImpersonationMode::ServiceAccount => is_only_a_name(wanted) && account.is_some(),
            ImpersonationMode::UserInfo => node.is_none() && account.is_none(),
            ImpersonationMode::Legacy => true,
        }
    }
}

/// The mode in which users last succeeded.
#[derive(Default)]
pub(crate) struct LastModes(Mutex<HashMap<Str, ImpersonationMode>>);

/// How many users are remembered.
const MAX_HABITS: usize = 1024;

impl LastModes {
    pub(super) fn modes_for(&self, user: &User) -> impl Iterator<Item = ImpersonationMode> + use<> {
        let usual = self.0.lock().get(&user.name).copied();
        usual.into_iter().chain(
            ImpersonationMode::ALL
                .into_iter()
                .filter(move |mode| Some(*mode) != usual),
        )
    }

    pub(super) fn record(&self, user: &User, mode: ImpersonationMode) {
        let mut habits = self.0.lock();
        if habits.len() >= MAX_HABITS {
            habits.clear();
        }
        habits.insert(user.name.clone(), mode);
    }
}

pub(super) fn is_only_a_name(user: &User) -> bool {
    user.uid.is_empty() && user.groups.is_empty() && user.extra.is_empty()
}

pub(super) fn node_name(name: &str) -> Option<&str> {
    let node = name.strip_prefix("system:node:")?;
    names::is_dns1123_subdomain(node).is_empty().then_some(node)
}

/// The node of a service account's token.
pub fn associated_node(user: &User) -> Option<&str> {
    service_account(&user.name)?;
    match user.extra["authentication.kubernetes.io/node-name"].list() {
        [node] if names::is_dns1123_subdomain(node.str()).is_empty() => Some(node.str()),
        _ => None,
    }
}

/// The namespace and name in `system:serviceaccount:NAMESPACE:NAME`.
pub(super) fn service_account(name: &str) -> Option<(&str, &str)> {
    let (namespace, account) = name
        .strip_prefix("system:serviceaccount:")?
        .split_once(':')?;
    let sound = names::is_dns1123_label(namespace).is_empty()
        && names::is_dns1123_subdomain(account).is_empty();
    sound.then_some((namespace, account))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_mode_is_tried_first_and_the_cache_is_bounded() {
        let (habits, jane) = (
            LastModes::default(),
            User {
                name: "jane".into(),
                ..User::default()
            },
        );
        assert_eq!(
            habits.modes_for(&jane).next(),
            Some(ImpersonationMode::AssociatedNode)
        );
        habits.record(&jane, ImpersonationMode::Legacy);
        let order: Vec<ImpersonationMode> = habits.modes_for(&jane).collect();
        assert_eq!((order[0], order.len()), (ImpersonationMode::Legacy, 5));
        for n in 0..MAX_HABITS {
            habits.record(
                &User {
                    name: n.to_string().into(),
                    ..User::default()
                },
                ImpersonationMode::Legacy,
            );
        }
        assert!(habits.0.lock().len() <= MAX_HABITS);
    }

    #[test]
    fn a_mode_applies_to_its_kind_of_user() {
        let fitting = |name: &str, groups: Vec<Str>| -> Vec<&str> {
            let wanted = User {
                name: name.into(),
                groups,
                ..User::default()
            };
            let modes = ImpersonationMode::ALL
                .iter()
                .filter(|mode| mode.applies(&User::default(), &wanted));
            modes.map(|mode| mode.name()).collect()
        };
        assert_eq!(fitting("jane", vec!["a".into()]), ["user-info", ""]);
        assert_eq!(fitting("system:node:n1", vec![]), ["arbitrary-node", ""]);
        assert_eq!(
            fitting("system:serviceaccount:a:b", vec![]),
            ["serviceaccount", ""]
        );
        assert_eq!(fitting("system:serviceaccount:a:b", vec!["x".into()]), [""]);
    }
}
