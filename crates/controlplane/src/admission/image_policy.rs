//! ImagePolicyWebhook: a webhook decides which images pods may run.
//!
//! It gets an ImageReview; its responses are cached.

use std::fmt;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use mizzen_object::Status;
use mizzen_outgoing::KubeconfigWebhook;
use mizzen_outgoing::{LruCache, WebhookKubeconfig};
use mizzen_registry::BoxFuture;
use mizzen_value::{Value, json, time, value};

use super::{Attributes, admission, annotate};

/// Kubernetes: how many responses are cached (imagepolicy/admission.go).
const MAX_CACHED: usize = 1024;
/// Kubernetes: the timeout of an attempt (apiserver/pkg/util/webhook/webhook.go).
const REVIEW_TIMEOUT: Duration = Duration::from_secs(30);
const AUDIT_PREFIX: &str = "imagepolicywebhook.image-policy.k8s.io/";

/// The webhook and its configuration.
pub struct ImagePolicy {
    kubeconfig: WebhookKubeconfig,
    allow_ttl: Duration,
    deny_ttl: Duration,
    retry_backoff: Duration,
    default_allow: bool,
    remote: OnceLock<KubeconfigWebhook>,
    cache: LruCache<Value>,
}

impl ImagePolicy {
    pub(super) fn read(configuration: &Value) -> Result<ImagePolicy, String> {
        let stated = &configuration["imagePolicy"];
        let second = Duration::from_secs(1);
        let ttl =
            |field: &str, default| duration(&stated[field], second, second, 1800 * second, default);
        let (milli, nano) = (Duration::from_millis(1), Duration::from_nanos(1));
        Ok(ImagePolicy {
            retry_backoff: duration(
                &stated["retryBackoff"],
                milli,
                nano,
                300 * second,
                500 * milli,
            )?,
            allow_ttl: ttl("allowTTL", 300 * second)?,
            deny_ttl: ttl("denyTTL", 30 * second)?,
            default_allow: stated["defaultAllow"].bool(),
            kubeconfig: WebhookKubeconfig::load(Path::new(stated["kubeConfigFile"].str()))
                .map_err(|error| error.to_string())?,
            remote: OnceLock::new(),
            cache: LruCache::new(MAX_CACHED),
        })
    }

    /// The status of a review, from the cache or the webhook.
    async fn review(&self, attributes: &Attributes<'_>, spec: Value) -> Result<Value, String> {
        let cache_key = json::to_string(&spec);
        if let Some(cached) = self.cache.get(&cache_key) {
            return Ok(cached);
        }
        let review = value!({
            "kind": "ImageReview",
            "apiVersion": "imagepolicy.k8s.io/v1alpha1",
            "metadata": {},
            "spec": (spec),
            "status": { "allowed": false }
        });
        let registry = &attributes.call.server.registry;
        let remote = self
            .remote
            .get_or_init(|| KubeconfigWebhook::new(&self.kubeconfig, registry));
        let body = Bytes::from(json::to_string(&review));
        let response = remote
            .post_with_backoff(registry, body, self.retry_backoff, REVIEW_TIMEOUT)
            .await;
        let response = response.map_err(|error| error.why)?;
        let response = json::parse(&response).map_err(|error| error.to_string())?;
        if response["kind"].str() != "ImageReview" {
            return Err(format!(
                "unexpected kind {} in the answer of the webhook",
                json::quote(response["kind"].str())
            ));
        }
        let status = response["status"].clone();
        let lasts = if status["allowed"].bool() {
            self.allow_ttl
        } else {
            self.deny_ttl
        };
        self.cache.put(cache_key, status.clone(), lasts);
        Ok(status)
    }
}

/// A duration in `unit`; -1 is none, 0 the default.
fn duration(
    stated: &Value,
    unit: Duration,
    least: Duration,
    most: Duration,
    default: Duration,
) -> Result<Duration, String> {
    let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    let value = match stated.int() {
        -1 => return Ok(Duration::ZERO),
        0 => return Ok(default),
        number => number.saturating_mul(nanos(unit)),
    };
    match u64::try_from(value).map(Duration::from_nanos) {
        Ok(duration) if (least..=most).contains(&duration) => Ok(duration),
        _ => {
            let [least, most, value] = [nanos(least), nanos(most), value].map(time::duration_text);
            Err(format!(
                "valid value is between {least} and {most}, got {value}"
            ))
        }
    }
}

