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
use mizzen_registry::Future;
use mizzen_value::json::quote;

use index::Index;
use mizzen_apiserver::authorization::{
    Attributes, Authorizer, Decision, Reason, Resource, RuleSet, Target,
};
use mizzen_apiserver::catalog::Catalog;
use rules::{Verdict, judge};

/// Decides for nodes, by what runs on them. Has no opinion on anybody else.
pub(crate) struct Nodes {
    index: Index,
}

/// What a node has to do with because of what runs on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
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

impl Nodes {
    /// Decides by what is in `catalog`; none where no pods are served.
    pub(crate) fn authorizer(catalog: &Catalog) -> Option<Arc<dyn Authorizer>> {
        let index = Index::new(catalog)?;
        Some(Arc::new(Nodes { index }))
    }

    fn decide(&self, attributes: &Attributes) -> Decision {
        let user = attributes.user;
        let Some(node) = user.node_name() else {
            return Decision::NoOpinion(Reason::default());
        };
        if node.is_empty() {
            return refuse(format!("unknown node for user {}", quote(&user.name)).into());
        }
        let Target::Resource(wanted) = &attributes.target else {
            return refuse("".into());
        };
        match judge(node, attributes.verb, wanted) {
            Verdict::Allow => Decision::Allow(Reason::default()),
            Verdict::IfRelated(kind) if self.relates(node, kind, wanted) => {
                Decision::Allow(Reason::default())
            }
            Verdict::IfRelated(_) => refuse(
                format!("no relationship found between node '{node}' and this object").into(),
            ),
            Verdict::Refuse(why) => refuse(why),
        }
    }

    fn relates(&self, node: &str, kind: Kind, wanted: &Resource) -> bool {
        self.index
            .read(|table| table.relates(node, kind, wanted.namespace, wanted.name))
    }
}

/// No opinion: a later authorizer may still allow it.
fn refuse(why: Cow<'static, str>) -> Decision {
    Decision::NoOpinion(if why.is_empty() {
        Reason::default()
    } else {
        Reason::new(why)
    })
}

impl Authorizer for Nodes {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Future<'a, Decision> {
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

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("Nodes")
    }
}
