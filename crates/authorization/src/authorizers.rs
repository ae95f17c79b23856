//! The authorizers of a server, in order.

use parking_lot::RwLock;
use std::sync::Arc;

use mizzen_object::User;
use mizzen_object::aggregate;

use super::metrics::Decisions;
use super::{Attributes, Authorizer, Decision, DecisionReason, RuleSet};

/// The authorizers, replaceable while the server runs.
#[derive(Debug, Default)]
pub struct Authorizers(RwLock<Arc<[CountedAuthorizer]>>);

/// An authorizer and its metrics.
#[derive(Debug)]
pub(super) struct CountedAuthorizer {
    authorizer: Arc<dyn Authorizer>,
    decisions: Option<Arc<Decisions>>,
}

impl CountedAuthorizer {
    pub(super) fn without_metrics(authorizer: Arc<dyn Authorizer>) -> CountedAuthorizer {
        CountedAuthorizer {
            authorizer,
            decisions: None,
        }
    }

    pub(super) fn with_metrics(
        authorizer: Arc<dyn Authorizer>,
        decisions: Arc<Decisions>,
    ) -> CountedAuthorizer {
        CountedAuthorizer {
            authorizer,
            decisions: Some(decisions),
        }
    }

    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let decision = self.authorizer.authorize(attributes).await;
        if let Some(decisions) = &self.decisions {
            decisions.record(&decision);
        }
        decision
    }
}

impl Authorizers {
    pub(super) fn replace(&self, authorizers: Vec<CountedAuthorizer>) {
        *self.0.write() = authorizers.into();
    }

    fn current(&self) -> Arc<[CountedAuthorizer]> {
        self.0.read().clone()
    }

    /// The first decision. If no authorizer has an opinion, the result has all reasons and errors.
    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if attributes.user.is_master() {
            return Decision::Allow(DecisionReason::default());
        }
        let mut reasons = Vec::new();
        for asked in &*self.current() {
            match asked.authorize(attributes).await {
                Decision::NoOpinion(reason) if reason.is_silent() => {}
                Decision::NoOpinion(reason) => reasons.push(reason),
                decision => return decision,
            }
        }
        let texts: Vec<String> = reasons
            .iter()
            .filter(|reason| reason.text.is_some())
            .map(DecisionReason::to_string)
            .collect();
        let problems = reasons
            .iter()
            .filter_map(DecisionReason::problem)
            .map(str::to_owned);
        let reason = DecisionReason::from(texts.join("\n"));
        Decision::NoOpinion(match aggregate(problems) {
            Some(problem) => reason.with_problem(problem),
            None => reason,
        })
    }

    /// The rules of `user` in `namespace`, of all authorizers.
    pub fn rules(&self, user: &User, namespace: &str) -> RuleSet {
        let mut all = RuleSet::default();
        for asked in &*self.current() {
            let RuleSet {
                rules,
                incomplete,
                problems,
            } = asked.authorizer.rules(user, namespace);
            all.rules.extend(rules);
            all.problems.extend(problems);
            all.incomplete |= incomplete;
        }
        all
    }
}
