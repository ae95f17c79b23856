//! Authorization: whether a user may do something to a resource or a non-resource path.
//!
//! An [`Authorizer`] allows, denies, or has no opinion. The [`Authorizers`] of a server are asked
//! in the order of an [`Authorization`], and the first with an opinion decides; without one the
//! request is denied. Members of `system:masters` are always allowed, which keeps a cluster with
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
pub mod store_index;
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
use mizzen_object::aggregate;
use mizzen_registry::{BoxFuture, Registry};

use crate::catalog::Catalog;
use crate::server::Options;
use authorizers::CountedAuthorizer;
use impersonate::LastModes;
use metrics::AuthorizationMetrics;
use rbac::{PolicyRule, Rbac, RbacSources};
use webhook::WebhookAuthorizer;

/// The authorization of a server.
pub(crate) struct ServerAuthorization {
    pub authorizers: Authorizers,
    /// The RBAC authorizer, also used alone by escalation checks. None where no roles are served.
    pub rbac: Option<Arc<Rbac>>,

    /// The authorizer of the mode `Node`, if the server has one.
    node: Option<Arc<dyn Authorizer>>,
    pub last_modes: LastModes,
    pub impersonations: impersonate::ImpersonationMetrics,
    pub counts: Arc<AuthorizationMetrics>,
    registry: Registry,
    /// The authorizers that the server was built with; they come first.
    given: Vec<Arc<dyn Authorizer>>,
    /// The configuration at start-up.
    started: Authorization,
}

impl ServerAuthorization {
    /// The given authorizers, then those of the configuration.
    pub(crate) fn new(
        registry: &Registry,
        catalog: &Catalog,
        options: &Options,
    ) -> ServerAuthorization {
        let rbac = RbacSources::find(catalog).map(|sources| Arc::new(Rbac::new(sources)));
        let access = ServerAuthorization {
            authorizers: Authorizers::default(),
            rbac,
            node: options.node_authorizer.and_then(|make| make(catalog)),
            last_modes: LastModes::default(),
            impersonations: Default::default(),
            counts: Arc::default(),
            registry: registry.clone(),
            given: options.authorizers.clone(),
            started: options.authorization.clone(),
        };
        access.install(&options.authorization);
        access
    }

    /// Replaces the authorizers by those of a configuration.
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

    fn authorizer(&self, entry: &AuthorizerConfiguration) -> Option<Arc<dyn Authorizer>> {
        Some(match &entry.kind {
            AuthorizerType::Node => self.node.clone()?,
            AuthorizerType::Rbac => self.rbac.clone()?,
            AuthorizerType::AlwaysAllow => Arc::new(always::AlwaysAllow),
            AuthorizerType::AlwaysDeny => Arc::new(always::AlwaysDeny),
            AuthorizerType::Webhook(settings) => Arc::new(WebhookAuthorizer::new(
                &entry.name,
                settings.clone(),
                &self.registry,
                self.counts.clone(),
            )),
        })
    }

    /// Replaces the configuration, unless it removes or adds an authorizer that is fixed at
    /// start-up.
    pub(crate) fn replace(
        &self,
        authorization: &Authorization,
    ) -> Result<(), AuthorizationConfigurationError> {
        authorization.check_successor_of(&self.started)?;
        self.install(authorization);
        Ok(())
    }
}

/// What is authorized: a user, a verb and a target.
#[derive(Debug, Clone, Copy)]
pub struct Attributes<'a> {
    /// The user of the request.
    pub user: &'a User,
    /// The verb: `list`, `update`; for a non-resource path the method in lower case.
    pub verb: &'a str,
    /// What is accessed.
    pub target: AttributesTarget<'a>,
}

impl Attributes<'_> {
    /// Whether the request is long-running. Kubernetes: controlplane/apiserver/config.go.
    pub(crate) fn is_long_running(&self) -> bool {
        let lasts = match self.target {
            AttributesTarget::Resource(resource) => {
                matches!(
                    resource.subresource,
                    "attach" | "exec" | "proxy" | "log" | "portforward"
                )
            }
            AttributesTarget::NonResource(path) => path.starts_with("/debug/pprof/"),
        };
        lasts || matches!(self.verb, "watch" | "proxy")
    }
}

