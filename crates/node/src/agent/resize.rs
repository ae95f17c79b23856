//! In-place resize: the resources that the node has allocated to a pod, beside those of its
//! specification.
//!
//! A resize is allocated as soon as the node has room; until then the pod keeps what it has, and
//! the resize is deferred. What can never fit is rejected by the API server.
//!
//! Kubernetes: pkg/kubelet/allocation.

use std::borrow::Cow;
use std::time::Duration;

use mizzen_sdk::Object;
use mizzen_value::{Str, Value};

use super::PodWorker;
use super::node_table::NodeTable;
use crate::admit::{PodAllocation, check_resources};
use crate::pod::spec;
use crate::status::container_status;

/// How often a resize that is deferred is tried again.
pub(super) const RETRY: Duration = Duration::from_secs(10);
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
        AllocatedResources::new(pod, |container| container["resources"].clone())
    }

    /// The resources of a pod that was here before the agent started.
    pub(super) fn restored(pod: &Value) -> AllocatedResources {
        AllocatedResources::new(pod, |container| {
            let status = container_status(pod, container["name"].str());
            let (requests, limits) = (
                &status["allocatedResources"],
                &status["resources"]["limits"],
            );
            let mut resources = container["resources"].clone();
            if !requests.is_null() {
                resources.set("requests", requests.clone());
                if !limits.is_null() {
                    resources.set("limits", limits.clone());
                }
            }
            resources
        })
    }

    fn new(pod: &Value, of: impl Fn(&Value) -> Value) -> AllocatedResources {
        let containers = spec::containers(pod)
            .map(|(_, container)| (container["name"].str().into(), of(container)));
        AllocatedResources {
            pod: pod["spec"]["resources"].clone(),
            containers: containers.collect(),
        }
    }

    /// The pod with these resources.
    fn apply<'a>(&self, pod: &'a Object) -> Cow<'a, Object> {
        if *self == AllocatedResources::from_spec(pod) {
            return Cow::Borrowed(pod);
        }
        let mut allocated = pod.clone();
        let spec = allocated.entry("spec");
        if !self.pod.is_null() {
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

impl PodWorker {
    /// The pod with the resources that are allocated to it. A resize is allocated if it fits on the
    /// node.
    pub(super) fn allocate<'a>(
        &mut self,
        object: &'a Object,
        nodes: &mut NodeTable,
    ) -> Cow<'a, Object> {
        let desired = AllocatedResources::from_spec(object);
        self.pod.resize_pending = None;
        if self.allocated != desired {
            let wanted = PodAllocation::from_pod(object);
            if let Some(share) = &self.share {
                nodes.release(&self.node, share);
            }
            let fits = {
                let node = nodes.node(&self.node);
                check_resources(&node.object, node.used, &wanted)
            };
            if let Some(share) = &self.share {
                nodes.take(&self.node, share);
            }
            match fits {
                Err(rejection) if self.share.is_some() => {
                    self.pod.resize_pending = Some(rejection.message);
                }
                _ => self.allocated = desired,
            }
        }
        self.allocated.apply(object)
    }
}
