//! What is to be done so that the slices of a service say where its pods are?

use std::collections::BTreeMap;

use mizzen_value::Value;

use super::hints::{self, Wish};
use super::pack::{fresh, pack};
use super::wanted::wanted;
use super::zones::Ratios;
use crate::services::member::Family;
use crate::services::slice::{Changes, port_key};

/// What is known beside a service's pods and slices.
pub(crate) struct Surroundings<'s> {
    /// The labels of a node, if there is such a node.
    pub nodes: &'s dyn Fn(&str) -> Option<Value>,
    /// Each zone's share of the CPUs, if known.
    pub ratios: Option<&'s Ratios>,
}

/// What is to be done.
#[derive(Debug, Default)]
pub(crate) struct Plan<'a> {
    /// To the slices.
    pub changes: Changes<'a>,
    /// Why pods are left out that may be published later.
    pub complaints: Vec<String>,
    /// How endpoints were shared out among zones, if the service wants that; or why they were not.
    pub shares: Option<Result<Ratios<usize>, String>>,
}

/// What is to be done to the slices of one family.
pub(crate) fn plan<'a>(
    service: &Value,
    pods: &[&Value],
    slices: &[&'a Value],
    around: &Surroundings,
    family: Family,
) -> Plan<'a> {
    let mut wanted = wanted(service, pods, around.nodes, family);
    let mut changes = Changes::default();
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
    hold_the_place(service, family, slices.len(), &mut changes);
    let shares = add_hints(service, &mut changes, around.ratios);
    changes.recycle(|slice| is_owned(slice, service));
    Plan {
        changes,
        complaints: wanted.complaints,
        shares,
    }
}

/// Whether a slice belongs to this very service, not to an older one of its name.
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

/// A service without any endpoint has an empty slice, so that one can tell it from one that nobody looked at.
fn hold_the_place(service: &Value, family: Family, n_slices: usize, changes: &mut Changes) {
    if changes.delete.len() != n_slices || !changes.create.is_empty() {
        return;
    }
    let place = fresh(service, family.name(), &[]);
    match changes.delete.as_slice() {
        [only] if is_placeholder(only, &place) => changes.unchanged.append(&mut changes.delete),
        _ => changes.create.push(place),
    }
}

fn is_placeholder(slice: &Value, place: &Value) -> bool {
    slice["endpoints"].list().is_empty()
        && slice["ports"].list().is_empty()
        && slice["addressType"] == place["addressType"]
        && slice["metadata"]["labels"] == place["metadata"]["labels"]
}

fn add_hints(
    service: &Value,
    changes: &mut Changes,
    ratios: Option<&Ratios>,
) -> Option<Result<Ratios<usize>, String>> {
    match Wish::of(service) {
        Wish::Nothing => hints::remove(changes),
        Wish::SameZone => hints::keep_close(changes, false),
        Wish::SameNode => hints::keep_close(changes, true),
        Wish::Shared => return Some(hints::share(changes, ratios)),
    }
    None
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

    fn run<'a>(service: &Value, pods: &[Value], slices: &[&'a Value]) -> Plan<'a> {
        let around = Surroundings {
            nodes: &|name| (name == "n").then(|| value!({})),
            ratios: None,
        };
        plan(
            service,
            &pods.iter().collect::<Vec<_>>(),
            slices,
            &around,
            Family::V4,
        )
    }

    /// Slices as the server would have named them.
    fn named(plan: Plan) -> Vec<Value> {
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

    /// What is done, as words: created, updated, deleted.
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
    fn the_last_pods_slice_becomes_the_empty_one() {
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
    fn slices_of_an_older_service_of_the_same_name_go() {
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
    fn a_pod_without_a_node_is_complained_about() {
        let mut pod = pod("p", 8080);
        pod.entry("spec").set("nodeName", "gone");
        let plan = run(&service(value!({})), &[pod], &[]);
        assert_eq!(plan.complaints.len(), 1);
        assert_eq!(plan.changes.create.len(), 1, "the empty one");
    }

    #[test]
    fn a_service_may_want_its_endpoints_shared_out() {
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
