//! Computes the replicas that one metric asks for.

use std::sync::Arc;

use mizzen_object::select::{go_selector_text, selector_text};
use mizzen_sdk::Object;
use mizzen_value::quantity::{Quantity, QuantityFormat};
use mizzen_value::{Value, value};

use super::group_pods::count_ready_pods;
use super::metrics::MetricsClient;
use super::pod_metrics::{PodMetrics, milli};
use super::replica_calculator::{
    CalculatedReplicas, MeasuredPods, MetricTarget, Tolerances, replicas_for_average,
    replicas_for_value,
};

/// What the evaluation of a metric needs to know of the target.
pub(crate) struct MetricEvaluation<'a> {
    pub metrics: &'a MetricsClient,
    pub namespace: &'a str,
    /// The selector of the target's pods, in text form.
    pub selector: &'a str,
    /// The pods that it selects.
    pub pods: &'a [Arc<Object>],
    /// `spec.replicas` of the scale.
    pub replicas: i64,
    /// `status.replicas` of the scale.
    pub actual: i64,
    pub tolerances: Tolerances,
    /// The wall clock, in seconds since 1970.
    pub now: i64,
}

/// The replicas that a metric asks for.
#[derive(Debug, PartialEq)]
pub(crate) struct ReplicaProposal {
    pub replicas: i64,
    /// How events and conditions name the metric.
    pub name: String,
    /// The metric's entry in `status.currentMetrics`.
    pub status: Value,
}

/// Why a metric has no value.
#[derive(Debug, PartialEq)]
pub(crate) struct MetricError {
    /// The reason of the condition and the event.
    pub reason: &'static str,
    /// The message of the condition and the event.
    pub error: String,
    /// The message where all metrics are summed up.
    pub summary: String,
}

