//! How many replicas does one metric ask for?

use std::sync::Arc;

use mizzen_object::select::{go_selector_text, selector_text};
use mizzen_sdk::Object;
use mizzen_value::quantity::{Format, Quantity};
use mizzen_value::{Value, value};

use super::census::n_working;
use super::metrics::Metrics;
use super::replicas::{Answer, Measured, Target, Tolerances, by_average, by_value};
use super::sample::{Samples, milli};

/// What is known of the target when it is measured.
pub(crate) struct Scene<'a> {
    /// Who asks the metrics APIs.
    pub metrics: &'a Metrics,
    /// The namespace.
    pub namespace: &'a str,
    /// Which pods are the target's, in text form.
    pub selector: &'a str,
    /// Those pods.
    pub pods: &'a [Arc<Object>],
    /// How many replicas there should be.
    pub replicas: i64,
    /// How many there are.
    pub actual: i64,
    /// How far from the target is near enough.
    pub tolerances: Tolerances,
    /// The time of day in seconds since 1970.
    pub now: i64,
}

/// What a metric asks for.
#[derive(Debug, PartialEq)]
pub(crate) struct Proposal {
    /// How many replicas.
    pub replicas: i64,
    /// What it is, for people.
    pub name: String,
    /// What it is now, for the status.
    pub status: Value,
}

/// Why a metric says nothing.
#[derive(Debug, PartialEq)]
pub(crate) struct Refusal {
    /// For machines.
    pub reason: &'static str,
    /// For people, in the condition and the event.
    pub error: String,
    /// For people, where all metrics are spoken of.
    pub said: String,
}

