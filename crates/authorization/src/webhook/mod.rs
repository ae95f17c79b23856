//! The webhook authorizer: posts a SubjectAccessReview to a remote server and caches the result.
//!
//! Match conditions limit the requests that are sent. Transient errors are retried; then the
//! failure policy applies: no opinion, or deny.
//!
//! Invariant: a review takes at most `ATTEMPTS` time-outs and the pauses between; other requests do
//! not wait for it.

mod conditions;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mizzen_object::User;
use mizzen_object::decode::{decode, type_meta};
use mizzen_object::schema::Struct;
use mizzen_outgoing::{KubeconfigWebhook, LruCache, PostError, WebhookKubeconfig, jittered};
use mizzen_registry::{BoxFuture, Registry};
use mizzen_value::{Str, Value, json, value};
use tokio::time::Instant;

use super::configuration::config_type;
use super::metrics::{AuthorizationMetrics, WebhookOutcome};
use super::{
    Attributes, AttributesTarget, AuthorizationConfigurationError, Authorizer, Decision,
    DecisionReason, RuleSet, review,
};
pub(crate) use conditions::MatchConditions;

/// The maximum number of attempts.
const ATTEMPTS: u32 = 5;
/// The pause after the first attempt; it grows by half, with jitter of up to a fifth.
const PAUSE: Duration = Duration::from_millis(500);
/// The capacity of the cache.
const ROOM: usize = 8192;
/// Kubernetes: results of longer requests are not cached, so that a client cannot fill the memory.
const MAX_KEPT_QUESTION: usize = 10_000;

/// Settings of a webhook authorizer.
#[derive(Debug)]
pub struct WebhookSettings {
    /// The time-out of one attempt.
    pub(super) timeout: Duration,
    /// How long an allowed result is cached.
    pub(super) authorized_ttl: Duration,
    /// How long any other result is cached.
    pub(super) unauthorized_ttl: Duration,
    pub(super) version: SubjectAccessReviewVersion,
    pub(super) failure_policy: FailurePolicy,
    pub(super) remote: WebhookKubeconfig,
    pub(super) match_conditions: MatchConditions,
}

/// The version of the SubjectAccessReview.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SubjectAccessReviewVersion {
    /// v1.
    #[default]
    V1,
    /// v1beta1, in which groups are called `group`.
    V1beta1,
}

impl SubjectAccessReviewVersion {
    /// The version of a name: `v1`.
    pub fn named(name: &str) -> Option<SubjectAccessReviewVersion> {
        match name {
            "v1" => Some(SubjectAccessReviewVersion::V1),
            "v1beta1" => Some(SubjectAccessReviewVersion::V1beta1),
            _ => None,
        }
    }

    /// Whether a response is a review of the version that was sent. Missing type information is
    /// accepted.
    fn check_kind(self, body: &[u8]) -> Result<(), String> {
        let meta = type_meta(body)
            .map_err(|why| format!("couldn't get version/kind; json parse error: {why}"))?;
        let own = self.api_version();
        let fits = |said: &str, wanted: &str| said.is_empty() || said == wanted;
        if fits(&meta.kind, "SubjectAccessReview") && fits(&meta.api_version, own) {
            return Ok(());
        }
        let said = if meta.api_version.is_empty() {
            own
        } else {
            &meta.api_version
        };
        Err(format!(
            "expected a SubjectAccessReview of {own}, got the kind {} of {said}",
            json::quote(&meta.kind)
        ))
    }

    fn api_version(self) -> &'static str {
        match self {
            SubjectAccessReviewVersion::V1 => "authorization.k8s.io/v1",
            SubjectAccessReviewVersion::V1beta1 => "authorization.k8s.io/v1beta1",
        }
    }
}

/// What a failed call means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailurePolicy {
    /// The next authorizer decides.
    NoOpinion,
    /// The request is denied.
    Deny,
}

