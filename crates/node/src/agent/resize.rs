//! In-place resize: the resources that the node has allocated to a pod, beside those of its
//! specification.
//!
//! A resize is allocated as soon as the node has room; until then the pod keeps what it has, and
//! the resize is deferred. What can never fit is rejected by the API server.
//!
//! Kubernetes: pkg/kubelet/allocation.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use mizzen_sdk::cache::Entry;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value};

use super::node_table::NodeTable;
use super::{Agent, PodWorker};
use crate::admit::{PodAllocation, check_resources};
use crate::pod::resources::{restored, restored_of_pod};
use crate::pod::{PodEvent, PodStage};
use crate::status::container_status;

/// How often a resize that is deferred is tried again.
pub(super) const RETRY: Duration = Duration::from_secs(10);
/// How often a resize waits for the admission of other pods.
pub(super) const ADMISSION_PAUSE: Duration = Duration::from_millis(100);
/// The lists of containers that can be resized.
const LISTS: [&str; 2] = ["containers", "initContainers"];

/// The resources that a pod has.
#[derive(Debug, PartialEq)]
pub(super) struct AllocatedResources {
    /// Those of the pod as a whole.
    pod: Value,
    /// Those of containers, by name.
    containers: Vec<(Str, Value)>,
}

impl AllocatedResources {
    /// The resources of a specification.
    fn from_spec(pod: &Value) -> AllocatedResources {
        let named = |container: &Value| {
            let name = container["name"].str().into();
            (name, container["resources"].clone())
        };
        AllocatedResources {
            pod: pod["spec"]["resources"].clone(),
            containers: containers(pod).map(named).collect(),
        }
    }

    /// The resources of a pod that was here before the agent started.
    pub(super) fn restored(pod: &Value) -> AllocatedResources {
        let named = |container: &Value| {
            let name = container["name"].str();
            let status = container_status(pod, name);
            let resources = &container["resources"];
            (name.into(), restored(resources, status, &Value::Null))
        };
        AllocatedResources {
            pod: restored_of_pod(pod),
            containers: containers(pod).map(named).collect(),
        }
    }

    /// Whether these are the resources of a specification.
    fn are_of(&self, pod: &Value) -> bool {
        let known = self.containers.iter().map(|(_, resources)| resources);
        self.pod == pod["spec"]["resources"]
            && known.eq(containers(pod).map(|container| &container["resources"]))
    }

    /// The pod with these resources.
    pub(super) fn apply<'a>(&self, pod: &'a Object) -> Cow<'a, Object> {
        if self.are_of(pod) {
            return Cow::Borrowed(pod);
        }
        let mut allocated = pod.clone();
        let spec = allocated.entry("spec");
        if self.pod != spec["resources"] {
            spec.set("resources", self.pod.clone());
        }
        for list in LISTS {
            if spec[list].list().is_empty() {
                continue;
            }
            for container in spec.entry(list).list_mut() {
                let name = container["name"].str();
                let known = self.containers.iter().find(|(known, _)| known == name);
                if let Some((_, resources)) = known.filter(|(_, resources)| !resources.is_null()) {
                    container.set("resources", resources.clone());
                }
            }
        }
        Cow::Owned(allocated)
    }
}

/// The containers that have resources.
fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = LISTS.into_iter();
    lists.flat_map(|list| pod["spec"][list].list())
}

impl Agent {
    /// Whether a pod has a resize that must wait until all pods that were here before the agent have
    /// their share of the node. Kubernetes: allocation_manager.go, `retryPendingResizes`.
    pub(super) fn resize_waits(&mut self, key: &Key, pod: &Object) -> bool {
        let worker = self.worker.get(key);
        if self.has_admitted_all || worker.is_none_or(|worker| worker.allocated.are_of(pod)) {
            return false;
        }
        let store = self.pods.store();
        let is_admitted = |entry: &Entry<Object>| {
            let is_here = |pod: Arc<Object>| self.nodes_here.has(pod["spec"]["nodeName"].str());
            self.worker.contains_key(&store.key_of(entry)) || !entry.object().is_ok_and(is_here)
        };
        self.has_admitted_all = self.pods.has_synced() && store.list().iter().all(is_admitted);
        !self.has_admitted_all
    }
}

impl PodWorker {
    /// The pod with the resources that are allocated to it. A resize is allocated if it fits on the
    /// node.
    pub(super) fn allocate<'a>(
        &mut self,
        object: &'a Object,
        nodes: &mut NodeTable,
        events: &mut Vec<PodEvent>,
    ) -> Cow<'a, Object> {
        let before = self.pod.resize_pending.take();
        if !self.allocated.are_of(object) {
            match self.resize_rejection(object, nodes) {
                Some(message) => events.extend(self.pod.defer_resize(before, message, object)),
                None => {
                    self.allocated = AllocatedResources::from_spec(object);
                    if self.pod.stage == PodStage::Active {
                        events.push(self.pod.begin_resize(object));
                    }
                }
            }
        }
        self.allocated.apply(object)
    }

    /// Why the node has no room for the resources that a pod shall have.
    fn resize_rejection(&self, object: &Object, nodes: &mut NodeTable) -> Option<String> {
        // A pod that is finished needs no room.
        let share = self.share.as_ref()?;
        let wanted = PodAllocation::from_pod(object);
        nodes.release(&self.node, share);
        let fits = {
            let node = nodes.node(&self.node);
            check_resources(&node.object, node.used, &wanted)
        };
        nodes.take(&self.node, share);
        fits.err().map(|rejection| rejection.message)
    }
}
