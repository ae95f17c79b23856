//! One node and what is on it.

use std::sync::Arc;

use mizzen_kinds::host_ports::HostPort;
use mizzen_value::Str;

use super::store::Slot;
use crate::model::{NodeFacts, Pod, Resources};

/// A node, and the sums of its pods.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub slot: Slot,
    /// Whether the API has it; pods may be known before their node, and after it.
    pub exists: bool,
    /// Which list of taints it has, of those that there are.
    pub taints: u32,
    /// What it has, as its facts say: compared most often, and so kept beside what is used.
    pub allocatable: Resources,
    /// How many pods it takes.
    pub max_pods: i64,
    /// What its pods ask for.
    pub requested: Resources,
    /// CPU that its pods are taken to ask for.
    pub assumed_cpu: i64,
    /// Memory that its pods are taken to ask for.
    pub assumed_memory: i64,
    pub facts: Arc<NodeFacts>,
    pub pods: Vec<Arc<Pod>>,
    ports: Vec<HostPort>,
}

impl Node {
    pub(crate) fn new(slot: Slot, name: Str) -> Node {
        Node {
            slot,
            exists: false,
            taints: 0,
            allocatable: Resources::default(),
            max_pods: 0,
            requested: Resources::default(),
            assumed_cpu: 0,
            assumed_memory: 0,
            facts: Arc::new(NodeFacts {
                name,
                ..NodeFacts::default()
            }),
            pods: Vec::new(),
            ports: Vec::new(),
        }
    }

    /// Takes in what the API says of it.
    pub(crate) fn set_facts(&mut self, facts: Arc<NodeFacts>) {
        (self.allocatable, self.max_pods) = (facts.allocatable.clone(), facts.max_pods);
        (self.facts, self.exists) = (facts, true);
    }

    pub(crate) fn name(&self) -> &Str {
        &self.facts.name
    }

    /// Puts a pod there.
    pub(crate) fn add(&mut self, pod: Arc<Pod>) {
        self.sum(&pod, 1);
        self.ports.extend(pod.host_ports.iter().cloned());
        self.pods.push(pod);
    }

    /// Takes a pod away.
    pub(crate) fn remove(&mut self, uid: &str) -> Option<Arc<Pod>> {
        let at = self.pods.iter().position(|pod| pod.uid == uid)?;
        let pod = self.pods.swap_remove(at);
        self.sum(&pod, -1);
        for port in &pod.host_ports {
            if let Some(at) = self.ports.iter().position(|known| known == port) {
                self.ports.swap_remove(at);
            }
        }
        Some(pod)
    }

    fn sum(&mut self, pod: &Pod, times: i64) {
        self.requested.add(&pod.requests.stated, times);
        self.assumed_cpu += pod.requests.assumed_cpu * times;
        self.assumed_memory += pod.requests.assumed_memory * times;
    }

    /// Whether a port that somebody wants is taken.
    pub(crate) fn is_taken(&self, port: &HostPort) -> bool {
        self.ports.iter().any(|taken| taken.conflicts(port))
    }
}
