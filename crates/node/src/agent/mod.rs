//! What becomes of the pods of all nodes of this process? One task, one watch, one heap of timers.
//!
//! A pod is looked at when the API says something of it, when something is due, and when a write is done. A look lets
//! the pod live up to now, and writes what its status then lacks; it never asks why it was called.
//!
//! Invariant: of one pod at most one write is under way, and what is written is made from what the last one left.

mod handle;
mod place;
mod read;
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
use tokio::time::sleep;

pub(crate) use handle::{AgentRequest, Handle, PodView};
pub(crate) use timers::Timers;
pub(crate) use usage::NodeUsage;
#[cfg(test)]
pub(crate) use usage::{PodUsage, RunningContainer};

use crate::admit::{Share, admit};
use crate::moment::{Moment, earlier};
use crate::pod::inputs::Inputs;
use crate::pod::{Pod, Stage, Told, Turn};
use crate::settings::Settings;
use crate::status::{self, Host};
use place::Places;
use read::{ContentCache, Read, read};
use usage::{NodeMeter, PodMeter};
use write::{Write, Written};

/// How many writes are under way at a time.
const MOST_WRITES: usize = 64;
/// How long to wait after a write failed; twice as long after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How long to sleep when nothing is due.
const IDLE: Duration = Duration::from_secs(3600);

/// Everything that is known of the pods of these nodes.
pub(crate) struct Agent {
    settings: Arc<Settings>,
    pods: Informer<Object>,
    places: Places,
    kept: HashMap<Key, Kept>,
    timers: Timers<Key>,
    writes: JoinSet<Written>,
    reads: JoinSet<Read>,
    contents: ContentCache,
    /// Pods that are looked at once a write is done.
    waiting: VecDeque<Key>,
    /// When the agent started.
    began: Moment,
    /// The counters of the nodes that were scraped.
    node_meters: HashMap<Str, NodeMeter>,
}

/// A pod, and how far the API knows of it.
struct Kept {
    uid: Box<str>,
    node: Str,
    pod: Pod,
    /// What it takes of its node, until it is finished.
    share: Option<Share>,
    /// The version that the last write left.
    wrote: Version,
    is_writing: bool,
    is_deleted: bool,
    n_failures: u32,
    /// When it is looked at again.
    wakes: Option<Moment>,
    /// The counters of a pod that was scraped.
    meter: Option<Box<PodMeter>>,
}

impl Agent {
    /// An agent that hears of pods by `pods` and of nodes by `nodes`.
    pub(crate) fn new(
        settings: Arc<Settings>,
        pods: Informer<Object>,
        nodes: Informer<Object>,
    ) -> Agent {
        Agent {
            places: Places::new(&settings, nodes),
            began: settings.now(),
            node_meters: HashMap::new(),
            settings,
            pods,
            kept: HashMap::new(),
            timers: Timers::default(),
            writes: JoinSet::new(),
            reads: JoinSet::new(),
            contents: ContentCache::default(),
            waiting: VecDeque::new(),
        }
    }

    /// Lets pods live until the future is dropped. `queue` has the keys of pods that changed, `requests` comes
    /// from [`Handle`].
    pub(crate) async fn run(mut self, queue: Queue<Key>, mut requests: Receiver<AgentRequest>) {
        loop {
            let pause = self
                .timers
                .next()
                .map_or(IDLE, |at| at.saturating_since(self.settings.now()));
            tokio::select! {
                key = queue.get() => {
                    let Some(key) = key else { return };
                    self.look(&key);
                    queue.done(&key);
                }
                Some(written) = self.writes.join_next() => {
                    if let Ok(written) = written {
                        self.take(written);
                    }
                }
                Some(Ok(read)) = self.reads.join_next() => self.supply(read),
                Some(request) = requests.recv() => match request {
                    // A caller that has left needs no answer.
                    AgentRequest::Pod { key, reply } => drop(reply.send(self.pod(&key))),
                    AgentRequest::PodsOfNode { node, reply } => drop(reply.send(self.pods_of_node(&node))),
                    AgentRequest::Usage { node, reply } => drop(reply.send(self.usage(&node))),
                    AgentRequest::Stdin { key, id, data, reply } => {
                        drop(reply.send(self.receive(&key, &id, data)));
                    }
                },
                () = sleep(pause) => self.look_at_what_is_due(),
            }
        }
    }

    fn look_at_what_is_due(&mut self) {
        let now = self.settings.now();
        while let Some((at, key)) = self.timers.pop(now) {
            // A timer that was set again since then is no longer wanted.
            if self
                .kept
                .get(&key)
                .is_some_and(|kept| kept.wakes == Some(at))
            {
                self.look(&key);
            }
        }
    }

