//! Admission plug-ins: what one is, and those of the generic server.
//!
//! A server runs the plug-ins of [`Options::admission_plugins`](crate::Options), in that order. The composer chooses them:
//! a custom API server has none unless it says so, `mizzen-controlplane` has those of kube-apiserver.

use mizzen_object::Status;
use mizzen_object::schema::CanonicalObject;
use mizzen_registry::BoxFuture;
use mizzen_value::Value;

use super::{Attributes, check_with_policies, check_with_webhooks, namespace};

/// How a plug-in mutates an object.
#[derive(Clone, Copy)]
pub enum Mutate {
    /// It does not.
    Nothing,
    /// At once.
    Now(fn(&Attributes, &mut CanonicalObject) -> Result<(), Status>),
    /// It waits for something, but only where `concerns` says that it has to.
    Later {
        /// Whether the plug-in is concerned with the write.
        concerns: fn(&Attributes) -> bool,
        /// Mutates or rejects the object.
        mutate: MutateLater,
    },
}

/// How a plug-in validates an object.
#[derive(Clone, Copy)]
pub enum Validate {
    /// It does not.
    Nothing,
    /// At once.
    Now(fn(&Attributes, &Value) -> Result<(), Status>),
    /// It waits for something, but only where `concerns` says that it has to.
    Later {
        /// Whether the plug-in is concerned with the write.
        concerns: fn(&Attributes) -> bool,
        /// Admits or rejects the object.
        validate: ValidateLater,
    },
}

/// Mutates or rejects an object after it has waited for something.
pub type MutateLater =
    for<'a> fn(&'a Attributes<'a>, &'a mut CanonicalObject) -> BoxFuture<'a, Result<(), Status>>;
/// Admits or rejects an object after it has waited for something.
pub type ValidateLater =
    for<'a> fn(&'a Attributes<'a>, &'a Value) -> BoxFuture<'a, Result<(), Status>>;

/// An admission plug-in.
///
/// ```
/// use mizzen_apiserver::admission::{Attributes, Mutate, Plugin, Validate};
/// use mizzen_object::Status;
/// use mizzen_value::Value;
///
/// static FROZEN: Plugin = Plugin::new("Frozen", Mutate::Nothing, Validate::Now(reject));
///
/// fn reject(attributes: &Attributes, object: &Value) -> Result<(), Status> {
///     match attributes.is_main("example.com", "things") {
///         true => Err(attributes.forbidden(object, "things are frozen")),
///         false => Ok(()),
///     }
/// }
/// ```
pub struct Plugin {
    /// Its name, as configuration files and flags have it.
    pub name: &'static str,
    /// How it mutates objects.
    pub mutate: Mutate,
    /// How it validates objects.
    pub validate: Validate,
    /// How it validates deletions, of which it sees the object as stored.
    pub validate_deletion: Option<ValidateDeletion>,
}

/// Validates a deletion.
pub type ValidateDeletion = fn(&Attributes) -> Result<(), Status>;

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Plugin {
    /// A plug-in that has no opinion on deletions.
    pub const fn new(name: &'static str, mutate: Mutate, validate: Validate) -> Plugin {
        Plugin {
            name,
            mutate,
            validate,
            validate_deletion: None,
        }
    }
}

/// Rejects every write. The server calls it after policies and webhooks, and for deletions.
pub const ALWAYS_DENY: Plugin = Plugin::new("AlwaysDeny", Mutate::Nothing, Validate::Nothing);
/// Creates the namespace of a new object.
pub const NAMESPACE_AUTO_PROVISION: Plugin = Plugin::new(
    "NamespaceAutoProvision",
    Mutate::Later {
        concerns: namespace::is_missing,
        mutate: namespace::provision,
    },
    Validate::Nothing,
);
/// Rejects new objects in namespaces that do not exist or are being deleted, and the deletion of some namespaces.
pub const NAMESPACE_LIFECYCLE: Plugin = Plugin::new(
    "NamespaceLifecycle",
    Mutate::Now(namespace::admit),
    Validate::Nothing,
);
/// Rejects requests in namespaces that do not exist.
pub const NAMESPACE_EXISTS: Plugin = Plugin::new(
    "NamespaceExists",
    Mutate::Nothing,
    Validate::Now(|attributes, _| namespace::check_exists(attributes)),
);
/// MutatingAdmissionPolicies. The server calls them in rounds, as they may be reinvoked.
pub const MUTATING_POLICY: Plugin = Plugin::new(
    "MutatingAdmissionPolicy",
    Mutate::Nothing,
    Validate::Nothing,
);
/// Mutating webhooks. The server calls them in rounds, as they may be reinvoked.
pub const MUTATING_WEBHOOK: Plugin = Plugin::new(
    "MutatingAdmissionWebhook",
    Mutate::Nothing,
    Validate::Nothing,
);
/// ValidatingAdmissionPolicies.
pub const VALIDATING_POLICY: Plugin = Plugin::new(
    "ValidatingAdmissionPolicy",
    Mutate::Nothing,
    Validate::Later {
        concerns: |_| true,
        validate: check_with_policies,
    },
);
/// Validating webhooks.
pub const VALIDATING_WEBHOOK: Plugin = Plugin::new(
    "ValidatingAdmissionWebhook",
    Mutate::Nothing,
    Validate::Later {
        concerns: |_| true,
        validate: check_with_webhooks,
    },
);
