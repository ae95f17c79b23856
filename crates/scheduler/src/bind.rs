//! The binding cycle: PreBind steps for volumes and devices, then Bind. It runs beside the
//! scheduling loop, many pods at a time.

use std::sync::Arc;

use mizzen_sdk::api::Api;
use mizzen_sdk::event::Severity;
use mizzen_sdk::resource::PODS;
use mizzen_value::{Str, value};
use tokio::sync::mpsc::Sender;

use crate::event_recorder::{EventNote, EventRecorder};
use crate::events::SchedulerMessage;
use crate::extender::Extender;
use crate::model::PodInfo;
use crate::pod_status::patch_pod_status;
use crate::reserve::{PreBindStep, PreBinder};

/// The binding cycle of one pod.
pub(crate) struct BindingCycle {
    pub api: Api,
    pub recorder: EventRecorder,
    pub sender: Sender<SchedulerMessage>,
    pub scheduler: Str,
    pub pod: Arc<PodInfo>,
    pub node: Str,
    /// The PreBind steps, run before the pod is bound.
    pub steps: Vec<PreBindStep>,
    pub pre_binder: PreBinder,
    pub extenders: Arc<[Extender]>,
}

impl BindingCycle {
    /// Binds the pod, sends the result to the loop, and records an Event on success.
    pub(crate) async fn run(self) {
        let mut outcome = Ok(());
        if !self.steps.is_empty() {
            // PreBind may take long, so the nomination is published first.
            let change = value!({"status": {"nominatedNodeName": (&self.node)}});
            patch_pod_status(&self.api, &self.pod, &change).await;
            outcome = self.pre_binder.run(&self.steps).await;
        }
        if outcome.is_ok() {
            outcome = self.bind().await;
        }
        let bound = outcome.is_ok();
        if !bound {
            // Before the loop gets the result, so that the next attempt does not race with this.
            self.pre_binder.unreserve_claims(&self.steps).await;
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