impl MetricEvaluation<'_> {
    /// Computes the replicas that a metric asks for.
    pub(super) async fn compute_replicas_for_metric(
        &self,
        spec: &Value,
    ) -> Result<ReplicaProposal, MetricError> {
        match spec["type"].str() {
            "Resource" => self.resource(&spec["resource"], "").await,
            "ContainerResource" => {
                let spec = &spec["containerResource"];
                self.resource(spec, spec["container"].str()).await
            }
            "Pods" => self.pods_metric(&spec["pods"]).await,
            "Object" => self.object(&spec["object"]).await,
            "External" => self.external(&spec["external"]).await,
            other => {
                let error = format!("unknown metric source type {other:?}");
                Err(MetricError {
                    reason: "InvalidMetricSourceType",
                    summary: error.clone(),
                    error,
                })
            }
        }
    }

    /// A metric of type Resource or ContainerResource.
    async fn resource(
        &self,
        spec: &Value,
        container: &str,
    ) -> Result<ReplicaProposal, MetricError> {
        let name = spec["name"].str();
        let (kind, field) = match container {
            "" => ("Resource", "resource"),
            _ => ("ContainerResource", "containerResource"),
        };
        let (reason, what) = match container {
            "" => ("FailedGetResourceMetric", format!("{name} resource metric")),
            _ => (
                "FailedGetContainerResourceMetric",
                format!("{container} container metric"),
            ),
        };
        let (replicas, title, current) = self
            .measure_resource(name, container, &spec["target"])
            .await
            .map_err(|error| MetricError {
                reason,
                summary: format!("failed to get {what} value: {error}"),
                error,
            })?;
        let mut own = value!({"name": (name), "current": (current)});
        if !container.is_empty() {
            own.set("container", container);
        }
        let mut status = value!({"type": (kind)});
        status.set(field, own);
        Ok(ReplicaProposal {
            replicas,
            name: title,
            status,
        })
    }

    async fn measure_resource(
        &self,
        name: &str,
        container: &str,
        target: &Value,
    ) -> Result<(i64, String, Value), String> {
        let (goal, word) = match (
            milli(&target["averageValue"]),
            target["averageUtilization"].as_int(),
        ) {
            (Some(usage), _) => (MetricTarget::Usage(usage), "usage"),
            (None, Some(percent)) => (
                MetricTarget::Utilization { percent, container },
                "utilization",
            ),
            (None, None) => {
                let rule = "neither an average utilization target nor an average value (usage) target was set";
                return Err(format!("invalid resource metric source: {rule}"));
            }
        };
        let failed = |error: String| format!("failed to get {name} {word}: {error}");
        let response = self
            .metrics
            .resource(self.namespace, name, container, self.selector)
            .await;
        let samples = response.map_err(|error| {
            failed(format!(
                "unable to get metrics for resource {name}: {error}"
            ))
        })?;
        let proposal = self.replicas_for(samples, name, goal).map_err(failed)?;
        let format = if name == "memory" {
            QuantityFormat::Binary
        } else {
            QuantityFormat::Decimal
        };
        let mut current =
            value!({"averageValue": (Quantity::from_milli(proposal.usage, format).to_string())});
        let Some(utilization) = proposal.utilization else {
            return Ok((proposal.replicas, format!("{name} resource"), current));
        };
        current.set("averageUtilization", utilization);
        let of = if container.is_empty() {
            "resource"
        } else {
            "container resource"
        };
        Ok((
            proposal.replicas,
            format!("{name} {of} utilization (percentage of request)"),
            current,
        ))
    }

    /// The replicas that the metrics of the pods ask for.
    fn replicas_for(
        &self,
        samples: PodMetrics,
        resource: &str,
        target: MetricTarget,
    ) -> Result<CalculatedReplicas, String> {
        let pods: Vec<&Value> = self.pods.iter().map(|pod| &pod.0).collect();
        let (current, tolerances, now) = (self.replicas, self.tolerances, self.now);
        MeasuredPods {
            pods: &pods,
            samples,
            resource,
            current,
            tolerances,
            now,
        }
        .replicas(target)
    }

    /// A metric of type Pods.
    async fn pods_metric(&self, spec: &Value) -> Result<ReplicaProposal, MetricError> {
        let name = spec["metric"]["name"].str();
        let refuse = |error: String| MetricError {
            reason: "FailedGetPodsMetric",
            summary: format!("failed to get pods metric value: {error}"),
            error,
        };
        let response = self
            .metrics
            .pods(
                self.namespace,
                name,
                self.selector,
                &selector_text(&spec["metric"]["selector"]),
            )
            .await;
        let samples =
            response.map_err(|error| refuse(format!("unable to get metric {name}: {error}")))?;
        let goal = MetricTarget::Usage(milli(&spec["target"]["averageValue"]).unwrap_or_default());
        let proposal = self.replicas_for(samples, "", goal).map_err(refuse)?;
        let current = value!({"averageValue": (amount(proposal.usage))});
        let status =
            value!({"type": "Pods", "pods": {"metric": (metric(spec)), "current": (current)}});
        Ok(ReplicaProposal {
            replicas: proposal.replicas,
            name: format!("pods metric {name}"),
            status,
        })
    }

    /// A metric of type Object.
    async fn object(&self, spec: &Value) -> Result<ReplicaProposal, MetricError> {
        let name = spec["metric"]["name"].str();
        let described = &spec["describedObject"];
        let target = &spec["target"];
        let refuse = |inner: &str, error: String| MetricError {
            reason: "FailedGetObjectMetric",
            summary: format!("failed to get object metric value: {inner}{error}"),
            error,
        };
        let average =
            milli(&target["averageValue"]).filter(|_| target["type"].str() == "AverageValue");
        let whole = milli(&target["value"]).filter(|_| target["type"].str() == "Value");
        let inner = if average.is_some() {
            format!("failed to get {name} object metric: ")
        } else {
            String::new()
        };
        if average.or(whole).is_none() {
            let error = "invalid object metric source: neither a value target nor an average value target was set";
            return Err(refuse("", error.into()));
        }
        let selector = selector_text(&spec["metric"]["selector"]);
        let response = self
            .metrics
            .object(self.namespace, name, described, &selector)
            .await;
        let usage = response.map_err(|error| {
            // Kubernetes: the message names the parts in this order (replica_calculator.go).
            let kind = described["kind"].str();
            let namespace = self.namespace;
            let object = described["name"].str();
            refuse(
                &inner,
                format!("unable to get metric {name}: {kind} on {namespace} {object}/{error}"),
            )
        })?;
        let (replicas, current) = self
            .replicas_for_value(usage, average, whole)
            .map_err(|error| refuse(&inner, error))?;
        let title = match average {
            Some(_) => format!(
                "external metric {name}({})",
                go_selector_text(&spec["metric"]["selector"])
            ),
            None => format!("{} metric {name}", described["kind"].str()),
        };
        let object = value!({"metric": (metric(spec)), "current": (current), "describedObject": (described.clone())});
        Ok(ReplicaProposal {
            replicas,
            name: title,
            status: value!({"type": "Object", "object": (object)}),
        })
    }

    /// A metric of type External.
    async fn external(&self, spec: &Value) -> Result<ReplicaProposal, MetricError> {
        let (name, target) = (spec["metric"]["name"].str(), &spec["target"]);
        let shown = go_selector_text(&spec["metric"]["selector"]);
        let (average, whole) = (milli(&target["averageValue"]), milli(&target["value"]));
        let inner = match (average, whole) {
            (Some(_), _) => format!("failed to get {name} external metric: "),
            (None, Some(_)) => format!("failed to get external metric {name}: "),
            (None, None) => String::new(),
        };
        let refuse = |error: String| MetricError {
            reason: "FailedGetExternalMetric",
            summary: format!("failed to get {name} external metric value: {inner}{error}"),
            error,
        };
        if average.or(whole).is_none() {
            let error = "invalid external metric source: neither a value target nor an average value target was set";
            return Err(refuse(error.into()));
        }
        let response = self
            .metrics
            .external(
                self.namespace,
                name,
                &selector_text(&spec["metric"]["selector"]),
            )
            .await;
        let values = response.map_err(|error| {
            refuse(format!(
                "unable to get external metric {}/{name}/{shown}: {error}",
                self.namespace
            ))
        })?;
        let usage = values.into_iter().fold(0i64, i64::saturating_add);
        let (replicas, current) = self
            .replicas_for_value(usage, average, whole)
            .map_err(refuse)?;
        let status = value!({"type": "External", "external": {"metric": (metric(spec)), "current": (current)}});
        Ok(ReplicaProposal {
            replicas,
            name: format!("external metric {name}({shown})"),
            status,
        })
    }

    /// The replicas that one value asks for and the metric's status: as an average per replica, or
    /// as a whole.
    fn replicas_for_value(
        &self,
        usage: i64,
        average: Option<i64>,
        whole: Option<i64>,
    ) -> Result<(i64, Value), String> {
        if let Some(target) = average {
            let (replicas, average) =
                replicas_for_average(self.actual, usage, target, self.tolerances);
            return Ok((replicas, value!({"averageValue": (amount(average))})));
        }
        let ratio = usage as f64 / whole.unwrap_or_default() as f64;
        let pods: Vec<&Value> = self.pods.iter().map(|pod| &pod.0).collect();
        let replicas = replicas_for_value(self.replicas, ratio, self.tolerances, || {
            count_ready_pods(&pods)
        })?;
        Ok((replicas, value!({"value": (amount(usage))})))
    }
}

fn amount(milli: i64) -> String {
    Quantity::from_milli(milli, QuantityFormat::Decimal).to_string()
}

fn metric(spec: &Value) -> Value {
    let mut metric = value!({"name": (spec["metric"]["name"].clone())});
    if !spec["metric"]["selector"].is_null() {
        metric.set("selector", spec["metric"]["selector"].clone());
    }
    metric
}