impl WebhookSettings {
    /// The server of a kubeconfig file, without match conditions and with the failure policy
    /// NoOpinion.
    pub fn load(
        file: &Path,
        version: &str,
        authorized: Duration,
        unauthorized: Duration,
    ) -> Result<WebhookSettings, AuthorizationConfigurationError> {
        let remote = WebhookKubeconfig::load(file)
            .map_err(|error| AuthorizationConfigurationError(error.to_string()))?;
        let version = SubjectAccessReviewVersion::named(version).ok_or_else(|| {
            let named = json::quote(version);
            let problem = "supported versions are \"v1\", \"v1beta1\"";
            AuthorizationConfigurationError(format!(
                "unsupported webhook authorizer version {named}, {problem}"
            ))
        })?;
        Ok(WebhookSettings {
            timeout: Duration::from_secs(30),
            authorized_ttl: authorized,
            unauthorized_ttl: unauthorized,
            version,
            failure_policy: FailurePolicy::NoOpinion,
            remote,
            match_conditions: MatchConditions::default(),
        })
    }
}

/// A webhook authorizer.
pub(super) struct WebhookAuthorizer {
    name: Str,
    settings: Arc<WebhookSettings>,
    remote: KubeconfigWebhook,
    answers: LruCache<ReviewResult>,
    registry: Registry,
    counts: Arc<AuthorizationMetrics>,
    /// The decoded fields of a response.
    shape: Arc<Struct>,
}

/// The status of a review.
#[derive(Debug, Clone, PartialEq)]
struct ReviewResult {
    allowed: bool,
    denied: bool,
    reason: String,
}

impl WebhookAuthorizer {
    pub(super) fn new(
        name: &Str,
        settings: Arc<WebhookSettings>,
        registry: &Registry,
        counts: Arc<AuthorizationMetrics>,
    ) -> WebhookAuthorizer {
        WebhookAuthorizer {
            name: name.clone(),
            remote: KubeconfigWebhook::new(&settings.remote, registry),
            settings,
            answers: LruCache::new(ROOM),
            registry: registry.clone(),
            counts,
            shape: config_type("authorization.k8s.io/v1.SubjectAccessReview"),
        }
    }

    async fn authorize_by_webhook(&self, attributes: &Attributes<'_>) -> Decision {
        match self.matches_conditions(attributes) {
            Ok(true) => {}
            Ok(false) => return Decision::NoOpinion(DecisionReason::default()),
            Err(problem) => return self.apply_failure_policy(problem),
        }
        let spec = review::review_spec(attributes);
        let question = json::to_string(&spec);
        if let Some(answer) = self.answers.get(&question) {
            return answer.decision();
        }
        // A caller that only polls for a cached result is dropped here, before anything is sent.
        tokio::task::yield_now().await;
        match self.post_with_retries(spec).await {
            Ok(answer) => {
                self.cache_result(attributes, question, &answer);
                answer.decision()
            }
            Err(error) => self.apply_failure_policy(error.why),
        }
    }

    fn matches_conditions(&self, attributes: &Attributes) -> Result<bool, String> {
        let conditions = &self.settings.match_conditions;
        if conditions.is_empty() {
            return Ok(true);
        }
        let started = Instant::now();
        let outcome = conditions.evaluate(&review::condition_request(attributes));
        self.counts
            .record_match_conditions(&self.name, started, &outcome);
        outcome
    }

    fn apply_failure_policy(&self, problem: String) -> Decision {
        match self.settings.failure_policy {
            FailurePolicy::NoOpinion => Decision::NoOpinion(DecisionReason::failed(problem)),
            FailurePolicy::Deny => Decision::Deny(DecisionReason::failed(problem)),
        }
    }

