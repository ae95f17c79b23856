//! A RoleBinding or ClusterRoleBinding.

use std::fmt;

use mizzen_object::User;
use mizzen_value::json::quote;
use mizzen_value::{Str, Value};

/// A parsed binding.
#[derive(Debug)]
pub(super) struct RbacBinding {
    pub name: Str,
    /// Empty for a ClusterRoleBinding.
    pub namespace: Str,
    pub role: RoleName,
    pub subjects: Vec<BindingSubject>,
}

/// The kind and name of a role.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RoleName {
    pub kind: Str,
    pub name: Str,
}

/// A subject of a binding.
#[derive(Debug)]
pub(super) struct BindingSubject {
    pub user: BoundUser,
    /// As reasons print it: `ServiceAccount "robot/default"`.
    pub shown: Str,
}

/// The user or group of a subject. A service account is a user.
#[derive(Debug, PartialEq)]
pub(super) enum BoundUser {
    User(Str),
    Group(Str),
    None,
}

impl RbacBinding {
    pub(super) fn new(object: &Value) -> RbacBinding {
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].str();
        RbacBinding {
            name: metadata["name"].str().into(),
            namespace: namespace.into(),
            role: RoleName::new(&object["roleRef"]),
            subjects: object["subjects"]
                .list()
                .iter()
                .map(|subject| BindingSubject::new(subject, namespace))
                .collect(),
        }
    }

    /// The index of the first subject that matches a user.
    pub(super) fn subject(&self, user: &User) -> Option<usize> {
        let is = |subject: &BindingSubject| match &subject.user {
            BoundUser::User(name) => *name == user.name,
            BoundUser::Group(group) => user.groups.contains(group),
            BoundUser::None => false,
        };
        self.subjects.iter().position(is)
    }
}

/// `RoleBinding "b/default" of Role "reader"`
impl fmt::Display for RbacBinding {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let RoleName { kind, name } = &self.role;
        let (word, shown) = match self.namespace.as_str() {
            "" => ("ClusterRoleBinding", quote(&self.name)),
            namespace => ("RoleBinding", quote(&format!("{}/{namespace}", self.name))),
        };
        write!(f, "{word} {shown} of {kind} {}", quote(name))
    }
}

impl RoleName {
    pub(super) fn new(reference: &Value) -> RoleName {
        RoleName {
            kind: reference["kind"].str().into(),
            name: reference["name"].str().into(),
        }
    }

    /// The error if the role does not exist.
    pub(super) fn not_found(&self) -> String {
        match self.kind.as_str() {
            "Role" | "ClusterRole" => {
                let kind = self.kind.to_ascii_lowercase();
                format!(
                    "{kind}.rbac.authorization.k8s.io {} not found",
                    quote(&self.name)
                )
            }
            kind => format!("unsupported role reference kind: {}", quote(kind)),
        }
    }
}

impl BindingSubject {
    /// A service account without a namespace is of the binding's own.
    fn new(subject: &Value, namespace: &str) -> BindingSubject {
        let (kind, name) = (subject["kind"].str(), subject["name"].str());
        let place = Some(subject["namespace"].str())
            .filter(|place| !place.is_empty())
            .unwrap_or(namespace);
        let who = match kind {
            "User" => BoundUser::User(name.into()),
            "Group" => BoundUser::Group(name.into()),
            "ServiceAccount" if !place.is_empty() => {
                BoundUser::User(format!("system:serviceaccount:{place}:{name}").into())
            }
            _ => BoundUser::None,
        };
        let name = if kind == "ServiceAccount" {
            format!("{name}/{place}")
        } else {
            name.to_string()
        };
        BindingSubject {
            user: who,
            shown: format!("{kind} {}", quote(&name)).into(),
        }
    }
}
