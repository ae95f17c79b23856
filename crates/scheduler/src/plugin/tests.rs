//! The default plugins on small clusters: the rejections or scores of each node.

use std::sync::Arc;

use super::*;
use crate::configuration::Configuration;
use crate::cycle::{Diagnosis, FilterRun, run_pre_filters};
use crate::model::samples::{node, object, pod};
use crate::queue::Nominator;

/// A cluster with nodes, and pods on nodes.
fn cluster(nodes: &[(&str, &str)], placed: &[(&str, &str, &str)]) -> ClusterState {
    let mut cluster = ClusterState::default();
    for (name, text) in nodes {
        cluster.cache.set_node(node(name, text));
    }
    for (name, on, text) in placed {
        let slot = cluster.cache.node_by_name(on).expect("such a node").slot;
        cluster.cache.assume(pod(name, text), slot);
    }
    cluster.cache.refresh_node_order();
    cluster
}

/// The rejections of the default plugins, by node.
fn rejections(cluster: &mut ClusterState, pod: &Arc<PodInfo>) -> String {
    let (configuration, mut diagnosis) = (Configuration::default(), Diagnosis::default());
    let state = run_pre_filters(&configuration.profiles[0], pod, cluster, &mut diagnosis)
        .expect("no internal error");
    if !diagnosis.pre_filter_message.is_empty() {
        return diagnosis.pre_filter_message;
    }
    let filters = FilterRun {
        state: &state,
        pod,
        cluster,
        nominated: &Nominator::default(),
    };
    let feasible = filters
        .find_nodes_that_pass_filters(0, usize::MAX, &mut diagnosis)
        .expect("no internal error");
    let verdict = |slot: &Slot| {
        let name = cluster.cache.node(*slot).name();
        match diagnosis.rejections.iter().find(|(known, _)| known == slot) {
            Some((_, rejection)) => {
                let mark = if rejection.resolvable {
                    ""
                } else {
                    " for good"
                };
                format!("{name}: {}{mark}", rejection.reasons.text())
            }
            None if feasible.contains(slot) => format!("{name}: ok"),
            None => format!("{name}: not looked at"),
        }
    };
    cluster
        .cache
        .node_order()
        .iter()
        .map(verdict)
        .collect::<Vec<_>>()
        .join("\n")
}

#[track_caller]
fn check(
    nodes: &[(&str, &str)],
    placed: &[(&str, &str, &str)],
    candidate: &str,
    expected: &[&str],
) {
    assert_eq!(
        rejections(&mut cluster(nodes, placed), &pod("p", candidate)),
        expected.join("\n")
    );
}

#[track_caller]
fn check_score(
    score: &dyn ScorePlugin,
    nodes: &[(&str, &str)],
    placed: &[(&str, &str, &str)],
    candidate: &str,
    expected: &[i64],
) {
    let mut cluster = cluster(nodes, placed);
    check_score_in(score, &mut cluster, candidate, expected);
}

#[track_caller]
fn check_score_in(
    score: &dyn ScorePlugin,
    cluster: &mut ClusterState,
    candidate: &str,
    expected: &[i64],
) {
    let nodes = cluster.cache.node_order().to_vec();
    let rank = score.pre_score(&pod("p", candidate), cluster, &nodes);
    let scores = rank.map_or_else(Vec::new, |rank| rank.score_nodes(cluster, &nodes));
    assert_eq!(scores, expected);
}

const TWO: [(&str, &str); 2] = [("n1", "{}"), ("n2", "{}")];
const ZONES: [(&str, &str); 3] = [
    ("n1", "{metadata: {labels: {zone: a}}}"),
    ("n2", "{metadata: {labels: {zone: b}}}"),
    ("n3", "{}"),
];

#[test]
fn room_is_counted_for_each_resource() {
    let nodes = [
        (
            "n1",
            "{status: {allocatable: {cpu: '2', example.com/gpu: '1'}}}",
        ),
        ("n2", "{status: {allocatable: {pods: '0'}}}"),
    ];
    let asks = |cpu: &str| {
        format!(
            "{{spec: {{containers: [{{resources: {{requests: {{cpu: '{cpu}', example.com/gpu: '1'}}}}}}]}}}}"
        )
    };
    check(
        &nodes,
        &[],
        &asks("1"),
        &[
            "n1: ok",
            "n2: Too many pods, Insufficient example.com/gpu for good",
        ],
    );
    let used = [(
        "a",
        "n1",
        "{spec: {containers: [{resources: {requests: {cpu: 1500m}}}]}}",
    )];
    let expected = [
        "n1: Insufficient cpu",
        "n2: Too many pods, Insufficient example.com/gpu for good",
    ];
    check(&nodes, &used, &asks("1"), &expected);
    check(&nodes, &used, "{}", &["n1: ok", "n2: Too many pods"]);
}

