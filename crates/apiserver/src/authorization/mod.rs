//! May they? Who asks what of which thing, and who decides it.
//!
//! An [`Authorizer`] allows, refuses, or has no opinion. The [`Authorizers`] of a server are asked in order, and the
//! first with an opinion decides; where nobody has one, the answer is no. Which ones there are, and in which order,
//! says an [`Authorization`]. Members of `system:masters` are never asked about: that is what keeps a cluster with
//! broken roles repairable.

mod always;
mod authorizers;
mod configuration;
mod denial;
pub(crate) mod escalation;

pub(crate) mod impersonate;
mod metrics;
pub mod rbac;
mod reload;
pub(crate) mod request;
pub(crate) mod review;
pub mod secondary;
pub(crate) mod selector;
mod store_index;
pub mod webhook;

pub use authorizers::Authorizers;
pub use configuration::{
    Authorization, AuthorizationConfigurationError, AuthorizerConfiguration, AuthorizerType,
};
pub(crate) use denial::{AuthorizationError, escape_html, forbidden, internal_error};
pub(crate) use reload::reload_on_change;
pub(crate) use request::{authorize, authorize_request};

use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use mizzen_object::User;
use mizzen_object::in_one;
use mizzen_registry::{Future, Registry};

use crate::catalog::Catalog;
use crate::server::Options;
use authorizers::CountedAuthorizer; use impersonate::LastModes; use metrics::AuthorizationMetrics; use rbac:: { PolicyRule, Rbac, RbacSources } ; use webhook::WebhookAuthorizer;

/// All that decides in a server.
pub(crate) struct ServerAuthorization {
    pub authorizers: Authorizers,
    /// Also asked by itself, for what somebody holds. None where no roles are served.
    pub rbac: Option<Arc<Rbac>>,

/// The authorizer of the mode `Node`, if the server has one.
node:Option<Arc<dyn Authorizer>>, pub last_modes:LastModes, pub impersonations:impersonate::ImpersonationMetrics, pub counts:Arc<AuthorizationMetrics>,
    registry: Registry,
    /// Those that the server was given; they come before all others.
    given: Vec<Arc<dyn Authorizer>>,
    /// What the server was started with.
    started: Authorization,
}

impl ServerAuthorization {
    /// Those that the server was given, then those of its authorization.
    pub(crate) fn new(
        registry: &Registry,
        catalog: &Catalog,
        options: &Options,
    ) -> ServerAuthorization {
        let rbac = rbac_sources(catalog).map(|sources| Arc::new(Rbac::new(sources)));
        let access = ServerAuthorization {
            authorizers: Authorizers::default(),
            rbac,
node:options.node_authorizer.and_then(|make|make(catalog)), last_modes:LastModes::default(),
            impersonations: Default::default(),
            counts: Arc::default(),
            registry: registry.clone(),
            given: options.authorizers.clone(),
            started: options.authorization.clone(),
        };
        access.install(&options.authorization);
        access
    }

    /// From now on these are asked.
    fn install(&self, authorization: &Authorization) {
        let given = self
            .given
            .iter()
            .cloned()
            .map(CountedAuthorizer::without_metrics);
        let named = authorization.0.iter().filter_map(|entry| {
            let counted = self.counts.decisions_of(entry.kind.name(), &entry.name);
            Some(CountedAuthorizer::with_metrics(
                self.authorizer(entry)?,
                counted,
            ))
        });
        self.authorizers.replace(given.chain(named).collect());
    }

fn authorizer(&self, entry:&AuthorizerConfiguration)->Option<Arc<dyn Authorizer>> { Some(match&entry.kind { AuthorizerType::Node=>self.node.clone()?, AuthorizerType::Rbac=>self.rbac.clone()?, AuthorizerType::AlwaysAllow=>Arc::new(always::AlwaysAllow), AuthorizerType::AlwaysDeny=>Arc::new(always::AlwaysDeny), AuthorizerType::Webhook(settings)=>Arc::new(WebhookAuthorizer::new(
                &entry.name,
                settings.clone(),
                &self.registry,
                self.counts.clone(),
            )),
        })
    }

    /// Goes by another authorization, unless it lacks, or adds, somebody who must have been there from the start.
    pub(crate) fn replace(
        &self,
        authorization: &Authorization,
    ) -> Result<(), AuthorizationConfigurationError> {
        authorization.check_successor_of(&self.started)?;
        self.install(authorization);
        Ok(())
    }
}

/// Where roles and bindings are kept, if they are served.
fn rbac_sources(catalog: &Catalog) -> Option<RbacSources> {
    let get = |plural: &str| catalog.get("rbac.authorization.k8s.io", "v1", plural);
    Some(RbacSources {
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

impl Attributes<'_> {
    /// Whether it lasts as long as its client likes. Kubernetes: controlplane/apiserver/config.go.
    pub(crate) fn is_long_running(&self) -> bool {
        let lasts = match self.target {
            Target::Resource(resource) => {
                matches!(
                    resource.subresource,
                    "attach" | "exec" | "proxy" | "log" | "portforward"
                )
            }
            Target::Page(path) => path.starts_with("/debug/pprof/"),
        };
        lasts || matches!(self.verb, "watch" | "proxy")
    }
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
            Decision::Allow(reason) | Decision::NoOpinion(reason) | Decision::Deny(reason) => {
                reason
            }
        }
    }
}

/// Why something was decided, and what went wrong on the way. Written only when somebody wants to read it.
#[derive(Default)]
pub struct Reason {
    text: Option<Box<dyn Display + Send + Sync>>,
    problem: Option<Box<str>>,
}

impl Reason {
    /// A reason that knows how to show itself.
    pub fn new(reason: impl Display + Send + Sync + 'static) -> Reason {
        Reason {
            text: Some(Box::new(reason)),
            problem: None,
        }
    }

    /// No reason, but something went wrong.
    pub fn failed(problem: impl Into<Box<str>>) -> Reason {
        Reason {
            text: None,
            problem: Some(problem.into()),
        }
    }

    /// The same, and something went wrong.
    pub fn with_problem(self, problem: impl Into<Box<str>>) -> Reason {
        Reason {
            problem: Some(problem.into()),
            ..self
        }
    }

    /// Whether there is nothing to be said.
    fn is_silent(&self) -> bool {
        self.text.is_none() && self.problem.is_none()
    }

    /// What went wrong, if something did. Whoever is not allowed to do something because of it is told so, instead
    /// of why they may not.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

/// A reason that somebody gave in words, perhaps none.
impl From<String> for Reason {
    fn from(text: String) -> Reason {
        if text.is_empty() {
            Reason::default()
        } else {
            Reason::new(text)
        }
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.text.as_ref().map_or(Ok(()), |reason| reason.fmt(f))
    }
}

impl Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Reason({self})")
    }
}

/// What somebody may do, as far as it can be told.
#[derive(Debug, Default)]
pub struct RuleSet {
    /// The rules.
    pub rules: Vec<Arc<PolicyRule>>,
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
    fn rules(&self, user: &User, namespace: &str) -> RuleSet {
        let _ = (user, namespace);
        RuleSet {
            incomplete: true,
            ..RuleSet::default()
        }
    }
}

/// Problems in one line, as Go shows a list of errors.
pub(crate) fn join_errors(problems: &[String]) -> String {
    in_one(problems.iter().cloned()).unwrap_or_else(|| "[]".into())
}
