//! NodeMetrics and PodMetrics, made when a client asks.
//!
//! Kubernetes: metrics-server's pkg/api/node.go, pod.go and table.go.

use std::sync::Arc;

use mizzen_apiserver::extend::{Error, RequestContext, Storage};
use mizzen_object::{GroupResource, Hooks, Status};
use mizzen_value::quantity::{Quantity, QuantityFormat};
use mizzen_value::time::{duration_text, from_unix};
use mizzen_value::{Value, value};

use crate::history::MeasuredUsage;
use crate::scrape::Scraper;

/// What nodes use.
pub(crate) struct NodeMetrics(pub Arc<Scraper>);

/// What pods use.
pub(crate) struct PodMetrics(pub Arc<Scraper>);

impl Storage for NodeMetrics {
    async fn list(&self, context: &RequestContext<'_>) -> Result<Vec<Value>, Error> {
        let path = format!("/api/v1/nodes{}", query(context));
        let nodes = self.0.read(&path).await?;
        Ok(self.metrics(nodes["items"].list()).await)
    }

    async fn get(&self, context: &RequestContext<'_>) -> Result<Value, Error> {
        let node = self
            .0
            .read(&format!("/api/v1/nodes/{}", context.name))
            .await?;
        let mut metrics = self.metrics(&[node]).await;
        metrics
            .pop()
            .ok_or_else(|| no_metrics("nodemetrics", context.name).into())
    }
}

impl NodeMetrics {
    /// The metrics of nodes, as far as there are some.
    async fn metrics(&self, nodes: &[Value]) -> Vec<Value> {
        let name = |node: &Value| node["metadata"]["name"].str().to_owned();
        let reports = self.0.reports(nodes.iter().map(name).collect()).await;
        let mut metrics = Vec::new();
        for node in nodes {
            let Some(reports) = reports.get(node["metadata"]["name"].str()) else {
                continue;
            };
            if let Some(used) = reports.lock().await.history.node() {
                metrics.push(value!({
                    "metadata": (metadata(node, self.0.timestamp())),
                    "timestamp": (timestamp(used.at)),
                    "window": (duration_text(used.window)),
                    "usage": (resources(&used)),
                }));
            }
        }
        metrics
    }
}

impl Storage for PodMetrics {
    async fn list(&self, context: &RequestContext<'_>) -> Result<Vec<Value>, Error> {
        let query = query(context);
        let path = match context.namespace {
            "" => format!("/api/v1/pods{query}"),
            namespace => format!("/api/v1/namespaces/{namespace}/pods{query}"),
        };
        let pods = self.0.read(&path).await?;
        Ok(self.metrics(pods["items"].list()).await)
    }

    async fn get(&self, context: &RequestContext<'_>) -> Result<Value, Error> {
        let (namespace, name) = (context.namespace, context.name);
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let pod = self.0.read(&path).await?;
        let mut metrics = self.metrics(&[pod]).await;
        metrics
            .pop()
            .ok_or_else(|| no_metrics("podmetrics", &format!("{namespace}/{name}")).into())
    }
}

impl PodMetrics {
    /// The metrics of pods, as far as there are some.
    async fn metrics(&self, pods: &[Value]) -> Vec<Value> {
        let node = |pod: &Value| pod["spec"]["nodeName"].str().to_owned();
        let nodes = pods.iter().map(node).filter(|node| !node.is_empty());
        let reports = self.0.reports(nodes.collect()).await;
        let mut metrics = Vec::new();
        for pod in pods {
            let Some(reports) = reports.get(pod["spec"]["nodeName"].str()) else {
                continue;
            };
            let part = |field: &str| pod["metadata"][field].str().to_owned();
            let used = reports
                .lock()
                .await
                .history
                .pod(&(part("namespace"), part("name")));
            let Some(used) = used else {
                continue;
            };
            let containers = used.containers.iter();
            let containers = containers.map(
                |(name, usage)| value!({ "name": (name.as_str()), "usage": (resources(usage)) }),
            );
            metrics.push(value!({
                "metadata": (metadata(pod, self.0.timestamp())),
                "timestamp": (timestamp(used.at)),
                "window": (duration_text(used.window)),
                "containers": (containers.collect::<Vec<Value>>()),
            }));
        }
        metrics
    }
}

/// The cells of both kinds: what is used in all, and over which time.
pub(crate) struct MetricsCells;

impl Hooks for MetricsCells {
    fn cells(&self, metrics: &Value, _: i64) -> Vec<Value> {
        let total = |resource: &str| {
            let own = &metrics["usage"][resource];
            let containers = metrics["containers"].list().iter();
            let of_containers = containers.map(|container| &container["usage"][resource]);
            let amounts = std::iter::once(own).chain(of_containers);
            let amounts = amounts.filter_map(|amount| amount.as_str().map(Quantity::parse_or_zero));
            let total = amounts.reduce(|total, amount| total.add(&amount));
            total.unwrap_or_default().to_string().into()
        };
        vec![total("cpu"), total("memory"), metrics["window"].clone()]
    }
}

/// The query by which the main API server selects the same objects.
fn query(context: &RequestContext) -> String {
    if context.label_selector.is_empty() {
        return String::new();
    }
    let mut query = String::from("?labelSelector=");
    for byte in context.label_selector.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => {
                query.push(char::from(byte));
            }
            _ => query += &format!("%{byte:02X}"),
        }
    }
    query
}

/// Kubernetes: an object is as old as the answer.
fn metadata(object: &Value, now: String) -> Value {
    let known = &object["metadata"];
    let mut metadata = value!({ "creationTimestamp": now });
    for field in ["name", "namespace", "labels"] {
        if let Some(value) = known.get(field) {
            metadata.set(field, value.clone());
        }
    }
    metadata
}

fn timestamp(nanos: i64) -> String {
    from_unix(nanos.div_euclid(1_000_000_000))
}

fn resources(usage: &MeasuredUsage) -> Value {
    let memory = i64::try_from(usage.memory_bytes).unwrap_or(i64::MAX);
    value!({
        "cpu": (Quantity::parse_or_zero(&format!("{}n", usage.nanocores)).to_string()),
        "memory": (Quantity::from_int(memory, QuantityFormat::Binary).to_string()),
    })
}

/// Kubernetes: the name of the resource is not that by which it is served.
fn no_metrics(resource: &'static str, name: &str) -> Status {
    let resource = GroupResource::new("metrics.k8s.io", resource);
    Status::not_found(&resource, name)
}
