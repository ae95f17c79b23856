//! May they? Who asks what of which thing, and who decides it.
//!
//! An [`Authorizer`] allows, refuses, or has no opinion. The [`Authorizers`] of a server are asked in order, and the
//! first with an opinion decides; where nobody has one, the answer is no. Members of `system:masters` are never asked
//! about: that is what keeps a cluster with broken roles repairable.

pub(crate) mod escalation;
mod followed;
pub(crate) mod impersonate;
pub mod node;
pub mod rbac;
mod refusal;
pub(crate) mod request;

pub(crate) use refusal::forbidden;
pub(crate) use request::check;

use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use mizzen_object::in_one;
use mizzen_registry::Future;

use crate::catalog::Catalog;
use crate::identity::User;
use impersonate::Habits;
use node::Nodes;
use rbac::{Rbac, Rule, Sources};

/// All that decides in a server.
pub(crate) struct Access {
    pub authorizers: Authorizers,
    /// Also asked by itself, for what somebody holds. None where no roles are served.
    pub rbac: Option<Arc<Rbac>>,
    pub habits: Habits,
}

impl Access {
    /// Those that the server was given, then who knows nodes if they are to be asked, then roles.
    pub fn new(catalog: &Catalog, first: &[Arc<dyn Authorizer>], nodes: bool) -> Access {
        let rbac = sources(catalog).map(|sources| Arc::new(Rbac::new(sources)));
        let nodes = nodes.then(|| Nodes::new(catalog)).flatten();
        let mut authorizers = first.to_vec();
        authorizers.extend(nodes.map(|nodes| Arc::new(nodes) as Arc<dyn Authorizer>));
        authorizers.extend(rbac.clone().map(|rbac| rbac as Arc<dyn Authorizer>));
        Access { authorizers: Authorizers::new(authorizers), rbac, habits: Habits::default() }
    }
}

/// Where roles and bindings are kept, if they are served.
fn sources(catalog: &Catalog) -> Option<Sources> {
    let get = |plural: &str| catalog.get("rbac.authorization.k8s.io", "v1", plural);
    Some(Sources {
        roles: get("roles")?,
        cluster_roles: get("clusterroles")?,
        role_bindings: get("rolebindings")?,
        cluster_role_bindings: get("clusterrolebindings")?,
    })
}

/// What somebody wants to do.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: &'a User,
    /// What they want to do, as roles call it: `list`, `update`; for a page the method in lower case.
    pub verb: &'a str,
    /// With what.
    pub target: Target<'a>,
}

/// With what somebody wants to do something.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// With objects.
    Resource(Resource<'a>),
    /// With a page of the server, by its path.
    Page(&'a str),
}

/// Objects that somebody wants to do something with. What does not apply is empty.
#[derive(Debug, Clone, Copy, Default)]
pub struct Resource<'a> {
    /// The API group.
    pub group: &'a str,
    /// The version in it; `*` for any.
    pub version: &'a str,
    /// The plural name.
    pub resource: &'a str,
    /// The part of the object.
    pub subresource: &'a str,
    /// Where.
    pub namespace: &'a str,
    /// Which one.
    pub name: &'a str,
    /// The field selector, as it was sent.
    pub fields: &'a str,
    /// The label selector, as it was sent.
    pub labels: &'a str,
}

/// An opinion, and why.
#[derive(Debug)]
pub enum Decision {
    /// Yes.
    Allow(Reason),
    /// Ask somebody else.
    NoOpinion(Reason),
    /// No, whatever others say.
    Deny(Reason),
}

impl Decision {
    /// Whether it is a yes.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Decision::Allow(_))
    }

    /// Why.
    pub fn reason(&self) -> &Reason {
        match self {
            Decision::Allow(reason) | Decision::NoOpinion(reason) | Decision::Deny(reason) => reason,
        }
    }
}

/// Why something was decided. Written only when somebody wants to read it.
#[derive(Default)]
pub struct Reason(Option<Box<dyn Display + Send + Sync>>);

impl Reason {
    /// A reason that knows how to show itself.
    pub fn new(reason: impl Display + Send + Sync + 'static) -> Reason {
        Reason(Some(Box::new(reason)))
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |reason| reason.fmt(f))
    }
}

impl Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Reason({self})")
    }
}

/// What somebody may do, as far as it can be told.
#[derive(Debug, Default)]
pub struct Rules {
    /// The rules.
    pub rules: Vec<Arc<Rule>>,
    /// Whether there may be more.
    pub incomplete: bool,
    /// What went wrong on the way.
    pub problems: Vec<String>,
}

/// One who decides.
pub trait Authorizer: Debug + Send + Sync {
    /// Whether somebody may do something.
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Future<'a, Decision>;

    /// What `user` may do in `namespace`. One who cannot tell says that there may be more.
    fn rules(&self, user: &User, namespace: &str) -> Rules {
        let _ = (user, namespace);
        Rules { incomplete: true, ..Rules::default() }
    }
}

/// Those who decide, in the order in which they are asked.
#[derive(Debug, Clone, Default)]
pub struct Authorizers(Vec<Arc<dyn Authorizer>>);

impl Authorizers {
    /// These and no others.
    pub fn new(authorizers: Vec<Arc<dyn Authorizer>>) -> Authorizers {
        Authorizers(authorizers)
    }

    /// The decision of the first that has an opinion. Where nobody has one, all their reasons.
    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if attributes.user.is_master() {
            return Decision::Allow(Reason::default());
        }
        let mut reasons = Vec::new();
        for authorizer in &self.0 {
            match authorizer.authorize(attributes).await {
                Decision::NoOpinion(reason) if reason.0.is_none() => {}
                Decision::NoOpinion(reason) => reasons.push(reason.to_string()),
                decision => return decision,
            }
        }
        let silent = reasons.is_empty();
        Decision::NoOpinion(if silent { Reason::default() } else { Reason::new(reasons.join("\n")) })
    }

    /// What `user` may do in `namespace`, all authorizers together.
    pub fn rules(&self, user: &User, namespace: &str) -> Rules {
        let mut all = Rules::default();
        for authorizer in &self.0 {
            let Rules { rules, incomplete, problems } = authorizer.rules(user, namespace);
            all.rules.extend(rules);
            all.problems.extend(problems);
            all.incomplete |= incomplete;
        }
        all
    }
}

/// Problems in one line, as Go shows a list of errors.
pub(crate) fn aggregate(problems: &[String]) -> String {
    in_one(problems.iter().cloned()).unwrap_or_else(|| "[]".into())
}
