//! Metrics of admission, under upstream's names (apiserver/pkg/admission/metrics).

use std::sync::OnceLock;
use std::time::Duration;

use mizzen_metrics::{Collector, CounterVec, Families, HistogramVec, Timings};

use super::plugin::Plugin;
use super::webhook::AdmissionOperation;

/// Upper bounds of a step or a plug-in, in seconds.
const BOUNDS: [f64; 6] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5];
/// Upper bounds of a call of a webhook, in seconds.
const WEBHOOK_BOUNDS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
/// Upper bounds of the evaluation of a policy, in seconds.
const POLICY_BOUNDS: [f64; 5] = [0.000_000_5, 0.001, 0.01, 0.1, 1.0];

/// Mutating or validating admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdmissionStep {
    Admit,
    Validate,
}

impl AdmissionStep {
    const ALL: [AdmissionStep; 2] = [AdmissionStep::Admit, AdmissionStep::Validate];

    fn label(self) -> &'static str {
        match self {
            AdmissionStep::Admit => "admit",
            AdmissionStep::Validate => "validate",
        }
    }
}

/// Durations by step, operation, and whether the request was rejected. Observing takes no lock.
#[derive(Debug, Default)]
struct StepTimings([[[OnceLock<Timings>; 2]; AdmissionOperation::ALL.len()]; 2]);

impl StepTimings {
    fn observe(
        &self,
        step: AdmissionStep,
        operation: AdmissionOperation,
        rejected: bool,
    ) -> &Timings {
        let series = &self.0[step as usize][operation as usize][usize::from(rejected)];
        series.get_or_init(|| Timings::new(&BOUNDS))
    }

    fn collect(
        &self,
        name: Option<&str>,
        family: (&'static str, &'static str),
        out: &mut Families,
    ) {
        let family = out.histogram(family.0, family.1);
        for step in AdmissionStep::ALL {
            for operation in AdmissionOperation::ALL {
                for (rejected, text) in [(false, "false"), (true, "true")] {
                    let series = &self.0[step as usize][operation as usize][usize::from(rejected)];
                    let Some(timings) = series.get() else {
                        continue;
                    };
                    let mut labels = vec![
                        ("type", step.label()),
                        ("operation", operation.word()),
                        ("rejected", text),
                    ];
                    labels.extend(name.map(|name| ("name", name)));
                    family.add_histogram(&labels, &timings.histogram());
                }
            }
        }
    }
}

/// The metrics of admission.
#[derive(Debug)]
pub(crate) struct AdmissionMetrics {
    steps: StepTimings,
    /// In the order of the plug-ins.
    plugins: Vec<(&'static str, StepTimings)>,
    webhooks: HistogramVec<4>,
    webhook_requests: CounterVec<5>,
    webhook_rejections: CounterVec<5>,
    webhooks_failed_open: CounterVec<2>,
    validating_policies: HistogramVec<4>,
}

/// The result of a webhook's call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WebhookOutcome {
    Allowed,
    /// The webhook denied the request with this code.
    Denied(u16),
    /// The call failed; the flag is whether the failure is ignored.
    Failed {
        ignored: bool,
    },
    /// An error of the server.
    Internal,
}

/// A webhook that was called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CalledWebhook<'a> {
    pub name: &'a str,
    /// `admit` or `validating`.
    pub step: &'static str,
    pub operation: AdmissionOperation,
}

/// The codes of denials are counted up to this one. Kubernetes: so that there are not too many series.
const MAX_CODE: u16 = 600;

/// One run of a plug-in, or of all plug-ins of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdmissionRun {
    pub step: AdmissionStep,
    pub operation: AdmissionOperation,
    pub rejected: bool,
    pub took: Duration,
}

impl AdmissionMetrics {
    pub(crate) fn new(plugins: &[&'static Plugin]) -> AdmissionMetrics {
        let plugins = plugins.iter();
        AdmissionMetrics {
            steps: StepTimings::default(),
            plugins: plugins
                .map(|plugin| (plugin.name, StepTimings::default()))
                .collect(),
            webhooks: HistogramVec::new(
                "apiserver_admission_webhook_admission_duration_seconds",
                "How long calls of webhooks took.",
                ["name", "type", "operation", "rejected"],
                &WEBHOOK_BOUNDS,
            ),
            webhook_requests: CounterVec::new(
                "apiserver_admission_webhook_request_total",
                "Calls of webhooks, by result.",
                ["name", "type", "operation", "code", "rejected"],
            ),
            webhook_rejections: CounterVec::new(
                "apiserver_admission_webhook_rejection_count",
                "Requests that were rejected because of a webhook, by reason.",
                ["name", "type", "operation", "error_type", "rejection_code"],
            ),
            webhooks_failed_open: CounterVec::new(
                "apiserver_admission_webhook_fail_open_count",
                "Calls of webhooks that failed and were ignored.",
                ["name", "type"],
            ),
            validating_policies: HistogramVec::new(
                "apiserver_validating_admission_policy_check_duration_seconds",
                "How long evaluations of ValidatingAdmissionPolicies took.",
                [
                    "policy",
                    "policy_binding",
                    "error_type",
                    "enforcement_action",
                ],
                &POLICY_BOUNDS,
            ),
        }
    }

    /// Observes all plug-ins of a step.
    pub(crate) fn observe_step(&self, run: AdmissionRun) {
        self.steps
            .observe(run.step, run.operation, run.rejected)
            .observe(run.took);
    }

    /// Observes the plug-in at this position.
    pub(crate) fn observe_plugin(&self, position: usize, run: AdmissionRun) {
        if let Some((_, timings)) = self.plugins.get(position) {
            timings
                .observe(run.step, run.operation, run.rejected)
                .observe(run.took);
        }
    }

    /// The position of a plug-in.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.plugins.iter().position(|(known, _)| *known == name)
    }

