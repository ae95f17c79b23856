//! The client of the metrics APIs, which are aggregated APIs of other servers.

use http::Method;
use mizzen_sdk::discover::Mapper;
use mizzen_sdk::dynamic::{DynamicClient, query};
use mizzen_sdk::write::is_not_found;
use mizzen_value::Value;

use super::go_errors::go_message;
use super::pod_metrics::{self, PodMetrics};
use super::target::preferred_mapping;

const CUSTOM: &str = "custom.metrics.k8s.io";

/// A client of `metrics.k8s.io`, `custom.metrics.k8s.io` and `external.metrics.k8s.io`.
pub(crate) struct MetricsClient {
    api: DynamicClient,
    mapper: Mapper,
}

impl MetricsClient {
    /// Sends requests through `api`; `mapper` maps kinds to resources.
    pub(super) fn new(api: DynamicClient, mapper: Mapper) -> MetricsClient {
        MetricsClient { api, mapper }
    }

    /// The usage of a resource by pods.
    pub(super) async fn resource(
        &self,
        namespace: &str,
        resource: &str,
        container: &str,
        selector: &str,
    ) -> Result<PodMetrics, String> {
        let query = query(&[("labelSelector", selector)]);
        let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods{query}");
        let response = self
            .items(&path, "pods.metrics.k8s.io", "", "resource metrics")
            .await;
        Ok(pod_metrics::from_resource_metrics(
            &response?, resource, container,
        ))
    }

    /// A custom metric of pods.
    pub(super) async fn pods(
        &self,
        namespace: &str,
        metric: &str,
        selector: &str,
        metric_selector: &str,
    ) -> Result<PodMetrics, String> {
        let query = query(&[
            ("labelSelector", selector),
            ("metricLabelSelector", metric_selector),
        ]);
        let root = self.custom_root().await?;
        let path = format!("{root}/namespaces/{namespace}/pods/*/{metric}{query}");
        let response = self
            .items(&path, &format!("pods.{CUSTOM}"), "*", "custom metrics")
            .await;
        Ok(pod_metrics::from_custom_metrics(&response?))
    }

    /// A custom metric of one object, in milli-units.
    pub(super) async fn object(
        &self,
        namespace: &str,
        metric: &str,
        described: &Value,
        metric_selector: &str,
    ) -> Result<i64, String> {
        let query = query(&[("metricLabelSelector", metric_selector)]);
        let group = group(described["apiVersion"].str());
        let kind = described["kind"].str();
        let root = self.custom_root().await?;
        let (resource, name) = match (group, kind) {
            ("", "Namespace") => ("metrics".to_string(), metric),
            _ => (
                self.resource_name(group, kind).await?,
                described["name"].str(),
            ),
        };
        // Kubernetes: metrics of a namespace are read below the namespace itself
        // (podautoscaler/metrics/client.go).
        let rest = if resource == "metrics" {
            String::new()
        } else {
            format!("/{metric}")
        };
        let path = format!("{root}/namespaces/{namespace}/{resource}/{name}{rest}{query}");
        let items = self
            .list(
                &path,
                &format!("{resource}.{CUSTOM}"),
                name,
                "custom metrics",
            )
            .await?;
        match pod_metrics::values(&items).as_slice() {
            [value] => Ok(*value),
            values => Err(unable(
                "custom metrics",
                &format!(
                    "the custom metrics API server returned {} results when we asked for exactly one",
                    values.len()
                ),
            )),
        }
    }

    /// All values of an external metric, in milli-units.
    pub(super) async fn external(
        &self,
        namespace: &str,
        metric: &str,
        metric_selector: &str,
    ) -> Result<Vec<i64>, String> {
        let query = query(&[("labelSelector", metric_selector)]);
        let path =
            format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{metric}{query}");
        let resource = format!("{metric}.external.metrics.k8s.io");
        Ok(pod_metrics::values(
            &self.items(&path, &resource, "", "external metrics").await?,
        ))
    }

    /// The root path of the custom metrics API, in the version that its server prefers.
    async fn custom_root(&self) -> Result<String, String> {
        let group = match self
            .api
            .raw(Method::GET, &format!("/apis/{CUSTOM}"), None)
            .await
        {
            Ok(group) => group,
            Err(error) if is_not_found(&error) => {
                return Err(unable(
                    "custom metrics",
                    &format!("no custom metrics API ({CUSTOM}) registered"),
                ));
            }
            Err(error) => return Err(unable("custom metrics", &go_message(&error, "", ""))),
        };
        let known = |version: &Value| matches!(version["version"].str(), "v1beta1" | "v1beta2");
        let mut versions =
            std::iter::once(&group["preferredVersion"]).chain(group["versions"].list());
        let version = versions.find(|version| known(version));
        let version = version
            .ok_or_else(|| unable("custom metrics", "no known available metric versions found"))?;
        Ok(format!("/apis/{CUSTOM}/{}", version["version"].str()))
    }

    async fn resource_name(&self, group: &str, kind: &str) -> Result<String, String> {
        let found = preferred_mapping(&self.mapper, group, kind)
            .await
            .map_err(|error| {
                let kind = if group.is_empty() {
                    kind.to_string()
                } else {
                    format!("{kind}.{group}")
                };
                unable(
                    "custom metrics",
                    &format!("unable to map kind {kind} to resource: {error}"),
                )
            })?;
        let plural = &found.resource.plural;
        Ok(if group.is_empty() {
            plural.clone()
        } else {
            format!("{plural}.{group}")
        })
    }

    /// The items of a list. An empty list is an error.
    async fn items(
        &self,
        path: &str,
        resource: &str,
        name: &str,
        api: &str,
    ) -> Result<Vec<Value>, String> {
        let items = self.list(path, resource, name, api).await?;
        match items.is_empty() {
            true => Err(format!("no metrics returned from {api} API")),
            false => Ok(items),
        }
    }

    async fn list(
        &self,
        path: &str,
        resource: &str,
        name: &str,
        api: &str,
    ) -> Result<Vec<Value>, String> {
        match self.api.raw(Method::GET, path, None).await {
            Ok(list) => Ok(list["items"].list().to_vec()),
            Err(error) => Err(unable(api, &go_message(&error, resource, name))),
        }
    }
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn unable(api: &str, error: &str) -> String {
    format!("unable to fetch metrics from {api} API: {error}")
}
