//! Zone states and eviction rates.
//!
//! The more nodes of a zone are not ready, the slower NoExecute taints are added. If no node of any
//! zone is ready, the control plane is probably disconnected, and none are added.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use mizzen_value::Value;

use super::taint_queue::TaintQueue;

/// `--node-eviction-rate`: nodes per second in a normal zone.
const EVICTION_LIMITER_QPS: f64 = 0.1;
/// `--secondary-node-eviction-rate`: in a large zone with a partial disruption; it is 0 in a small
/// one.
const SECONDARY_EVICTION_LIMITER_QPS: f64 = 0.01;
/// `--large-cluster-size-threshold`.
const LARGE_CLUSTER_THRESHOLD: usize = 50;
/// `--unhealthy-zone-threshold`, with at least three nodes not ready.
const UNHEALTHY_ZONE_THRESHOLD: f64 = 0.55;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ZoneState {
    /// Not computed yet.
    Initial,
    /// Enough nodes are ready.
    Normal,
    /// Too many nodes are not ready.
    PartialDisruption,
    /// No node is ready.
    FullDisruption,
}

/// What changed for the whole cluster between two checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DisruptionChange {
    None,
    /// No node of any zone is ready any more: no pods are evicted, and NoExecute taints are
    /// removed.
    FullyDisrupted,
    /// Some node is ready again: every node gets a full grace period.
    Recovered,
}

/// The zones by name.
#[derive(Debug, Default)]
pub(super) struct ZoneStates(BTreeMap<String, (ZoneState, TaintQueue)>);

impl ZoneStates {
    /// The taint queue of a zone; creates it if needed.
    pub(super) fn taint_queue(&mut self, zone: &str, now: Timestamp) -> &mut TaintQueue {
        let new = || {
            (
                ZoneState::Initial,
                TaintQueue::new(EVICTION_LIMITER_QPS, now),
            )
        };
        &mut self.0.entry(zone.into()).or_insert_with(new).1
    }

    pub(super) fn are_queues_empty(&self) -> bool {
        self.0.values().all(|(_, waiting)| waiting.is_empty())
    }

    /// The nodes that the rate limiters admit.
    pub(super) fn next(&mut self, now: Timestamp) -> Vec<String> {
        self.0
            .values_mut()
            .filter_map(|(_, waiting)| waiting.next(now))
            .collect()
    }

    /// Computes the states of all zones from the readiness of their nodes, and sets the rates.
    pub(super) fn handle_disruption(
        &mut self,
        ready: &BTreeMap<String, Vec<bool>>,
        now: Timestamp,
    ) -> DisruptionChange {
        for zone in ready.keys() {
            self.taint_queue(zone, now);
        }
        self.0
            .retain(|zone, (_, waiting)| ready.contains_key(zone) || !waiting.is_empty());
        let counted = self.0.iter().filter(|(zone, _)| ready.contains_key(*zone));
        let was_blind = counted
            .map(|(_, (state, _))| *state)
            .all(|state| state == ZoneState::FullDisruption);
        let is_blind = ready
            .values()
            .all(|nodes| compute_zone_state(nodes) == ZoneState::FullDisruption);
        match (was_blind, is_blind) {
            (true, true) => return DisruptionChange::None,
            (false, true) => self.stop_evictions(now),
            (_, false) => self.update_zones(ready, now),
        }
        match (was_blind, is_blind) {
            (false, true) => DisruptionChange::FullyDisrupted,
            (true, false) => DisruptionChange::Recovered,
            _ => DisruptionChange::None,
        }
    }

    fn stop_evictions(&mut self, now: Timestamp) {
        for (state, waiting) in self.0.values_mut() {
            *state = ZoneState::FullDisruption;
            waiting.swap_limiter(0.0, now);
        }
    }

    fn update_zones(&mut self, ready: &BTreeMap<String, Vec<bool>>, now: Timestamp) {
        for (zone, nodes) in ready {
            if let Some((known, waiting)) = self.0.get_mut(zone) {
                *known = compute_zone_state(nodes);
                waiting.swap_limiter(rate(*known, nodes.len()), now);
            }
        }
    }
}

fn compute_zone_state(ready: &[bool]) -> ZoneState {
    let n_lost = ready.iter().filter(|ready| !**ready).count();
    match n_lost {
        0 => ZoneState::Normal,
        n if n == ready.len() => ZoneState::FullDisruption,
        n if n > 2 && n as f64 / ready.len() as f64 >= UNHEALTHY_ZONE_THRESHOLD => {
            ZoneState::PartialDisruption
        }
        _ => ZoneState::Normal,
    }
}

