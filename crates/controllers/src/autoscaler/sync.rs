//! One sync of one autoscaler: read the scale, evaluate metrics, normalize, scale, write the
//! status.

use std::sync::Arc;

use mizzen_object::select::LabelSelector;
use mizzen_sdk::controller::select_objects;
use mizzen_sdk::event::Note;
use mizzen_sdk::resource::HORIZONTAL_POD_AUTOSCALERS;
use mizzen_sdk::write::message;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Value, value};
use tokio::time::Instant;

use super::Autoscalers;
use super::measure::{MetricError, MetricEvaluation, ReplicaProposal};
use super::monitor::scale_action;
use super::normalize::{ReplicaBounds, normalize_desired_replicas};
use super::replica_calculator::Tolerances;
use super::status::StatusDraft;
use super::target::ScaleTarget;
use crate::Error;

/// The state of one sync of one autoscaler.
pub(super) struct AutoscalerSync<'a> {
    all: &'a Autoscalers,
    autoscaler: &'a Object,
    key: Key,
    draft: StatusDraft,
    bounds: ReplicaBounds,
}

/// The replicas to scale to, and why.
struct ScaleDecision {
    replicas: i64,
    reason: String,
    metrics: Option<Vec<Value>>,
}

/// The largest proposal of all metrics.
struct BestProposal {
    replicas: i64,
    name: String,
    metrics: Vec<Value>,
}

