//! What may a node do? What has to do with what runs on it, so that who takes over one node has not taken all.
//!
//! `rules` says what can be said without looking, `index` what runs where. Kubernetes: what a node may write is looked
//! at again by the admission plug-in NodeRestriction, which sees objects (plugin/pkg/auth/authorizer/node).

mod index;
mod rules;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use mizzen_object::User;
use mizzen_registry::BoxFuture;
use mizzen_value::json::quote;

use index::GraphIndex;
use mizzen_apiserver::catalog::Catalog;
use mizzen_authorization::{
    Attributes, AttributesTarget, Authorizer, Decision, DecisionReason, ResourceAttributes, RuleSet,
};
use rules::{NodeRule, node_rule};

/// Decides for nodes, by what runs on them. Has no opinion on anybody else.
pub(crate) struct NodeAuthorizer {
    index: GraphIndex,
}

/// What a node has to do with because of what runs on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GraphKind {
    Pod,
    Secret,
    ConfigMap,
    ServiceAccount,
    Claim,
    ResourceClaim,
    Volume,
    Attachment,
    Slice,
}

impl NodeAuthorizer {
    /// Decides by what is in `catalog`; none where no pods are served.
    pub(crate) fn authorizer(catalog: &Catalog) -> Option<Arc<dyn Authorizer>> {
        let index = GraphIndex::new(catalog)?;
        Some(Arc::new(NodeAuthorizer { index }))
    }

    fn decide(&self, attributes: &Attributes) -> Decision {
        let user = attributes.user;
        let Some(node) = user.node_name() else {
            return Decision::NoOpinion(DecisionReason::default());
        };
        if node.is_empty() {
            return refuse(format!("unknown node for user {}", quote(&user.name)).into());
        }
        let AttributesTarget::Resource(wanted) = &attributes.target else {
            return refuse("".into());
        };
        match node_rule(node, attributes.verb, wanted) {
            NodeRule::Allow => Decision::Allow(DecisionReason::default()),
            NodeRule::IfRelated(kind) if self.relates(node, kind, wanted) => {
                Decision::Allow(DecisionReason::default())
            }
            NodeRule::IfRelated(_) => refuse(
                format!("no relationship found between node '{node}' and this object").into(),
            ),
            NodeRule::Refuse(why) => refuse(why),
        }
    }

    fn relates(&self, node: &str, kind: GraphKind, wanted: &ResourceAttributes) -> bool {
        self.index
            .read(|table| table.relates(node, kind, wanted.namespace, wanted.name))
    }
}

/// No opinion: a later authorizer may still allow it.
fn refuse(why: Cow<'static, str>) -> Decision {
    Decision::NoOpinion(if why.is_empty() {
        DecisionReason::default()
    } else {
        DecisionReason::new(why)
    })
}

impl Authorizer for NodeAuthorizer {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        Box::pin(std::future::ready(self.decide(attributes)))
    }

    fn rules(&self, user: &User, _namespace: &str) -> RuleSet {
        if user.node_name().is_none() {
            return RuleSet::default();
        }
        let problem = "node authorizer does not support user rule resolution".to_string();
        RuleSet {
            incomplete: true,
            problems: vec![problem],
            ..RuleSet::default()
        }
    }
}

impl fmt::Debug for NodeAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Nodes")
    }
}
