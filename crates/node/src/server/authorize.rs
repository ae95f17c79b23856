//! Authorization of requests to a node by SubjectAccessReviews, as a kubelet with webhook
//! authorization does it.
//!
//! Kubernetes: kubelet/server/auth.go, with KubeletFineGrainedAuthz: some paths have a subresource
//! of their own, beside `nodes/proxy`, which allows everything else.

use http::Method;
use mizzen_value::{Value, value};

use super::container_logs::HttpError;
use super::serve::KubeletServer;

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

impl KubeletServer {
    /// Authorizes a user's request to one of these nodes.
    pub(super) async fn authorize(
        &self,
        user: (&str, &[String]),
        node: &str,
        method: &Method,
        path: &str,
    ) -> Result<(), HttpError> {
        let (verb, subresources, (name, groups)) = (verb(method), subresources(path), user);
        let mut groups: Vec<Value> = groups.iter().map(|group| group.as_str().into()).collect();
        groups.push("system:authenticated".into());
        let api = self.settings.api_of(node);
        for subresource in &subresources {
            let review = value!({
                "kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
                "spec": {
                    "user": name, "groups": (groups.clone()),
                    "resourceAttributes": {
                        "verb": verb, "version": "v1", "resource": "nodes", "subresource": (*subresource), "name": node
                    }
                }
            });
            let failed = |error| {
                tracing::warn!(%error, user = name, "cannot authorize a request to a node");
                HttpError(
                    500,
                    format!(
                        "Authorization error (user={name}, verb={verb}, resource=nodes, subresource={subresource})"
                    ),
                )
            };
            let response = api.raw(Method::POST, REVIEWS, Some(&review)).await;
            if response.map_err(failed)?["status"]["allowed"].bool() {
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
