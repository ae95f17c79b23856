//! The authorizers AlwaysAllow and AlwaysDeny.

use std::sync::Arc;

use mizzen_object::User;
use mizzen_registry::BoxFuture;

use super::{Attributes, Authorizer, Decision, DecisionReason, PolicyRule, RuleSet};

/// Allows everything.
#[derive(Debug)]
pub(super) struct AlwaysAllow;

/// Allows nothing. Kubernetes: it has no opinion, so later authorizers may still allow
/// (authorizerfactory/builtin.go).
#[derive(Debug)]
pub(super) struct AlwaysDeny;

impl Authorizer for AlwaysAllow {
    fn authorize<'a>(&'a self, _: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        Box::pin(std::future::ready(Decision::Allow(
            DecisionReason::default(),
        )))
    }

    fn rules(&self, _: &User, _: &str) -> RuleSet {
        let rules = [PolicyRule::every_resource(), PolicyRule::every_page()].map(Arc::new);
        RuleSet {
            rules: rules.into(),
            ..RuleSet::default()
        }
    }
}

impl Authorizer for AlwaysDeny {
    fn authorize<'a>(&'a self, _: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        Box::pin(std::future::ready(Decision::NoOpinion(
            DecisionReason::new("Everything is forbidden."),
        )))
    }

    fn rules(&self, _: &User, _: &str) -> RuleSet {
        RuleSet::default()
    }
}
