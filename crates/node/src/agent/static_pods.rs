//! The static pods of the agent and their mirror pods (upstream: pkg/kubelet/pod).
//!
//! A static pod is synced as any other one, from its file instead of the API. The status that the API
//! has is that of the mirror pod, which is created, and created again when it was deleted or belongs
//! to an older file.
//!
//! Invariant: writes of mirror pods are beside those of pods, so that static pods start and stop
//! while the API server is away.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::dynamic::{DeleteOptions, DynamicClient};
use mizzen_sdk::resource::{NODES, PODS};
use mizzen_sdk::write::{is_already_exists, is_not_found};
use mizzen_sdk::{Key, Object};
use mizzen_value::Value;
use tokio::time::sleep;

use super::removed::terminate;
use super::{Agent, INITIAL_BACKOFF, MAX_BACKOFF};
use crate::pod::PodStage;
use crate::shutdown;
use crate::static_pods::{is_mirror, is_mirror_of, mirror_pod};

/// A pod from a file.
pub(super) struct StaticPod {
    /// The pod, with a deletionTimestamp once its file is gone or has changed.
    pub object: Object,
    /// What its file has now, if that is another pod. It starts once this one has ended.
    next: Option<Object>,
}

/// The static pods, and the mirror pods that are being written.
#[derive(Default)]
pub(super) struct StaticPodTable {
    /// Whether the source was read; until then mirror pods are left alone.
    pub is_read: bool,
    /// Whether orphans are removed after that read.
    pub has_orphans: bool,
    pub pods: HashMap<Key, StaticPod>,
    /// The writes of mirror pods.
    mirrors: HashMap<Key, MirrorWrites>,
}

/// The writes of one mirror pod.
#[derive(Default)]
struct MirrorWrites {
    is_writing: bool,
    /// How many failed in a row.
    n_failures: u32,
}

/// The result of a write of a mirror pod.
pub(super) struct MirrorWritten {
    pub key: Key,
    pub is_done: bool,
}

impl Agent {
    /// Replaces the static pods by those of the source.
    pub(super) fn set_static_pods(&mut self, pods: Vec<Object>) {
        self.static_pods.is_read = true;
        let mut wanted: HashMap<Key, Object> = pods
            .into_iter()
            .map(|pod| (Key::new(pod.namespace(), pod.name()), pod))
            .collect();
        let now = self.settings.now();
        for (key, known) in &mut self.static_pods.pods {
            let next = wanted.remove(key);
            let is_same = next
                .as_ref()
                .is_some_and(|next| next.uid() == known.object.uid());
            if is_same && known.object["metadata"]["deletionTimestamp"].is_null() {
                known.next = None;
                continue;
            }
            known.next = next;
            terminate(&mut known.object, now);
        }
        let new = wanted.into_iter().map(|(key, object)| {
            let pod = StaticPod { object, next: None };
            (key, pod)
        });
        self.static_pods.pods.extend(new);
        let mut keys: Vec<Key> = self.static_pods.pods.keys().cloned().collect();
        // Mirror pods without a file are deleted.
        let listed = self.pods.store().list().into_iter();
        keys.extend(listed.map(|entry| entry.key().clone()));
        if self.static_pods.has_orphans {
            self.remove_orphans();
        }
        for key in keys {
            self.sync(&key);
        }
    }

    /// The object from which a pod is synced: a static pod with the status of its mirror pod, or
    /// what the API has.
    pub(super) fn pod_object(&self, key: &Key) -> Option<Arc<Object>> {
        let stored = self.pods.store().get(key).and_then(|it| it.object().ok());
        let Some(pod) = self.static_pods.pods.get(key) else {
            return stored;
        };
        let mut object = pod.object.clone();
        if let Some(mirror) = stored.filter(|mirror| self.has_mirror(key, mirror, &object)) {
            object.set("status", mirror["status"].clone());
        }
        Some(Arc::new(object))
    }

    /// The mirror pod of a static pod: its UID, if it exists.
    pub(super) fn mirror_uid(&self, key: &Key) -> Option<Value> {
        let stored = self.pods.store().get(key)?.object().ok()?;
        let pod = self.static_pods.pods.get(key)?;
        let is_mirror = self.has_mirror(key, &stored, &pod.object);
        is_mirror.then(|| stored["metadata"]["uid"].clone())
    }

    /// Whether an object is the mirror pod of a static pod. One that ended when the machine shut
    /// down, before this agent, is not: the static pod starts again, with another mirror pod.
    fn has_mirror(&self, key: &Key, object: &Value, pod: &Value) -> bool {
        let is_shut_down = shutdown::is_cause(object["status"]["reason"].str());
        let worker = self.worker.get(key);
        let is_current = worker.is_some_and(|worker| worker.pod.is_shut_down());
        is_mirror_of(object, pod) && (!is_shut_down || is_current)
    }

