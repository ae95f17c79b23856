//! What has changed in the runtime: its stream of events names what has stopped, and lists find what
//! was missed.
//!
//! Runtimes without events are listed every second, as the kubelet does (pkg/kubelet/pleg).
//!
//! Invariant: events are read while lists are made, because runtimes wait for their readers.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mizzen_cri::messages::{
    ContainerEventResponse, ContainerEventType, ContainerState, PodSandboxState, RuntimeCondition,
    StatusRequest, StatusResponse,
};
use mizzen_cri::{CallError, Code};
use mizzen_value::Str;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};

use super::CriNode;
use super::container::{CellEnd, CellPhase, ContainerCell};
use super::sandbox::SandboxPhase;
use crate::runtime::{RuntimeFeatures, RuntimeHandler};

/// Kubernetes: how often a runtime without events is listed, and one with events (kubelet.go).
const RELIST: Duration = Duration::from_secs(1);
const RELIST_WITH_EVENTS: Duration = Duration::from_secs(300);
/// Kubernetes: how often the status of the runtime is read (kubelet.go, `updateRuntimeUp`).
const CHECK_STATUS: Duration = Duration::from_secs(5);
/// How often a runtime that is not ready is listed and checked.
const RETRY: Duration = Duration::from_secs(1);
/// When a runtime is asked again for events that it does not have.
const RETRY_EVENTS: Duration = Duration::from_secs(300);

/// The stream of events, shared by the future that reads it and the one that looks at the runtime.
#[derive(Default)]
struct EventStream {
    /// Whether ends of containers are reported.
    is_open: AtomicBool,
    /// The stream has ended, so that ends may be missed.
    is_lost: AtomicBool,
    /// The IDs of containers and sandboxes that have stopped since they were last looked at.
    stopped: Mutex<HashSet<Str>>,
    /// Something has stopped, or the stream has ended.
    changed: Notify,
}

/// When the runtime is looked at next.
struct Schedule {
    list_at: Instant,
    check_at: Instant,
}

impl Schedule {
    fn new(now: Instant) -> Schedule {
        Schedule {
            list_at: now,
            check_at: now,
        }
    }

    /// Sets the times after a look at `now`.
    fn advance(&mut self, now: Instant, is_ready: bool, has_events: bool) {
        let (list, check) = match (is_ready, has_events) {
            (false, _) => (RETRY, RETRY),
            (true, false) => (RELIST, CHECK_STATUS),
            (true, true) => (RELIST_WITH_EVENTS, CHECK_STATUS),
        };
        if self.list_at <= now || !is_ready {
            self.list_at = now + list;
        }
        if self.check_at <= now || !is_ready {
            self.check_at = now + check;
        }
    }
}

impl CriNode {
    /// Keeps the table of pods current until the future is dropped.
    pub(super) async fn follow_runtime(self: Arc<Self>) {
        let events = EventStream::default();
        tokio::join!(self.read_events(&events), self.look_at_runtime(&events));
    }

    /// Reads the stream of events, and opens it again when it ends.
    async fn read_events(&self, events: &EventStream) {
        loop {
            let mut stream = self.client.events();
            let read = async {
                loop {
                    match stream.next().await {
                        Ok(Some(event)) => {
                            if let Some(id) = stopped_id(event) {
                                events.stopped.lock().insert(id);
                                events.changed.notify_one();
                            }
                        }
                        Ok(None) => return RETRY,
                        Err(error) if error.code == Code::Unimplemented => return RETRY_EVENTS,
                        Err(_) => return RETRY,
                    }
                }
            };
            // A runtime without events says so at once; one with them may be silent until the first.
            let open = async {
                sleep(RELIST).await;
                events.is_open.store(true, Ordering::Relaxed);
                std::future::pending().await
            };
            let pause = tokio::select! {
                pause = read => pause,
                pause = open => pause,
            };
            events.is_open.store(false, Ordering::Relaxed);
            events.is_lost.store(true, Ordering::Relaxed);
            events.changed.notify_one();
            sleep(pause).await;
        }
    }

    /// Lists the runtime and checks its status, when they are due, and looks at what has stopped.
    async fn look_at_runtime(&self, events: &EventStream) {
        let mut schedule = Schedule::new(Instant::now());
        let mut status = Ok(());
        loop {
            // What is not reported before the list is not in it.
            let has_events = events.is_open.load(Ordering::Relaxed);
            let now = Instant::now();
            if schedule.check_at <= now {
                status = self.check_status().await;
            }
            let mut seen = status.clone();
            if schedule.list_at <= now {
                // The network may be missing while containers run.
                let listed = self.relist().await;
                seen = seen.and(listed.map_err(|error| down(&error)));
            }
            schedule.advance(now, seen.is_ok(), has_events);
            self.set_health(seen);
            self.follow_events(events, &mut schedule).await;
        }
    }

