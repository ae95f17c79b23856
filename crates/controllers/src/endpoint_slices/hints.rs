//! Topology hints of endpoints.

use mizzen_value::{Value, value};

use super::zones::ByZone;
use crate::services::slice::SliceChanges;

/// The traffic distribution of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrafficDistribution {
    Unset,
    PreferSameZone,
    PreferSameNode,
    /// Endpoints are allocated to zones in proportion to their CPUs (the topology-mode annotation).
    TopologyAware,
}

impl TrafficDistribution {
    /// Reads the annotation, then `spec.trafficDistribution`.
    pub(super) fn from_service(service: &Value) -> TrafficDistribution {
        let annotations = &service["metadata"]["annotations"];
        let old = annotations["service.kubernetes.io/topology-aware-hints"].as_str();
        let mode = old.unwrap_or(annotations["service.kubernetes.io/topology-mode"].str());
        match service["spec"]["trafficDistribution"].str() {
            _ if matches!(mode, "Auto" | "auto") => TrafficDistribution::TopologyAware,
            "PreferClose" | "PreferSameZone" => TrafficDistribution::PreferSameZone,
            "PreferSameNode" => TrafficDistribution::PreferSameNode,
            _ => TrafficDistribution::Unset,
        }
    }
}

/// Whether an endpoint is ready.
pub(super) fn is_ready(endpoint: &Value) -> bool {
    endpoint["conditions"]["ready"].bool()
}

/// A hint for a zone.
pub(super) fn for_zone(zone: &str) -> Value {
    value!({"forZones": [{"name": (zone)}]})
}

/// Gives every endpoint the hint for its own zone or node.
pub(crate) fn reconcile_traffic_distribution(changes: &mut SliceChanges, same_node: bool) {
    let is_right = |endpoint: &Value| {
        !is_ready(endpoint) || endpoint["hints"] == own_hint(endpoint, same_node)
    };
    update_unchanged(changes, |slice| {
        slice["endpoints"].list().iter().all(is_right)
    });
    for endpoint in endpoints(changes).filter(|endpoint| is_ready(endpoint)) {
        match own_hint(endpoint, same_node) {
            Value::Null => drop(endpoint.remove("hints")),
            hint => endpoint.set("hints", hint),
        }
    }
}

fn own_hint(endpoint: &Value, same_node: bool) -> Value {
    let mut hint = Value::Null;
    if let Some(zone) = endpoint["zone"].as_str() {
        hint = for_zone(zone);
    }
    if let Some(node) = endpoint["nodeName"].as_str().filter(|_| same_node) {
        hint.set("forNodes", value!([{"name": (node)}]));
    }
    hint
}

/// Removes all hints.
pub(crate) fn remove_hints(changes: &mut SliceChanges) {
    update_unchanged(changes, |slice| {
        slice["endpoints"]
            .list()
            .iter()
            .all(|endpoint| endpoint["hints"].is_null())
    });
    endpoints(changes).for_each(|endpoint| drop(endpoint.remove("hints")));
}

/// Allocates endpoints to zones; the number for each zone. If that is impossible, hints are removed
/// and the error says why.
pub(crate) fn add_topology_hints(
    changes: &mut SliceChanges,
    ratios: Option<&ByZone>,
) -> Result<ByZone<usize>, String> {
    let shared = super::zones::assign_zone_hints(changes, ratios);
    if shared.is_err() {
        remove_hints(changes);
    }
    shared
}

/// Moves unchanged slices to the updated ones unless `is_right`.
pub(super) fn update_unchanged(changes: &mut SliceChanges, is_right: impl FnMut(&Value) -> bool) {
    let mut is_right = is_right;
    let (right, wrong): (Vec<_>, Vec<_>) = std::mem::take(&mut changes.unchanged)
        .into_iter()
        .partition(|slice| is_right(slice));
    changes.unchanged = right;
    changes.update.extend(wrong.into_iter().cloned());
}

/// The endpoints of all slices that are written.
pub(super) fn endpoints<'c>(changes: &'c mut SliceChanges) -> impl Iterator<Item = &'c mut Value> {
    let slices = changes.create.iter_mut().chain(&mut changes.update);
    slices.flat_map(|slice| {
        slice
            .get_mut("endpoints")
            .map(Value::list_mut)
            .unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_wish(annotations: Value, distribution: &str, expect: TrafficDistribution) {
        let spec = value!({"trafficDistribution": (distribution)});
        assert_eq!(
            TrafficDistribution::from_service(
                &value!({"metadata": {"annotations": (annotations)}, "spec": (spec)})
            ),
            expect
        );
    }

    #[test]
    fn the_annotation_counts_before_the_field() {
        check_wish(value!({}), "", TrafficDistribution::Unset);
        check_wish(
            value!({}),
            "PreferClose",
            TrafficDistribution::PreferSameZone,
        );
        check_wish(
            value!({}),
            "PreferSameNode",
            TrafficDistribution::PreferSameNode,
        );
        check_wish(
            value!({"service.kubernetes.io/topology-mode": "Auto"}),
            "PreferClose",
            TrafficDistribution::TopologyAware,
        );
        let both = value!({
            "service.kubernetes.io/topology-mode": "Auto", "service.kubernetes.io/topology-aware-hints": "Disabled"
        });
        check_wish(both, "PreferClose", TrafficDistribution::PreferSameZone);
    }

    fn slice(hints: Value) -> Value {
        let place = |ready: bool, hints: Value| value!({"conditions": {"ready": (ready)}, "zone": "z", "nodeName": "n", "hints": (hints)});
        value!({"endpoints": [(place(true, hints)), (place(false, Value::Null))]})
    }

    #[track_caller]
    fn check(before: Value, act: fn(&mut SliceChanges), expect: Option<Value>) {
        let slice = slice(before);
        let mut changes = SliceChanges {
            unchanged: vec![&slice],
            ..SliceChanges::default()
        };
        act(&mut changes);
        let hints = changes
            .update
            .first()
            .map(|slice| slice["endpoints"][0]["hints"].clone());
        assert_eq!(hints, expect);
        assert_eq!(changes.unchanged.len(), usize::from(expect.is_none()));
    }

    #[test]
    fn only_slices_with_wrong_hints_are_written() {
        let zone = value!({"forZones": [{"name": "z"}]});
        let node = value!({"forZones": [{"name": "z"}], "forNodes": [{"name": "n"}]});
        check(
            Value::Null,
            |changes| reconcile_traffic_distribution(changes, false),
            Some(zone.clone()),
        );
        check(
            zone.clone(),
            |changes| reconcile_traffic_distribution(changes, false),
            None,
        );
        check(
            zone.clone(),
            |changes| reconcile_traffic_distribution(changes, true),
            Some(node.clone()),
        );
        check(
            node,
            |changes| reconcile_traffic_distribution(changes, false),
            Some(zone.clone()),
        );
        check(zone, remove_hints, Some(Value::Null));
        check(Value::Null, remove_hints, None);
    }
}