    /// Whether an object of the API is a mirror pod without a static pod. It is never run.
    pub(super) fn is_orphaned_mirror(&self, key: &Key, object: &Value) -> bool {
        let has_files = self.settings.runtime.runs_processes() || self.static_pods.is_read;
        has_files && is_mirror(object) && !self.static_pods.pods.contains_key(key)
    }

    /// Creates the mirror pod of a static pod, or deletes one that is not wanted.
    pub(super) fn sync_mirror(&mut self, key: &Key) {
        let writes = self.static_pods.mirrors.get(key);
        if writes.is_some_and(|writes| writes.is_writing) {
            return;
        }
        let stored = self.pods.store().get(key).and_then(|it| it.object().ok());
        let pod = self.static_pods.pods.get(key);
        let is_wanted = pod.is_some_and(|pod| pod.is_running());
        match (stored, pod) {
            (Some(mirror), _) if !is_mirror(&mirror) => {}
            (Some(mirror), Some(pod))
                if self.has_mirror(key, &mirror, &pod.object) && !mirror.is_terminating() => {}
            (Some(mirror), _) if self.static_pods.is_read => {
                let node = mirror["spec"]["nodeName"].str().to_owned();
                let uid = mirror.uid().to_owned();
                self.write_mirror(key, &node, move |api, key| async move {
                    delete_mirror(&api, &key, &uid).await
                });
            }
            (None, Some(pod)) if is_wanted && self.pods.has_synced() => {
                let node = pod.object["spec"]["nodeName"].str().to_owned();
                let (object, name) = (pod.object.clone(), node.clone());
                self.write_mirror(key, &node, move |api, _| async move {
                    create_mirror(&api, &object, &name).await
                });
            }
            _ => {}
        }
    }

    fn write_mirror<F>(
        &mut self,
        key: &Key,
        node: &str,
        write: impl FnOnce(DynamicClient, Key) -> F + Send + 'static,
    ) where
        F: Future<Output = Result<(), kube::Error>> + Send,
    {
        let writes = self.static_pods.mirrors.entry(key.clone()).or_default();
        writes.is_writing = true;
        let n_failures = writes.n_failures;
        let (api, key) = (self.settings.api_of(node), key.clone());
        self.mirrors.spawn(async move {
            let written = write(api, key.clone()).await;
            let is_done = written.is_ok();
            let pause = match written {
                Err(error) => {
                    tracing::warn!(%key, %error, "cannot write a mirror pod, retrying");
                    INITIAL_BACKOFF * 2u32.saturating_pow(n_failures)
                }
                // The informer has it a moment later.
                Ok(()) => SEEN,
            };
            sleep(pause.min(MAX_BACKOFF)).await;
            MirrorWritten { key, is_done }
        });
    }

    pub(super) fn on_mirror_written(&mut self, MirrorWritten { key, is_done }: MirrorWritten) {
        if is_done {
            self.static_pods.mirrors.remove(&key);
        } else if let Some(writes) = self.static_pods.mirrors.get_mut(&key) {
            writes.is_writing = false;
            writes.n_failures += 1;
        }
        self.sync(&key);
    }

    /// Replaces a static pod that has ended by its next version, or forgets it.
    pub(super) fn finish_static_pod(&mut self, key: &Key) -> bool {
        let Some(pod) = self.static_pods.pods.get_mut(key) else {
            return false;
        };
        let is_over = self
            .worker
            .get(key)
            .is_none_or(|worker| worker.pod.stage == PodStage::Finished);
        if pod.is_running() || !is_over {
            return false;
        }
        match pod.next.take() {
            Some(next) => pod.object = next,
            None => drop(self.static_pods.pods.remove(key)),
        }
        self.forget(key);
        true
    }

    /// The UIDs of static pods.
    pub(super) fn static_uids(&self) -> impl Iterator<Item = mizzen_value::Str> + '_ {
        let pods = self.static_pods.pods.values();
        pods.map(|pod| pod.object.uid().into())
    }
}

/// How long it takes at most until the informer has a write.
const SEEN: Duration = Duration::from_millis(500);

impl StaticPod {
    /// Whether it is not being stopped.
    fn is_running(&self) -> bool {
        self.object["metadata"]["deletionTimestamp"].is_null()
    }
}

async fn create_mirror(api: &DynamicClient, pod: &Object, node: &str) -> Result<(), kube::Error> {
    let node = api.get(&NODES, &Key::cluster(node)).await?;
    match api.create(&PODS, &mirror_pod(pod, &node)).await {
        // The informer has it soon, and a wrong one is deleted then.
        Err(error) if is_already_exists(&error) => Ok(()),
        created => created.map(drop),
    }
}

async fn delete_mirror(api: &DynamicClient, key: &Key, uid: &str) -> Result<(), kube::Error> {
    let options = DeleteOptions {
        uid: Some(uid),
        grace_seconds: Some(0),
        ..DeleteOptions::default()
    };
    match api.delete(&PODS, key, &options).await {
        Err(error) if is_not_found(&error) => Ok(()),
        // Another one has its name now.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        deleted => deleted.map(drop),
    }
}
