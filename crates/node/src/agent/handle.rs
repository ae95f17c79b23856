//! How do other tasks ask the agent? Over a channel: the agent alone owns the state of its pods, so its answer is never stale.

use mizzen_sdk::{Key, Object};
use tokio::sync::{mpsc, oneshot};

/// A request for one pod, and where the answer goes.
pub struct PodRequest {
    pub(super) key: Key,
    pub(super) reply: oneshot::Sender<Option<Object>>,
}

/// The way to the agent's pods.
#[derive(Clone)]
pub struct Handle(mpsc::UnboundedSender<PodRequest>);

impl Handle {
    /// A handle, and the receiver that [`Agent::run`](super::Agent::run) serves.
    pub fn new() -> (Handle, mpsc::UnboundedReceiver<PodRequest>) {
        let (sender, requests) = mpsc::unbounded_channel();
        (Handle(sender), requests)
    }

    /// A pod of these nodes with its status as the agent has it; the API may still have an older one.
    pub async fn pod(&self, key: &Key) -> Option<Object> {
        let (reply, answer) = oneshot::channel();
        self.0.send(PodRequest { key: key.clone(), reply }).ok()?;
        answer.await.ok()?
    }
}
