//! A node, parsed.

use mizzen_component_helpers::tolerations::Taint;
use mizzen_value::{Str, Value};

use super::labels::Labels;
use super::resources::ResourceAmounts;

/// An image that a node has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub names: Box<[Str]>,
    pub size: i64,
}

/// A node as the API has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeFacts {
    pub name: Str,
    pub labels: Labels,
    pub annotations: Labels,
    pub taints: Box<[Taint]>,
    pub unschedulable: bool,
    pub allocatable: ResourceAmounts,
    /// The number of pods that it can run.
    pub max_pods: i64,
    pub images: Box<[Image]>,
    /// Condition types with their status.
    pub conditions: Labels,
    pub declared_features: Box<[Str]>,
}

impl NodeFacts {
    pub(crate) fn from_node(node: &Value) -> NodeFacts {
        let (metadata, spec, status) = (&node["metadata"], &node["spec"], &node["status"]);
        let allocatable = &status["allocatable"];
        NodeFacts {
            name: metadata["name"].str().into(),
            labels: Labels::from_value(&metadata["labels"]),
            annotations: Labels::from_value(&metadata["annotations"]),
            taints: Taint::list(&spec["taints"]),
            unschedulable: spec["unschedulable"].bool(),
            allocatable: ResourceAmounts::from_list(allocatable),
            max_pods: super::resources::quantity_amount("pods", &allocatable["pods"]),
            images: status["images"].list().iter().map(image).collect(),
            conditions: conditions(&status["conditions"]),
            declared_features: status["declaredFeatures"]
                .list()
                .iter()
                .map(|name| name.str().into())
                .collect(),
        }
    }

    /// Identifies the node's zone and region; empty if it has neither.
    pub(crate) fn zone(&self) -> Str {
        let label = |key: &str| self.labels.get(key).unwrap_or_default();
        let either = |key: &str, old: &str| {
            if label(key).is_empty() {
                label(old).into()
            } else {
                Str::from(label(key))
            }
        };
        let region = either(
            "topology.kubernetes.io/region",
            "failure-domain.beta.kubernetes.io/region",
        );
        let zone = either(
            "topology.kubernetes.io/zone",
            "failure-domain.beta.kubernetes.io/zone",
        );
        if region.is_empty() && zone.is_empty() {
            Str::default()
        } else {
            format!("{region}:\0:{zone}").into()
        }
    }
}

fn image(image: &Value) -> Image {
    let names = image["names"]
        .list()
        .iter()
        .map(|name| name.str().into())
        .collect();
    Image {
        names,
        size: image["sizeBytes"].int(),
    }
}

fn conditions(conditions: &Value) -> Labels {
    let mut statuses = Value::object();
    for condition in conditions.list() {
        statuses.set(condition["type"].str(), condition["status"].str());
    }
    Labels::from_value(&statuses)
}
