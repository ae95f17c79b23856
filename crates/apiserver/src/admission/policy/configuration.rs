//! Which policies are there? What is stored, compiled, found by what it is about.

use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use mizzen_object::Status;
use mizzen_registry::{ListOptions, Object, Registry, Resource, Revision};
use mizzen_value::{Str, Value};

use super::binding::Binding;
use super::spec::Policy;
use crate::admission::webhook::matching::Index;
use crate::catalog::Catalog;

/// The policies that are in force.
pub(crate) struct Policies {
    pub(super) validating: Configured,
    pub(super) mutating: Configured,
}

impl Policies {
    pub(crate) fn new(catalog: &Catalog) -> Policies {
        let find = |plural: &str| catalog.get("admissionregistration.k8s.io", "v1", plural);
        let configured = |policies: &str, bindings: &str| Configured {
            resources: find(policies).zip(find(bindings)),
            kept: RwLock::default(),
        };
        Policies {
            validating: configured(
                "validatingadmissionpolicies",
                "validatingadmissionpolicybindings",
            ),
            mutating: configured(
                "mutatingadmissionpolicies",
                "mutatingadmissionpolicybindings",
            ),
        }
    }
}

/// The policies of one kind.
pub(super) struct Configured {
    /// Of policies and of bindings.
    resources: Option<(Resource, Resource)>,
    kept: RwLock<Arc<InForce>>,
}

impl Configured {
    /// The policies as they are stored at this moment. Only the first request after a change reads them. A policy that
    /// cannot be decoded fails the request: it might have rejected it.
    pub(super) fn in_force(&self, registry: &Registry) -> Result<Arc<InForce>, Status> {
        let Some((policies, bindings)) = &self.resources else {
            return Ok(Arc::default());
        };
        let revisions = [policies, bindings].map(|resource| resource.space().snapshot().revision());
        let kept = self.kept.read().clone();
        if kept.revisions == revisions {
            return Ok(kept);
        }
        let objects = |resource: &Resource| {
            let list = registry.list(resource, &ListOptions::default());
            list.map(|list| list.items)
        };
        let fresh = Arc::new(InForce::new(
            revisions,
            &objects(policies)?,
            &objects(bindings)?,
            &kept,
        ));
        *self.kept.write() = fresh.clone();
        Ok(fresh)
    }
}

/// A policy, and where it applies.
pub(super) struct Bound {
    pub policy: Arc<Policy>,
    pub bindings: Vec<Binding>,
}

/// Policies that have bindings, in the order of their names.
#[derive(Default)]
pub(super) struct InForce {
    revisions: [Revision; 2],
    all: Vec<Arc<Bound>>,
    index: Index,
    /// Each with the revision in which it was compiled, bound or not.
    compiled: HashMap<Str, (Revision, Arc<Policy>)>,
}

impl InForce {
    fn new(
        revisions: [Revision; 2],
        policies: &[Object],
        bindings: &[Object],
        before: &InForce,
    ) -> InForce {
        let compiled: HashMap<Str, (Revision, Arc<Policy>)> = policies
            .iter()
            .map(|policy| before.compiled(policy))
            .collect();
        let mut by_policy: BTreeMap<Str, Vec<Binding>> = BTreeMap::new();
        for binding in bindings.iter().map(Object::value) {
            let name = binding["spec"]["policyName"].str().into();
            by_policy
                .entry(name)
                .or_default()
                .push(Binding::parse(&binding));
        }
        let bound = by_policy.into_iter().filter_map(|(name, bindings)| {
            let (_, policy) = compiled.get(&name)?;
            Some(Arc::new(Bound {
                policy: policy.clone(),
                bindings,
            }))
        });
        let all: Vec<Arc<Bound>> = bound.collect();
        let index = Index::new(all.iter().map(|bound| &bound.policy.matching));
        InForce {
            revisions,
            all,
            index,
            compiled,
        }
    }

    /// A policy that has not changed since is not compiled again.
    fn compiled(&self, object: &Object) -> (Str, (Revision, Arc<Policy>)) {
        let value: Value = object.value();
        let name: Str = value["metadata"]["name"].str().into();
        let revision = object
            .record()
            .map(|record| record.revision)
            .unwrap_or_default();
        let policy = match self.compiled.get(&name) {
            Some((known, policy)) if *known == revision => policy.clone(),
            _ => Arc::new(Policy::parse(&value)),
        };
        (name, (revision, policy))
    }

    /// The policies that may be about a resource, in order. For most requests there is none.
    pub(super) fn about(&self, plural: &str) -> Vec<Arc<Bound>> {
        self.index
            .about(plural)
            .into_iter()
            .map(|at| self.all[at].clone())
            .collect()
    }
}
