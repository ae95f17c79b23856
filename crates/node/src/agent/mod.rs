//! The agent: one task, one watch and one heap of timers for the pods of all nodes of this process
//! (upstream: syncLoop and podWorkers).
//!
//! A pod is synced when its object changes, when a timer is due, and when a write has ended. A sync
//! advances the pod to now and writes what its status lacks; it does not depend on what triggered
//! it.
//!
//! Invariant: at most one write per pod is in flight, and the next one is made from the version
//! that the last one left.

mod handle;
mod node_table;
mod read;
mod removed;
mod resize;
mod static_pods;
mod timers;
mod usage;
mod write;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mizzen_sdk::cache::{Entry, Version};
use mizzen_sdk::event::Note;
use mizzen_sdk::informer::Informer;
use mizzen_sdk::queue::Queue;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value};
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

pub(crate) use handle::{AgentHandle, AgentRequest, PodView};
pub(crate) use timers::Timers;
pub(crate) use usage::{NodeUsage, PodUsageSample, RunningContainer};

use crate::admit::{PodAllocation, admit};
use crate::eviction::{Eviction, rejection};
use crate::moment::{Moment, earlier};
use crate::pod::inputs::Inputs;
use crate::pod::{PodEvent, PodStage, PodState, SyncContext};
use crate::runtime::Unacceptable;
use crate::settings::NodeSettings;
use crate::shutdown::{self, PodShutdown};
use crate::status::{self, Host};
use node_table::NodeTable;
use read::{ContentCache, ReadContext, ReadObjects, TokenCache, read_objects};
use removed::RemovedPod;
use resize::AllocatedResources;
use static_pods::{MirrorWritten, StaticPodTable};
use usage::{NodeMeter, PodMeter};
use write::{PodWrite, PodWriteResult};

/// The most concurrent writes.
const MAX_WRITES: usize = 64;
/// The back-off after a failed write; doubled each time.
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(10);
/// How long to sleep when no timer is set.
const IDLE: Duration = Duration::from_secs(3600);

/// The state of all pods of these nodes.
pub(crate) struct Agent {
    settings: Arc<NodeSettings>,
    pods: Informer<Object>,
    nodes_here: NodeTable,
    worker: HashMap<Key, PodWorker>,
    removed: Vec<RemovedPod>,
    timers: Timers<Key>,
    writes: JoinSet<PodWriteResult>,
    reads: JoinSet<ReadObjects>,
    static_pods: StaticPodTable,
    mirrors: JoinSet<MirrorWritten>,
    contents: ContentCache,
    tokens: TokenCache,
    /// Pods to sync when a write has ended.
    waiting: VecDeque<Key>,
    started: Moment,
    /// Whether the pods that were here before the agent are admitted.
    has_admitted_all: bool,
    /// The usage counters of the nodes that were scraped.
    node_meters: HashMap<Str, NodeMeter>,
}

/// A pod, and how much of its state the API has (upstream: podWorkers).
struct PodWorker {
    uid: Box<str>,
    node: Str,
    pod: PodState,
    /// The pod of the last sync, by which containers are stopped when the API has it no more; `None` if
    /// containers are no processes.
    object: Option<Arc<Object>>,
    /// The resources that it has, which a resize changes.
    allocated: AllocatedResources,
    /// Its share of the node, until it is finished.
    share: Option<PodAllocation>,
    /// The version that the last write left.
    wrote: Version,
    is_writing: bool,
    is_deleted: bool,
    n_failures: u32,
    /// When it is synced next.
    next_sync: Option<Moment>,
    /// The usage counters of a pod that was scraped.
    meter: Option<Box<PodMeter>>,
}

/// What a sync of a pod led to, in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncOutcome {
    /// The API has the pod's state.
    Unchanged,
    WritesStatus,
    Deletes,
    /// The last write failed; the next one waits.
    BackingOff,
}

impl SyncOutcome {
    fn as_str(self) -> &'static str {
        match self {
            SyncOutcome::Unchanged => "unchanged",
            SyncOutcome::WritesStatus => "status",
            SyncOutcome::Deletes => "delete",
            SyncOutcome::BackingOff => "backoff",
        }
    }
}

