//! The sandbox of a pod, in which its containers run.

use super::{PodEvent, PodState, SyncContext};
use crate::runtime::SandboxState;

impl PodState {
    /// Ensures that there is a sandbox.
    pub(super) fn sandbox_ready(&mut self, sync: &mut SyncContext) -> bool {
        let state = {
            let volumes = || sync.volumes(self.referenced.as_deref());
            sync.runtime.sandbox(sync.pod, &volumes)
        };
        let events = sync.runtime.take_events(sync.pod).into_iter();
        sync.events.extend(events.map(|note| PodEvent {
            path: String::new(),
            note,
        }));
        match state {
            SandboxState::Pending => false,
            SandboxState::Ready { address: None } => true,
            SandboxState::Ready {
                address: Some(address),
            } => {
                if !sync.pod["spec"]["hostNetwork"].bool() {
                    sync.address = address.clone();
                }
                self.address = address;
                self.has_sandbox = Some(true);
                true
            }
        }
    }
}