    fn cache_result(&self, attributes: &Attributes, question: String, answer: &ReviewResult) {
        // How many bytes the client has chosen. Upstream does not count selectors.
        let length = match &attributes.target {
            AttributesTarget::NonResource(path) => path.len(),
            AttributesTarget::Resource(resource) => [
                resource.group,
                resource.version,
                resource.resource,
                resource.subresource,
                resource.namespace,
                resource.name,
                resource.fields,
                resource.labels,
            ]
            .iter()
            .map(|text| text.len())
            .sum(),
        };
        if length + attributes.verb.len() < MAX_KEPT_QUESTION {
            let WebhookSettings {
                authorized_ttl: authorized,
                unauthorized_ttl: unauthorized,
                ..
            } = *self.settings;
            let lasts = if answer.allowed {
                authorized
            } else {
                unauthorized
            };
            self.answers.put(question, answer.clone(), lasts);
        }
    }

    /// Posts a review until it succeeds or a retry would not help.
    async fn post_with_retries(&self, spec: Value) -> Result<ReviewResult, PostError> {
        let body = bytes::Bytes::from(json::to_string(&self.review(spec)));
        let mut pause = PAUSE;
        let mut attempt = 1;
        loop {
            let error = match self.post_review(body.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if attempt == ATTEMPTS || !error.is_transient() {
                tracing::warn!(webhook = %self.name, problem = %error, "authorization webhook failed");
                if self.settings.failure_policy == FailurePolicy::NoOpinion {
                    self.counts
                        .record_fail_open(&self.name, WebhookOutcome::from_error(&error));
                }
                return Err(error);
            }
            attempt += 1;
            tokio::time::sleep(jittered(&self.registry, pause)).await;
            pause = pause * 3 / 2;
        }
    }

    async fn post_review(&self, body: bytes::Bytes) -> Result<ReviewResult, PostError> {
        let timer = self.counts.start_webhook_timer(&self.name);
        let outcome = self
            .remote
            .post(body, self.settings.timeout)
            .await
            .and_then(|body| self.decode_review(&body));
        timer.end(
            outcome
                .as_ref()
                .map_or_else(WebhookOutcome::from_error, |_| WebhookOutcome::Success),
        );
        outcome
    }

    fn review(&self, mut spec: Value) -> Value {
        if self.settings.version == SubjectAccessReviewVersion::V1beta1
            && let Some(groups) = spec.remove("groups")
        {
            spec.set("group", groups);
        }
        value!({
            "kind": "SubjectAccessReview",
            "apiVersion": (self.settings.version.api_version()),
            "metadata": {},
            "spec": spec,
            "status": { "allowed": false },
        })
    }

    fn decode_review(&self, body: &[u8]) -> Result<ReviewResult, PostError> {
        let refused = |why: String| PostError {
            code: Some(200),
            why,
        };
        self.settings.version.check_kind(body).map_err(refused)?;
        let review = decode(&self.shape, body)
            .map_err(|error| refused(error.to_string()))?
            .value;
        let status = &review["status"];
        let reason = status["reason"].str().to_owned();
        Ok(ReviewResult {
            allowed: status["allowed"].bool(),
            denied: status["denied"].bool(),
            reason,
        })
    }
}

impl ReviewResult {
    fn decision(self) -> Decision {
        let reason = DecisionReason::from(self.reason);
        match (self.denied, self.allowed) {
            (true, true) => Decision::Deny(reason.with_problem(
                "webhook subject access review returned both allow and deny response",
            )),
            (true, false) => Decision::Deny(reason),
            (false, true) => Decision::Allow(reason),
            (false, false) => Decision::NoOpinion(reason),
        }
    }
}

impl Authorizer for WebhookAuthorizer {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        Box::pin(self.authorize_by_webhook(attributes))
    }

    fn rules(&self, _: &User, _: &str) -> RuleSet {
        let problem = "webhook authorizer does not support user rule resolution";
        RuleSet {
            incomplete: true,
            problems: vec![problem.into()],
            ..RuleSet::default()
        }
    }
}

impl fmt::Debug for WebhookAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Webhook({})", self.name)
    }
}