impl Agent {
    /// An agent with informers of pods and nodes.
    pub(crate) fn new(
        settings: Arc<NodeSettings>,
        pods: Informer<Object>,
        nodes: Informer<Object>,
    ) -> Agent {
        Agent {
            nodes_here: NodeTable::new(&settings, nodes),
            started: settings.now(),
            has_admitted_all: false,
            node_meters: HashMap::new(),
            settings,
            pods,
            worker: HashMap::new(),
            removed: Vec::new(),
            timers: Timers::default(),
            writes: JoinSet::new(),
            reads: JoinSet::new(),
            static_pods: StaticPodTable::default(),
            mirrors: JoinSet::new(),
            contents: ContentCache::default(),
            tokens: TokenCache::default(),
            waiting: VecDeque::new(),
        }
    }

    /// Syncs pods until the future is dropped. `queue` has the keys of pods that changed;
    /// `requests` come from [`AgentHandle`].
    pub(crate) async fn run(mut self, queue: Queue<Key>, mut requests: Receiver<AgentRequest>) {
        loop {
            let pause = self
                .timers
                .next()
                .map_or(IDLE, |at| at.saturating_since(self.settings.now()));
            tokio::select! {
                key = queue.get() => {
                    let Some(key) = key else { return };
                    self.sync(&key);
                    queue.done(&key);
                }
                Some(written) = self.writes.join_next() => {
                    if let Ok(written) = written {
                        self.on_written(written);
                    }
                }
                Some(Ok(read)) = self.reads.join_next() => self.on_objects_read(read),
                Some(Ok(written)) = self.mirrors.join_next() => self.on_mirror_written(written),
                Some(request) = requests.recv() => match request {
                    // The send fails if the caller has gone.
                    AgentRequest::Pod { key, reply } => drop(reply.send(self.pod(&key))),
                    AgentRequest::PodsOfNode { node, reply } => drop(reply.send(self.pods_of_node(&node))),
                    AgentRequest::Usage { node, reply } => drop(reply.send(self.usage(&node))),
                    AgentRequest::Evict { eviction, reply } => drop(reply.send(self.evict(eviction))),
                    AgentRequest::ShutDown { pod, reply } => drop(reply.send(self.shut_down(&pod))),
                    AgentRequest::Stdin { key, id, data, reply } => {
                        drop(reply.send(self.write_stdin(&key, &id, data)));
                    }
                    AgentRequest::StaticPods(pods) => self.set_static_pods(pods),
                    AgentRequest::RemoveOrphans => self.remove_orphans(),
                },
                () = sleep(pause) => self.sync_due_pods(),
            }
        }
    }

    fn sync_due_pods(&mut self) {
        let now = self.settings.now();
        while let Some((at, key)) = self.timers.pop(now) {
            // Skip a timer that was replaced.
            if self
                .worker
                .get(&key)
                .is_some_and(|worker| worker.next_sync == Some(at))
            {
                self.sync(&key);
            } else {
                self.sync_removed(&key);
            }
        }
    }

    /// Handles the result of a write.
    fn on_written(&mut self, PodWriteResult { key, uid, outcome }: PodWriteResult) {
        let now = self.settings.now();
        let worker = self.worker.get_mut(&key).filter(|worker| worker.uid == uid);
        if let Some(worker) = worker {
            worker.is_writing = false;
            match outcome {
                Ok(done) => worker.succeed(done),
                Err(error) => {
                    tracing::warn!(%key, %error, "cannot write a pod's status, retrying");
                    let pause = worker.fail();
                    worker.next_sync = Some(now + pause);
                    self.timers.add(now + pause, key.clone());
                }
            }
            self.sync(&key);
        }
        while self.writes.len() < MAX_WRITES
            && let Some(key) = self.waiting.pop_front()
        {
            self.sync(&key);
        }
    }

    /// Handles the objects that were read for a pod.
    fn on_objects_read(
        &mut self,
        ReadObjects {
            key,
            uid,
            mut found,
        }: ReadObjects,
    ) {
        self.contents.share(key.namespace(), &mut found);
        let worker = self.worker.get_mut(&key).filter(|worker| worker.uid == uid);
        if let Some(referenced) = worker.and_then(|worker| worker.pod.referenced.as_mut()) {
            referenced.store(found);
            self.sync(&key);
        }
    }

    /// The pods of a node with the agent's status. Kubernetes: until the node has one, the status
    /// in the API (kubelet_pods.go, `GetKubeletContainerLogs`).
    fn pods_of_node(&self, node: &str) -> Vec<Object> {
        let on_node = self.worker.iter().filter(|(_, worker)| worker.node == node);
        let mut keys: Vec<&Key> = on_node.map(|(key, _)| key).collect();
        keys.sort();
        keys.into_iter()
            .filter_map(|key| Some(self.pod(key)?.pod))
            .collect()
    }

