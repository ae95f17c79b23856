//! What must be known of a node?

use mizzen_kinds::tolerations::Taint;
use mizzen_value::{Str, Value};

use super::labels::Labels;
use super::resources::Resources;

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
    pub allocatable: Resources,
    /// How many pods it takes.
    pub max_pods: i64,
    pub images: Box<[Image]>,
    /// Each condition with its status.
    pub conditions: Labels,
    pub declared_features: Box<[Str]>,
}

impl NodeFacts {
    pub(crate) fn of(node: &Value) -> NodeFacts {
        let (metadata, spec, status) = (&node["metadata"], &node["spec"], &node["status"]);
        let allocatable = &status["allocatable"];
        NodeFacts {
            name: metadata["name"].str().into(),
            labels: Labels::of(&metadata["labels"]),
            annotations: Labels::of(&metadata["annotations"]),
            taints: Taint::list(&spec["taints"]),
            unschedulable: spec["unschedulable"].bool(),
            allocatable: Resources::of(allocatable),
            max_pods: super::resources::amount("pods", &allocatable["pods"]),
            images: status["images"].list().iter().map(image).collect(),
            conditions: conditions(&status["conditions"]),
            declared_features: status["declaredFeatures"]
                .list()
                .iter()
                .map(|name| name.str().into())
                .collect(),
        }
    }

    /// What tells zones apart; empty for nodes in none.
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
    Labels::of(&statuses)
}
