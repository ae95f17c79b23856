//! What has changed in the runtime: its stream of events names what has stopped, and lists find what
//! was missed.
//!
//! Runtimes without events are listed every second, as the kubelet does (pkg/kubelet/pleg). The
//! status of the runtime is read every five seconds, and every second while it is not ready.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use mizzen_cri::messages::{
    ContainerEventResponse, ContainerEventType, ContainerState, PodSandboxState, StatusRequest,
    StatusResponse,
};
use mizzen_cri::{CallError, ContainerEvents};
use mizzen_value::Str;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::CriNode;
use super::container::{CellEnd, CellPhase, ContainerCell};
use super::sandbox::SandboxPhase;
use crate::runtime::{RuntimeFeatures, RuntimeHandler};

/// Kubernetes: how often a runtime without events is listed, and one with events (kubelet.go).
const RELIST: Duration = Duration::from_secs(1);
const RELIST_WITH_EVENTS: Duration = Duration::from_secs(300);
/// Kubernetes: how often the status of the runtime is read (kubelet.go, `updateRuntimeUp`). A runtime
/// without events is asked for them as often.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);

impl CriNode {
    /// Keeps the table of pods current until the future is dropped.
    pub(super) async fn follow_runtime(self: Arc<Self>) {
        let mut events: Option<ContainerEvents> = None;
        let mut listed: Option<Instant> = None;
        let mut asked: Option<Instant> = None;
        loop {
            let now = Instant::now();
            let is_older = |time: Option<Instant>, age| time.is_none_or(|time| now >= time + age);
            // A list follows the subscription, so that nothing is missed between the two.
            let is_listed = events.is_none() || is_older(listed, RELIST_WITH_EVENTS);
            let mut seen = self.health.lock().clone();
            if is_older(asked, STATUS_INTERVAL) || seen.is_err() {
                seen = self.check_status().await;
                if events.is_none() {
                    events = self.client.events().await.ok();
                }
                asked = Some(now);
            }
            if is_listed {
                // The network may be missing while containers run.
                let list = self.relist().await;
                listed = list.is_ok().then_some(now);
                seen = seen.and(list.map_err(|error| down(&error)));
            }
            let pause = match &events {
                Some(_) if seen.is_ok() => STATUS_INTERVAL,
                _ => RELIST,
            };
            self.set_health(seen);
            let until = now + pause;
            if let Some(stream) = &mut events
                && self.follow_events(stream, until).await.is_err()
            {
                (events, listed) = (None, None);
            }
            if events.is_none() {
                sleep_until(until.min(Instant::now() + RELIST)).await;
            }
        }
    }

    /// Looks at what has stopped until a moment. An error if the stream has ended, or if what has
    /// stopped could not be looked at.
    async fn follow_events(
        &self,
        stream: &mut ContainerEvents,
        until: Instant,
    ) -> Result<(), EventsLost> {
        while let Ok(event) = timeout_at(until, stream.next()).await {
            let mut stopped = HashSet::new();
            let mut event = Some(event);
            // Events that wait are looked at together.
            while let Some(next) = event {
                let next = next.ok().flatten().ok_or(EventsLost)?;
                stopped.extend(stopped_id(next));
                event = stream.next().now_or_never();
            }
            let looked = self.look_at_stopped(&stopped).await;
            looked.map_err(|_| EventsLost)?;
        }
        Ok(())
    }

    /// Updates containers and sandboxes that have stopped, of which there are the IDs.
    async fn look_at_stopped(&self, stopped: &HashSet<Str>) -> Result<(), CallError> {
        for cell in self.cells() {
            if cell.note_stop(stopped) {
                self.refresh(&cell).await?;
                self.wake_pod(&cell.uid);
            }
        }
        for (uid, id) in self.ready_sandboxes() {
            if stopped.contains(&id) && !self.is_sandbox_ready(&id).await? {
                self.lose_sandbox(&uid, id);
            }
        }
        Ok(())
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
            self.lose_sandbox(&uid, lost);
        }
        Ok(())
    }

    fn lose_sandbox(&self, uid: &str, lost: Str) {
        self.update_pod(uid, |record| {
            let phase = &mut record.sandbox.phase;
            if matches!(phase, SandboxPhase::Ready { id, .. } if *id == lost) {
                *phase = SandboxPhase::Lost { id: lost };
            }
        });
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
        let mut cells = self.cells();
        cells.retain(|cell| cell.state.lock().phase.is_running());
        cells
    }

    fn cells(&self) -> Vec<Arc<ContainerCell>> {
        let pods = self.pods.lock();
        let cells = pods.values().flat_map(|record| &record.containers);
        cells.cloned().collect()
    }
}

/// The stream of events has ended, or what an event names could not be read: a list is needed.
struct EventsLost;

/// The ID of a container or a sandbox that does not run any more.
fn stopped_id(event: ContainerEventResponse) -> Option<Str> {
    match event.container_event_type() {
        ContainerEventType::Stopped | ContainerEventType::Deleted => {
            Some(event.container_id.into())
        }
        ContainerEventType::Created | ContainerEventType::Started => None,
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