/// Whether the write sets images of a pod.
pub(super) fn concerns(attributes: &Attributes) -> bool {
    attributes.is("", "pods") && matches!(attributes.subresource(), "" | "ephemeralcontainers")
}

/// Rejects a pod with an image that the webhook denies.
pub(super) fn check<'a>(
    attributes: &'a Attributes<'a>,
    pod: &'a Value,
) -> BoxFuture<'a, Result<(), Status>> {
    Box::pin(async move {
        let Some(policy) = &admission(attributes).image_policy else {
            return Ok(());
        };
        let spec = review_spec(pod, attributes.subresource(), attributes.namespace());
        let status = match policy.review(attributes, spec).await {
            Ok(status) => status,
            Err(problem) if policy.default_allow => {
                tracing::warn!(%problem, "the image policy webhook failed, images are allowed");
                annotate(
                    attributes.call,
                    &format!("{AUDIT_PREFIX}failed-open"),
                    "true",
                );
                return Ok(());
            }
            Err(problem) => return Err(attributes.forbidden(pod, &problem)),
        };
        for (key, text) in status["auditAnnotations"].entries() {
            annotate(attributes.call, &format!("{AUDIT_PREFIX}{key}"), text.str());
        }
        let why = match (status["allowed"].bool(), status["reason"].str()) {
            (true, _) => return Ok(()),
            (false, "") => "one or more images rejected by webhook backend".into(),
            (false, reason) => {
                format!("image policy webhook backend denied one or more images: {reason}")
            }
        };
        Err(attributes.forbidden(pod, &why))
    })
}

fn review_spec(pod: &Value, subresource: &str, namespace: &str) -> Value {
    let lists: &[&str] = match subresource {
        "" => &["containers", "initContainers"],
        _ => &["ephemeralContainers"],
    };
    let mut spec = Value::object();
    let containers = lists.iter().flat_map(|list| pod["spec"][*list].list());
    let containers: Vec<Value> = containers
        .map(|container| value!({ "image": (container["image"].str()) }))
        .collect();
    if !containers.is_empty() {
        spec.set("containers", containers);
    }
    for (key, text) in pod["metadata"]["annotations"].entries() {
        if key.contains(".image-policy.k8s.io/") {
            spec.entry("annotations").set(key, text.clone());
        }
    }
    if !namespace.is_empty() {
        spec.set("namespace", namespace);
    }
    spec
}

impl fmt::Debug for ImagePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImagePolicy({})", self.kubeconfig.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_ttl(stated: i64, expected: Result<u64, &str>) {
        let second = Duration::from_secs(1);
        let found = duration(&stated.into(), second, second, 1800 * second, 30 * second);
        assert_eq!(
            found,
            expected.map(Duration::from_secs).map_err(String::from)
        );
    }

    #[test]
    fn responses_are_cached_for_a_time_in_bounded_memory() {
        check_ttl(-1, Ok(0));
        check_ttl(0, Ok(30));
        check_ttl(1, Ok(1));
        check_ttl(1800, Ok(1800));
        check_ttl(1801, Err("valid value is between 1s and 30m0s, got 30m1s"));
        check_ttl(-2, Err("valid value is between 1s and 30m0s, got -2s"));
    }

    #[test]
    fn a_review_shows_images_and_annotations_of_policies() {
        let pod = value!({
            "metadata": { "annotations": { "a.image-policy.k8s.io/x": "1", "other": "2" } },
            "spec": {
                "initContainers": [{ "image": "b" }],
                "containers": [{ "image": "a" }],
                "ephemeralContainers": [{ "image": "c" }],
            }
        });
        let shown = |subresource: &str| json::to_string(&review_spec(&pod, subresource, "default"));
        let rest = r#""annotations":{"a.image-policy.k8s.io/x":"1"},"namespace":"default"}"#;
        assert_eq!(
            shown(""),
            format!(r#"{{"containers":[{{"image":"a"}},{{"image":"b"}}],{rest}"#)
        );
        assert_eq!(
            shown("ephemeralcontainers"),
            format!(r#"{{"containers":[{{"image":"c"}}],{rest}"#)
        );
    }
}