/// The target of a request.
#[derive(Debug, Clone, Copy)]
pub enum AttributesTarget<'a> {
    /// A resource.
    Resource(ResourceAttributes<'a>),
    /// A non-resource path.
    NonResource(&'a str),
}

/// The resource attributes of a request. Fields that do not apply are empty.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResourceAttributes<'a> {
    /// The API group.
    pub group: &'a str,
    /// The version; `*` for any.
    pub version: &'a str,
    /// The resource (plural name).
    pub resource: &'a str,
    /// The subresource.
    pub subresource: &'a str,
    /// The namespace.
    pub namespace: &'a str,
    /// The name of the object.
    pub name: &'a str,
    /// The field selector, as sent.
    pub fields: &'a str,
    /// The label selector, as sent.
    pub labels: &'a str,
}

/// A decision and its reason.
#[derive(Debug)]
pub enum Decision {
    /// Allowed.
    Allow(DecisionReason),
    /// The next authorizer decides.
    NoOpinion(DecisionReason),
    /// Denied, whatever later authorizers say.
    Deny(DecisionReason),
}

impl Decision {
    /// Whether the decision is `Allow`.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Decision::Allow(_))
    }

    /// The reason of the decision.
    pub fn reason(&self) -> &DecisionReason {
        match self {
            Decision::Allow(reason) | Decision::NoOpinion(reason) | Decision::Deny(reason) => {
                reason
            }
        }
    }
}

/// The reason of a decision, formatted only when needed, and an evaluation error.
#[derive(Default)]
pub struct DecisionReason {
    text: Option<Box<dyn Display + Send + Sync>>,
    problem: Option<Box<str>>,
}

impl DecisionReason {
    /// A reason that is formatted when it is needed.
    pub fn new(reason: impl Display + Send + Sync + 'static) -> DecisionReason {
        DecisionReason {
            text: Some(Box::new(reason)),
            problem: None,
        }
    }

    /// No reason, but an evaluation error.
    pub fn failed(problem: impl Into<Box<str>>) -> DecisionReason {
        DecisionReason {
            text: None,
            problem: Some(problem.into()),
        }
    }

    /// The same with an evaluation error.
    pub fn with_problem(self, problem: impl Into<Box<str>>) -> DecisionReason {
        DecisionReason {
            problem: Some(problem.into()),
            ..self
        }
    }

    /// Whether there is neither a reason nor an error.
    fn is_silent(&self) -> bool {
        self.text.is_none() && self.problem.is_none()
    }

    /// The evaluation error. A request that is not allowed because of it gets the error instead of
    /// the reason.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

/// An empty text is no reason.
impl From<String> for DecisionReason {
    fn from(text: String) -> DecisionReason {
        if text.is_empty() {
            DecisionReason::default()
        } else {
            DecisionReason::new(text)
        }
    }
}

impl Display for DecisionReason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.text.as_ref().map_or(Ok(()), |reason| reason.fmt(f))
    }
}

impl Debug for DecisionReason {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Reason({self})")
    }
}

/// The rules of a user.
#[derive(Debug, Default)]
pub struct RuleSet {
    /// The resolved rules.
    pub rules: Vec<Arc<PolicyRule>>,
    /// Whether there may be more rules.
    pub incomplete: bool,
    /// Errors of rule resolution.
    pub problems: Vec<String>,
}

/// Decides whether a request is allowed.
pub trait Authorizer: Debug + Send + Sync {
    /// Decides whether a request is allowed.
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision>;

    /// The rules of `user` in `namespace`. The default is that they are unknown.
    fn rules(&self, user: &User, namespace: &str) -> RuleSet {
        let _ = (user, namespace);
        RuleSet {
            incomplete: true,
            ..RuleSet::default()
        }
    }
}

/// Errors in one line, as Go prints an aggregate.
pub(crate) fn join_errors(problems: &[String]) -> String {
    aggregate(problems.iter().cloned()).unwrap_or_else(|| "[]".into())
}
