//! The changes of a service's EndpointSlices.

use std::collections::{BTreeMap, BTreeSet};

use mizzen_value::Value;

use super::desired::desired_endpoints;
use super::hints::{self, TrafficDistribution};
use super::metrics::{ServiceSlices, SyncCounts};
use super::pack::{MAX_ENDPOINTS, new_slice, pack};
use super::zones::ByZone;
use crate::services::member::IpFamily;
use crate::services::slice::{SliceChanges, endpoint_identity, port_key};

/// The nodes and zones of the cluster.
pub(crate) struct NodeTopology<'s> {
    /// The labels of a node; none if it does not exist.
    pub nodes: &'s dyn Fn(&str) -> Option<Value>,
    /// Each zone's share of the CPUs, if known.
    pub ratios: Option<&'s ByZone>,
}

/// The changes, and what is reported with them.
#[derive(Debug, Default)]
pub(crate) struct SlicePlan<'a> {
    pub changes: SliceChanges<'a>,
    /// Why pods are left out that may be published later.
    pub skipped: Vec<String>,
    /// The allocation to zones if the service wants one, or why it failed.
    pub shares: Option<Result<ByZone<usize>, String>>,
}

impl SlicePlan<'_> {
    /// Adds the endpoints and slices that the service will have.
    pub(super) fn add_to(&self, totals: &mut ServiceSlices) {
        let SliceChanges {
            create,
            update,
            unchanged,
            ..
        } = &self.changes;
        let slices = || create.iter().chain(update).chain(unchanged.iter().copied());
        let mut by_ports: BTreeMap<String, usize> = BTreeMap::new();
        for slice in slices() {
            *by_ports.entry(port_key(slice["ports"].list())).or_default() +=
                slice["endpoints"].list().len();
        }
        totals.n_slices += slices().count();
        totals.n_endpoints += by_ports.values().sum::<usize>();
        // There is always a placeholder.
        let n_full: usize = by_ports.values().map(|n| n.div_ceil(MAX_ENDPOINTS)).sum();
        totals.n_slices_desired += n_full.max(1);
    }

    /// What the plan changes of `slices`.
    pub(super) fn counts(&self, slices: &[&Value]) -> SyncCounts {
        let changes = &self.changes;
        let identities = |slices: &mut dyn Iterator<Item = &Value>| -> BTreeSet<String> {
            let endpoints = slices.flat_map(|slice| slice["endpoints"].list());
            endpoints.map(endpoint_identity).collect()
        };
        let before = identities(&mut slices.iter().copied());
        let planned = changes.create.iter().chain(&changes.update);
        let after = identities(&mut planned.chain(changes.unchanged.iter().copied()));
        SyncCounts {
            endpoints_added: after.difference(&before).count(),
            endpoints_removed: before.difference(&after).count(),
            created: changes.create.len(),
            updated: changes.update.len(),
            deleted: changes.delete.len(),
        }
    }
}

/// Plans the slices of one address family.
pub(crate) fn plan<'a>(
    service: &Value,
    pods: &[&Value],
    slices: &[&'a Value],
    around: &NodeTopology,
    family: IpFamily,
) -> SlicePlan<'a> {
    let mut wanted = desired_endpoints(service, pods, around.nodes, family);
    let mut changes = SliceChanges::default();
    let mut old: BTreeMap<String, Vec<&'a Value>> = BTreeMap::new();
    for slice in slices {
        match is_owned(slice, service) {
            true => old
                .entry(port_key(slice["ports"].list()))
                .or_default()
                .push(slice),
            false => changes.delete.push(slice),
        }
    }
    for (ports, group) in &mut wanted.groups {
        let slices = old.remove(ports).unwrap_or_default();
        changes.append(pack(service, family.name(), group, &slices));
    }
    changes.delete.extend(old.into_values().flatten());
    changes.ensure_placeholder(service, family, slices.len());
    let mut shares = None;
    match TrafficDistribution::from_service(service) {
        TrafficDistribution::Unset => hints::remove_hints(&mut changes),
        TrafficDistribution::PreferSameZone => {
            hints::reconcile_traffic_distribution(&mut changes, false);
        }
        TrafficDistribution::PreferSameNode => {
            hints::reconcile_traffic_distribution(&mut changes, true);
        }
        TrafficDistribution::TopologyAware => {
            shares = Some(hints::add_topology_hints(&mut changes, around.ratios));
        }
    }
    changes.recycle(|slice| is_owned(slice, service));
    SlicePlan {
        changes,
        skipped: wanted.skipped,
        shares,
    }
}

/// Whether a slice belongs to this service and not to an earlier one of its name.
fn is_owned(slice: &Value, service: &Value) -> bool {
    let uid = &service["metadata"]["uid"];
    let is_it = |owner: &Value| {
        owner["uid"] == *uid
            && owner["kind"].str() == "Service"
            && owner["apiVersion"].str() == "v1"
    };
    slice["metadata"]["ownerReferences"]
        .list()
        .iter()
        .any(is_it)
}

