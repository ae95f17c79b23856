//! How many pods are missing, or which are too many?

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::facts::Facts;
use crate::common::rank;

/// How many pods are made or deleted at once; the rest comes when these were seen.
pub(super) const BURST: usize = 500;

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Plan {
    /// Nothing.
    Rest,
    /// Make so many pods.
    Create(usize),
    /// Delete these pods.
    Delete(Vec<Arc<Facts>>),
}

/// How many pods of related sets are on each node.
pub(super) type Neighbours = HashMap<String, usize>;

/// Decides. `neighbours` is asked only if somebody has to be chosen.
pub(super) fn plan(
    n_wanted: i64,
    active: &[Arc<Facts>],
    neighbours: impl FnOnce() -> Neighbours,
    now: Timestamp,
) -> Plan {
    let n_wanted = usize::try_from(n_wanted).unwrap_or_default();
    let n_active = active.len();
    if n_active == n_wanted {
        return Plan::Rest;
    }
    if n_active < n_wanted {
        return Plan::Create((n_wanted - n_active).min(BURST));
    }
    let n_surplus = (n_active - n_wanted).min(BURST);
    if n_surplus == n_active {
        return Plan::Delete(active.to_vec());
    }
    let neighbours = neighbours();
    let crowd = |pod: &Facts| neighbours.get(&pod.node).copied().unwrap_or_default();
    let mut sorted = rank::sort(active.to_vec(), |one, another| {
        one.standing
            .compare_among(&another.standing, (crowd(one), crowd(another)), now)
    });
    sorted.truncate(n_surplus);
    Plan::Delete(sorted)
}

/// How many active pods are on each node.
pub(super) fn neighbours<'a>(related: impl IntoIterator<Item = &'a Arc<Facts>>) -> Neighbours {
    let mut neighbours = Neighbours::new();
    for pod in related.into_iter().filter(|pod| pod.is_active) {
        *neighbours.entry(pod.node.clone()).or_default() += 1;
    }
    neighbours
}

#[cfg(test)]
mod tests {
    use mizzen_sdk::Object;
    use mizzen_value::value;

    use super::*;

    fn pods(names_and_nodes: &[(&str, &str)]) -> Vec<Arc<Facts>> {
        let pod = |(name, node): &(&str, &str)| {
            let (name, node) = (*name, *node);
            Arc::new(Facts::of(&Object(value!({
                "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"nodeName": node},
                "status": {"phase": "Running"}
            }))))
        };
        names_and_nodes.iter().map(pod).collect()
    }

    fn many(n: usize) -> Vec<Arc<Facts>> {
        pods(&vec![("p", "n"); n])
    }

    fn check(n_wanted: i64, active: &[Arc<Facts>], expect: Plan) {
        assert_eq!(
            plan(n_wanted, active, Neighbours::new, Timestamp::UNIX_EPOCH),
            expect
        );
    }

    #[test]
    fn what_is_missing_is_made_and_what_is_there_is_left() {
        check(3, &many(3), Plan::Rest);
        check(3, &many(1), Plan::Create(2));
        check(0, &[], Plan::Rest);
    }

    #[test]
    fn not_more_than_a_burst_is_made_or_deleted_at_once() {
        check(1000, &many(10), Plan::Create(BURST));
        let Plan::Delete(victims) =
            plan(0, &many(BURST + 1), Neighbours::new, Timestamp::UNIX_EPOCH)
        else {
            panic!("too many pods");
        };
        assert_eq!(victims.len(), BURST);
    }

    #[test]
    fn pods_on_crowded_nodes_are_chosen() {
        let active = pods(&[("a", "n1"), ("b", "n2"), ("c", "n2")]);
        let related = pods(&[
            ("a", "n1"),
            ("b", "n2"),
            ("c", "n2"),
            ("d", "n1"),
            ("e", "n1"),
        ]);
        let chosen = plan(2, &active, || neighbours(&related), Timestamp::UNIX_EPOCH);
        assert_eq!(chosen, Plan::Delete(vec![active[0].clone()]));
    }

    #[test]
    fn nobody_asks_for_neighbours_when_all_go() {
        let active = many(2);
        let asked = || -> Neighbours { panic!("there is nothing to choose") };
        assert_eq!(
            plan(0, &active, asked, Timestamp::UNIX_EPOCH),
            Plan::Delete(active)
        );
    }
}