    /// A write is done.
    fn take(&mut self, Written { key, uid, outcome }: Written) {
        let now = self.settings.now();
        let kept = self.kept.get_mut(&key).filter(|kept| kept.uid == uid);
        if let Some(kept) = kept {
            kept.is_writing = false;
            match outcome {
                Ok(done) => kept.succeed(done),
                Err(error) => {
                    tracing::debug!(%key, %error, "a pod's status could not be written");
                    let pause = kept.fail();
                    kept.wakes = Some(now + pause);
                    self.timers.add(now + pause, key.clone());
                }
            }
            self.look(&key);
        }
        while self.writes.len() < MOST_WRITES
            && let Some(key) = self.waiting.pop_front()
        {
            self.look(&key);
        }
    }

    /// What a pod needs was read.
    fn supply(
        &mut self,
        Read {
            key,
            uid,
            mut found,
        }: Read,
    ) {
        self.contents.share(key.namespace(), &mut found);
        let kept = self.kept.get_mut(&key).filter(|kept| kept.uid == uid);
        if let Some(supply) = kept.and_then(|kept| kept.pod.supply.as_mut()) {
            supply.take(found);
            self.look(&key);
        }
    }

    /// A pod with the status that it has here. Kubernetes: until the node has one, the status that the API has
    /// (kubelet_pods.go, `GetKubeletContainerLogs`).
    fn pods_of_node(&self, node: &str) -> Vec<Object> {
        let on_node = self.kept.iter().filter(|(_, kept)| kept.node == node);
        let mut keys: Vec<&Key> = on_node.map(|(key, _)| key).collect();
        keys.sort();
        keys.into_iter()
            .filter_map(|key| Some(self.pod(key)?.pod))
            .collect()
    }

    fn pod(&self, key: &Key) -> Option<PodView> {
        let object = self.pods.store().get(key)?.object().ok()?;
        if !self.places.has(object["spec"]["nodeName"].str()) {
            return None;
        }
        let mut view = PodView {
            pod: Object::clone(&object),
            inputs: Vec::new(),
        };
        if let Some(kept) = self.kept.get(key).filter(|kept| *kept.uid == *object.uid()) {
            let host = self.settings.host(&kept.node);
            status::apply(&kept.pod, &mut view.pod, &host, self.settings.now());
            for held in &kept.pod.containers {
                let lives = [
                    (held.n_starts, &held.inputs),
                    (held.n_starts.wrapping_sub(1), &held.last_inputs),
                ];
                let of_life = |(n, inputs): (u32, &Option<Arc<Inputs>>)| {
                    Some((held.id(&object, &host.scheme, n), inputs.clone()?))
                };
                view.inputs.extend(lives.into_iter().filter_map(of_life));
            }
        }
        Some(view)
    }

    /// Gives a container what was typed into it.
    fn receive(&mut self, key: &Key, id: &str, data: Option<Bytes>) -> Result<(), String> {
        let Some(object) = self.pods.store().get(key).and_then(|it| it.object().ok()) else {
            return Ok(());
        };
        let kept = self.kept.get_mut(key);
        let Some(kept) = kept.filter(|kept| *kept.uid == *object.uid()) else {
            return Ok(());
        };
        let host = self.settings.host(&kept.node);
        let common = self.settings.services.inputs(&object);
        let context = self.settings.node_context(&host, &common);
        let turn = Turn::new(
            &object,
            self.settings.now(),
            &*self.settings.runtime,
            context,
        );
        let mut containers = kept.pod.containers.iter_mut();
        let found = containers.find(|held| held.id(&object, &host.scheme, held.n_starts) == id);
        if let Some(held) = found {
            held.receive(data, &turn)?;
        }
        self.look(key);
        Ok(())
    }

    /// Lets a pod live up to now.
    fn look(&mut self, key: &Key) {
        let Some(entry) = self.pods.store().get(key) else {
            return self.forget(key);
        };
        if self
            .kept
            .get(key)
            .is_some_and(|kept| *kept.uid != *entry.uid())
        {
            self.forget(key);
        }
        if self
            .kept
            .get(key)
            .is_some_and(|kept| kept.must_wait(&entry))
        {
            return;
        }
        if self.writes.len() >= MOST_WRITES {
            self.waiting.push_back(key.clone());
            return;
        }
        match entry.object() {
            Ok(object) => self.live(key, &object),
            Err(error) => tracing::warn!(%error, "a pod cannot be read"),
        }
    }

