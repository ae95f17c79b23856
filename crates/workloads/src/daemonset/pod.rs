//! Daemon pods: how they are created, and which node they are for.

use std::collections::BTreeMap;
use std::sync::Arc;

use mizzen_sdk::Object;
use mizzen_sdk::resource::DAEMON_SETS;
use mizzen_value::value;

use super::placement;
use crate::common::int_or_percent::{self, Rounding};
use crate::common::{pod, template};

/// The label with the hash of a pod's revision.
pub(super) const HASH_LABEL: &str = "controller-revision-hash";
/// The label with the template generation, which preceded the hash.
const GENERATION_LABEL: &str = "pod-template-generation";
/// The annotation of the set with the template generation.
const GENERATION: &str = "deprecated.daemonset.template.generation";

/// Pods by their target node.
pub(super) type PodsByNode = BTreeMap<String, Vec<Arc<Object>>>;

/// A new pod for a node, of the revision with this hash.
pub(super) fn new_pod(set: &Object, node: &str, hash: &str) -> Object {
    let mut pod = template::pod_from_template(set.at("spec.template"), set, &DAEMON_SETS);
    let labels = pod.entry("metadata").entry("labels");
    if let Some(generation) = generation(set) {
        labels.set(GENERATION_LABEL, generation.to_string());
    }
    labels.set(HASH_LABEL, hash);
    let spec = pod.entry("spec");
    let tolerations = placement::tolerations(spec);
    spec.set("tolerations", tolerations);
    let required = value!({"nodeSelectorTerms": [{
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}],
    }]});
    let affinity = spec.entry("affinity").entry("nodeAffinity");
    affinity.set("requiredDuringSchedulingIgnoredDuringExecution", required);
    pod
}

fn generation(set: &Object) -> Option<i64> {
    set.annotation(GENERATION)?.parse().ok()
}

/// Whether a pod is of the revision with this hash.
pub(super) fn is_updated(set: &Object, pod: &Object, hash: &str) -> bool {
    let by_generation = || {
        let generation = generation(set).map(|generation| generation.to_string());
        generation.is_some() && pod.label(GENERATION_LABEL) == generation.as_deref()
    };
    has_hash(pod, hash) || by_generation()
}

/// Whether a pod has this hash label.
pub(super) fn has_hash(pod: &Object, hash: &str) -> bool {
    !hash.is_empty() && pod.label(HASH_LABEL) == Some(hash)
}

/// Groups pods by their target node. A finished pod that is being deleted is left out.
pub(super) fn by_node(pods: &[Arc<Object>]) -> PodsByNode {
    let mut nodes = PodsByNode::new();
    for pod in pods
        .iter()
        .filter(|pod| !(pod::is_terminal(pod) && pod.is_terminating()))
    {
        if let Some(node) = target_node(pod) {
            nodes.entry(node.into()).or_default().push(pod.clone());
        }
    }
    nodes
}

/// The target node of a pod: the one it is bound to, or the one of its node affinity.
fn target_node(pod: &Object) -> Option<&str> {
    let bound = pod["spec"]["nodeName"].str();
    if !bound.is_empty() {
        return Some(bound);
    }
    let required =
        pod.at("spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution");
    let mut fields = required["nodeSelectorTerms"]
        .list()
        .iter()
        .flat_map(|term| term["matchFields"].list());
    let by_name = fields
        .find(|field| field["key"].str() == "metadata.name" && field["operator"].str() == "In")?;
    match by_name["values"].list() {
        [name] => name.as_str(),
        _ => None,
    }
}

/// The sort key of a node's pods: bound first, then the oldest.
pub(super) fn seniority(pod: &Object) -> (bool, i64, String) {
    (
        pod["spec"]["nodeName"].str().is_empty(),
        pod.created(),
        pod.name().into(),
    )
}

/// `spec.minReadySeconds`.
pub(super) fn min_ready(set: &Object) -> i64 {
    set["spec"]["minReadySeconds"].int()
}

