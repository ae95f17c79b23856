//! A node and its pods (upstream: NodeInfo).

use std::sync::Arc;

use mizzen_component_helpers::host_ports::HostPort;
use mizzen_value::Str;

use super::store::Slot;
use crate::model::{NodeFacts, PodInfo, ResourceAmounts};

/// A node, and the sums of its pods.
#[derive(Debug, Clone)]
pub(crate) struct NodeInfo {
    pub slot: Slot,
    /// Whether the API has it. Pods may arrive before their node and outlive it.
    pub exists: bool,
    /// The number of its taint list in `TaintLists`.
    pub taints: u32,
    /// The same as in `facts`: compared most often, so kept beside the sums.
    pub allocatable: ResourceAmounts,
    /// The number of pods that it can run.
    pub max_pods: i64,
    /// The sum of its pods' requests.
    pub requested: ResourceAmounts,
    /// CPU requests, with the default for containers without any.
    pub non_zero_cpu: i64,
    /// Memory requests, with the default for containers without any.
    pub non_zero_memory: i64,
    pub facts: Arc<NodeFacts>,
    pub pods: Vec<Arc<PodInfo>>,
    ports: Vec<HostPort>,
}

impl NodeInfo {
    pub(crate) fn new(slot: Slot, name: Str) -> NodeInfo {
        NodeInfo {
            slot,
            exists: false,
            taints: 0,
            allocatable: ResourceAmounts::default(),
            max_pods: 0,
            requested: ResourceAmounts::default(),
            non_zero_cpu: 0,
            non_zero_memory: 0,
            facts: Arc::new(NodeFacts {
                name,
                ..NodeFacts::default()
            }),
            pods: Vec::new(),
            ports: Vec::new(),
        }
    }

    pub(crate) fn set_facts(&mut self, facts: Arc<NodeFacts>) {
        (self.allocatable, self.max_pods) = (facts.allocatable.clone(), facts.max_pods);
        (self.facts, self.exists) = (facts, true);
    }

    pub(crate) fn name(&self) -> &Str {
        &self.facts.name
    }

    pub(crate) fn add_pod(&mut self, pod: Arc<PodInfo>) {
        self.add_requests(&pod, 1);
        self.ports.extend(pod.host_ports.iter().cloned());
        self.pods.push(pod);
    }

    pub(crate) fn remove_pod(&mut self, uid: &str) -> Option<Arc<PodInfo>> {
        let at = self.pods.iter().position(|pod| pod.uid == uid)?;
        let pod = self.pods.swap_remove(at);
        self.add_requests(&pod, -1);
        for port in &pod.host_ports {
            if let Some(at) = self.ports.iter().position(|known| known == port) {
                self.ports.swap_remove(at);
            }
        }
        Some(pod)
    }

    fn add_requests(&mut self, pod: &PodInfo, times: i64) {
        self.requested.add(&pod.requests.stated, times);
        self.non_zero_cpu += pod.requests.non_zero_cpu * times;
        self.non_zero_memory += pod.requests.non_zero_memory * times;
    }

    /// Whether a host port is in use.
    pub(crate) fn is_port_in_use(&self, port: &HostPort) -> bool {
        self.ports.iter().any(|taken| taken.conflicts(port))
    }
}