    /// Observes a call of a webhook.
    pub(crate) fn observe_webhook(
        &self,
        webhook: CalledWebhook,
        outcome: WebhookOutcome,
        took: Duration,
    ) {
        let CalledWebhook {
            name,
            step,
            operation,
        } = webhook;
        let (rejection, code) = match outcome {
            WebhookOutcome::Allowed => (None, 200),
            WebhookOutcome::Denied(code) => (Some("no_error"), code.min(MAX_CODE)),
            WebhookOutcome::Failed { ignored: true } => (None, 0),
            WebhookOutcome::Failed { ignored: false } => (Some("calling_webhook_error"), 0),
            WebhookOutcome::Internal => (Some("apiserver_internal_error"), 0),
        };
        let (name, operation) = (name.to_owned(), operation.word());
        if let Some(error_type) = rejection {
            let labels = [
                name.clone().into(),
                step.into(),
                operation.into(),
                error_type.into(),
                code.to_string().into(),
            ];
            self.webhook_rejections.add(labels, 1);
        }
        if outcome == (WebhookOutcome::Failed { ignored: true }) {
            let labels = [name.clone().into(), step.into()];
            self.webhooks_failed_open.add(labels, 1);
        }
        let rejected = if rejection.is_some() { "true" } else { "false" };
        let labels = [
            name.clone().into(),
            step.into(),
            operation.into(),
            code.to_string().into(),
            rejected.into(),
        ];
        self.webhook_requests.add(labels, 1);
        let labels = [name.into(), step.into(), operation.into(), rejected.into()];
        self.webhooks.observe(labels, took.as_secs_f64());
    }

    /// Observes the evaluation of a ValidatingAdmissionPolicy with one of its bindings.
    pub(crate) fn observe_validating_policy(
        &self,
        (policy, binding): (&str, &str),
        error_type: &'static str,
        action: &'static str,
        took: Duration,
    ) {
        let labels = [
            policy.to_owned().into(),
            binding.to_owned().into(),
            error_type.into(),
            action.into(),
        ];
        self.validating_policies.observe(labels, took.as_secs_f64());
    }
}

impl Collector for AdmissionMetrics {
    fn collect(&self, out: &mut Families) {
        let family = (
            "apiserver_admission_step_admission_duration_seconds",
            "How long mutating and validating admission took.",
        );
        self.steps.collect(None, family, out);
        let family = (
            "apiserver_admission_controller_admission_duration_seconds",
            "How long admission plug-ins took.",
        );
        for (name, timings) in &self.plugins {
            timings.collect(Some(name), family, out);
        }
        self.webhooks.collect(out);
        self.webhook_requests.collect(out);
        self.webhook_rejections.collect(out);
        self.webhooks_failed_open.collect(out);
        self.validating_policies.collect(out);
        self.validating_policies.collect_counts(
            "apiserver_validating_admission_policy_check_total",
            "Evaluations of ValidatingAdmissionPolicies.",
            out,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_that_fails_is_counted_by_what_follows() {
        let metrics = AdmissionMetrics::new(&[]);
        let webhook = CalledWebhook {
            name: "a.example.com",
            step: "admit",
            operation: AdmissionOperation::Create,
        };
        for outcome in [
            WebhookOutcome::Allowed,
            WebhookOutcome::Denied(900),
            WebhookOutcome::Failed { ignored: true },
            WebhookOutcome::Failed { ignored: false },
            WebhookOutcome::Internal,
        ] {
            metrics.observe_webhook(webhook, outcome, Duration::from_millis(30));
        }
        let text = Families::of(&[&metrics]).to_string();
        let labels = |rest: &str| format!("{{{rest},operation=\"CREATE\"");
        for (family, first, last, n) in [
            (
                "webhook_request_total",
                "code=\"200\",name=\"a.example.com\"",
                "rejected=\"false\"",
                1,
            ),
            (
                "webhook_request_total",
                "code=\"600\",name=\"a.example.com\"",
                "rejected=\"true\"",
                1,
            ),
            (
                "webhook_request_total",
                "code=\"0\",name=\"a.example.com\"",
                "rejected=\"true\"",
                2,
            ),
            (
                "webhook_rejection_count",
                "error_type=\"no_error\",name=\"a.example.com\"",
                "rejection_code=\"600\"",
                1,
            ),
            (
                "webhook_rejection_count",
                "error_type=\"calling_webhook_error\",name=\"a.example.com\"",
                "rejection_code=\"0\"",
                1,
            ),
        ] {
            let line = format!(
                "apiserver_admission_{family}{},{last},type=\"admit\"}} {n}",
                labels(first)
            );
            assert!(text.lines().any(|known| known == line), "{line}\n{text}");
        }
        assert!(
            text.contains("webhook_fail_open_count{name=\"a.example.com\",type=\"admit\"} 1\n")
        );
    }
}
