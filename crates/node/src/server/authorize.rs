//! Authorization of requests to a node by SubjectAccessReviews, as a kubelet with webhook
//! authorization does it.
//!
//! Kubernetes: kubelet/server/auth.go, with KubeletFineGrainedAuthz: some paths have a subresource
//! of their own, beside `nodes/proxy`, which allows everything else.

use http::Method;
use mizzen_value::{Value, json, value};

use super::authenticate::ClientUser;
use super::container_logs::HttpError;
use super::serve::KubeletServer;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// The group of all users that are not anonymous.
const AUTHENTICATED: &str = "system:authenticated";
/// The longest review whose answer is cached: clients choose what is in it. Kubernetes:
/// plugin/authorizer/webhook/webhook.go, `shouldCache`.
const MAX_CACHED_REVIEW: usize = 10_000;

impl KubeletServer {
    /// Authorizes a user's request to one of these nodes.
    pub(super) async fn authorize(
        &self,
        user: &ClientUser,
        node: &str,
        method: &Method,
        path: &str,
    ) -> Result<(), HttpError> {
        let (verb, subresources, name) = (verb(method), subresources(path), &user.name);
        for subresource in &subresources {
            let spec = access_review_spec(user, node, verb, subresource);
            let failed = |error| {
                tracing::warn!(%error, user = name, "cannot authorize a request to a node");
                HttpError(
                    500,
                    format!(
                        "Authorization error (user={name}, verb={verb}, resource=nodes, subresource={subresource})"
                    ),
                )
            };
            if self.is_allowed(node, spec).await.map_err(failed)? {
                return Ok(());
            }
        }
        let subresources = subresources.join(" ");
        Err(HttpError(
            403,
            format!(
                "Forbidden (user={name}, verb={verb}, resource=nodes, subresource(s)=[{subresources}])\n"
            ),
        ))
    }

    /// The answer to a SubjectAccessReview, of the API server or as it was before.
    async fn is_allowed(&self, node: &str, spec: Value) -> Result<bool, kube::Error> {
        let (key, access) = (json::to_string(&spec), &self.reviews.access);
        if let Some(known) = access.get(&key) {
            return Ok(known);
        }
        let review = value!({
            "kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": (spec)
        });
        let api = self.settings.api_of(node);
        let answer = api.raw(Method::POST, REVIEWS, Some(&review)).await?;
        let is_allowed = answer["status"]["allowed"].bool();
        let config = &self.reviews.config;
        let ttl = match is_allowed {
            true => config.authorized_ttl,
            false => config.unauthorized_ttl,
        };
        if key.len() <= MAX_CACHED_REVIEW {
            access.put(key, is_allowed, ttl);
        }
        Ok(is_allowed)
    }
}

fn access_review_spec(user: &ClientUser, node: &str, verb: &str, subresource: &str) -> Value {
    let mut groups = user.groups.clone();
    if !groups.iter().any(|group| group.str() == AUTHENTICATED) {
        groups.push(AUTHENTICATED.into());
    }
    let mut spec = value!({
        "user": (user.name.as_str()),
        "groups": (groups),
        "resourceAttributes": {
            "verb": verb, "version": "v1", "resource": "nodes", "subresource": subresource, "name": node
        }
    });
    if !user.uid.is_empty() {
        spec.set("uid", user.uid.as_str());
    }
    if !user.extra.is_empty() {
        spec.set("extra", user.extra.clone());
    }
    spec
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::GET => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// The subresources of which one must be allowed, in the order in which they are tried.
fn subresources(path: &str) -> Vec<&'static str> {
    let is_below = |root: &str| {
        path.strip_prefix(root)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    for (root, subresource) in [
        ("/stats", "stats"),
        ("/metrics", "metrics"),
        ("/logs", "log"),
        ("/checkpoint", "checkpoint"),
        ("/statusz", "statusz"),
        ("/flagz", "configz"),
    ] {
        if is_below(root) {
            return vec![subresource];
        }
    }
    for (root, subresource) in [
        ("/pods", "pods"),
        ("/runningpods", "pods"),
        ("/healthz", "healthz"),
        ("/configz", "configz"),
    ] {
        if is_below(root) {
            return vec![subresource, "proxy"];
        }
    }
    vec!["proxy"]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_subresources_as_a_kubelets_have() {
        for (path, expected) in [
            ("/pods", "pods proxy"),
            ("/pods/", "pods proxy"),
            ("/podsx", "proxy"),
            ("/runningpods/", "pods proxy"),
            ("/healthz/ping", "healthz proxy"),
            ("/configz", "configz proxy"),
            ("/stats/summary", "stats"),
            ("/metrics/cadvisor", "metrics"),
            ("/logs/", "log"),
            ("/checkpoint/a/b/c", "checkpoint"),
            ("/exec/a/b/c", "proxy"),
            ("/containerLogs/a/b/c", "proxy"),
            ("/", "proxy"),
        ] {
            assert_eq!(subresources(path).join(" "), expected, "{path}");
        }
    }
}
