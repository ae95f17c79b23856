//! Are the ports of the node free that the pod wants?

use std::sync::Arc;

use mizzen_kinds::host_ports::HostPort;

use super::{Check, Filter, Name, Ready, Refusal};
use crate::cache::Node;
use crate::happening::Happening;
use crate::model::Pod;
use crate::world::World;

pub(crate) struct NodePorts;

#[derive(Clone)]
struct Wanted(Box<[HostPort]>);

impl Filter for NodePorts {
    fn name(&self) -> Name {
        Name::NodePorts
    }

    fn prepare(&self, pod: &Arc<Pod>, _world: &mut World) -> Ready {
        if pod.host_ports.is_empty() {
            Ready::Skip
        } else {
            Ready::Check(Box::new(Wanted(pod.host_ports.clone())))
        }
    }

    fn wakes(&self, pod: &Pod, happening: &Happening, _world: &World) -> bool {
        match happening {
            Happening::Node {
                old: None,
                new: Some(_),
                ..
            } => true,
            Happening::Pod {
                old: Some(gone),
                new: None,
                ..
            } => {
                let freed =
                    |port: &HostPort| gone.host_ports.iter().any(|freed| freed.conflicts(port));
                gone.has_prospect() && pod.host_ports.iter().any(freed)
            }
            _ => false,
        }
    }
}

impl Check for Wanted {
    fn check(&self, node: &Node, _world: &World) -> Option<Refusal> {
        let reason = "node(s) didn't have free ports for the requested pod ports";
        let taken = self.0.iter().any(|port| node.is_taken(port));
        taken.then(|| Refusal::for_now(Name::NodePorts, reason))
    }

    fn copy(&self) -> Box<dyn Check> {
        Box::new(self.clone())
    }
}