impl Scene<'_> {
    /// What a metric asks for.
    pub(super) async fn propose(&self, spec: &Value) -> Result<Proposal, Refusal> {
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
                Err(Refusal {
                    reason: "InvalidMetricSourceType",
                    said: error.clone(),
                    error,
                })
            }
        }
    }

    /// A resource that pods use, or one of their containers.
    async fn resource(&self, spec: &Value, container: &str) -> Result<Proposal, Refusal> {
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
            .map_err(|error| Refusal {
                reason,
                said: format!("failed to get {what} value: {error}"),
                error,
            })?;
        let mut own = value!({"name": (name), "current": (current)});
        if !container.is_empty() {
            own.set("container", container);
        }
        let mut status = value!({"type": (kind)});
        status.set(field, own);
        Ok(Proposal {
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
            (Some(usage), _) => (Target::Usage(usage), "usage"),
            (None, Some(percent)) => (Target::Utilization { percent, container }, "utilization"),
            (None, None) => {
                let rule = "neither an average utilization target nor an average value (usage) target was set";
                return Err(format!("invalid resource metric source: {rule}"));
            }
        };
        let failed = |error: String| format!("failed to get {name} {word}: {error}");
        let asked = self
            .metrics
            .resource(self.namespace, name, container, self.selector)
            .await;
        let samples = asked.map_err(|error| {
            failed(format!(
                "unable to get metrics for resource {name}: {error}"
            ))
        })?;
        let answer = self.replicas_for(samples, name, goal).map_err(failed)?;
        let format = if name == "memory" {
            Format::Binary
        } else {
            Format::Decimal
        };
        let mut current =
            value!({"averageValue": (Quantity::from_milli(answer.usage, format).to_string())});
        let Some(utilization) = answer.utilization else {
            return Ok((answer.replicas, format!("{name} resource"), current));
        };
        current.set("averageUtilization", utilization);
        let of = if container.is_empty() {
            "resource"
        } else {
            "container resource"
        };
        Ok((
            answer.replicas,
            format!("{name} {of} utilization (percentage of request)"),
            current,
        ))
    }

    /// What measurements of the pods ask for.
    fn replicas_for(
        &self,
        samples: Samples,
        resource: &str,
        target: Target,
    ) -> Result<Answer, String> {
        let pods: Vec<&Value> = self.pods.iter().map(|pod| &pod.0).collect();
        let (current, tolerances, now) = (self.replicas, self.tolerances, self.now);
        Measured {
            pods: &pods,
            samples,
            resource,
            current,
            tolerances,
            now,
        }
        .replicas(target)
    }

    /// Another metric that pods have.
    async fn pods_metric(&self, spec: &Value) -> Result<Proposal, Refusal> {
        let name = spec["metric"]["name"].str();
        let refuse = |error: String| Refusal {
            reason: "FailedGetPodsMetric",
            said: format!("failed to get pods metric value: {error}"),
            error,
        };
        let asked = self
            .metrics
            .pods(
                self.namespace,
                name,
                self.selector,
                &selector_text(&spec["metric"]["selector"]),
            )
            .await;
        let samples =
            asked.map_err(|error| refuse(format!("unable to get metric {name}: {error}")))?;
        let goal = Target::Usage(milli(&spec["target"]["averageValue"]).unwrap_or_default());
        let answer = self.replicas_for(samples, "", goal).map_err(refuse)?;
        let current = value!({"averageValue": (amount(answer.usage))});
        let status =
            value!({"type": "Pods", "pods": {"metric": (metric(spec)), "current": (current)}});
        Ok(Proposal {
            replicas: answer.replicas,
            name: format!("pods metric {name}"),
            status,
        })
    }

    /// A metric of one object.
    async fn object(&self, spec: &Value) -> Result<Proposal, Refusal> {
        let (name, described, target) = (
            spec["metric"]["name"].str(),
            &spec["describedObject"],
            &spec["target"],
        );
        let refuse = |inner: &str, error: String| Refusal {
            reason: "FailedGetObjectMetric",
            said: format!("failed to get object metric value: {inner}{error}"),
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
        let asked = self
            .metrics
            .object(self.namespace, name, described, &selector)
            .await;
        let usage = asked.map_err(|error| {
            // Kubernetes: the words are in this order (replica_calculator.go).
            let (kind, namespace, object) = (
                described["kind"].str(),
                self.namespace,
                described["name"].str(),
            );
            refuse(
                &inner,
                format!("unable to get metric {name}: {kind} on {namespace} {object}/{error}"),
            )
        })?;
        let (replicas, current) = self
            .single(usage, average, whole)
            .map_err(|error| refuse(&inner, error))?;
        let title = match average {
            Some(_) => format!(
                "external metric {name}({})",
                go_selector_text(&spec["metric"]["selector"])
            ),
            None => format!("{} metric {name}", described["kind"].str()),
        };
        let object = value!({"metric": (metric(spec)), "current": (current), "describedObject": (described.clone())});
        Ok(Proposal {
            replicas,
            name: title,
            status: value!({"type": "Object", "object": (object)}),
        })
    }

    /// A metric that belongs to no object.
    async fn external(&self, spec: &Value) -> Result<Proposal, Refusal> {
        let (name, target) = (spec["metric"]["name"].str(), &spec["target"]);
        let shown = go_selector_text(&spec["metric"]["selector"]);
        let (average, whole) = (milli(&target["averageValue"]), milli(&target["value"]));
        let inner = match (average, whole) {
            (Some(_), _) => format!("failed to get {name} external metric: "),
            (None, Some(_)) => format!("failed to get external metric {name}: "),
            (None, None) => String::new(),
        };
        let refuse = |error: String| Refusal {
            reason: "FailedGetExternalMetric",
            said: format!("failed to get {name} external metric value: {inner}{error}"),
            error,
        };
        if average.or(whole).is_none() {
            let error = "invalid external metric source: neither a value target nor an average value target was set";
            return Err(refuse(error.into()));
        }
        let asked = self
            .metrics
            .external(
                self.namespace,
                name,
                &selector_text(&spec["metric"]["selector"]),
            )
            .await;
        let values = asked.map_err(|error| {
            refuse(format!(
                "unable to get external metric {}/{name}/{shown}: {error}",
                self.namespace
            ))
        })?;
        let usage = values.into_iter().fold(0i64, i64::saturating_add);
        let (replicas, current) = self.single(usage, average, whole).map_err(refuse)?;
        let status = value!({"type": "External", "external": {"metric": (metric(spec)), "current": (current)}});
        Ok(Proposal {
            replicas,
            name: format!("external metric {name}({shown})"),
            status,
        })
    }

    /// What one value asks for, and what it is now: for each replica, or as a whole.
    fn single(
        &self,
        usage: i64,
        average: Option<i64>,
        whole: Option<i64>,
    ) -> Result<(i64, Value), String> {
        if let Some(target) = average {
            let (replicas, average) = by_average(self.actual, usage, target, self.tolerances);
            return Ok((replicas, value!({"averageValue": (amount(average))})));
        }
        let ratio = usage as f64 / whole.unwrap_or_default() as f64;
        let pods: Vec<&Value> = self.pods.iter().map(|pod| &pod.0).collect();
        let replicas = by_value(self.replicas, ratio, self.tolerances, || n_working(&pods))?;
        Ok((replicas, value!({"value": (amount(usage))})))
    }
}

fn amount(milli: i64) -> String {
    Quantity::from_milli(milli, Format::Decimal).to_string()
}

fn metric(spec: &Value) -> Value {
    let mut metric = value!({"name": (spec["metric"]["name"].clone())});
    if !spec["metric"]["selector"].is_null() {
        metric.set("selector", spec["metric"]["selector"].clone());
    }
    metric
}
