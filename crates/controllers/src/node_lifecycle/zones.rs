//! How bad is it, zone by zone? The more nodes of a zone are lost, the more likely is it us who cannot see, and the slower
//! are pods driven away; not at all when no node of any zone is ready.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use mizzen_value::Value;

use super::waiting::Waiting;

/// Nodes per second that lose their pods in a healthy zone.
const RATE: f64 = 0.1;
/// The same in a large zone most of which is lost; a small one loses none then.
const SECONDARY_RATE: f64 = 0.01;
/// From how many nodes a zone is large.
const LARGE: usize = 50;
/// The share of nodes not ready, at least three, from which most of a zone is lost.
const UNHEALTHY: f64 = 0.55;

/// How a zone is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Nobody has looked yet.
    Initial,
    /// Enough nodes are ready.
    Normal,
    /// Most nodes are not.
    Partial,
    /// None is.
    Full,
}

/// What happened to the whole cluster between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing.
    None,
    /// Now no node of any zone is ready: nobody is driven away, and taints that do so are taken back.
    Blind,
    /// Now some node is ready again: every node gets its whole grace.
    Seeing,
}

/// The zones of a cluster, by name.
#[derive(Debug, Default)]
pub(super) struct Zones(BTreeMap<String, (State, Waiting)>);

impl Zones {
    /// The nodes that wait in a zone, which is made if it is new.
    pub(super) fn waiting(&mut self, zone: &str, now: Timestamp) -> &mut Waiting {
        let new = || (State::Initial, Waiting::new(RATE, now));
        &mut self.0.entry(zone.into()).or_insert_with(new).1
    }

    /// Whether nobody waits in any zone.
    pub(super) fn are_quiet(&self) -> bool {
        self.0.values().all(|(_, waiting)| waiting.is_empty())
    }

    /// The nodes that may pass now.
    pub(super) fn next(&mut self, now: Timestamp) -> Vec<String> {
        self.0
            .values_mut()
            .filter_map(|(_, waiting)| waiting.next(now))
            .collect()
    }

    /// Learns which nodes of each zone are ready, and sets the rates.
    pub(super) fn learn(&mut self, ready: &BTreeMap<String, Vec<bool>>, now: Timestamp) -> Turn {
        for zone in ready.keys() {
            self.waiting(zone, now);
        }
        self.0
            .retain(|zone, (_, waiting)| ready.contains_key(zone) || !waiting.is_empty());
        let counted = self.0.iter().filter(|(zone, _)| ready.contains_key(*zone));
        let was_blind = counted
            .map(|(_, (state, _))| *state)
            .all(|state| state == State::Full);
        let is_blind = ready.values().all(|nodes| state(nodes) == State::Full);
        match (was_blind, is_blind) {
            (true, true) => return Turn::None,
            (false, true) => self.close(now),
            (_, false) => self.follow(ready, now),
        }
        match (was_blind, is_blind) {
            (false, true) => Turn::Blind,
            (true, false) => Turn::Seeing,
            _ => Turn::None,
        }
    }

    fn close(&mut self, now: Timestamp) {
        for (state, waiting) in self.0.values_mut() {
            *state = State::Full;
            waiting.set_rate(0.0, now);
        }
    }

    fn follow(&mut self, ready: &BTreeMap<String, Vec<bool>>, now: Timestamp) {
        for (zone, nodes) in ready {
            if let Some((known, waiting)) = self.0.get_mut(zone) {
                *known = state(nodes);
                waiting.set_rate(rate(*known, nodes.len()), now);
            }
        }
    }
}

fn state(ready: &[bool]) -> State {
    let n_lost = ready.iter().filter(|ready| !**ready).count();
    match n_lost {
        0 => State::Normal,
        n if n == ready.len() => State::Full,
        n if n > 2 && n as f64 / ready.len() as f64 >= UNHEALTHY => State::Partial,
        _ => State::Normal,
    }
}

fn rate(state: State, n_nodes: usize) -> f64 {
    match state {
        State::Partial if n_nodes > LARGE => SECONDARY_RATE,
        State::Partial => 0.0,
        State::Initial | State::Normal | State::Full => RATE,
    }
}

/// The zone of a node: its region and zone; `""` if it says neither.
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
    fn check(n_ready: usize, n_lost: usize, wanted: State, wanted_rate: f64) {
        let nodes = &cluster(&[("", n_ready, n_lost)])[""];
        assert_eq!(
            (state(nodes), rate(state(nodes), nodes.len())),
            (wanted, wanted_rate)
        );
    }

    #[test]
    fn a_zone_is_as_bad_as_its_share_of_lost_nodes() {
        check(3, 0, State::Normal, 0.1);
        check(1, 2, State::Normal, 0.1);
        check(2, 3, State::Partial, 0.0);
        check(3, 3, State::Normal, 0.1);
        check(23, 28, State::Normal, 0.1);
        check(22, 29, State::Partial, 0.01);
        check(0, 1, State::Full, 0.1);
    }

    #[test]
    fn nobody_is_driven_away_while_no_node_is_ready() {
        let mut zones = Zones::default();
        assert_eq!(
            zones.learn(&cluster(&[("a", 1, 0), ("b", 0, 1)]), at(0)),
            Turn::None
        );
        zones.waiting("b", at(0)).add("lost");
        assert_eq!(
            zones.learn(&cluster(&[("a", 0, 1), ("b", 0, 1)]), at(5)),
            Turn::Blind
        );
        assert_eq!(
            zones.learn(&cluster(&[("a", 0, 1), ("b", 0, 1)]), at(10)),
            Turn::None
        );
        assert_eq!(zones.next(at(1000)), [""; 0]);
        assert_eq!(
            zones.learn(&cluster(&[("a", 1, 0), ("b", 0, 1)]), at(1000)),
            Turn::Seeing
        );
        assert_eq!(zones.next(at(1010)), ["lost"]);
    }

    #[test]
    fn a_zone_that_is_lost_alone_is_emptied() {
        let mut zones = Zones::default();
        zones.waiting("b", at(0)).add("lost");
        zones.learn(&cluster(&[("a", 1, 0), ("b", 0, 5)]), at(0));
        assert_eq!(zones.next(at(0)), ["lost"]);
        assert!(zones.are_quiet());
    }

    #[test]
    fn the_first_look_at_a_dark_cluster_counts_as_going_blind() {
        let mut zones = Zones::default();
        assert_eq!(zones.learn(&cluster(&[("", 0, 2)]), at(0)), Turn::Blind);
    }

    #[test]
    fn a_node_is_in_its_region_and_zone() {
        let node = |text: &str| mizzen_value::json::parse(text.as_bytes()).unwrap();
        assert_eq!(zone_of(&node("{}")), "");
        let labels = r#"{"metadata":{"labels":{"failure-domain.beta.kubernetes.io/region":"r","topology.kubernetes.io/zone":"z"}}}"#;
        assert_eq!(zone_of(&node(labels)), "r:\0:z");
    }
}
