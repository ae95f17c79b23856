//! Nodes, pods that are there, and a pod: what speaks against each node, and for it.

use std::sync::Arc;

use super::*;
use crate::configuration::Configuration;
use crate::cycle::{Diagnosis, filter, prepare};
use crate::model::samples::{node, object, pod};
use crate::queue::Nominated;

/// A world with nodes, and pods on nodes.
fn world(nodes: &[(&str, &str)], placed: &[(&str, &str, &str)]) -> World {
    let mut world = World::default();
    for (name, text) in nodes {
        world.cache.set_node(node(name, text));
    }
    for (name, on, text) in placed {
        let slot = world.cache.find(on).expect("such a node").slot;
        world.cache.assume(pod(name, text), slot);
    }
    world.cache.refresh();
    world
}

/// What the standard plugins say of each node.
fn refusals(world: &mut World, pod: &Arc<Pod>) -> String {
    let (configuration, mut diagnosis) = (Configuration::default(), Diagnosis::default());
    let prepared = prepare(&configuration.profiles[0], pod, world, &mut diagnosis)
        .expect("nothing goes wrong");
    if !diagnosis.before.is_empty() {
        return diagnosis.before;
    }
    let nominated = Nominated::default();
    let feasible = filter(
        &prepared,
        pod,
        world,
        &nominated,
        (0, usize::MAX),
        &mut diagnosis,
    );
    let feasible = feasible.expect("nothing goes wrong");
    let verdict = |slot: &Slot| {
        let name = world.cache.node(*slot).name();
        match diagnosis.refusals.iter().find(|(known, _)| known == slot) {
            Some((_, refusal)) => {
                let mark = if refusal.resolvable { "" } else { " for good" };
                format!("{name}: {}{mark}", refusal.reasons.text())
            }
            None if feasible.contains(slot) => format!("{name}: ok"),
            None => format!("{name}: not looked at"),
        }
    };
    world
        .cache
        .order()
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
        refusals(&mut world(nodes, placed), &pod("p", candidate)),
        expected.join("\n")
    );
}

#[track_caller]
fn check_score(
    score: &dyn Score,
    nodes: &[(&str, &str)],
    placed: &[(&str, &str, &str)],
    candidate: &str,
    expected: &[i64],
) {
    let mut world = world(nodes, placed);
    check_score_in(score, &mut world, candidate, expected);
}

#[track_caller]
fn check_score_in(score: &dyn Score, world: &mut World, candidate: &str, expected: &[i64]) {
    let nodes = world.cache.order().to_vec();
    let rank = score.prepare(&pod("p", candidate), world, &nodes);
    let scores = rank.map_or_else(Vec::new, |rank| rank.rank(world, &nodes));
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
fn closed_nodes_take_only_those_that_tolerate_it() {
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
fn ports_of_all_addresses_clash_with_each() {
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
fn even_use_is_better() {
    let resources = Weighted::default_list;
    let asks = "{spec: {containers: [{resources: {requests: {cpu: '2'}}}]}}";
    let placed = [(
        "a",
        "n1",
        "{spec: {containers: [{resources: {requests: {memory: 4Gi}}}]}}",
    )];
    check_score(
        &Balanced {
            resources: resources(),
        },
        &TWO,
        &placed,
        asks,
        &[87, 62],
    );
    check_score(
        &Balanced {
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
fn pods_that_must_be_near_are_looked_for() {
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
    // The first of a group may be anywhere where there is the label.
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
fn pods_that_must_be_far_are_kept_away_both_ways() {
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
fn terms_go_with_the_pods_that_carry_them() {
    let mut world = world(&ZONES, &[("a", "n2", &near("podAntiAffinity", "zone"))]);
    let x = pod("p", "{metadata: {labels: {app: x}}}");
    assert!(refusals(&mut world, &x).contains("existing pods"));
    // The node moves to another zone, and the pod with it.
    world
        .cache
        .set_node(node("n2", "{metadata: {labels: {zone: a}}}"));
    world.cache.refresh();
    let expected = "n1: node(s) didn't satisfy existing pods anti-affinity rules\nn2: node(s) didn't satisfy existing pods anti-affinity rules\nn3: ok";
    assert_eq!(refusals(&mut world, &x), expected);
    world.cache.forget("a");
    assert!(!refusals(&mut world, &x).contains("existing pods"));
}

#[test]
fn wishes_of_both_sides_count() {
    let wish = |weight: i64| {
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
        &wish(5),
        &[100, 0, 0],
    );
    let wisher = wish(5);
    check_score(
        &InterPodAffinity::default(),
        &ZONES,
        &[("a", "n2", &wisher)],
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
    // With too few zones the least is none.
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
fn pods_that_are_going_are_not_spread() {
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
fn emptier_zones_are_better() {
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
fn pods_of_one_service_are_spread_unless_somebody_says_otherwise() {
    let x = "{metadata: {labels: {app: x}}}";
    let mut world = world(&TWO, &[("a", "n1", x)]);
    check_score_in(&TopologySpread::default(), &mut world, x, &[]);
    let service = mizzen_sdk::Object(object("{spec: {selector: {app: x}}}"));
    world
        .cache
        .owners
        .set_service(&mizzen_sdk::Key::new("default", "s"), Some(&service));
    check_score_in(&TopologySpread::default(), &mut world, x, &[66, 100]);
}

#[test]
fn sums_are_the_same_however_pods_came_and_went() {
    let x = "{metadata: {labels: {app: x}}}";
    let mut world = world(&ZONES, &[]);
    let candidate = pod("p", &spread(1, "DoNotSchedule", ""));
    // Counting begins here; what comes and goes afterwards changes single numbers.
    assert!(refusals(&mut world, &candidate).starts_with("n1: ok"));
    let slot = |world: &World, name: &str| world.cache.find(name).expect("such a node").slot;
    for round in 0..50 {
        let on = slot(&world, ["n1", "n2"][round % 2]);
        world.cache.assume(pod(&format!("a{round}"), x), on);
        if round >= 2 {
            world.cache.forget(&format!("a{}", round - 2));
        }
        let mut fresh = self::world(&ZONES, &[]);
        for (placed, slot) in world.cache.pods() {
            fresh.cache.assume(placed.clone(), slot);
        }
        assert_eq!(
            refusals(&mut world, &candidate),
            refusals(&mut fresh, &candidate),
            "round {round}"
        );
    }
}

#[test]
fn nodes_go_and_their_places_are_used_again() {
    let mut world = world(&ZONES, &[("a", "n1", "{metadata: {labels: {app: x}}}")]);
    world.cache.remove_node("n2");
    world
        .cache
        .set_node(node("n4", "{metadata: {labels: {zone: c}}}"));
    world.cache.refresh();
    assert_eq!(
        refusals(&mut world, &pod("p", "{}")),
        "n1: ok\nn3: ok\nn4: ok"
    );
    world.cache.remove_node("n1");
    world.cache.refresh();
    assert_eq!(world.cache.n_pods(), 1, "a pod may outlive its node");
    assert_eq!(refusals(&mut world, &pod("p", "{}")), "n3: ok\nn4: ok");
}
