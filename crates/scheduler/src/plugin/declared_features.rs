//! Does the node declare what the pod needs of its agent?

use std::sync::Arc;

use mizzen_value::Value;

use super::{Check, Filter, Name, Ready, Refusal};
use crate::cache::Node;
use crate::happening::{Happening, NodeChange};
use crate::model::{NodeFacts, Pod};
use crate::world::World;

pub(crate) struct DeclaredFeatures;

#[derive(Clone)]
struct Needs(Vec<&'static str>);

impl Needs {
    fn of(pod: &Pod) -> Needs {
        let Ok(object) = pod.entry.object() else {
            return Needs(Vec::new());
        };
        let spec = &object["spec"];
        let host_network = spec["hostNetwork"].bool() && spec["hostUsers"].as_bool() == Some(false);
        let containers = spec["containers"]
            .list()
            .iter()
            .chain(spec["initContainers"].list());
        let restarts_all = |container: &Value| {
            let rules = container["restartPolicyRules"].list();
            rules
                .iter()
                .any(|rule| rule["action"].str() == "RestartAllContainers")
        };
        let needs = [
            (host_network, "UserNamespacesHostNetworkSupport"),
            (
                containers.into_iter().any(restarts_all),
                "RestartAllContainersOnContainerExits",
            ),
        ];
        Needs(
            needs
                .into_iter()
                .filter(|(needed, _)| *needed)
                .map(|(_, feature)| feature)
                .collect(),
        )
    }

    fn are_met(&self, node: &NodeFacts) -> bool {
        self.0
            .iter()
            .all(|feature| node.declared_features.iter().any(|known| known == feature))
    }
}

impl Filter for DeclaredFeatures {
    fn name(&self) -> Name {
        Name::NodeDeclaredFeatures
    }

    fn prepare(&self, pod: &Arc<Pod>, _world: &mut World) -> Ready {
        // Only pods that say something unusual are looked at closely.
        if !pod.may_need_features {
            return Ready::Skip;
        }
        let needs = Needs::of(pod);
        if needs.0.is_empty() {
            Ready::Skip
        } else {
            Ready::Check(Box::new(needs))
        }
    }

    fn wakes(&self, pod: &Pod, happening: &Happening, _world: &World) -> bool {
        match happening {
            Happening::Node {
                old,
                new: Some(new),
                change,
            } => {
                let needs = Needs::of(pod);
                change.has(NodeChange::ADD | NodeChange::FEATURE)
                    && needs.are_met(new)
                    && old.is_none_or(|old| !needs.are_met(old))
            }
            _ => false,
        }
    }
}

impl Check for Needs {
    fn check(&self, node: &Node, _world: &World) -> Option<Refusal> {
        let reason = "node(s) didn't match Pod's required features";
        (!self.are_met(&node.facts)).then(|| Refusal::for_good(Name::NodeDeclaredFeatures, reason))
    }

    fn copy(&self) -> Box<dyn Check> {
        Box::new(self.clone())
    }
}
