//! How does a pod get to its node? Beside the loop, many at a time: what its volumes and devices need first, then the pod.

use std::sync::Arc;

use mizzen_sdk::api::Api;
use mizzen_sdk::event::Severity;
use mizzen_sdk::resource::PODS;
use mizzen_value::{Str, value};
use tokio::sync::mpsc::Sender;

use crate::extender::Extender;
use crate::inbox::Letter;
use crate::model::Pod;
use crate::report::patch;
use crate::reserve::{Doer, Step};
use crate::tell::{Herald, Note};

/// A pod on its way to a node.
pub(crate) struct Bind {
    pub api: Api,
    pub herald: Herald,
    pub sender: Sender<Letter>,
    pub scheduler: Str,
    pub pod: Arc<Pod>,
    pub node: Str,
    /// What is to be done first.
    pub steps: Vec<Step>,
    pub doer: Doer,
    pub extenders: Arc<[Extender]>,
}

impl Bind {
    /// Binds the pod, tells the loop how that went, and people if it went well.
    pub(crate) async fn run(self) {
        let outcome = self.prepare_and_bind().await;
        let bound = outcome.is_ok();
        if !bound {
            // Before the loop hears of it, so that the pod's next try does not cross this.
            self.doer.undo(&self.steps).await;
        }
        let _ = self
            .sender
            .send(Letter::Bound {
                uid: self.pod.uid.clone(),
                outcome,
            })
            .await;
        if bound {
            self.tell().await;
        }
    }

    async fn prepare_and_bind(&self) -> Result<(), String> {
        if !self.steps.is_empty() {
            // This may take a while, so that others know where the pod will be.
            let change = value!({"status": {"nominatedNodeName": (&self.node)}});
            patch(&self.api, &self.pod, &change).await;
            self.doer.carry_out(&self.steps).await?;
        }
        self.bind().await
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
                        "an extender is left out"
                    );
                }
                outcome => return outcome,
            }
        }
        let Pod {
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
        bound
            .map(drop)
            .map_err(|error| format!("running Bind plugin \"DefaultBinder\": {}", message(error)))
    }

    async fn tell(&self) {
        let Pod {
            namespace, name, ..
        } = &*self.pod;
        let note = Note {
            severity: Severity::Normal,
            reason: "Scheduled",
            action: "Binding",
            text: format!("Successfully assigned {namespace}/{name} to {}", self.node),
        };
        self.herald
            .tell_once(&self.scheduler, &self.pod, note)
            .await;
    }
}

/// What the server said, without what we make of it.
pub(crate) fn message(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}