#[test]
fn taints_are_tolerated_or_not() {
    let nodes = [
        (
            "n1",
            "{spec: {taints: [{key: a, value: x, effect: NoSchedule}]}}",
        ),
        (
            "n2",
            "{spec: {taints: [{key: a, value: x, effect: PreferNoSchedule}]}}",
        ),
    ];
    check(
        &nodes,
        &[],
        "{}",
        &["n1: node(s) had untolerated taint(s) for good", "n2: ok"],
    );
    check(
        &nodes,
        &[],
        "{spec: {tolerations: [{key: a, value: x}]}}",
        &["n1: ok", "n2: ok"],
    );
    check(
        &nodes,
        &[],
        "{spec: {tolerations: [{key: a, value: y}]}}",
        &["n1: node(s) had untolerated taint(s) for good", "n2: ok"],
    );
    check(
        &nodes,
        &[],
        "{spec: {tolerations: [{operator: Exists}]}}",
        &["n1: ok", "n2: ok"],
    );
    check_score(&TaintToleration, &nodes, &[], "{}", &[100, 0]);
}

#[test]
fn cordoned_nodes_take_only_pods_that_tolerate_it() {
    let nodes = [("n1", "{spec: {unschedulable: true}}")];
    check(
        &nodes,
        &[],
        "{}",
        &["n1: node(s) were unschedulable for good"],
    );
    let tolerates =
        "{spec: {tolerations: [{key: node.kubernetes.io/unschedulable, operator: Exists}]}}";
    check(&nodes, &[], tolerates, &["n1: ok"]);
}

#[test]
fn a_host_port_on_all_addresses_conflicts_with_each_address() {
    let port = |ip: &str| {
        format!("{{spec: {{containers: [{{ports: [{{hostPort: 80, hostIP: '{ip}'}}]}}]}}}}")
    };
    let taken = port("10.0.0.1");
    let placed = [("a", "n1", taken.as_str())];
    let clash = "n1: node(s) didn't have free ports for the requested pod ports";
    check(&TWO, &placed, &port(""), &[clash, "n2: ok"]);
    check(&TWO, &placed, &port("10.0.0.1"), &[clash, "n2: ok"]);
    check(&TWO, &placed, &port("10.0.0.2"), &["n1: ok", "n2: ok"]);
}

#[test]
fn preferred_nodes_are_better() {
    let prefers =
        "{spec: {affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [
        {weight: 3, preference: {matchExpressions: [{key: zone, operator: In, values: [a]}]}},
        {weight: 1, preference: {matchExpressions: [{key: zone, operator: Exists}]}}]}}}}";
    check_score(
        &NodeAffinity::default(),
        &ZONES,
        &[],
        prefers,
        &[100, 25, 0],
    );
    check_score(&NodeAffinity::default(), &ZONES, &[], "{}", &[]);
}

#[test]
fn a_node_with_the_images_is_better_the_more_nodes_have_them() {
    let image = "{status: {images: [{names: ['i:latest'], sizeBytes: 1048576000}]}}";
    check_score(
        &ImageLocality,
        &[("n1", image), ("n2", "{}")],
        &[],
        "{}",
        &[48, 0],
    );
    check_score(
        &ImageLocality,
        &[("n1", image), ("n2", image)],
        &[],
        "{}",
        &[100, 100],
    );
    check_score(&ImageLocality, &TWO, &[], "{}", &[]);
}

#[test]
fn balanced_use_scores_higher() {
    let resources = ResourceSpec::default_list;
    let asks = "{spec: {containers: [{resources: {requests: {cpu: '2'}}}]}}";
    let placed = [(
        "a",
        "n1",
        "{spec: {containers: [{resources: {requests: {memory: 4Gi}}}]}}",
    )];
    check_score(
        &BalancedAllocation {
            resources: resources(),
        },
        &TWO,
        &placed,
        asks,
        &[87, 62],
    );
    check_score(
        &BalancedAllocation {
            resources: resources(),
        },
        &TWO,
        &placed,
        "{}",
        &[],
    );
}

fn near(kind: &str, key: &str) -> String {
    format!(
        "{{metadata: {{labels: {{app: x}}}}, spec: {{affinity: {{{kind}: {{requiredDuringSchedulingIgnoredDuringExecution:
           [{{labelSelector: {{matchLabels: {{app: x}}}}, topologyKey: {key}}}]}}}}}}}}"
    )
}