    fn pod(&self, key: &Key) -> Option<PodView> {
        let object = self.pod_object(key)?;
        if !self.nodes_here.has(object["spec"]["nodeName"].str()) {
            return None;
        }
        let mut view = PodView {
            pod: Object::clone(&object),
            inputs: Vec::new(),
        };
        if let Some(worker) = self
            .worker
            .get(key)
            .filter(|worker| *worker.uid == *object.uid())
        {
            let host = self.settings.host(&worker.node);
            status::apply(&worker.pod, &mut view.pod, &host, self.settings.now());
            for container in &worker.pod.containers {
                let lives = [
                    (container.n_starts, &container.inputs),
                    (container.n_starts.wrapping_sub(1), &container.last_inputs),
                ];
                let of_life = |(n, inputs): (u32, &Option<Arc<Inputs>>)| {
                    Some((container.id(&object, &host.scheme, n), inputs.clone()?))
                };
                view.inputs.extend(lives.into_iter().filter_map(of_life));
            }
        }
        Some(view)
    }

    /// Ends a pod that is evicted; false if there is nothing to end.
    fn evict(&mut self, eviction: Eviction) -> bool {
        let key = eviction.key.clone();
        let stored = self.pods.store().get(&key);
        let object = stored.and_then(|entry| entry.object().ok());
        let worker = self.worker.get_mut(&key);
        let worker = worker.filter(|worker| *worker.uid == *eviction.uid);
        let (Some(object), Some(worker)) = (object, worker) else {
            return false;
        };
        let note = Note {
            annotations: eviction.annotations.clone(),
            ..Note::warning("Evicted", "", eviction.message.as_str())
        };
        let ends = worker.pod.evict(eviction, &object, self.settings.now());
        if ends {
            let path = String::new();
            self.record_events(&object, vec![PodEvent { path, note }]);
            self.sync(&key);
        }
        ends
    }

    /// Ends a pod, because the node shuts down; false if there is nothing to end.
    fn shut_down(&mut self, pod: &PodShutdown) -> bool {
        let object = self.pod_object(&pod.key);
        let worker = self.worker.get_mut(&pod.key);
        let worker = worker.filter(|worker| *worker.uid == *pod.uid);
        let (Some(object), Some(worker)) = (object, worker) else {
            return false;
        };
        let ends = worker
            .pod
            .shut_down(pod.grace, &object, self.settings.now());
        if ends {
            self.sync(&pod.key);
        }
        ends
    }

    /// Passes input to a container.
    fn write_stdin(&mut self, key: &Key, id: &str, data: Option<Bytes>) -> Result<(), String> {
        let Some(object) = self.pod_object(key) else {
            return Ok(());
        };
        let worker = self.worker.get_mut(key);
        let Some(worker) = worker.filter(|worker| *worker.uid == *object.uid()) else {
            return Ok(());
        };
        let host = self.settings.host(&worker.node);
        let common = self.settings.services.inputs(&object);
        let context = self.settings.node_context(&host, &common);
        let sync = SyncContext::new(
            &object,
            self.settings.now(),
            &*self.settings.runtime,
            context,
        );
        let mut containers = worker.pod.containers.iter_mut();
        let found = containers
            .find(|container| container.id(&object, &host.scheme, container.n_starts) == id);
        if let Some(container) = found {
            container.receive(data, &sync)?;
        }
        self.sync(key);
        Ok(())
    }

    /// Syncs a pod, unless it has to wait.
    fn sync(&mut self, key: &Key) {
        self.sync_removed(key);
        let stored = self.pods.store().get(key);
        let uid: Box<str> = match (self.static_pods.pods.get(key), &stored) {
            (Some(pod), _) => pod.object.uid().into(),
            (None, Some(entry)) => entry.uid().into(),
            (None, None) => return self.forget(key),
        };
        if self.worker.get(key).is_some_and(|worker| worker.uid != uid) {
            self.forget(key);
        }
        let is_early = |worker: &PodWorker| worker.must_wait(stored.as_ref());
        if self.worker.get(key).is_some_and(is_early) {
            return;
        }
        if self.writes.len() >= MAX_WRITES {
            self.waiting.push_back(key.clone());
            return;
        }
        let Some(object) = self.pod_object(key) else {
            tracing::warn!(%key, "cannot decode a pod");
            return;
        };
        let node = object["spec"]["nodeName"].str();
        if !self.nodes_here.has(node) {
            return;
        }
        if self.is_orphaned_mirror(key, &object) {
            self.forget(key);
            return self.sync_mirror(key);
        }
        let outcome = tracing::field::Empty;
        let span = tracing::debug_span!("sync_pod", node, pod = %key, outcome).entered();
        let began = Instant::now();
        let outcome = self.sync_now(key, &object);
        span.record("outcome", outcome.as_str());
        let duration_us = began.elapsed().as_micros() as u64;
        tracing::debug!(duration_us, "pod synced");
        drop(span);
        if self.static_pods.pods.contains_key(key) {
            self.sync_mirror(key);
            if self.finish_static_pod(key) {
                self.sync(key);
            }
        }
    }