/// A number or percentage of `rollingUpdate`, rounded up; 0 with OnDelete.
pub(super) fn rolling_update_value(set: &Object, field: &str, total: i64) -> i64 {
    let strategy = &set["spec"]["updateStrategy"];
    match strategy["type"].str() {
        "RollingUpdate" => {
            int_or_percent::scaled_value(&strategy["rollingUpdate"][field], total, Rounding::Up)
                .unwrap_or_default()
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::Value;

    use super::*;

    fn set() -> Object {
        Object(value!({
            "metadata": {
                "name": "d", "namespace": "n", "uid": "u",
                "annotations": {"deprecated.daemonset.template.generation": "3"},
            },
            "spec": {"template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": []}}},
        }))
    }

    #[test]
    fn a_new_pod_is_for_one_node_only() {
        let pod = new_pod(&set(), "n1", "h");
        assert_eq!(target_node(&pod), Some("n1"));
        let labels =
            value!({"app": "a", "pod-template-generation": "3", "controller-revision-hash": "h"});
        assert_eq!(pod["metadata"]["labels"], labels);
        assert_eq!(pod.at("metadata.generateName").str(), "d-");
        assert_eq!(pod["spec"]["tolerations"].list().len(), 6);
        assert!(pod.is_controlled_by("u"));
    }

    #[test]
    fn the_affinity_for_a_node_takes_the_place_of_what_the_template_requires_and_nothing_else() {
        let mut set = set();
        let preferred = value!([{"weight": 1i64}]);
        let affinity = value!({
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": (preferred.clone()),
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": []}]},
            },
            "podAffinity": {},
        });
        set.entry("spec")
            .entry("template")
            .entry("spec")
            .set("affinity", affinity);
        let pod = new_pod(&set, "n1", "h");
        assert_eq!(
            pod.at("spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"),
            &preferred
        );
        assert_eq!(
            (
                target_node(&pod),
                pod.at("spec.affinity.podAffinity").is_null()
            ),
            (Some("n1"), false)
        );
    }

    #[test]
    fn a_pod_is_updated_by_its_hash_or_by_the_number_of_its_template() {
        let pod = |labels: Value| Object(value!({"metadata": {"labels": labels}}));
        let updated = |labels: Value, hash: &str| is_updated(&set(), &pod(labels), hash);
        assert!(updated(value!({"controller-revision-hash": "h"}), "h"));
        assert!(updated(
            value!({"controller-revision-hash": "g", "pod-template-generation": "3"}),
            "h"
        ));
        assert!(!updated(
            value!({"controller-revision-hash": "g", "pod-template-generation": "2"}),
            "h"
        ));
        assert!(!updated(value!({"controller-revision-hash": ""}), ""));
    }

    #[test]
    fn finished_terminating_pods_are_not_counted() {
        let pod = |name: &str, node: &str, phase: &str, going: bool| {
            let deletion = going.then_some("2024-01-01T00:00:00Z");
            Arc::new(Object(value!({
                "metadata": {"name": name, "deletionTimestamp": deletion},
                "spec": {"nodeName": node}, "status": {"phase": phase},
            })))
        };
        let pods = [
            pod("a", "n1", "Failed", true),
            pod("b", "n1", "Failed", false),
            pod("c", "n2", "Running", true),
        ];
        let names: Vec<String> = by_node(&pods)
            .iter()
            .flat_map(|(node, pods)| pods.iter().map(move |pod| format!("{node} {}", pod.name())))
            .collect();
        assert_eq!(names, ["n1 b", "n2 c"]);
        assert_eq!(by_node(&[pod("d", "", "Pending", false)]).len(), 0);
    }

    #[test]
    fn percentages_are_rounded_up() {
        let scaled = |kind: &str, amount: Value| {
            let strategy = value!({"type": kind, "rollingUpdate": {"maxSurge": amount}});
            super::rolling_update_value(
                &Object(value!({"spec": {"updateStrategy": strategy}})),
                "maxSurge",
                3,
            )
        };
        assert_eq!(scaled("RollingUpdate", value!(2i64)), 2);
        assert_eq!(scaled("RollingUpdate", value!("34%")), 2);
        assert_eq!(scaled("RollingUpdate", value!("0%")), 0);
        assert_eq!(scaled("OnDelete", value!(2i64)), 0);
        assert_eq!(scaled("RollingUpdate", Value::Null), 0);
    }
}
