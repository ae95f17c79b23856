//! RBAC: authorization by roles and bindings.
//!
//! Roles and bindings are read from an index that follows the store, so a binding counts from the
//! moment its write was acknowledged. The cost of a decision depends on the user's own bindings,
//! however many bindings exist.

mod binding;
mod index;
mod role;
mod rule;

pub use rule::PolicyRule;
pub use rule::quote_list;

use std::fmt;
use std::sync::Arc;

use mizzen_object::User;
use mizzen_registry::{BoxFuture, Resource};
use mizzen_value::Value;

use super::{
    Attributes, AttributesTarget, Authorizer, Decision, DecisionReason, RuleSet, join_errors,
};
use binding::RbacBinding;
use index::RbacIndex;
use role::Verbs;

/// The RBAC authorizer.
pub struct Rbac {
    index: RbacIndex,
}

/// The resources of roles and bindings.
struct RbacSources {
    pub roles: Resource,
    pub cluster_roles: Resource,
    pub role_bindings: Resource,
    pub cluster_role_bindings: Resource,
}

impl Rbac {
    /// Reads the roles and bindings of `rbac.authorization.k8s.io/v1`, which `resource` finds by plural name; none
    /// if they are not served.
    pub fn find(resource: impl Fn(&str) -> Option<Resource>) -> Option<Rbac> {
        let sources = RbacSources {
            roles: resource("roles")?,
            cluster_roles: resource("clusterroles")?,
            role_bindings: resource("rolebindings")?,
            cluster_role_bindings: resource("clusterrolebindings")?,
        };
        Some(Rbac {
            index: RbacIndex::new(sources),
        })
    }

    /// The rules of the role that a binding references; none if it does not exist. `namespace` is
    /// the binding's.
    pub fn role_rules(&self, reference: &Value, namespace: &str) -> Option<Arc<[Arc<PolicyRule>]>> {
        let role = binding::RoleName::new(reference);
        self.index
            .read(|table| table.role(&role, namespace).map(|role| role.rules.clone()))
    }

    fn authorize_now(&self, attributes: &Attributes) -> Decision {
        let namespace = match &attributes.target {
            AttributesTarget::Resource(resource) => resource.namespace,
            AttributesTarget::NonResource(_) => "",
        };
        let verb = Verbs::from_verb(attributes.verb);
        self.index.read(|table| {
            let mut missing = Vec::new();
            for binding in table.bindings(attributes.user, namespace) {
                match table.role(&binding.role, &binding.namespace) {
                    None => missing.push(binding.role.not_found()),
                    Some(role) if !role.may_have(verb) => {}
                    Some(role) if role.rules.iter().any(|rule| rule.allows(attributes)) => {
                        return Decision::Allow(DecisionReason::new(Granted::new(
                            binding,
                            attributes.user,
                        )));
                    }
                    Some(_) => {}
                }
            }
            let silent = missing.is_empty();
            let reason = || DecisionReason::new(format!("RBAC: {}", join_errors(&missing)));
            Decision::NoOpinion(if silent {
                DecisionReason::default()
            } else {
                reason()
            })
        })
    }
}

impl Authorizer for Rbac {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        Box::pin(std::future::ready(self.authorize_now(attributes)))
    }

    fn rules(&self, user: &User, namespace: &str) -> RuleSet {
        self.index.read(|table| {
            let mut all = RuleSet::default();
            for binding in table.bindings(user, namespace) {
                match table.role(&binding.role, &binding.namespace) {
                    Some(role) => all.rules.extend(role.rules.iter().cloned()),
                    None => all.problems.push(binding.role.not_found()),
                }
            }
            all
        })
    }
}

impl fmt::Debug for Rbac {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Rbac")
    }
}

/// The binding that allowed a request, for the reason.
struct Granted {
    binding: Arc<RbacBinding>,
    /// The index of the matching subject.
    subject: Option<usize>,
}

impl Granted {
    fn new(binding: &Arc<RbacBinding>, user: &User) -> Granted {
        Granted {
            binding: binding.clone(),
            subject: binding.subject(user),
        }
    }
}

impl fmt::Display for Granted {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let subject = self.subject.and_then(|at| self.binding.subjects.get(at));
        let shown = subject
            .map(|subject| subject.shown.as_str())
            .unwrap_or_default();
        write!(f, "RBAC: allowed by {} to {shown}", self.binding)
    }
}