#[test]
fn required_affinity_needs_a_matching_pod_in_the_domain() {
    let placed = [("a", "n2", "{metadata: {labels: {app: x}}}")];
    let far = "n1: node(s) didn't match pod affinity rules for good";
    check(
        &ZONES,
        &placed,
        &near("podAffinity", "zone"),
        &[
            far,
            "n2: ok",
            "n3: node(s) didn't match pod affinity rules for good",
        ],
    );
    // The first pod of a group may go to any node with the label.
    check(
        &ZONES,
        &[],
        &near("podAffinity", "zone"),
        &[
            "n1: ok",
            "n2: ok",
            "n3: node(s) didn't match pod affinity rules for good",
        ],
    );
}

#[test]
fn required_anti_affinity_holds_both_ways() {
    let placed = [("a", "n1", "{metadata: {labels: {app: x}}}")];
    check(
        &ZONES,
        &placed,
        &near("podAntiAffinity", "zone"),
        &[
            "n1: node(s) didn't match pod anti-affinity rules",
            "n2: ok",
            "n3: ok",
        ],
    );
    let guard = near("podAntiAffinity", "zone");
    let placed = [("a", "n2", guard.as_str())];
    let expected = [
        "n1: ok",
        "n2: node(s) didn't satisfy existing pods anti-affinity rules",
        "n3: ok",
    ];
    check(&ZONES, &placed, "{metadata: {labels: {app: x}}}", &expected);
    check(
        &ZONES,
        &placed,
        "{metadata: {labels: {app: y}}}",
        &["n1: ok", "n2: ok", "n3: ok"],
    );
    check(
        &ZONES,
        &placed,
        "{metadata: {labels: {app: x}, namespace: other}}",
        &["n1: ok", "n2: ok", "n3: ok"],
    );
}

#[test]
fn affinity_terms_follow_their_pods() {
    let mut cluster = cluster(&ZONES, &[("a", "n2", &near("podAntiAffinity", "zone"))]);
    let x = pod("p", "{metadata: {labels: {app: x}}}");
    assert!(rejections(&mut cluster, &x).contains("existing pods"));
    // The node moves to another zone, and the pod with it.
    cluster
        .cache
        .set_node(node("n2", "{metadata: {labels: {zone: a}}}"));
    cluster.cache.refresh_node_order();
    let expected = "n1: node(s) didn't satisfy existing pods anti-affinity rules\nn2: node(s) didn't satisfy existing pods anti-affinity rules\nn3: ok";
    assert_eq!(rejections(&mut cluster, &x), expected);
    cluster.cache.forget_assumed("a");
    assert!(!rejections(&mut cluster, &x).contains("existing pods"));
}

#[test]
fn preferred_affinity_of_both_pods_counts() {
    let preferring = |weight: i64| {
        format!(
            "{{metadata: {{labels: {{app: x}}}}, spec: {{affinity: {{podAffinity: {{preferredDuringSchedulingIgnoredDuringExecution:
               [{{weight: {weight}, podAffinityTerm: {{labelSelector: {{matchLabels: {{app: x}}}}, topologyKey: zone}}}}]}}}}}}}}"
        )
    };
    let placed = [("a", "n1", "{metadata: {labels: {app: x}}}")];
    check_score(
        &InterPodAffinity::default(),
        &ZONES,
        &placed,
        &preferring(5),
        &[100, 0, 0],
    );
    let preferring_pod = preferring(5);
    check_score(
        &InterPodAffinity::default(),
        &ZONES,
        &[("a", "n2", &preferring_pod)],
        "{metadata: {labels: {app: x}}}",
        &[0, 100, 0],
    );
    check_score(&InterPodAffinity::default(), &ZONES, &placed, "{}", &[]);
}

fn spread(max_skew: i64, when: &str, more: &str) -> String {
    format!(
        "{{metadata: {{labels: {{app: x}}}}, spec: {{topologySpreadConstraints: [{{maxSkew: {max_skew}, topologyKey: zone,
           whenUnsatisfiable: {when}, labelSelector: {{matchLabels: {{app: x}}}}{more}}}]}}}}"
    )
}