fn rate(state: ZoneState, n_nodes: usize) -> f64 {
    match state {
        ZoneState::PartialDisruption if n_nodes > LARGE_CLUSTER_THRESHOLD => {
            SECONDARY_EVICTION_LIMITER_QPS
        }
        ZoneState::PartialDisruption => 0.0,
        ZoneState::Initial | ZoneState::Normal | ZoneState::FullDisruption => EVICTION_LIMITER_QPS,
    }
}

/// Region and zone of a node; `""` without both labels.
pub(super) fn zone_of(node: &Value) -> String {
    let labels = &node["metadata"]["labels"];
    let label = |name: &str, old: &str| {
        labels
            .get(name)
            .or(labels.get(old))
            .map_or("", Value::str)
            .to_string()
    };
    let region = label(
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/region",
    );
    let zone = label(
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/zone",
    );
    match (region.as_str(), zone.as_str()) {
        ("", "") => String::new(),
        _ => format!("{region}:\0:{zone}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn cluster(zones: &[(&str, usize, usize)]) -> BTreeMap<String, Vec<bool>> {
        let nodes =
            |n_ready: usize, n_lost: usize| [vec![true; n_ready], vec![false; n_lost]].concat();
        zones
            .iter()
            .map(|(zone, n_ready, n_lost)| (zone.to_string(), nodes(*n_ready, *n_lost)))
            .collect()
    }

    #[track_caller]
    fn check(n_ready: usize, n_lost: usize, wanted: ZoneState, wanted_rate: f64) {
        let nodes = &cluster(&[("", n_ready, n_lost)])[""];
        assert_eq!(
            (
                compute_zone_state(nodes),
                rate(compute_zone_state(nodes), nodes.len())
            ),
            (wanted, wanted_rate)
        );
    }

    #[test]
    fn the_zone_state_follows_the_share_of_nodes_not_ready() {
        check(3, 0, ZoneState::Normal, 0.1);
        check(1, 2, ZoneState::Normal, 0.1);
        check(2, 3, ZoneState::PartialDisruption, 0.0);
        check(3, 3, ZoneState::Normal, 0.1);
        check(23, 28, ZoneState::Normal, 0.1);
        check(22, 29, ZoneState::PartialDisruption, 0.01);
        check(0, 1, ZoneState::FullDisruption, 0.1);
    }

    #[test]
    fn evictions_stop_while_no_node_is_ready() {
        let mut zones = ZoneStates::default();
        assert_eq!(
            zones.handle_disruption(&cluster(&[("a", 1, 0), ("b", 0, 1)]), at(0)),
            DisruptionChange::None
        );
        zones.taint_queue("b", at(0)).add("lost");
        assert_eq!(
            zones.handle_disruption(&cluster(&[("a", 0, 1), ("b", 0, 1)]), at(5)),
            DisruptionChange::FullyDisrupted
        );
        assert_eq!(
            zones.handle_disruption(&cluster(&[("a", 0, 1), ("b", 0, 1)]), at(10)),
            DisruptionChange::None
        );
        assert_eq!(zones.next(at(1000)), [""; 0]);
        assert_eq!(
            zones.handle_disruption(&cluster(&[("a", 1, 0), ("b", 0, 1)]), at(1000)),
            DisruptionChange::Recovered
        );
        assert_eq!(zones.next(at(1010)), ["lost"]);
    }

    #[test]
    fn a_single_zone_in_full_disruption_is_evicted() {
        let mut zones = ZoneStates::default();
        zones.taint_queue("b", at(0)).add("lost");
        zones.handle_disruption(&cluster(&[("a", 1, 0), ("b", 0, 5)]), at(0));
        assert_eq!(zones.next(at(0)), ["lost"]);
        assert!(zones.are_queues_empty());
    }

    #[test]
    fn a_first_check_without_ready_nodes_is_a_full_disruption() {
        let mut zones = ZoneStates::default();
        assert_eq!(
            zones.handle_disruption(&cluster(&[("", 0, 2)]), at(0)),
            DisruptionChange::FullyDisrupted
        );
    }

    #[test]
    fn a_node_is_in_its_region_and_zone() {
        let node = |text: &str| mizzen_value::json::parse(text.as_bytes()).unwrap();
        assert_eq!(zone_of(&node("{}")), "");
        let labels = r#"{"metadata":{"labels":{"failure-domain.beta.kubernetes.io/region":"r","topology.kubernetes.io/zone":"z"}}}"#;
        assert_eq!(zone_of(&node(labels)), "r:\0:z");
    }
}
