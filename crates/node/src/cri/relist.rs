//! What has changed in the runtime: its stream of events says when to look, and a list says what.
//!
//! Runtimes without events are listed every second, as the kubelet does (pkg/kubelet/pleg).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mizzen_cri::messages::{ContainerState, PodSandboxState, StatusRequest, StatusResponse};
use mizzen_cri::{CallError, ContainerEvents};
use mizzen_value::Str;
use tokio::time::sleep;

use super::CriNode;
use super::container::{CellEnd, CellPhase, ContainerCell};
use super::sandbox::SandboxPhase;
use crate::runtime::{RuntimeFeatures, RuntimeHandler};

/// Kubernetes: how often a runtime without events is listed, and one with events (kubelet.go).
const RELIST: Duration = Duration::from_secs(1);
const RELIST_WITH_EVENTS: Duration = Duration::from_secs(300);
/// How often the status of the runtime is read: every so many lists.
const STATUS_INTERVAL: u32 = 5;

impl CriNode {
    /// Keeps the table of pods current until the future is dropped.
    pub(super) async fn follow_runtime(self: Arc<Self>) {
        let mut events = None;
        let mut n_lists: u32 = 0;
        loop {
            let is_due = n_lists.is_multiple_of(STATUS_INTERVAL) || self.health.lock().is_err();
            let seen = match is_due || events.is_some() {
                true => self.check_status().await,
                false => Ok(()),
            };
            let seen = match seen {
                Ok(()) => self.relist().await.map_err(|error| down(&error)),
                unhealthy => {
                    // The network may be missing while containers run.
                    let _ = self.relist().await;
                    unhealthy
                }
            };
            self.set_health(seen);
            if events.is_none() && is_due {
                events = self.client.events().await.ok();
            }
            n_lists = n_lists.wrapping_add(1);
            match &mut events {
                None => sleep(RELIST).await,
                Some(stream) => {
                    if !wait_for_event(stream).await {
                        events = None;
                    }
                }
            }
        }
    }

    /// Kubernetes: the conditions of the runtime make the node ready (kubelet.go,
    /// `updateRuntimeUp`).
    pub(super) async fn check_status(&self) -> Result<(), String> {
        let response = self.client.call(StatusRequest { verbose: false }).await;
        let response = response.map_err(|error| down(&error))?;
        *self.features.lock() = features(&response);
        let status = response.status.unwrap_or_default();
        let failed = status.conditions.iter().find(|condition| !condition.status);
        match failed {
            None => Ok(()),
            Some(failed) => {
                let part = match failed.r#type.as_str() {
                    "NetworkReady" => "container runtime network",
                    _ => "container runtime",
                };
                Err(format!(
                    "{part} not ready: {}=false reason:{} message:{}",
                    failed.r#type, failed.reason, failed.message
                ))
            }
        }
    }

    fn set_health(&self, seen: Result<(), String>) {
        let mut health = self.health.lock();
        match (&*health, &seen) {
            (Ok(()), Err(error)) => tracing::warn!(error, "the container runtime is not ready"),
            (Err(_), Ok(())) => tracing::info!("the container runtime is ready"),
            _ => {}
        }
        *health = seen;
    }

    /// Compares the table with the runtime.
    async fn relist(&self) -> Result<(), CallError> {
        // What is known before the lists: what comes later may be missing in them.
        let (running, ready) = (self.running_cells(), self.ready_sandboxes());
        let sandboxes: HashMap<Str, PodSandboxState> = {
            let listed = self.list_sandboxes().await?.into_iter();
            listed
                .map(|it| (it.id.as_str().into(), it.state()))
                .collect()
        };
        let containers: HashMap<Str, ContainerState> = {
            let listed = self.list_containers().await?.into_iter();
            listed
                .map(|it| (it.id.as_str().into(), it.state()))
                .collect()
        };
        for cell in running {
            let id = cell.state.lock().id.clone();
            match containers.get(&id) {
                Some(ContainerState::Running) => continue,
                Some(_) => self.refresh(&cell).await?,
                None => cell.state.lock().phase = CellPhase::Ended(CellEnd::unknown()),
            }
            self.wake_pod(&cell.uid);
        }
        for (uid, lost) in ready {
            if sandboxes.get(&lost) == Some(&PodSandboxState::Ready) {
                continue;
            }
            self.update_pod(&uid, |record| {
                let phase = &mut record.sandbox.phase;
                if matches!(phase, SandboxPhase::Ready { id, .. } if *id == lost) {
                    *phase = SandboxPhase::Lost { id: lost };
                }
            });
        }
        Ok(())
    }

    /// The sandboxes that are ready, with the UIDs of their pods.
    fn ready_sandboxes(&self) -> Vec<(Str, Str)> {
        let pods = self.pods.lock();
        let ready = pods
            .iter()
            .filter_map(|(uid, record)| match &record.sandbox.phase {
                SandboxPhase::Ready { id, .. } => Some((uid.clone(), id.clone())),
                _ => None,
            });
        ready.collect()
    }

    /// The instances that run, as far as is known before a list.
    fn running_cells(&self) -> Vec<Arc<ContainerCell>> {
        let pods = self.pods.lock();
        let cells = pods.values().flat_map(|record| &record.containers);
        let running = cells.filter(|cell| cell.state.lock().phase.is_running());
        running.cloned().collect()
    }
}

/// What a runtime says that it can do.
fn features(response: &StatusResponse) -> RuntimeFeatures {
    let features = response.features.as_ref();
    let handlers = response.runtime_handlers.iter().map(|handler| {
        let features = handler.features.clone().unwrap_or_default();
        RuntimeHandler {
            name: handler.name.clone(),
            recursive_read_only: features.recursive_read_only_mounts,
            user_namespaces: features.user_namespaces,
        }
    });
    RuntimeFeatures {
        supplemental_groups_policy: features.map(|it| it.supplemental_groups_policy),
        handlers: handlers.collect(),
    }
}

fn down(error: &CallError) -> String {
    format!("container runtime is down: {error}")
}

/// Waits for the next event, or until a list is due anyway; false once the stream has ended.
async fn wait_for_event(stream: &mut ContainerEvents) -> bool {
    tokio::select! {
        event = stream.next() => matches!(event, Ok(Some(_))),
        () = sleep(RELIST_WITH_EVENTS) => true,
    }
}