    fn sync_now(&mut self, key: &Key, object: &Arc<Object>) -> SyncOutcome {
        let now = self.settings.now();
        let is_static = self.static_pods.pods.contains_key(key);
        let mirror = self.mirror_uid(key);
        if !self.worker.contains_key(key) {
            let worker = self.admit(object, now);
            self.worker.insert(key.clone(), worker);
        }
        let resize_waits = self.resize_waits(key, object);
        let Some(worker) = self.worker.get_mut(key) else {
            return SyncOutcome::Unchanged;
        };
        worker.object = self
            .settings
            .runtime
            .runs_processes()
            .then(|| object.clone());
        let mut events = Vec::new();
        let allocated = match resize_waits {
            true => worker.allocated.apply(object),
            false => worker.allocate(object, &mut self.nodes_here, &mut events),
        };
        let object = &*allocated;
        // A resize changes the pod's share of the node.
        if let Some(share) = &mut worker.share {
            let now = PodAllocation::from_pod(object);
            if now != *share {
                self.nodes_here.release(&worker.node, share);
                self.nodes_here.take(&worker.node, &now);
                *share = now;
            }
        }
        let host = self.settings.host(&worker.node);
        let common = self.settings.services.inputs(object);
        let context = self.settings.node_context(&host, &common);
        let mut sync = SyncContext::new(object, now, &*self.settings.runtime, context);
        let next_sync = worker.pod.advance(&mut sync);
        let retry = match resize_waits {
            true => Some(resize::ADMISSION_PAUSE),
            false => worker.pod.resize_pending.as_ref().map(|_| resize::RETRY),
        };
        let next_sync = earlier(next_sync, retry.map(|pause| now + pause));
        events.extend(sync.events);
        if let Some(needs) = worker
            .pod
            .referenced
            .as_mut()
            .and_then(|referenced| referenced.objects_to_read(now))
        {
            let api = self.settings.api_of(&worker.node);
            let context = ReadContext {
                tokens: self.tokens.clone(),
                now,
                node: self.nodes_here.node(&worker.node).object,
            };
            self.reads.spawn(read_objects(
                api,
                key.clone(),
                worker.uid.clone(),
                needs,
                context,
            ));
        }
        if let Some(share) = worker.release_when_finished() {
            self.nodes_here.release(&worker.node, &share);
        }
        let is_held_back = worker.retries_at(now).is_some();
        if let Some(at) = worker.schedule(next_sync, now) {
            self.timers.add(at, key.clone());
        }
        let write = worker.missing_write(object, &host, now);
        let write = match is_static {
            true => write.and_then(|write| write.for_mirror(mirror)),
            false => write,
        };
        let outcome = match write {
            None => SyncOutcome::Unchanged,
            Some(_) if is_held_back => SyncOutcome::BackingOff,
            Some(write) => {
                let outcome = match &write {
                    PodWrite::Status(_) => SyncOutcome::WritesStatus,
                    PodWrite::Delete => SyncOutcome::Deletes,
                };
                worker.is_writing = true;
                let api = self.settings.api_of(&worker.node);
                self.writes
                    .spawn(write.run(api, key.clone(), worker.uid.clone()));
                outcome
            }
        };
        self.record_events(object, events);
        outcome
    }

    /// Admits a new pod, or rejects it.
    fn admit(&mut self, object: &Object, now: Moment) -> PodWorker {
        let name = object["spec"]["nodeName"].str();
        let share = PodAllocation::from_pod(object);
        let (pod, share) = match self.admission_rejection(object, name, &share) {
            Some((reason, message)) => {
                self.record_events(
                    object,
                    vec![PodEvent {
                        path: String::new(),
                        note: Note::warning(&reason, "", &*message),
                    }],
                );
                (
                    PodState::rejected(&reason, format!("Pod was rejected: {message}"), now),
                    None,
                )
            }
            None => {
                let mut pod = PodState::new(object, now, &*self.settings.runtime);
                if !self.settings.runtime.runs_processes() {
                    let address = self.nodes_here.address(object, &pod.addresses.first);
                    pod.addresses = address.into();
                }
                self.nodes_here.take(name, &share);
                (pod, Some(share))
            }
        };
        PodWorker {
            uid: object.uid().into(),
            node: name.into(),
            pod,
            object: None,
            allocated: AllocatedResources::restored(object),
            share,
            wrote: Version::default(),
            is_writing: false,
            is_deleted: false,
            n_failures: 0,
            next_sync: None,
            meter: None,
        }
    }

