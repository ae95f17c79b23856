//! Decides how many pods a ReplicaSet creates, or which it deletes.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::facts::PodFacts;
use crate::common::pod_rank;

/// How many pods a sync creates or deletes at most; the rest follows when these are observed.
pub(super) const BURST: usize = 500;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ReplicaPlan {
    Keep,
    Create(usize),
    Delete(Vec<Arc<PodFacts>>),
}

/// The number of related pods on each node.
pub(super) type RelatedPodsPerNode = HashMap<String, usize>;

/// Plans. `related` is called only if victims must be chosen.
pub(super) fn plan(
    n_wanted: i64,
    active: &[Arc<PodFacts>],
    related: impl FnOnce() -> RelatedPodsPerNode,
    now: Timestamp,
) -> ReplicaPlan {
    let n_wanted = usize::try_from(n_wanted).unwrap_or_default();
    let n_active = active.len();
    if n_active == n_wanted {
        return ReplicaPlan::Keep;
    }
    if n_active < n_wanted {
        return ReplicaPlan::Create((n_wanted - n_active).min(BURST));
    }
    let n_surplus = (n_active - n_wanted).min(BURST);
    if n_surplus == n_active {
        return ReplicaPlan::Delete(active.to_vec());
    }
    let related = related();
    let crowd = |pod: &PodFacts| related.get(&pod.node).copied().unwrap_or_default();
    let mut sorted = pod_rank::sort_by_insertion(active.to_vec(), |one, another| {
        one.rank
            .compare_with_nodes(&another.rank, (crowd(one), crowd(another)), now)
    });
    sorted.truncate(n_surplus);
    ReplicaPlan::Delete(sorted)
}

/// The number of active pods on each node.
pub(super) fn related_pods_per_node<'a>(
    related: impl IntoIterator<Item = &'a Arc<PodFacts>>,
) -> RelatedPodsPerNode {
    let mut per_node = RelatedPodsPerNode::new();
    for pod in related.into_iter().filter(|pod| pod.is_active) {
        *per_node.entry(pod.node.clone()).or_default() += 1;
    }
    per_node
}

#[cfg(test)]
mod tests {
    use mizzen_sdk::Object;
    use mizzen_value::value;

    use super::*;

    fn pods(names_and_nodes: &[(&str, &str)]) -> Vec<Arc<PodFacts>> {
        let pod = |(name, node): &(&str, &str)| {
            let (name, node) = (*name, *node);
            Arc::new(PodFacts::from_pod(&Object(value!({
                "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"nodeName": node},
                "status": {"phase": "Running"}
            }))))
        };
        names_and_nodes.iter().map(pod).collect()
    }

    fn many(n: usize) -> Vec<Arc<PodFacts>> {
        pods(&vec![("p", "n"); n])
    }

    fn check(n_wanted: i64, active: &[Arc<PodFacts>], expect: ReplicaPlan) {
        assert_eq!(
            plan(
                n_wanted,
                active,
                RelatedPodsPerNode::new,
                Timestamp::UNIX_EPOCH
            ),
            expect
        );
    }

    #[test]
    fn missing_pods_are_created_and_existing_ones_kept() {
        check(3, &many(3), ReplicaPlan::Keep);
        check(3, &many(1), ReplicaPlan::Create(2));
        check(0, &[], ReplicaPlan::Keep);
    }

    #[test]
    fn a_sync_creates_or_deletes_at_most_a_burst() {
        check(1000, &many(10), ReplicaPlan::Create(BURST));
        let ReplicaPlan::Delete(victims) = plan(
            0,
            &many(BURST + 1),
            RelatedPodsPerNode::new,
            Timestamp::UNIX_EPOCH,
        ) else {
            panic!("too many pods");
        };
        assert_eq!(victims.len(), BURST);
    }

    #[test]
    fn pods_on_nodes_with_more_related_pods_are_chosen() {
        let active = pods(&[("a", "n1"), ("b", "n2"), ("c", "n2")]);
        let related = pods(&[
            ("a", "n1"),
            ("b", "n2"),
            ("c", "n2"),
            ("d", "n1"),
            ("e", "n1"),
        ]);
        let chosen = plan(
            2,
            &active,
            || related_pods_per_node(&related),
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(chosen, ReplicaPlan::Delete(vec![active[0].clone()]));
    }

    #[test]
    fn related_pods_are_not_counted_when_all_are_deleted() {
        let active = many(2);
        let asked = || -> RelatedPodsPerNode { panic!("there is nothing to choose") };
        assert_eq!(
            plan(0, &active, asked, Timestamp::UNIX_EPOCH),
            ReplicaPlan::Delete(active)
        );
    }
}
