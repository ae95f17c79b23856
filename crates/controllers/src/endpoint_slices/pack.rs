//! Packs endpoints into slices with as few writes as possible.
//!
//! Endpoints stay in their slice. New ones go into slices that change anyway, then into the one
//! slice that they fill best, then into new slices. Slices are never merged: that would cost writes
//! to every watcher.

use mizzen_value::{Value, value};

use super::desired::PortEndpoints;
use crate::services::member;
use crate::services::slice::{self, HEADLESS, MANAGED_BY, SERVICE_NAME, SliceChanges};

/// The managed-by label of these slices.
pub(crate) const CONTROLLER: &str = "endpointslice-controller.k8s.io";
/// How many endpoints a slice has at most.
pub(crate) const MAX_ENDPOINTS: usize = 100;

/// Plans the slices of one set of ports.
pub(crate) fn pack<'a>(
    service: &Value,
    family: &str,
    group: &mut PortEndpoints,
    slices: &[&'a Value],
) -> SliceChanges<'a> {
    let mut changes = SliceChanges::default();
    for slice in slices {
        keep_desired(service, group, slice, &mut changes);
    }
    // Slices that change anyway are filled first, the fullest of them before the rest.
    changes
        .update
        .sort_by_key(|slice| std::cmp::Reverse(slice["endpoints"].list().len()));
    for slice in &mut changes.update {
        fill(group, slice);
    }
    while !group.endpoints.is_empty() {
        let mut slice = changes
            .take_best_fit(group)
            .unwrap_or_else(|| new_slice(service, family, &group.ports));
        fill(group, &mut slice);
        match slice["metadata"]["name"].str() {
            "" => changes.create.push(slice),
            _ => changes.update.push(slice),
        }
    }
    changes
}

/// Keeps the desired endpoints of a slice, and classifies the slice.
fn keep_desired<'a>(
    service: &Value,
    group: &mut PortEndpoints,
    slice: &'a Value,
    changes: &mut SliceChanges<'a>,
) {
    let old = slice["endpoints"].list();
    let mut kept = Vec::with_capacity(old.len());
    let mut is_changed = false;
    for endpoint in old {
        if let Some(wanted) = group.endpoints.remove(&slice::endpoint_identity(endpoint)) {
            is_changed |= !slice::is_same_endpoint(&wanted, endpoint);
            kept.push(wanted);
        }
    }
    let is_changed = is_changed || kept.len() != old.len();
    let labels = labels(service);
    // Kubernetes: a change of the reserved labels alone causes no write.
    let free = |labels: &Value| {
        let mut labels = labels.clone();
        labels
            .make_map()
            .retain(|name, _| !RESERVED.contains(&name));
        labels
    };
    let are_labels_changed = free(&slice["metadata"]["labels"]) != free(&labels);
    match (is_changed, are_labels_changed) {
        (true, _) if kept.is_empty() => changes.delete.push(slice),
        (false, false) => changes.unchanged.push(slice),
        (is_changed, _) => {
            let mut slice = slice.clone();
            slice.entry("metadata").set("labels", labels);
            if is_changed {
                slice.set("endpoints", kept);
            }
            changes.update.push(slice);
        }
    }
}

fn fill(group: &mut PortEndpoints, slice: &mut Value) {
    let endpoints = slice.entry("endpoints").make_list();
    while endpoints.len() < MAX_ENDPOINTS {
        let Some((_, endpoint)) = group.endpoints.pop_first() else {
            return;
        };
        endpoints.push(endpoint);
    }
}

impl SliceChanges<'_> {
    /// The slice that all remaining endpoints fill best; none if they do not fit into one.
    fn take_best_fit(&mut self, group: &PortEndpoints) -> Option<Value> {
        let left = group.endpoints.len();
        let with = |slice: &Value| left + slice["endpoints"].list().len();
        let fitting = self
            .unchanged
            .iter()
            .enumerate()
            .filter(|(_, slice)| with(slice) <= MAX_ENDPOINTS);
        let fitting = fitting.filter(|_| left < MAX_ENDPOINTS);
        let (at, _) = fitting.max_by_key(|(at, slice)| (with(slice), std::cmp::Reverse(*at)))?;
        Some(self.unchanged.remove(at).clone())
    }
}

/// A new slice of a service.
pub(crate) fn new_slice(service: &Value, family: &str, ports: &[Value]) -> Value {
    slice::empty_slice(("Service", service), family, ports, labels(service))
}

const RESERVED: [&str; 3] = [SERVICE_NAME, MANAGED_BY, HEADLESS];

