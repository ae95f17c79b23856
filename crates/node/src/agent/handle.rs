//! How do other tasks ask the agent? Over a channel: the agent alone owns the state of its pods, so its answer is never stale.

use std::sync::Arc;

use mizzen_sdk::{Key, Object};
use tokio::sync::{mpsc, oneshot};

use super::read::read;
use crate::moment::{Moment, wall_of};
use crate::pod::inputs::{Inputs, NO_INPUTS, Sources, mounted_objects};
use crate::pod::spec;
use crate::runtime::{ContainerLife, plain};
use crate::settings::Settings;
use crate::shell::Environment;
use crate::status;

/// A request for one pod, and where the answer goes.
pub struct PodRequest {
    pub(super) key: Key,
    pub(super) reply: oneshot::Sender<Option<PodView>>,
}

/// A pod as the agent knows it.
pub struct PodView {
    /// The object, with the status that the agent has; the API may still have an older one.
    pub pod: Object,
    /// What lives of its containers got, by the container's id.
    pub(super) inputs: Vec<(String, Arc<Inputs>)>,
}

impl PodView {
    /// What the container of an id got beside what the specification says.
    pub fn inputs(&self, id: &str) -> &Inputs {
        let found = self.inputs.iter().find(|(known, _)| known == id);
        found.map_or(&NO_INPUTS, |(_, inputs)| inputs)
    }
}

/// The way to the agent's pods.
#[derive(Clone)]
pub struct Handle {
    settings: Arc<Settings>,
    requests: mpsc::UnboundedSender<PodRequest>,
}

impl Handle {
    /// A handle, and the receiver that [`Agent::run`](super::Agent::run) serves.
    pub fn new(settings: Arc<Settings>) -> (Handle, mpsc::UnboundedReceiver<PodRequest>) {
        let (requests, receiver) = mpsc::unbounded_channel();
        (Handle { settings, requests }, receiver)
    }

    /// A pod of these nodes.
    pub async fn pod(&self, key: &Key) -> Option<PodView> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(PodRequest { key: key.clone(), reply }).ok()?;
        answer.await.ok()?
    }

    /// What a command sees that starts now in a running container: the variables that the container started with, and the
    /// files of its volumes, whose ConfigMaps and Secrets are read for that. None if the container does not run.
    pub async fn environment(&self, key: &Key, container: &str) -> Option<Environment> {
        let view = self.pod(key).await?;
        let (pod, container) = (&*view.pod, spec::container(&view.pod, container));
        let status = status::of_container(pod, container["name"].str());
        let since = self.settings.timeline.find(wall_of(&status["state"]["running"]["startedAt"])?);
        let host = self.settings.host(pod["spec"]["nodeName"].str());
        let node = self.settings.node_context(&host);
        let api = self.settings.api_of(pod["spec"]["nodeName"].str());
        let found =
            read(api, key.clone(), view.pod.uid().into(), mounted_objects(pod, container)).await.found;
        let sources = Sources { pod, pod_ip: pod["status"]["podIP"].str(), node, found: &found };
        let inputs = Inputs {
            variables: view.inputs(status["containerID"].str()).variables.clone(),
            files: vec![(Moment::default(), sources.files(container))],
        };
        Some(plain::environment(&ContainerLife { pod, container, since, inputs: &inputs, node }))
    }
}
