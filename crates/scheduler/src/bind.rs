//! The binding cycle: PreBind steps for volumes and devices, then Bind. It runs beside the
//! scheduling loop, many pods at a time.

use std::sync::Arc;

use mizzen_sdk::dynamic::DynamicClient;
use mizzen_sdk::event::Severity;
use mizzen_sdk::resource::PODS;
use mizzen_value::{Str, value};
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use crate::configuration::ExtensionPoint;
use crate::event_recorder::{EventNote, EventRecorder};
use crate::events::SchedulerMessage;
use crate::extender::Extender;
use crate::framework::{PermitFailure, PermitWait, ReservedPlugins};
use crate::framework_metrics::{FrameworkMetrics, StatusCode};
use crate::model::PodInfo;
use crate::pod_status::patch_pod_status;
use crate::reserve::{PreBindStep, PreBinder};

/// Why a pod was not bound.
#[derive(Debug)]
pub(crate) enum BindFailure {
    /// A Permit plugin rejected it.
    Rejected(PermitFailure),
    /// A plugin or the API request failed.
    Error(String),
}

/// The binding cycle of one pod.
pub(crate) struct BindingCycle {
    pub api: DynamicClient,
    pub recorder: EventRecorder,
    pub sender: Sender<SchedulerMessage>,
    pub scheduler: Str,
    pub pod: Arc<PodInfo>,
    pub node: Str,
    /// The PreBind steps, run before the pod is bound.
    pub steps: Vec<PreBindStep>,
    /// What plugins out of tree have reserved.
    pub reserved: ReservedPlugins,
    /// The wait for permission, if a plugin delays the pod.
    pub permit: Option<PermitWait>,
    pub pre_binder: PreBinder,
    pub extenders: Arc<[Extender]>,
    pub metrics: Arc<FrameworkMetrics>,
}

impl BindingCycle {
    /// Binds the pod, sends the result to the loop, and records an Event on success.
    pub(crate) async fn run(mut self) {
        let outcome = match self.permit.take() {
            Some(permit) => {
                let started = Instant::now();
                let allowed = permit.wait().await;
                self.metrics
                    .observe_permit_wait(allowed.is_ok(), started.elapsed());
                allowed.map_err(BindFailure::Rejected)
            }
            None => Ok(()),
        };
        let outcome = match outcome {
            Ok(()) => self.pre_bind_and_bind().await.map_err(BindFailure::Error),
            rejected => rejected,
        };
        let bound = outcome.is_ok();
        if !bound {
            // Before the loop gets the result, so that the next attempt does not race with this.
            self.pre_binder.unreserve_claims(&self.steps).await;
            self.reserved.unreserve();
        }
        let _ = self
            .sender
            .send(SchedulerMessage::Bound {
                uid: self.pod.uid.clone(),
                outcome,
            })
            .await;
        if bound {
            self.record_scheduled().await;
        }
    }

    async fn pre_bind_and_bind(&self) -> Result<(), String> {
        if !self.steps.is_empty() {
            // PreBind may take long, so the nomination is published first.
            let change = value!({"status": {"nominatedNodeName": (&self.node)}});
            patch_pod_status(&self.api, &self.pod, &change).await;
        }
        let started = Instant::now();
        let prepared = self.pre_bind().await;
        let (point, code) = (ExtensionPoint::PreBind, StatusCode::of_result(&prepared));
        self.metrics.observe_point(point, code, started.elapsed());
        prepared?;
        let started = Instant::now();
        let bound = self.bind().await;
        let (point, code) = (ExtensionPoint::Bind, StatusCode::of_result(&bound));
        self.metrics.observe_point(point, code, started.elapsed());
        bound
    }

    async fn pre_bind(&self) -> Result<(), String> {
        if !self.steps.is_empty() {
            self.pre_binder.run(&self.steps).await?;
        }
        self.reserved.pre_bind().await
    }

    async fn bind(&self) -> Result<(), String> {
        for extender in self
            .extenders
            .iter()
            .filter(|one| !one.options.bind.is_empty() && one.is_interested(&self.pod))
        {
            match extender.bind(&self.pod, &self.node).await {
                Err(error) if extender.options.ignorable => {
                    tracing::info!(
                        extender = extender.options.url,
                        error,
                        "ignoring an extender that failed"
                    );
                }
                outcome => return outcome,
            }
        }
        let PodInfo {
            namespace,
            name,
            uid,
            ..
        } = &*self.pod;
        let node = &self.node;
        let binding = value!({
            "kind": "Binding",
            "apiVersion": "v1",
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
            "target": {"kind": "Node", "name": node}
        });
        let bound = self
            .api
            .create_at(&PODS, &self.pod.key(), "binding", &binding)
            .await;
        bound.map(drop).map_err(|error| {
            format!(
                "running Bind plugin \"DefaultBinder\": {}",
                error_message(error)
            )
        })
    }

    async fn record_scheduled(&self) {
        let PodInfo {
            namespace, name, ..
        } = &*self.pod;
        let note = EventNote {
            severity: Severity::Normal,
            reason: "Scheduled",
            action: "Binding",
            text: format!("Successfully assigned {namespace}/{name} to {}", self.node),
        };
        self.recorder
            .record_once(&self.scheduler, &self.pod, note)
            .await;
    }
}

/// The server's message, without the client's wrapping.
pub(crate) fn error_message(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}