fn labels(service: &Value) -> Value {
    let own = service["metadata"]["labels"]
        .entries()
        .filter(|(name, _)| !RESERVED.contains(name));
    let mut labels = value!({});
    own.for_each(|(name, text)| labels.set(name, text.clone()));
    if member::is_headless(service) {
        labels.set(HEADLESS, "");
    }
    labels.set(SERVICE_NAME, service["metadata"]["name"].clone());
    labels.set(MANAGED_BY, CONTROLLER);
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(name: &str) -> Value {
        value!({"addresses": [(name)], "conditions": {"ready": true}})
    }

    fn service() -> Value {
        value!({"metadata": {"namespace": "a", "name": "s"}, "spec": {"clusterIP": "10.0.0.1"}})
    }

    fn slice(name: &str, endpoints: &[String]) -> Value {
        let mut slice = new_slice(&service(), "IPv4", &[]);
        slice.entry("metadata").set("name", name);
        slice.set(
            "endpoints",
            endpoints
                .iter()
                .map(|name| endpoint(name))
                .collect::<Vec<Value>>(),
        );
        slice
    }

    fn names(letter: char, n: usize) -> Vec<String> {
        (0..n).map(|at| format!("{letter}{at:03}")).collect()
    }

    /// Slices by name and size before, endpoints wanted; what is written, by name and size after.
    #[track_caller]
    fn check(before: &[(&str, Vec<String>)], wanted: &[Vec<String>], expect: &str) {
        let slices: Vec<Value> = before
            .iter()
            .map(|(name, endpoints)| slice(name, endpoints))
            .collect();
        let mut group = PortEndpoints::default();
        for name in wanted.iter().flatten() {
            group
                .endpoints
                .insert(slice::endpoint_identity(&endpoint(name)), endpoint(name));
        }
        let changes = pack(
            &service(),
            "IPv4",
            &mut group,
            &slices.iter().collect::<Vec<_>>(),
        );
        let say = |word: &str, slice: &Value| {
            let name = slice["metadata"]["name"].str();
            format!("{word} {name}{}", slice["endpoints"].list().len())
        };
        let said = (changes.create.iter().map(|slice| say("create", slice)))
            .chain(changes.update.iter().map(|slice| say("update", slice)))
            .chain(changes.delete.iter().map(|slice| say("delete", slice)))
            .collect::<Vec<_>>();
        assert_eq!(said.join(", "), expect);
    }

    #[test]
    fn a_slice_has_no_more_than_a_hundred_endpoints() {
        check(&[], &[names('a', 250)], "create 100, create 100, create 50");
    }

    #[test]
    fn an_unchanged_slice_is_not_written() {
        check(
            &[("x", names('a', 30)), ("y", names('b', 20))],
            &[names('a', 30), names('b', 20)],
            "",
        );
    }

    #[test]
    fn a_slice_that_changes_anyway_is_filled_first() {
        let wanted = [names('a', 29), names('b', 90), names('c', 71)];
        check(
            &[("x", names('a', 30)), ("y", names('b', 90))],
            &wanted,
            "update x100",
        );
    }

    #[test]
    fn the_slice_that_is_filled_best_takes_what_is_left() {
        let before = [
            ("x", names('a', 30)),
            ("y", names('b', 80)),
            ("z", names('d', 95)),
        ];
        check(
            &before,
            &[
                names('a', 30),
                names('b', 80),
                names('c', 20),
                names('d', 95),
            ],
            "update y100",
        );
    }

    #[test]
    fn what_fits_into_no_slice_gets_a_new_one() {
        let before = [("x", names('a', 90)), ("y", names('b', 90))];
        check(
            &before,
            &[names('a', 90), names('b', 90), names('c', 15)],
            "create 15",
        );
    }

    #[test]
    fn an_empty_slice_is_deleted() {
        check(
            &[("x", names('a', 3)), ("y", names('b', 1))],
            &[names('a', 3)],
            "delete y1",
        );
    }

    #[test]
    fn a_changed_endpoint_is_written_in_place() {
        let mut old = slice("x", &names('a', 2));
        old.entry("endpoints").list_mut()[0]
            .entry("conditions")
            .set("ready", false);
        let mut group = PortEndpoints::default();
        for name in names('a', 2) {
            group
                .endpoints
                .insert(slice::endpoint_identity(&endpoint(&name)), endpoint(&name));
        }
        let changes = pack(&service(), "IPv4", &mut group, &[&old]);
        assert_eq!(changes.update, [slice("x", &names('a', 2))]);
    }

    #[test]
    fn labels_follow_those_of_the_service() {
        let mut service = service();
        service.entry("metadata").set(
            "labels",
            value!({"team": "x", "endpointslice.kubernetes.io/managed-by": "me"}),
        );
        let old = slice("x", &names('a', 1));
        let mut group = PortEndpoints::default();
        group.endpoints.insert(
            slice::endpoint_identity(&endpoint("a000")),
            endpoint("a000"),
        );
        let changes = pack(&service, "IPv4", &mut group, &[&old]);
        let labels = value!({"team": "x", "kubernetes.io/service-name": "s",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"});
        assert_eq!(changes.update[0]["metadata"]["labels"], labels);
    }
}