#[test]
fn pods_are_spread_over_zones() {
    let uneven = "node(s) didn't match pod topology spread constraints";
    let label = format!("n3: {uneven} (missing required label) for good");
    let x = "{metadata: {labels: {app: x}}}";
    check(
        &ZONES,
        &[("a", "n1", x)],
        &spread(1, "DoNotSchedule", ""),
        &[&format!("n1: {uneven}"), "n2: ok", &label],
    );
    check(
        &ZONES,
        &[("a", "n1", x), ("b", "n2", x)],
        &spread(1, "DoNotSchedule", ""),
        &["n1: ok", "n2: ok", &label],
    );
    check(
        &ZONES,
        &[("a", "n1", x)],
        &spread(2, "DoNotSchedule", ""),
        &["n1: ok", "n2: ok", &label],
    );
    // With too few domains the global minimum is zero.
    let both = [("a", "n1", x), ("b", "n2", x)];
    let full = [
        format!("n1: {uneven}"),
        format!("n2: {uneven}"),
        label.clone(),
    ];
    check(
        &ZONES,
        &both,
        &spread(1, "DoNotSchedule", ", minDomains: 3"),
        &[&full[0], &full[1], &full[2]],
    );
}

#[test]
fn terminating_pods_are_not_counted_for_spreading() {
    let uneven = "n1: node(s) didn't match pod topology spread constraints";
    let going = "{metadata: {labels: {app: x}, deletionTimestamp: '2026-01-01T00:00:00Z'}}";
    let two = &ZONES[..2];
    check(
        two,
        &[("a", "n1", going)],
        &spread(1, "DoNotSchedule", ""),
        &["n1: ok", "n2: ok"],
    );
    check(
        two,
        &[("a", "n1", "{metadata: {labels: {app: x}}}")],
        &spread(1, "DoNotSchedule", ""),
        &[uneven, "n2: ok"],
    );
}

#[test]
fn emptier_domains_score_higher() {
    let x = "{metadata: {labels: {app: x}}}";
    let placed = [("a", "n1", x), ("b", "n1", x), ("c", "n2", x)];
    check_score(
        &TopologySpread::default(),
        &ZONES,
        &placed,
        &spread(1, "ScheduleAnyway", ""),
        &[33, 100, 0],
    );
}

#[test]
fn pods_of_one_service_are_spread_by_default() {
    let x = "{metadata: {labels: {app: x}}}";
    let mut cluster = cluster(&TWO, &[("a", "n1", x)]);
    check_score_in(&TopologySpread::default(), &mut cluster, x, &[]);
    let service = mizzen_sdk::Object(object("{spec: {selector: {app: x}}}"));
    cluster
        .cache
        .default_selectors
        .set_service(&mizzen_sdk::Key::new("default", "s"), Some(&service));
    check_score_in(&TopologySpread::default(), &mut cluster, x, &[66, 100]);
}

#[test]
fn sums_are_the_same_however_pods_came_and_went() {
    let x = "{metadata: {labels: {app: x}}}";
    let mut cluster = cluster(&ZONES, &[]);
    let candidate = pod("p", &spread(1, "DoNotSchedule", ""));
    // Counting begins here; later changes update single numbers.
    assert!(rejections(&mut cluster, &candidate).starts_with("n1: ok"));
    let slot = |cluster: &ClusterState, name: &str| {
        cluster.cache.node_by_name(name).expect("such a node").slot
    };
    for round in 0..50 {
        let on = slot(&cluster, ["n1", "n2"][round % 2]);
        cluster.cache.assume(pod(&format!("a{round}"), x), on);
        if round >= 2 {
            cluster.cache.forget_assumed(&format!("a{}", round - 2));
        }
        let mut fresh = self::cluster(&ZONES, &[]);
        for (placed, slot) in cluster.cache.pods() {
            fresh.cache.assume(placed.clone(), slot);
        }
        assert_eq!(
            rejections(&mut cluster, &candidate),
            rejections(&mut fresh, &candidate),
            "round {round}"
        );
    }
}

#[test]
fn nodes_go_and_their_places_are_used_again() {
    let mut cluster = cluster(&ZONES, &[("a", "n1", "{metadata: {labels: {app: x}}}")]);
    cluster.cache.remove_node("n2");
    cluster
        .cache
        .set_node(node("n4", "{metadata: {labels: {zone: c}}}"));
    cluster.cache.refresh_node_order();
    assert_eq!(
        rejections(&mut cluster, &pod("p", "{}")),
        "n1: ok\nn3: ok\nn4: ok"
    );
    cluster.cache.remove_node("n1");
    cluster.cache.refresh_node_order();
    assert_eq!(cluster.cache.n_pods(), 1, "a pod may outlive its node");
    assert_eq!(rejections(&mut cluster, &pod("p", "{}")), "n3: ok\nn4: ok");
}