impl SliceChanges<'_> {
    /// A service without endpoints has an empty placeholder slice, which shows that it was synced.
    fn ensure_placeholder(&mut self, service: &Value, family: IpFamily, n_slices: usize) {
        if self.delete.len() != n_slices || !self.create.is_empty() {
            return;
        }
        let place = new_slice(service, family.name(), &[]);
        let is_placeholder = |slice: &Value| {
            slice["endpoints"].list().is_empty()
                && slice["ports"].list().is_empty()
                && slice["addressType"] == place["addressType"]
                && slice["metadata"]["labels"] == place["metadata"]["labels"]
        };
        match self.delete.as_slice() {
            [only] if is_placeholder(only) => self.unchanged.append(&mut self.delete),
            _ => self.create.push(place),
        }
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    fn service(annotations: Value) -> Value {
        value!({
            "metadata": {"namespace": "a", "name": "s", "uid": "s1", "annotations": (annotations)},
            "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80, "targetPort": "web", "protocol": "TCP"}]}
        })
    }

    fn pod(name: &str, port: i64) -> Value {
        value!({
            "metadata": {"namespace": "a", "name": (name), "uid": (name)},
            "spec": {"nodeName": "n", "containers": [{"ports": [
                {"name": "web", "containerPort": (port), "protocol": "TCP"}
            ]}]},
            "status": {"podIPs": [{"ip": "10.1.0.1"}], "podIP": "10.1.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
        })
    }

    fn run<'a>(service: &Value, pods: &[Value], slices: &[&'a Value]) -> SlicePlan<'a> {
        let around = NodeTopology {
            nodes: &|name| (name == "n").then(|| value!({})),
            ratios: None,
        };
        plan(
            service,
            &pods.iter().collect::<Vec<_>>(),
            slices,
            &around,
            IpFamily::V4,
        )
    }

    /// Slices with names as the server would generate them.
    fn named(plan: SlicePlan) -> Vec<Value> {
        let name = |(at, mut slice): (usize, Value)| {
            slice.entry("metadata").set("name", format!("s-{at}"));
            slice
        };
        plan.changes
            .create
            .into_iter()
            .enumerate()
            .map(name)
            .collect()
    }

    /// The number of slices created, updated and deleted.
    #[track_caller]
    fn check(service: &Value, pods: &[Value], slices: &[&Value], expect: (usize, usize, usize)) {
        let changes = run(service, pods, slices).changes;
        assert_eq!(
            (
                changes.create.len(),
                changes.update.len(),
                changes.delete.len()
            ),
            expect
        );
    }

    #[test]
    fn a_service_without_pods_has_an_empty_slice() {
        let service = service(value!({}));
        let slices = named(run(&service, &[], &[]));
        assert_eq!(slices[0]["endpoints"], value!([]));
        check(&service, &[], &[&slices[0]], (0, 0, 0));
        check(&service, &[pod("p", 8080)], &[&slices[0]], (0, 1, 0));
    }

    #[test]
    fn a_plan_counts_endpoints_and_slices() {
        let service = service(value!({}));
        let slices = named(run(&service, &[pod("p", 8080)], &[]));
        let plan = run(&service, &[pod("q", 8080), pod("r", 8081)], &[&slices[0]]);
        let mut totals = ServiceSlices::default();
        plan.add_to(&mut totals);
        assert_eq!(
            (totals.n_endpoints, totals.n_slices, totals.n_slices_desired),
            (2, 2, 2)
        );
        let counts = plan.counts(&[&slices[0]]);
        assert_eq!((counts.endpoints_added, counts.endpoints_removed), (2, 1));
        assert_eq!((counts.created, counts.updated, counts.deleted), (1, 1, 0));
        let mut none = ServiceSlices::default();
        run(&service, &[], &[]).add_to(&mut none);
        assert_eq!((none.n_endpoints, none.n_slices_desired), (0, 1));
    }

    #[test]
    fn pods_with_other_ports_are_in_other_slices() {
        let service = service(value!({}));
        let pods = [pod("p", 8080), pod("q", 8081)];
        let slices = named(run(&service, &pods, &[]));
        assert_eq!(slices.len(), 2);
        check(
            &service,
            &pods,
            &slices.iter().collect::<Vec<_>>(),
            (0, 0, 0),
        );
        check(
            &service,
            &pods[..1],
            &slices.iter().collect::<Vec<_>>(),
            (0, 0, 1),
        );
    }

    #[test]
    fn the_last_pods_slice_becomes_the_placeholder() {
        let service = service(value!({}));
        let slices = named(run(&service, &[pod("p", 8080)], &[]));
        let plan = run(&service, &[], &[&slices[0]]);
        assert_eq!(
            (plan.changes.create.len(), plan.changes.delete.len()),
            (0, 0)
        );
        let place = &plan.changes.update[0];
        assert_eq!(
            (&place["ports"], place["metadata"]["name"].str()),
            (&value!([]), "s-0")
        );
    }

    #[test]
    fn slices_of_an_earlier_service_of_the_same_name_are_deleted() {
        let mut older = service(value!({}));
        older.entry("metadata").set("uid", "s0");
        let slices = named(run(&older, &[pod("p", 8080)], &[]));
        check(
            &service(value!({})),
            &[pod("p", 8080)],
            &[&slices[0]],
            (1, 0, 1),
        );
    }

    #[test]
    fn a_pod_with_a_missing_node_is_reported() {
        let mut pod = pod("p", 8080);
        pod.entry("spec").set("nodeName", "gone");
        let plan = run(&service(value!({})), &[pod], &[]);
        assert_eq!(plan.skipped.len(), 1);
        assert_eq!(plan.changes.create.len(), 1, "the empty one");
    }

    #[test]
    fn a_service_may_use_topology_aware_routing() {
        let wish = service(value!({"service.kubernetes.io/topology-mode": "Auto"}));
        assert!(
            run(&wish, &[pod("p", 8080)], &[])
                .shares
                .is_some_and(|shares| shares.is_err())
        );
        assert!(
            run(&service(value!({})), &[pod("p", 8080)], &[])
                .shares
                .is_none()
        );
    }
}