    /// Looks at what has stopped until the next look at the runtime, which is due at once if something
    /// was missed.
    async fn follow_events(&self, events: &EventStream, schedule: &mut Schedule) {
        let until = schedule.list_at.min(schedule.check_at);
        while timeout_at(until, events.changed.notified()).await.is_ok() {
            let is_lost = events.is_lost.swap(false, Ordering::Relaxed);
            // Events that wait are looked at together.
            let stopped = mem::take(&mut *events.stopped.lock());
            if self.look_at_stopped(&stopped).await.is_err() || is_lost {
                schedule.list_at = Instant::now();
                return;
            }
        }
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

    /// Whether the runtime and its network are ready. Keeps what the runtime can do.
    pub(super) async fn check_status(&self) -> Result<(), String> {
        let response = self.client.call(StatusRequest { verbose: false }).await;
        let response = response.map_err(|error| down(&error))?;
        *self.features.lock() = features(&response);
        check_conditions(&response.status.unwrap_or_default().conditions)
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

/// Kubernetes: these conditions of the runtime make the node ready; a runtime may have more, such as
/// one about deprecated configuration (kubelet.go, `updateRuntimeUp`).
fn check_conditions(conditions: &[RuntimeCondition]) -> Result<(), String> {
    let parts = [
        ("NetworkReady", "container runtime network"),
        ("RuntimeReady", "container runtime"),
    ];
    for (name, part) in parts {
        let mut known = conditions.iter();
        match known.find(|condition| condition.r#type == name) {
            Some(condition) if condition.status => {}
            Some(RuntimeCondition {
                reason, message, ..
            }) => {
                return Err(format!(
                    "{part} not ready: {name}=false reason:{reason} message:{message}"
                ));
            }
            None => return Err(format!("{part} not ready: {name} is not reported")),
        }
    }
    Ok(())
}

fn down(error: &CallError) -> String {
    format!("container runtime is down: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The seconds after which a runtime is listed, and checked, for `count` looks.
    fn looks(count: usize, is_ready: bool, has_events: bool) -> Vec<(u64, bool, bool)> {
        let began = Instant::now();
        let (mut schedule, mut now) = (Schedule::new(began), began);
        let look = |_| {
            let due = (schedule.list_at <= now, schedule.check_at <= now);
            let at = (now - began).as_secs();
            schedule.advance(now, is_ready, has_events);
            now = schedule.list_at.min(schedule.check_at);
            (at, due.0, due.1)
        };
        (0..count).map(look).collect()
    }

    #[test]
    fn a_runtime_without_events_is_listed_every_second() {
        let seen = looks(7, true, false);
        let listed = |(_, is_listed, _): &(u64, bool, bool)| *is_listed;
        assert!(seen.iter().all(listed), "{seen:?}");
        let checked: Vec<u64> = seen.iter().filter(|it| it.2).map(|it| it.0).collect();
        assert_eq!(checked, [0, 5]);
        assert_eq!(seen[6].0, 6);
    }

    #[test]
    fn a_runtime_with_events_is_only_checked() {
        let seen = looks(4, true, true);
        let expected = [
            (0, true, true),
            (5, false, true),
            (10, false, true),
            (15, false, true),
        ];
        assert_eq!(seen, expected);
        let listed: Vec<u64> = looks(70, true, true)
            .iter()
            .filter(|it| it.1)
            .map(|it| it.0)
            .collect();
        assert_eq!(listed, [0, 300]);
    }

    #[test]
    fn a_runtime_that_is_not_ready_is_looked_at_every_second_although_it_has_events() {
        assert_eq!(
            looks(3, false, true),
            [(0, true, true), (1, true, true), (2, true, true)]
        );
    }

    #[test]
    fn only_the_runtime_and_its_network_make_a_node_ready() {
        let condition = |name: &str, status| RuntimeCondition {
            r#type: name.into(),
            status,
            reason: "R".into(),
            message: "m".into(),
        };
        let check = |network: bool, runtime: bool| {
            check_conditions(&[
                condition("RuntimeReady", runtime),
                condition("NetworkReady", network),
                condition("ContainerdHasNoDeprecationWarnings", false),
            ])
        };
        assert_eq!(check(true, true), Ok(()));
        let failed = "container runtime network not ready: NetworkReady=false reason:R message:m";
        assert_eq!(check(false, true), Err(failed.into()));
        let failed = "container runtime not ready: RuntimeReady=false reason:R message:m";
        assert_eq!(check(true, false), Err(failed.into()));
        let missing = "container runtime network not ready: NetworkReady is not reported";
        assert_eq!(check_conditions(&[]), Err(missing.into()));
    }
}