    fn live(&mut self, key: &Key, object: &Object) {
        let node = object["spec"]["nodeName"].str();
        if !self.places.has(node) {
            return;
        }
        let now = self.settings.now();
        if !self.kept.contains_key(key) {
            let kept = self.admit(object, now);
            self.kept.insert(key.clone(), kept);
        }
        let Some(kept) = self.kept.get_mut(key) else {
            return;
        };
        // A resize changes what the pod takes of its node.
        if let Some(share) = &mut kept.share {
            let now = Share::of(object);
            if now != *share {
                self.places.release(&kept.node, share);
                self.places.take(&kept.node, &now);
                *share = now;
            }
        }
        let host = self.settings.host(&kept.node);
        let common = self.settings.services.inputs(object);
        let context = self.settings.node_context(&host, &common);
        let mut turn = Turn::new(object, now, &*self.settings.runtime, context);
        let wakes = kept.pod.advance(&mut turn);
        let notes = turn.notes;
        if let Some(needs) = kept
            .pod
            .supply
            .as_mut()
            .and_then(|supply| supply.wants(now))
        {
            let api = self.settings.api_of(&kept.node);
            self.reads
                .spawn(read(api, key.clone(), kept.uid.clone(), needs));
        }
        if let Some(share) = kept.gives_back() {
            self.places.release(&kept.node, &share);
        }
        let is_held_back = kept.retries_at(now).is_some();
        if let Some(at) = kept.schedule(wakes, now) {
            self.timers.add(at, key.clone());
        }
        if let Some(write) = kept.lacks(object, &host, now).filter(|_| !is_held_back) {
            kept.is_writing = true;
            let api = self.settings.api_of(&kept.node);
            self.writes
                .spawn(write.run(api, key.clone(), kept.uid.clone()));
        }
        self.tell(object, notes);
    }

    /// Takes a pod that comes to its node, or says why not.
    fn admit(&mut self, object: &Object, now: Moment) -> Kept {
        let name = object["spec"]["nodeName"].str();
        let share = Share::of(object);
        let (pod, share) = match self.refusal(object, name, &share) {
            Some((reason, message)) => {
                self.tell(
                    object,
                    vec![Told {
                        path: String::new(),
                        note: Note::warning(&reason, "", &*message),
                    }],
                );
                (
                    Pod::rejected(&reason, format!("Pod was rejected: {message}"), now),
                    None,
                )
            }
            None => {
                let mut pod = Pod::new(object, now, &*self.settings.runtime);
                pod.address = self.places.address(object, &pod.address);
                self.places.take(name, &share);
                (pod, Some(share))
            }
        };
        Kept {
            uid: object.uid().into(),
            node: name.into(),
            pod,
            share,
            wrote: Version::default(),
            is_writing: false,
            is_deleted: false,
            n_failures: 0,
            wakes: None,
            meter: None,
        }
    }

    /// Why a pod is not taken. Who is here already stays.
    fn refusal(&self, object: &Object, node: &str, share: &Share) -> Option<(Str, String)> {
        if object.is_going() || !matches!(object["status"]["phase"].str(), "" | "Pending") {
            return None;
        }
        if let Err(message) = self.settings.runtime.accepts(object) {
            return Some((Str::new_static("InvalidSimulation"), message));
        }
        let node = self.places.node(node);
        let refusal = admit(object, &node.object, node.used, share).err()?;
        Some((refusal.reason, refusal.message))
    }

    fn forget(&mut self, key: &Key) {
        let Some(kept) = self.kept.remove(key) else {
            return;
        };
        if let Some(share) = &kept.share {
            self.places.release(&kept.node, share);
        }
        self.places.free(&kept.node, &kept.pod.address);
    }

    fn tell(&self, object: &Object, notes: Vec<Told>) {
        let node = object["spec"]["nodeName"].str();
        for Told { path, note } in notes {
            self.settings.record(object, node, &path, note);
        }
    }
}

impl Kept {
    /// Whether the API will soon say more than `entry` does.
    fn must_wait(&self, entry: &Entry<Object>) -> bool {
        self.is_writing || entry.version() < self.wrote
    }

    /// What it no longer takes of its node.
    fn gives_back(&mut self) -> Option<Share> {
        if self.pod.stage == Stage::Finished {
            self.share.take()
        } else {
            None
        }
    }

    /// When a write that failed is tried again.
    fn retries_at(&self, now: Moment) -> Option<Moment> {
        self.wakes.filter(|at| self.n_failures > 0 && *at > now)
    }

    /// Remembers when to look again; that moment, if it is a new one.
    fn schedule(&mut self, wakes: Option<Moment>, now: Moment) -> Option<Moment> {
        let wakes = earlier(wakes, self.retries_at(now));
        let is_new = wakes != self.wakes;
        self.wakes = wakes;
        wakes.filter(|_| is_new)
    }

    fn succeed(&mut self, done: write::Done) {
        self.n_failures = 0;
        match done {
            write::Done::Status(version) => self.wrote = version,
            write::Done::Deleted => self.is_deleted = true,
            write::Done::Gone => {}
        }
    }

    fn fail(&mut self) -> Duration {
        self.n_failures += 1;
        (FIRST_PAUSE * 2u32.saturating_pow(self.n_failures - 1)).min(LONGEST_PAUSE)
    }

    /// What the API does not know yet.
    fn lacks(&self, object: &Value, host: &Host, now: Moment) -> Option<Write> {
        if let Some(patch) = status::patch(&self.pod, object, host, now) {
            return Some(Write::Status(patch));
        }
        let is_going = !object["metadata"]["deletionTimestamp"].is_null();
        let is_over = self.pod.stage == Stage::Finished && is_going && !self.is_deleted;
        is_over.then_some(Write::Delete)
    }
}
