//! Roles and bindings: who may do what because a role says so.
//!
//! Roles are read from an `Index` that follows the store, so a binding counts from the moment its
//! write was acknowledged, and a decision costs what the user's own bindings cost, however many there are.

mod binding;
mod index;
mod role;
mod rule;

pub use rule::Rule;
pub(crate) use rule::quoted;

use std::fmt;
use std::sync::Arc;

use mizzen_object::User;
use mizzen_registry::{Future, Resource};
use mizzen_value::Value;

use super::{Attributes, Authorizer, Decision, Reason, Rules, Target, aggregate};
use binding::Binding;
use index::Index;
use role::Verbs;

/// Decides by roles and bindings.
pub struct Rbac {
    index: Index,
}

/// The resources in which roles and bindings are kept.
pub(crate) struct Sources {
    pub roles: Resource,
    pub cluster_roles: Resource,
    pub role_bindings: Resource,
    pub cluster_role_bindings: Resource,
}

impl Rbac {
    pub(crate) fn new(sources: Sources) -> Rbac {
        Rbac {
            index: Index::new(sources),
        }
    }

    /// The rules of the role that a binding names; none if there is no such role. `namespace` is the binding's.
    pub(crate) fn rules_of(&self, reference: &Value, namespace: &str) -> Option<Arc<[Arc<Rule>]>> {
        let role = binding::RoleName::new(reference);
        self.index
            .read(|table| table.role(&role, namespace).map(|role| role.rules.clone()))
    }

    fn decide(&self, attributes: &Attributes) -> Decision {
        let namespace = match &attributes.target {
            Target::Resource(resource) => resource.namespace,
            Target::Page(_) => "",
        };
        let verb = Verbs::of(attributes.verb);
        self.index.read(|table| {
            let mut missing = Vec::new();
            for binding in table.bindings(attributes.user, namespace) {
                match table.role(&binding.role, &binding.namespace) {
                    None => missing.push(binding.role.not_found()),
                    Some(role) if !role.may_have(verb) => {}
                    Some(role) if role.rules.iter().any(|rule| rule.allows(attributes)) => {
                        return Decision::Allow(Reason::new(Granted::new(
                            binding,
                            attributes.user,
                        )));
                    }
                    Some(_) => {}
                }
            }
            let silent = missing.is_empty();
            let reason = || Reason::new(format!("RBAC: {}", aggregate(&missing)));
            Decision::NoOpinion(if silent { Reason::default() } else { reason() })
        })
    }
}

impl Authorizer for Rbac {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Future<'a, Decision> {
        Box::pin(std::future::ready(self.decide(attributes)))
    }

    fn rules(&self, user: &User, namespace: &str) -> Rules {
        self.index.read(|table| {
            let mut all = Rules::default();
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

/// The binding that made somebody allowed.
struct Granted {
    binding: Arc<Binding>,
    /// Which of its subjects they are.
    subject: Option<usize>,
}

impl Granted {
    fn new(binding: &Arc<Binding>, user: &User) -> Granted {
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