impl<'a> AutoscalerSync<'a> {
    pub(super) fn new(all: &'a Autoscalers, autoscaler: &'a Object) -> AutoscalerSync<'a> {
        let spec = &autoscaler["spec"];
        let min = spec["minReplicas"].as_int().unwrap_or(1);
        let max = spec["maxReplicas"].int();
        let draft = StatusDraft::new(autoscaler["status"].clone(), all.context.now_text());
        AutoscalerSync {
            all,
            autoscaler,
            key: autoscaler.key(),
            draft,
            bounds: ReplicaBounds {
                min,
                max,
                current: 0,
            },
        }
    }

    /// Runs the sync.
    pub(super) async fn run(mut self) -> Result<(), Error> {
        let (began, monitor) = (Instant::now(), self.all.monitor.clone());
        let outcome = self.scale().await;
        let (action, error) = match &outcome {
            Ok(replicas) => (scale_action(self.bounds.current, *replicas), "none"),
            Err(_) => ("none", "internal"),
        };
        if let Ok(replicas) = &outcome {
            monitor.set_desired(self.key.namespace(), self.key.name(), *replicas);
        }
        let outcome = outcome.map(drop);
        let written = self.write().await;
        monitor.observe_sync(action, error, began.elapsed());
        written?;
        outcome.map_err(Error::other)
    }

    /// Scales the target. Returns its desired replicas.
    async fn scale(&mut self) -> Result<i64, String> {
        let mut target = self.find_target().await?;
        let current = target.replicas();
        self.bounds.current = current;
        let now = self.all.context.monotonic_now().as_millisecond();
        self.all.remember(&self.key, |known| {
            known.history.record_initial_recommendation(current, now)
        });
        let decision = match self.decide(&target).await {
            Ok(decision) => decision,
            Err((error, metrics)) => {
                self.draft.set_replicas(current, None, metrics);
                self.record_event(Note::warning(
                    "FailedComputeMetricsReplicas",
                    "Computing",
                    error.as_str(),
                ));
                return Err(error);
            }
        };
        if decision.replicas == current {
            self.draft
                .set_replicas(current, Some(current), decision.metrics);
            return Ok(current);
        }
        let replicas = decision.replicas;
        self.rescale(&mut target, decision).await.map(|()| replicas)
    }

    async fn find_target(&mut self) -> Result<ScaleTarget, String> {
        let found =
            ScaleTarget::find(&self.all.context.api, &self.all.mapper, self.autoscaler).await;
        match &found {
            Ok(_) => {
                let text = "the HPA controller was able to get the target's current scale";
                self.draft
                    .set_condition("AbleToScale", true, "SucceededGetScale", text);
            }
            Err(error) => {
                self.record_event(Note::warning("FailedGetScale", "Scaling", error.as_str()));
                let text = format!(
                    "the HPA controller was unable to get the target's current scale: {error}"
                );
                self.draft
                    .set_condition("AbleToScale", false, "FailedGetScale", text);
            }
        }
        found
    }

    /// Decides the desired replicas. A target with zero replicas is disabled; one outside of its
    /// bounds needs no metrics.
    async fn decide(
        &mut self,
        target: &ScaleTarget,
    ) -> Result<ScaleDecision, (String, Option<Vec<Value>>)> {
        let ReplicaBounds { min, max, current } = self.bounds;
        let out = |replicas, reason: &str| ScaleDecision {
            replicas,
            reason: reason.into(),
            metrics: None,
        };
        if current == 0 {
            let text = "scaling is disabled since the replica count of the target is zero";
            self.draft
                .set_condition("ScalingActive", false, "ScalingDisabled", text);
            return Ok(out(0, ""));
        }
        if current > max {
            return Ok(out(
                max,
                "Current number of replicas above Spec.MaxReplicas",
            ));
        }
        if current < min {
            return Ok(out(
                min,
                "Current number of replicas below Spec.MinReplicas",
            ));
        }
        let best = self.measure(target).await?;
        let reason = match best.replicas {
            wanted if wanted > current => format!("{} above target", best.name),
            wanted if wanted < current => "All metrics below target".into(),
            _ => String::new(),
        };
        Ok(ScaleDecision {
            replicas: self.limit(best.replicas),
            reason,
            metrics: Some(best.metrics),
        })
    }

    /// Normalizes what metrics ask for.
    fn limit(&mut self, wanted: i64) -> i64 {
        let now = self.all.context.monotonic_now().as_millisecond();
        let (behaviour, bounds) = (&self.autoscaler["spec"]["behavior"], self.bounds);
        let normalized = self.all.remember(&self.key, |known| {
            normalize_desired_replicas(behaviour, bounds, wanted, &mut known.history, now)
        });
        self.draft
            .set_condition("AbleToScale", true, normalized.able.0, normalized.able.1);
        self.draft.set_condition(
            "ScalingLimited",
            normalized.is_limited,
            normalized.limited.0,
            normalized.limited.1,
        );
        normalized.replicas
    }

    /// Evaluates all metrics. An error if none has a value, or if one has none and the rest would
    /// scale down.
    async fn measure(
        &mut self,
        target: &ScaleTarget,
    ) -> Result<BestProposal, (String, Option<Vec<Value>>)> {
        let pods = self.pods(target).map_err(|error| (error, None))?;
        let evaluation = MetricEvaluation {
            metrics: &self.all.metrics,
            namespace: self.autoscaler.namespace(),
            selector: target.selector(),
            pods: &pods,
            replicas: target.replicas(),
            actual: target.actual(),
            tolerances: Tolerances::from_autoscaler(self.autoscaler),
            now: self.all.context.now().as_second(),
        };
        let mut outcomes = Vec::new();
        for spec in self.autoscaler["spec"]["metrics"].list() {
            let began = Instant::now();
            let outcome = evaluation.compute_replicas_for_metric(spec).await;
            let (action, error) = match &outcome {
                Ok(proposal) => (scale_action(target.replicas(), proposal.replicas), "none"),
                Err(failure) if failure.reason == "InvalidMetricSourceType" => ("none", "spec"),
                Err(_) => ("none", "internal"),
            };
            let monitor = &self.all.monitor;
            monitor.observe_metric(action, error, spec["type"].str(), began.elapsed());
            if let Err(failure) = &outcome {
                self.record_event(Note::warning(
                    failure.reason,
                    "Measuring",
                    failure.error.as_str(),
                ));
            }
            outcomes.push(outcome);
        }
        match choose_largest(outcomes, target.replicas()) {
            Ok(best) => {
                let text = format!(
                    "the HPA was able to successfully calculate a replica count from {}",
                    best.name
                );
                self.draft
                    .set_condition("ScalingActive", true, "ValidMetricFound", text);
                Ok(best)
            }
            Err((failure, error, metrics)) => {
                let text = format!(
                    "the HPA was unable to compute the replica count: {}",
                    failure.error
                );
                self.draft
                    .set_condition("ScalingActive", false, failure.reason, text);
                Err((error, Some(metrics)))
            }
        }
    }

    /// The target's pods. An error if another autoscaler selects them too.
    fn pods(&mut self, target: &ScaleTarget) -> Result<Vec<Arc<Object>>, String> {
        let text = target.selector();
        if text.is_empty() {
            let shown = "the HPA target's scale is missing a selector";
            return Err(self.fail_selector(
                "SelectorRequired",
                "selector is required",
                "InvalidSelector",
                shown,
            ));
        }
        let selector = LabelSelector::parse(text).map_err(|error| {
            let error = format!(
                "couldn't convert selector into a corresponding internal selector object: {error}"
            );
            self.fail_selector("InvalidSelector", &error, "InvalidSelector", &error)
        })?;
        self.all
            .remember(&self.key, |known| known.selector = Some(selector.clone()));
        let pods = select_objects(&self.all.pods, self.autoscaler.namespace(), &selector)
            .map_err(|error| error.to_string())?;
        let rivals = self.autoscalers_selecting(&pods);
        if rivals.len() > 1 {
            let error = format!(
                "pods by selector {text} are controlled by multiple HPAs: [{}]",
                rivals.join(" ")
            );
            return Err(self.fail_selector(
                "AmbiguousSelector",
                &error,
                "AmbiguousSelector",
                &error,
            ));
        }
        Ok(pods)
    }

    /// The autoscalers whose targets select any of these pods.
    fn autoscalers_selecting(&self, pods: &[Arc<Object>]) -> Vec<String> {
        let known = self.all.known.lock();
        let here = known
            .iter()
            .filter(|(key, _)| key.namespace() == self.key.namespace());
        let selects = |selector: &LabelSelector| {
            pods.iter()
                .any(|pod| selector.matches(|label| pod.label(label)))
        };
        let mut found: Vec<String> = here
            .filter(|(_, known)| known.selector.as_ref().is_some_and(selects))
            .map(|(key, _)| key.to_string())
            .collect();
        found.sort();
        found
    }

    fn fail_selector(&mut self, event: &str, error: &str, reason: &str, shown: &str) -> String {
        self.record_event(Note::warning(event, "Selecting", error));
        self.draft
            .set_condition("ScalingActive", false, reason, shown);
        error.into()
    }

    async fn rescale(
        &mut self,
        target: &mut ScaleTarget,
        decision: ScaleDecision,
    ) -> Result<(), String> {
        let ScaleDecision {
            replicas,
            reason,
            metrics,
        } = decision;
        let current = self.bounds.current;
        if let Err(error) = target.scale(&self.all.context.api, replicas).await {
            let text = format!("New size: {replicas}; reason: {reason}; error: {error}");
            self.record_event(Note::warning("FailedRescale", "Scaling", text));
            let text = format!("the HPA controller was unable to update the target scale: {error}");
            self.draft
                .set_condition("AbleToScale", false, "FailedUpdateScale", text);
            self.draft.set_replicas(current, None, metrics);
            return Err(error);
        }
        let text = format!("the HPA controller was able to update the target scale to {replicas}");
        self.draft
            .set_condition("AbleToScale", true, "SucceededRescale", text);
        let text = format!("New size: {replicas}; reason: {reason}");
        self.record_event(Note::normal("SuccessfulRescale", "Scaling", text));
        let now = self.all.context.monotonic_now().as_millisecond();
        self.all.remember(&self.key, |known| {
            known.history.record_scale_event(current, replicas, now)
        });
        self.draft.set_replicas(current, Some(replicas), metrics);
        self.draft.set_last_scale_time();
        Ok(())
    }

    fn record_event(&self, note: Note) {
        self.all
            .context
            .record_event(&HORIZONTAL_POD_AUTOSCALERS, self.autoscaler, note);
    }

    /// Writes the status if it changed.
    async fn write(self) -> Result<(), Error> {
        if self.draft.status == self.autoscaler["status"] {
            return Ok(());
        }
        let mut autoscaler = self.autoscaler.clone();
        autoscaler.set("status", self.draft.status.clone());
        let written = self
            .all
            .context
            .api
            .update_status(&HORIZONTAL_POD_AUTOSCALERS, &autoscaler)
            .await;
        written.map(drop).map_err(|error| {
            self.record_event(Note::warning(
                "FailedUpdateStatus",
                "Updating",
                message(&error),
            ));
            error.into()
        })
    }
}

