//! What must be known of a pod?

use std::sync::Arc;

use mizzen_kinds::host_ports::HostPort;
use mizzen_kinds::node_affinity::NodeSelectorTerm;
use mizzen_kinds::pod_state::is_terminal;
use mizzen_kinds::tolerations::Toleration;
use mizzen_object::condition::find;
use mizzen_sdk::cache::Entry;
use mizzen_sdk::{Key, Object};
use mizzen_value::{Str, Value, time};

use super::affinity::Affinity;
use super::labels::Labels;
use super::node_rule::NodeRule;
use super::requests::Requests;
use super::spread::Constraint;
use super::volume::Volumes;

/// What controls a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub api_version: Str,
    pub kind: Str,
    pub name: Str,
}

/// A claim of devices that a pod names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResourceClaimUse {
    /// The claim's name; none until somebody has made it from its template.
    pub claim: Option<Str>,
    /// Whether it is made for this pod.
    pub owned: bool,
    /// Whether somebody found that no claim is needed.
    pub needless: bool,
}

/// A pod, read once.
#[derive(Debug)]
pub(crate) struct Pod {
    pub namespace: Str,
    pub name: Str,
    pub uid: Str,
    pub scheduler: Str,
    /// Where it is; empty until it is somewhere.
    pub node: Str,
    /// Where it will perhaps be.
    pub nominated: Str,
    pub priority: i32,
    pub never_preempts: bool,
    pub is_going: bool,
    /// Whether it is going because a pod of higher priority needs its place.
    pub is_preempted: bool,
    /// When it began, in seconds since 1970.
    pub started: Option<i64>,
    pub labels: Labels,
    pub requests: Requests,
    pub host_ports: Box<[HostPort]>,
    pub images: Box<[Str]>,
    pub n_containers: usize,
    pub node_rule: Option<Arc<NodeRule>>,
    pub preferred_nodes: Box<[(i64, NodeSelectorTerm)]>,
    pub tolerations: Box<[Toleration]>,
    pub affinity: Affinity,
    pub spread: Box<[Constraint]>,
    pub volumes: Volumes,
    pub resource_claims: Box<[ResourceClaimUse]>,
    pub has_gates: bool,
    /// Whether it says something that not every node's agent knows.
    pub may_need_features: bool,
    pub owner: Option<Owner>,
    /// The pod as the API has it.
    pub entry: Entry<Object>,
}

impl Pod {
    /// Reads a pod; none if it has ended and takes no place any more, or cannot be read.
    pub(crate) fn of(entry: &Entry<Object>) -> Option<Pod> {
        let object = entry.object().ok()?;
        (!is_terminal(&object)).then(|| Pod::read(&object, entry))
    }

    fn read(object: &Object, entry: &Entry<Object>) -> Pod {
        let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
        let namespace = object.namespace();
        let labels = Labels::of(&metadata["labels"]);
        Pod {
            namespace: namespace.into(),
            name: object.name().into(),
            uid: object.uid().into(),
            scheduler: spec["schedulerName"].str().into(),
            node: spec["nodeName"].str().into(),
            nominated: status["nominatedNodeName"].str().into(),
            priority: spec["priority"]
                .int()
                .clamp(i32::MIN.into(), i32::MAX.into()) as i32,
            never_preempts: spec["preemptionPolicy"].str() == "Never",
            is_going: object.is_going(),
            is_preempted: object.is_going() && is_preempted(&status["conditions"]),
            started: time::to_unix(status["startTime"].str()),
            requests: Requests::of(object),
            host_ports: HostPort::list(spec),
            images: images(spec),
            n_containers: spec["containers"].list().len() + spec["initContainers"].list().len(),
            node_rule: NodeRule::of(spec).map(Arc::new),
            preferred_nodes: preferred_nodes(&spec["affinity"]["nodeAffinity"]),
            tolerations: Toleration::list(&spec["tolerations"]),
            affinity: Affinity::of(&spec["affinity"], namespace),
            spread: Constraint::list(&spec["topologySpreadConstraints"], &labels),
            volumes: Volumes::of(object.name(), &spec["volumes"]),
            resource_claims: resource_claims(spec, status),
            may_need_features: spec["hostNetwork"].bool() || has_restart_rules(spec),
            has_gates: !spec["schedulingGates"].is_empty(),
            owner: object.controller().map(owner),
            labels,
            entry: entry.clone(),
        }
    }

    /// Whether it is somewhere.
    pub(crate) fn is_placed(&self) -> bool {
        !self.node.is_empty()
    }

    /// Whether it is somewhere or soon will be.
    pub(crate) fn has_prospect(&self) -> bool {
        !self.node.is_empty() || !self.nominated.is_empty()
    }

    /// Its namespace and name.
    pub(crate) fn key(&self) -> Key {
        Key::new(self.namespace.as_str(), self.name.as_str())
    }
}

fn is_preempted(conditions: &Value) -> bool {
    find(conditions, "DisruptionTarget").is_some_and(|condition| {
        condition["status"].str() == "True" && condition["reason"].str() == "PreemptionByScheduler"
    })
}

/// The images that its node will need, with their tags.
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
        .map(with_tag)
        .collect()
}

fn with_tag(image: &str) -> Str {
    let has_tag = image.rfind(':') > image.rfind('/');
    if has_tag {
        image.into()
    } else {
        format!("{image}:latest").into()
    }
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

fn has_restart_rules(spec: &Value) -> bool {
    let containers = spec["containers"]
        .list()
        .iter()
        .chain(spec["initContainers"].list());
    containers
        .into_iter()
        .any(|container| !container["restartPolicyRules"].is_empty())
}

fn owner(owner: &Value) -> Owner {
    let text = |field: &str| owner[field].str().into();
    Owner {
        api_version: text("apiVersion"),
        kind: text("kind"),
        name: text("name"),
    }
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
            needless: direct.is_none() && made.is_some() && generated.is_none(),
        }
    };
    spec["resourceClaims"].list().iter().map(claim).collect()
}
