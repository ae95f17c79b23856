//! Whose traffic should an endpoint get? Hints keep traffic close where a service asks for that.

use mizzen_value::{Value, value};

use super::zones::Ratios;
use crate::services::slice::Changes;

/// What a service wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// No hints.
    Nothing,
    /// Traffic stays in its zone.
    SameZone,
    /// Traffic stays on its node.
    SameNode,
    /// Endpoints are shared out among zones by the CPUs that these have.
    Shared,
}

impl Wish {
    /// What a service wants. Its annotation counts before its field.
    pub(super) fn of(service: &Value) -> Wish {
        let annotations = &service["metadata"]["annotations"];
        let old = annotations["service.kubernetes.io/topology-aware-hints"].as_str();
        let mode = old.unwrap_or(annotations["service.kubernetes.io/topology-mode"].str());
        match service["spec"]["trafficDistribution"].str() {
            _ if matches!(mode, "Auto" | "auto") => Wish::Shared,
            "PreferClose" | "PreferSameZone" => Wish::SameZone,
            "PreferSameNode" => Wish::SameNode,
            _ => Wish::Nothing,
        }
    }
}

/// Whether an endpoint takes traffic.
pub(super) fn is_ready(endpoint: &Value) -> bool {
    endpoint["conditions"]["ready"].bool()
}

/// A hint for a zone.
pub(super) fn for_zone(zone: &str) -> Value {
    value!({"forZones": [{"name": (zone)}]})
}

/// Gives every endpoint the hint for where it is itself.
pub(crate) fn keep_close(changes: &mut Changes, same_node: bool) {
    let is_right = |endpoint: &Value| {
        !is_ready(endpoint) || endpoint["hints"] == own_place(endpoint, same_node)
    };
    wake(changes, |slice| {
        slice["endpoints"].list().iter().all(is_right)
    });
    for endpoint in endpoints(changes).filter(|endpoint| is_ready(endpoint)) {
        match own_place(endpoint, same_node) {
            Value::Null => drop(endpoint.remove("hints")),
            hint => endpoint.set("hints", hint),
        }
    }
}

fn own_place(endpoint: &Value, same_node: bool) -> Value {
    let mut hint = Value::Null;
    if let Some(zone) = endpoint["zone"].as_str() {
        hint = for_zone(zone);
    }
    if let Some(node) = endpoint["nodeName"].as_str().filter(|_| same_node) {
        hint.set("forNodes", value!([{"name": (node)}]));
    }
    hint
}

/// Takes all hints away.
pub(crate) fn remove(changes: &mut Changes) {
    wake(changes, |slice| {
        slice["endpoints"]
            .list()
            .iter()
            .all(|endpoint| endpoint["hints"].is_null())
    });
    endpoints(changes).for_each(|endpoint| drop(endpoint.remove("hints")));
}

/// Shares endpoints out among zones; how many each gets. If that cannot be done, there are no hints, and it says why.
pub(crate) fn share(
    changes: &mut Changes,
    ratios: Option<&Ratios>,
) -> Result<Ratios<usize>, String> {
    let shared = super::zones::share(changes, ratios);
    if shared.is_err() {
        remove(changes);
    }
    shared
}

/// Has slices written that would stay as they are, unless they are right.
pub(super) fn wake(changes: &mut Changes, is_right: impl FnMut(&Value) -> bool) {
    let mut is_right = is_right;
    let (right, wrong): (Vec<_>, Vec<_>) = std::mem::take(&mut changes.unchanged)
        .into_iter()
        .partition(|slice| is_right(slice));
    changes.unchanged = right;
    changes.update.extend(wrong.into_iter().cloned());
}

/// The endpoints of all slices that are written.
pub(super) fn endpoints<'c>(changes: &'c mut Changes) -> impl Iterator<Item = &'c mut Value> {
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
    fn check_wish(annotations: Value, distribution: &str, expect: Wish) {
        let spec = value!({"trafficDistribution": (distribution)});
        assert_eq!(
            Wish::of(&value!({"metadata": {"annotations": (annotations)}, "spec": (spec)})),
            expect
        );
    }

    #[test]
    fn the_annotation_counts_before_the_field() {
        check_wish(value!({}), "", Wish::Nothing);
        check_wish(value!({}), "PreferClose", Wish::SameZone);
        check_wish(value!({}), "PreferSameNode", Wish::SameNode);
        check_wish(
            value!({"service.kubernetes.io/topology-mode": "Auto"}),
            "PreferClose",
            Wish::Shared,
        );
        let both = value!({
            "service.kubernetes.io/topology-mode": "Auto", "service.kubernetes.io/topology-aware-hints": "Disabled"
        });
        check_wish(both, "PreferClose", Wish::SameZone);
    }

    fn slice(hints: Value) -> Value {
        let place = |ready: bool, hints: Value| value!({"conditions": {"ready": (ready)}, "zone": "z", "nodeName": "n", "hints": (hints)});
        value!({"endpoints": [(place(true, hints)), (place(false, Value::Null))]})
    }

    #[track_caller]
    fn check(before: Value, act: fn(&mut Changes), expect: Option<Value>) {
        let slice = slice(before);
        let mut changes = Changes {
            unchanged: vec![&slice],
            ..Changes::default()
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
            |changes| keep_close(changes, false),
            Some(zone.clone()),
        );
        check(zone.clone(), |changes| keep_close(changes, false), None);
        check(
            zone.clone(),
            |changes| keep_close(changes, true),
            Some(node.clone()),
        );
        check(
            node,
            |changes| keep_close(changes, false),
            Some(zone.clone()),
        );
        check(zone, remove, Some(Value::Null));
        check(Value::Null, remove, None);
    }
}
