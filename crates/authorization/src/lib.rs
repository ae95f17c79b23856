//! Authorization: whether a user may do something to a resource or a non-resource path.
//!
//! An [`Authorizer`] allows, denies, or has no opinion. The [`Authorizers`] of a server are asked
//! in the order of an [`Authorization`], and the first with an opinion decides; without one the
//! request is denied. Members of `system:masters` are always allowed, which keeps a cluster with
//! broken roles repairable.
//!
//! | part | the question it answers |
//! |---|---|
//! | [`ServerAuthorization`] | How does a server authorize, and which users may be impersonated? |
//! | [`Authorization`] | Which authorizers are asked, in which order? |
//! | [`rbac`] | What do roles and bindings allow? |
//! | [`webhook`] | What does a remote server decide? |
//! | [`store_index`] | How does an authorizer follow the store? |
//!
//! ```
//! use mizzen_authorization::rbac::PolicyRule;
//! use mizzen_authorization::{Attributes, AttributesTarget, ResourceAttributes};
//! use mizzen_object::User;
//! use mizzen_value::value;
//!
//! let rule = PolicyRule::new(&value!({
//!     "apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["get", "update"]
//! }));
//! let user = User::service_account("web", "autoscaler");
//! let scale = ResourceAttributes {
//!     group: "apps",
//!     resource: "deployments",
//!     subresource: "scale",
//!     namespace: "web",
//!     ..ResourceAttributes::default()
//! };
//! let attributes = |verb| Attributes { user: &user, verb, target: AttributesTarget::Resource(scale) };
//! assert!(rule.allows(&attributes("update")));
//! assert!(!rule.allows(&attributes("delete")));
//! ```

mod always;
mod authorizers;
mod configuration;
mod denial;
mod impersonate;
mod metrics;
pub mod rbac;
mod review;
mod selector;
pub mod store_index;
pub mod webhook;

pub use authorizers::Authorizers;
pub use configuration::{
    Authorization, AuthorizationConfigurationError, AuthorizerConfiguration, AuthorizerType,
};
pub use denial::{denial_reason, escape_html, forbidden};
pub use impersonate::{associated_node, go_value, impersonated_user};
pub use mizzen_request::{Attributes, AttributesTarget, ResourceAttributes};
pub use review::review_spec;
pub use selector::ReviewSelectors;

use std::fmt::{self, Debug, Display};
use std::sync::Arc;
use std::time::Duration;

use mizzen_metrics::{Families, Reloads};
use mizzen_object::User;
use mizzen_object::aggregate;
use mizzen_registry::{BoxFuture, Registry};
use tokio::time::Instant;

use authorizers::CountedAuthorizer;
use impersonate::{ImpersonationMetrics, LastModes};
use metrics::{AuthorizationMetrics, AuthorizationOutcome};
use rbac::{PolicyRule, Rbac};
use webhook::WebhookAuthorizer;

/// What a [`ServerAuthorization`] is made of.
#[derive(Default)]
pub struct AuthorizationOptions {
    /// The authorizers that come first.
    pub authorizers: Vec<Arc<dyn Authorizer>>,
    /// The configuration at start-up.
    pub authorization: Authorization,
    /// The authorizer of the mode `RBAC`; none where no roles are served.
    pub rbac: Option<Arc<Rbac>>,
    /// The authorizer of the mode `Node`, if the server has one.
    pub node: Option<Arc<dyn Authorizer>>,
}

/// The authorization of a server.
pub struct ServerAuthorization {
    /// The authorizers, in order.
    pub authorizers: Authorizers,
    /// The RBAC authorizer, also used alone by escalation checks. None where no roles are served.
    pub rbac: Option<Arc<Rbac>>,
    options: AuthorizationOptions,
    last_modes: LastModes,
    impersonations: ImpersonationMetrics,
    counts: Arc<AuthorizationMetrics>,
    registry: Registry,
}

impl ServerAuthorization {
    /// The given authorizers, then those of the configuration.
    pub fn new(registry: &Registry, options: AuthorizationOptions) -> ServerAuthorization {
        let access = ServerAuthorization {
            authorizers: Authorizers::default(),
            rbac: options.rbac.clone(),
            options,
            last_modes: LastModes::default(),
            impersonations: ImpersonationMetrics::default(),
            counts: Arc::default(),
            registry: registry.clone(),
        };
        access.install(&access.options.authorization);
        access
    }

    /// Replaces the authorizers by those of a configuration.
    fn install(&self, authorization: &Authorization) {
        let given = self.options.authorizers.iter().cloned();
        let given = given.map(CountedAuthorizer::without_metrics);
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
            AuthorizerType::Node => self.options.node.clone()?,
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
    pub fn replace(
        &self,
        authorization: &Authorization,
    ) -> Result<(), AuthorizationConfigurationError> {
        authorization.check_successor_of(&self.options.authorization)?;
        self.install(authorization);
        Ok(())
    }

    /// Authorizes a request. Returns the decision and how long it took.
    pub async fn authorize_request(&self, attributes: &Attributes<'_>) -> (Decision, Duration) {
        let started = Instant::now();
        let decision = self.authorizers.authorize(attributes).await;
        let took = started.elapsed();
        // Kubernetes: an evaluation error does not count if the request is allowed
        // (endpoints/filters/metrics.go).
        let outcome = match (&decision, decision.reason().problem()) {
            (Decision::Allow(_), _) => AuthorizationOutcome::Allowed,
            (_, Some(_)) => AuthorizationOutcome::Error,
            (Decision::Deny(_), None) => AuthorizationOutcome::Denied,
            (Decision::NoOpinion(_), None) => AuthorizationOutcome::NoOpinion,
        };
        self.counts.record_attempt(outcome, took);
        (decision, took)
    }

    /// Counts the reloads of the configuration file.
    pub fn reloads(&self) -> &Reloads {
        &self.counts.reloads
    }

    /// Adds its series to a scrape.
    pub fn collect(&self, out: &mut Families) {
        self.counts.collect(out);
        self.impersonations.collect(out);
    }
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
pub fn join_errors(problems: &[String]) -> String {
    aggregate(problems.iter().cloned()).unwrap_or_else(|| "[]".into())
}