    /// Why a pod is rejected. Pods that were here before are not checked again.
    fn admission_rejection(
        &self,
        object: &Object,
        node: &str,
        share: &PodAllocation,
    ) -> Option<(Str, String)> {
        if object.is_terminating() || !matches!(object["status"]["phase"].str(), "" | "Pending") {
            return None;
        }
        if let Err(Unacceptable { reason, message }) = self.settings.runtime.accepts(object) {
            return Some((Str::new_static(reason), message));
        }
        if let Some(message) = rejection(object, &self.settings.pressures.lock()) {
            return Some((Str::new_static("Evicted"), message));
        }
        let node = self.nodes_here.node(node);
        if let Err(refusal) = admit(object, &node.object, node.used, share) {
            return Some((refusal.reason, refusal.message));
        }
        let [reason, message] = shutdown::REJECTION;
        let is_shutting_down = self.settings.is_shutting_down();
        is_shutting_down.then(|| (Str::new_static(reason), message.into()))
    }

    /// Removes what the runtime has of pods that are neither in the API nor in files.
    fn remove_orphans(&mut self) {
        // Until the files are read, a static pod would be taken for an orphan.
        self.static_pods.has_orphans = !self.static_pods.is_read;
        if self.static_pods.has_orphans {
            return;
        }
        let mut uids = self.settings.uids_here(&self.pods);
        uids.extend(self.static_uids());
        uids.extend(self.removed_uids());
        self.settings.runtime.remove_orphans(&uids);
    }

    fn forget(&mut self, key: &Key) {
        let Some(worker) = self.worker.remove(key) else {
            return;
        };
        if let Some(share) = &worker.share {
            self.nodes_here.release(&worker.node, share);
        }
        self.nodes_here
            .free(&worker.node, &worker.pod.addresses.first);
        self.tokens.forget(&worker.uid);
        self.remove(key, worker);
    }

    fn record_events(&self, object: &Object, events: Vec<PodEvent>) {
        let node = object["spec"]["nodeName"].str();
        for PodEvent { path, note } in events {
            self.settings.record(object, node, &path, note);
        }
    }
}

impl PodWorker {
    /// Whether a newer version than `entry` is about to arrive. A static pod may have none.
    fn must_wait(&self, entry: Option<&Entry<Object>>) -> bool {
        self.is_writing || entry.is_some_and(|entry| entry.version() < self.wrote)
    }

    /// The share of the node that is released, once the pod is finished.
    fn release_when_finished(&mut self) -> Option<PodAllocation> {
        if self.pod.stage == PodStage::Finished {
            self.share.take()
        } else {
            None
        }
    }

    /// When a failed write is retried.
    fn retries_at(&self, now: Moment) -> Option<Moment> {
        self.next_sync.filter(|at| self.n_failures > 0 && *at > now)
    }

    /// Sets the next sync; returns it if it is a new one.
    fn schedule(&mut self, next_sync: Option<Moment>, now: Moment) -> Option<Moment> {
        let next_sync = earlier(next_sync, self.retries_at(now));
        let is_new = next_sync != self.next_sync;
        self.next_sync = next_sync;
        next_sync.filter(|_| is_new)
    }

    fn succeed(&mut self, done: write::PodWriteOutcome) {
        self.n_failures = 0;
        match done {
            write::PodWriteOutcome::Status(version) => self.wrote = version,
            write::PodWriteOutcome::Deleted => self.is_deleted = true,
            write::PodWriteOutcome::Gone => {}
        }
    }

    fn fail(&mut self) -> Duration {
        self.n_failures += 1;
        (INITIAL_BACKOFF * 2u32.saturating_pow(self.n_failures - 1)).min(MAX_BACKOFF)
    }

    /// What the API does not have yet.
    fn missing_write(&self, object: &Value, host: &Host, now: Moment) -> Option<PodWrite> {
        if let Some(patch) = status::patch(&self.pod, object, host, now) {
            return Some(PodWrite::Status(patch));
        }
        let is_going = !object["metadata"]["deletionTimestamp"].is_null();
        let is_over = self.pod.stage == PodStage::Finished && is_going && !self.is_deleted;
        is_over.then_some(PodWrite::Delete)
    }
}
