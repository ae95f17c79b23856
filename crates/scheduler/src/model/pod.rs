//! A pod, parsed.

use std::sync::Arc;

use mizzen_component_helpers::host_ports::HostPort;
use mizzen_component_helpers::node_affinity::NodeSelectorTerm;
use mizzen_component_helpers::pod_state::is_terminal;
use mizzen_component_helpers::tolerations::Toleration;
use mizzen_object::condition::find;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value, time};

use super::affinity::Affinity;
use super::labels::Labels;
use super::node_rule::NodeRule;
use super::requests::PodRequests;
use super::spread::SpreadConstraint;
use super::volume::PodVolumes;

/// The controller of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ControllerRef {
    pub api_version: Str,
    pub kind: Str,
    pub name: Str,
}

/// A ResourceClaim that a pod references.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceClaimUse {
    /// The claim's name; `None` until it has been created from its template.
    pub claim: Option<Str>,
    /// Whether it is generated for this pod.
    pub owned: bool,
    /// Whether the resource claim controller found that no claim is needed.
    pub not_needed: bool,
}

/// A pod, parsed once (upstream: PodInfo).
#[derive(Debug)]
pub(crate) struct PodInfo {
    pub namespace: Str,
    pub name: Str,
    pub uid: Str,
    pub scheduler: Str,
    /// `spec.nodeName`; empty until it is assigned.
    pub node: Str,
    /// `status.nominatedNodeName`.
    pub nominated_node: Str,
    pub priority: i32,
    pub never_preempts: bool,
    pub is_terminating: bool,
    /// Whether it is terminating because it was preempted.
    pub is_preempted: bool,
    /// When it started, in Unix seconds.
    pub started: Option<i64>,
    pub labels: Labels,
    pub requests: PodRequests,
    pub host_ports: Box<[HostPort]>,
    pub images: Box<[Str]>,
    pub n_containers: usize,
    pub node_rule: Option<Arc<NodeRule>>,
    pub preferred_nodes: Box<[(i64, NodeSelectorTerm)]>,
    pub tolerations: Box<[Toleration]>,
    pub affinity: Affinity,
    pub spread: Box<[SpreadConstraint]>,
    pub volumes: PodVolumes,
    pub resource_claims: Box<[ResourceClaimUse]>,
    pub has_gates: bool,
    /// Whether it may require a declared feature of the node.
    pub may_need_features: bool,
    pub owner: Option<ControllerRef>,
    /// The pod as the API has it.
    pub entry: Entry<Object>,
}

impl PodInfo {
    /// Parses a pod; `None` if it has terminated or cannot be parsed.
    pub(crate) fn from_entry(entry: &Entry<Object>) -> Option<PodInfo> {
        let object = entry.object().ok()?;
        (!is_terminal(&object)).then(|| PodInfo::parse(&object, entry))
    }

    fn parse(object: &Object, entry: &Entry<Object>) -> PodInfo {
        let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
        let namespace = object.namespace();
        let labels = Labels::from_value(&metadata["labels"]);
        PodInfo {
            namespace: namespace.into(),
            name: object.name().into(),
            uid: object.uid().into(),
            scheduler: spec["schedulerName"].str().into(),
            node: spec["nodeName"].str().into(),
            nominated_node: status["nominatedNodeName"].str().into(),
            priority: spec["priority"]
                .int()
                .clamp(i32::MIN.into(), i32::MAX.into()) as i32,
            never_preempts: spec["preemptionPolicy"].str() == "Never",
            is_terminating: object.is_terminating(),
            is_preempted: object.is_terminating() && is_preempted(&status["conditions"]),
            started: time::to_unix(status["startTime"].str()),
            requests: PodRequests::from_pod(object),
            host_ports: HostPort::list(spec),
            images: images(spec),
            n_containers: spec["containers"].list().len() + spec["initContainers"].list().len(),
            node_rule: NodeRule::from_pod_spec(spec).map(Arc::new),
            preferred_nodes: preferred_nodes(&spec["affinity"]["nodeAffinity"]),
            tolerations: Toleration::list(&spec["tolerations"]),
            affinity: Affinity::from_value(&spec["affinity"], namespace),
            spread: SpreadConstraint::list(&spec["topologySpreadConstraints"], &labels),
            volumes: PodVolumes::from_pod_volumes(object.name(), &spec["volumes"]),
            resource_claims: resource_claims(spec, status),
            may_need_features: spec["hostNetwork"].bool()
                || ["containers", "initContainers"]
                    .iter()
                    .flat_map(|field| spec[*field].list())
                    .any(|container| !container["restartPolicyRules"].is_empty()),
            has_gates: !spec["schedulingGates"].is_empty(),
            owner: object.controller().map(|owner| ControllerRef {
                api_version: owner["apiVersion"].str().into(),
                kind: owner["kind"].str().into(),
                name: owner["name"].str().into(),
            }),
            labels,
            entry: entry.clone(),
        }
    }

    /// Whether it has a node.
    pub(crate) fn is_assigned(&self) -> bool {
        !self.node.is_empty()
    }

    /// Whether it has a node or a nominated one.
    pub(crate) fn is_assigned_or_nominated(&self) -> bool {
        !self.node.is_empty() || !self.nominated_node.is_empty()
    }

    pub(crate) fn key(&self) -> Key {
        Key::new(self.namespace.as_str(), self.name.as_str())
    }
}

fn is_preempted(conditions: &Value) -> bool {
    find(conditions, "DisruptionTarget").is_some_and(|condition| {
        condition["status"].str() == "True" && condition["reason"].str() == "PreemptionByScheduler"
    })
}

/// The images that its node needs, with their tags.
fn images(spec: &Value) -> Box<[Str]> {
    let containers = spec["initContainers"]
        .list()
        .iter()
        .chain(spec["containers"].list());
    let of_volumes = spec["volumes"]
        .list()
        .iter()
        .filter_map(|volume| volume["image"]["reference"].as_str());
    containers
        .map(|container| container["image"].str())
        .chain(of_volumes)
        .map(|image| match image.rfind(':') > image.rfind('/') {
            true => image.into(),
            false => format!("{image}:latest").into(),
        })
        .collect()
}

fn preferred_nodes(affinity: &Value) -> Box<[(i64, NodeSelectorTerm)]> {
    let terms = affinity["preferredDuringSchedulingIgnoredDuringExecution"].list();
    terms
        .iter()
        .map(|term| {
            (
                term["weight"].int(),
                NodeSelectorTerm::new(&term["preference"]),
            )
        })
        .collect()
}

fn resource_claims(spec: &Value, status: &Value) -> Box<[ResourceClaimUse]> {
    let made = status["resourceClaimStatuses"].list();
    let claim = |claim: &Value| {
        let name = claim["name"].str();
        let direct = claim["resourceClaimName"].as_str();
        let made = made.iter().find(|status| status["name"].str() == name);
        let generated = made.and_then(|status| status["resourceClaimName"].as_str());
        ResourceClaimUse {
            claim: direct.or(generated).map(Str::from),
            owned: direct.is_none(),
            not_needed: direct.is_none() && made.is_some() && generated.is_none(),
        }
    };
    spec["resourceClaims"].list().iter().map(claim).collect()
}
