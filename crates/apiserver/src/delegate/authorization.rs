//! Authorization by SubjectAccessReview.

use mizzen_authorization::{
    Attributes, AttributesTarget, Authorizer, Decision, DecisionReason, review_spec,
};
use mizzen_registry::BoxFuture;
use mizzen_value::{json, value};

use super::{KEPT, Upstream};

const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// Kubernetes: health checks are always allowed (apiserver/pkg/server/options/authorization.go).
const OPEN: [&str; 3] = ["/healthz", "/livez", "/readyz"];

impl Authorizer for Upstream {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        Box::pin(self.decide(attributes))
    }
}

impl Upstream {
    async fn decide(&self, attributes: &Attributes<'_>) -> Decision {
        if matches!(attributes.target, AttributesTarget::NonResource(path) if OPEN.contains(&path))
        {
            return Decision::Allow(DecisionReason::default());
        }
        let spec = review_spec(attributes);
        let question = json::to_string(&spec);
        if let Some((allowed, reason)) = self.0.decisions.get(&question) {
            return decision(allowed, reason);
        }
        let review = value!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        });
        match self.request("POST", PATH, Some(&review)).await {
            Ok((201, review)) => {
                let status = &review["status"];
                let (allowed, reason) =
                    (status["allowed"].bool(), status["reason"].str().to_owned());
                self.0
                    .decisions
                    .put(question, (allowed, reason.clone()), KEPT);
                decision(allowed, reason)
            }
            Ok((_, status)) => decision(false, status["message"].str().into()),
            Err(problem) => decision(false, problem.to_string()),
        }
    }
}

fn decision(allowed: bool, reason: String) -> Decision {
    let reason = DecisionReason::from(reason);
    if allowed {
        Decision::Allow(reason)
    } else {
        Decision::NoOpinion(reason)
    }
}
