//! The stored policies, compiled and indexed by resource.

use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use mizzen_object::Status;
use mizzen_registry::{ListOptions, Object, Registry, Resource, Revision};
use mizzen_value::{Str, Value};

use super::binding::PolicyBinding;
use super::spec::PolicySpec;
use crate::admission::webhook::matching::MatchIndex;

/// The validating and mutating policies.
pub(crate) struct AdmissionPolicies {
    pub(super) validating: PolicyCache,
    pub(super) mutating: PolicyCache,
}

impl AdmissionPolicies {
    /// `find` finds a resource of `admissionregistration.k8s.io`.
    pub(crate) fn new(find: impl Fn(&str) -> Option<Resource>) -> AdmissionPolicies {
        let configured = |policies: &str, bindings: &str| PolicyCache {
            resources: find(policies).zip(find(bindings)),
            kept: RwLock::default(),
        };
        AdmissionPolicies {
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
pub(super) struct PolicyCache {
    /// The resources of policies and of bindings.
    resources: Option<(Resource, Resource)>,
    kept: RwLock<Arc<InForce>>,
}

impl PolicyCache {
    /// The current policies. The first request after a change reads them. A policy that cannot be decoded fails the request,
    /// because it might have denied it.
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

/// A policy and its bindings.
pub(super) struct BoundPolicy {
    pub policy: Arc<PolicySpec>,
    pub bindings: Vec<PolicyBinding>,
}

/// Policies with bindings, by name.
#[derive(Default)]
pub(super) struct InForce {
    revisions: [Revision; 2],
    all: Vec<Arc<BoundPolicy>>,
    index: MatchIndex,
    /// All policies with the revision in which they were compiled.
    compiled: HashMap<Str, (Revision, Arc<PolicySpec>)>,
}

impl InForce {
    fn new(
        revisions: [Revision; 2],
        policies: &[Object],
        bindings: &[Object],
        before: &InForce,
    ) -> InForce {
        let compiled: HashMap<Str, (Revision, Arc<PolicySpec>)> = policies
            .iter()
            .map(|policy| before.compiled(policy))
            .collect();
        let mut by_policy: BTreeMap<Str, Vec<PolicyBinding>> = BTreeMap::new();
        for binding in bindings.iter().map(Object::value) {
            let name = binding["spec"]["policyName"].str().into();
            by_policy
                .entry(name)
                .or_default()
                .push(PolicyBinding::parse(&binding));
        }
        let bound = by_policy.into_iter().filter_map(|(name, bindings)| {
            let (_, policy) = compiled.get(&name)?;
            Some(Arc::new(BoundPolicy {
                policy: policy.clone(),
                bindings,
            }))
        });
        let all: Vec<Arc<BoundPolicy>> = bound.collect();
        let index = MatchIndex::new(all.iter().map(|bound| &bound.policy.matching));
        InForce {
            revisions,
            all,
            index,
            compiled,
        }
    }

    /// Compiles a policy, unless it has not changed.
    fn compiled(&self, object: &Object) -> (Str, (Revision, Arc<PolicySpec>)) {
        let value: Value = object.value();
        let name: Str = value["metadata"]["name"].str().into();
        let revision = object
            .record()
            .map(|record| record.revision)
            .unwrap_or_default();
        let policy = match self.compiled.get(&name) {
            Some((known, policy)) if *known == revision => policy.clone(),
            _ => Arc::new(PolicySpec::parse(&value)),
        };
        (name, (revision, policy))
    }

    /// The policies that may match a resource, in order. Most requests have none.
    pub(super) fn about(&self, plural: &str) -> Vec<Arc<BoundPolicy>> {
        self.index
            .about(plural)
            .into_iter()
            .map(|at| self.all[at].clone())
            .collect()
    }
}