/// The largest proposal of all metrics.
fn choose_largest(
    outcomes: Vec<Result<ReplicaProposal, MetricError>>,
    current: i64,
) -> Result<BestProposal, (MetricError, String, Vec<Value>)> {
    let n = outcomes.len();
    let (mut best, mut first, mut n_failed) = (
        BestProposal {
            replicas: 0,
            name: String::new(),
            metrics: Vec::new(),
        },
        None,
        0,
    );
    for outcome in outcomes {
        match outcome {
            Ok(proposal) => {
                best.metrics.push(proposal.status);
                if best.replicas == 0 || proposal.replicas > best.replicas {
                    (best.replicas, best.name) = (proposal.replicas, proposal.name);
                }
            }
            Err(failure) => {
                // Kubernetes: a metric without a value is in the status with an empty type.
                best.metrics.push(value!({"type": ""}));
                n_failed += 1;
                first.get_or_insert(failure);
            }
        }
    }
    match first {
        Some(failure) if n_failed >= n || best.replicas < current => {
            let summary = &failure.summary;
            let error = format!(
                "invalid metrics ({n_failed} invalid out of {n}), first error is: {summary}"
            );
            Err((failure, error, best.metrics))
        }
        _ => Ok(best),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposal(replicas: i64) -> Result<ReplicaProposal, MetricError> {
        Ok(ReplicaProposal {
            replicas,
            name: format!("m{replicas}"),
            status: value!({"type": "Pods"}),
        })
    }

    fn failure() -> Result<ReplicaProposal, MetricError> {
        Err(MetricError {
            reason: "FailedGetPodsMetric",
            error: "no".into(),
            summary: "said no".into(),
        })
    }

    #[track_caller]
    fn check(
        outcomes: Vec<Result<ReplicaProposal, MetricError>>,
        current: i64,
        expect: Result<&str, &str>,
    ) {
        let chosen = choose_largest(outcomes, current)
            .map(|best| best.name)
            .map_err(|(_, error, _)| error);
        assert_eq!(chosen, expect.map(String::from).map_err(String::from));
    }

    #[test]
    fn the_metric_with_the_most_replicas_wins() {
        check(vec![proposal(3), proposal(5), proposal(4)], 4, Ok("m5"));
        check(vec![proposal(5), failure()], 4, Ok("m5"));
    }

    #[test]
    fn a_target_does_not_shrink_while_a_metric_is_missing() {
        let one = "invalid metrics (1 invalid out of 2), first error is: said no";
        check(vec![proposal(3), failure()], 4, Err(one));
        check(
            vec![failure()],
            4,
            Err("invalid metrics (1 invalid out of 1), first error is: said no"),
        );
    }
}
