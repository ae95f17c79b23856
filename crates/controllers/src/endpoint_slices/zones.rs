//! Allocates endpoints to zones in proportion to the zones' CPUs, with an overload of at most 20 %.

use std::collections::BTreeMap;

use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::hints::{endpoints, for_zone, is_ready, update_unchanged};
use crate::services::member::condition;
use crate::services::slice::SliceChanges;

/// How much more traffic than its share an endpoint may get.
const OVERLOAD_THRESHOLD: f64 = 0.2;
/// Nodes with these labels are left out.
const EXCLUDED: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

/// A value for each zone, such as its share of all CPUs.
pub(crate) type ByZone<T = f64> = BTreeMap<String, T>;

/// Each zone's share of all CPUs; none if a ready node has no zone or CPU, or if there is only one
/// zone.
pub(crate) fn cpu_ratios<'a>(nodes: impl Iterator<Item = &'a Value>) -> Option<ByZone> {
    let mut cpus: ByZone<i64> = ByZone::new();
    let counts = |node: &&Value| {
        let labels = &node["metadata"]["labels"];
        EXCLUDED.iter().all(|label| labels.get(label).is_none()) && is_node_ready(node)
    };
    for node in nodes.filter(counts) {
        let zone = node["metadata"]["labels"][ZONE].str();
        let cpu = Quantity::parse_or_zero(node["status"]["allocatable"]["cpu"].str()).milli_value();
        if zone.is_empty() || cpu == 0 {
            return None;
        }
        *cpus.entry(zone.into()).or_default() += cpu;
    }
    let total: i64 = cpus.values().sum();
    let share = |(zone, cpu): (String, i64)| (zone, cpu as f64 / total as f64);
    (cpus.len() > 1).then(|| cpus.into_iter().map(share).collect())
}

/// Whether a node is ready.
pub(super) fn is_node_ready(node: &Value) -> bool {
    condition(node, "Ready")["status"].str() == "True"
}

/// The number of endpoints of a zone.
struct Allocation {
    desired: f64,
    maximum: usize,
}

/// Gives every ready endpoint a hint for one zone; returns the number for each zone.
pub(super) fn assign_zone_hints(
    changes: &mut SliceChanges,
    ratios: Option<&ByZone>,
) -> Result<ByZone<usize>, String> {
    let ready = |slice: &Value| {
        slice["endpoints"]
            .list()
            .iter()
            .filter(|endpoint| is_ready(endpoint))
            .count()
    };
    let written: usize = changes
        .create
        .iter()
        .chain(&changes.update)
        .map(ready)
        .sum();
    let total = written
        + changes
            .unchanged
            .iter()
            .map(|slice| ready(slice))
            .sum::<usize>();
    let allocations = allocate(total, ratios)?;

    let mut shares = ByZone::new();
    update_unchanged(changes, |slice| {
        count_hints(slice, &allocations, &mut shares)
    });
    // Every endpoint gets the hint for its own zone first.
    for endpoint in endpoints(changes).filter(|endpoint| is_ready(endpoint)) {
        let zone = endpoint["zone"].str().to_string();
        if zone.is_empty() {
            return Err("One or more endpoints do not have a zone specified".into());
        }
        endpoint.set("hints", for_zone(&zone));
        *shares.entry(zone).or_default() += 1;
    }
    let (mut giving, mut receiving) = givers_and_receivers(&allocations, &shares);
    move_hints(changes, &mut giving, &mut receiving, &mut shares);
    match shares.is_empty() {
        true => Err("No hints allocated for zones".into()),
        false => Ok(shares),
    }
}

/// The number of endpoints that each zone should get of `total`.
fn allocate(total: usize, ratios: Option<&ByZone>) -> Result<ByZone<Allocation>, String> {
    let unknown =
        "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
    let ratios = ratios.ok_or(unknown)?;
    let numbers = format!("({total} endpoints, {} zones)", ratios.len());
    if ratios.len() > total {
        return Err(format!("Insufficient number of endpoints {numbers}"));
    }
    let minimum = |ratio: f64| (ratio * total as f64 / (1.0 + OVERLOAD_THRESHOLD)).ceil() as usize;
    let minima: usize = ratios.values().map(|ratio| minimum(*ratio)).sum();
    let spare = total.checked_sub(minima).ok_or_else(|| {
        format!("Unable to allocate minimum required endpoints to each zone without exceeding overload threshold {numbers}")
    })?;
    let allocation = |ratio: f64| Allocation {
        desired: (ratio * total as f64).max(minimum(ratio) as f64),
        maximum: minimum(ratio) + spare,
    };
    Ok(ratios
        .iter()
        .map(|(zone, ratio)| (zone.clone(), allocation(*ratio)))
        .collect())
}

/// Counts the hints of a slice; false if the slice must change.
fn count_hints(
    slice: &Value,
    allocations: &ByZone<Allocation>,
    shares: &mut ByZone<usize>,
) -> bool {
    let mut own = ByZone::<usize>::new();
    for endpoint in slice["endpoints"]
        .list()
        .iter()
        .filter(|endpoint| is_ready(endpoint))
    {
        let zones = endpoint["hints"]["forZones"].list();
        if zones.is_empty()
            || zones
                .iter()
                .any(|zone| !allocations.contains_key(zone["name"].str()))
        {
            return false;
        }
        zones
            .iter()
            .for_each(|zone| *own.entry(zone["name"].str().into()).or_default() += 1);
    }
    let taken = |zone: &String| shares.get(zone).copied().unwrap_or_default();
    if own
        .iter()
        .any(|(zone, n)| taken(zone) + n > allocations[zone].maximum)
    {
        return false;
    }
    own.into_iter()
        .for_each(|(zone, n)| *shares.entry(zone).or_default() += n);
    true
}

/// How many endpoints zones give away, and how many they receive.
fn givers_and_receivers(
    allocations: &ByZone<Allocation>,
    shares: &ByZone<usize>,
) -> (ByZone<usize>, ByZone<usize>) {
    let (mut surplus, mut lack) = (ByZone::new(), ByZone::new());
    for (zone, allocation) in allocations {
        let has = shares.get(zone).copied().unwrap_or_default() as f64;
        surplus.insert(zone.clone(), has - allocation.desired);
        lack.insert(zone.clone(), allocation.desired - has);
    }
    let (mut giving, mut receiving) = (ByZone::new(), ByZone::new());
    while let (Some((rich, more)), Some((poor, less))) = (most(&surplus), most(&lack)) {
        if more < 0.5 || less < 0.5 || (more < 1.0 && less < 1.0) {
            break;
        }
        surplus.insert(rich.clone(), more - 1.0);
        lack.insert(poor.clone(), less - 1.0);
        *giving.entry(rich).or_default() += 1;
        *receiving.entry(poor).or_default() += 1;
    }
    (giving, receiving)
}

fn most(zones: &ByZone) -> Option<(String, f64)> {
    let most = zones.iter().max_by(|one, other| one.1.total_cmp(other.1));
    most.map(|(zone, n)| (zone.clone(), *n))
}

fn move_hints(
    changes: &mut SliceChanges,
    giving: &mut ByZone<usize>,
    receiving: &mut ByZone<usize>,
    shares: &mut ByZone<usize>,
) {
    for endpoint in endpoints(changes).filter(|endpoint| is_ready(endpoint)) {
        let Some((to, wanted)) = receiving.iter_mut().find(|(_, n)| **n > 0) else {
            return;
        };
        let Some(spare) = giving.get_mut(endpoint["zone"].str()).filter(|n| **n > 0) else {
            continue;
        };
        (*spare, *wanted) = (*spare - 1, *wanted - 1);
        *shares.entry(endpoint["zone"].str().into()).or_default() -= 1;
        *shares.entry(to.clone()).or_default() += 1;
        endpoint.set("hints", for_zone(to));
    }
}

/// Whether a zone has too few endpoints for its share.
pub(crate) fn is_overloaded(shares: &ByZone<usize>, ratios: Option<&ByZone>) -> bool {
    let Some(ratios) = ratios.filter(|_| !shares.is_empty()) else {
        return !shares.is_empty();
    };
    let total: usize = shares.values().sum();
    let minimum = |ratio: f64| (total as f64 * ratio / (1.0 + OVERLOAD_THRESHOLD)).ceil() as usize;
    ratios
        .iter()
        .any(|(zone, ratio)| shares.get(zone).is_none_or(|n| *n < minimum(*ratio)))
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    fn node(zone: &str, cpu: &str, ready: &str) -> Value {
        value!({
            "metadata": {"labels": {"topology.kubernetes.io/zone": (zone)}},
            "status": {"allocatable": {"cpu": (cpu)}, "conditions": [{"type": "Ready", "status": (ready)}]}
        })
    }

    fn shares<T: Copy>(pairs: &[(&str, T)]) -> ByZone<T> {
        pairs
            .iter()
            .map(|(zone, share)| (zone.to_string(), *share))
            .collect()
    }

    #[track_caller]
    fn check_ratios(nodes: &[Value], expect: Option<ByZone>) {
        assert_eq!(cpu_ratios(nodes.iter()), expect);
    }

    #[test]
    fn a_zone_has_its_share_of_the_cpus_of_ready_nodes() {
        let nodes = [
            node("a", "3", "True"),
            node("b", "1", "True"),
            node("b", "9", "False"),
        ];
        check_ratios(&nodes, Some(shares(&[("a", 0.75), ("b", 0.25)])));
        check_ratios(&[node("a", "3", "True")], None);
        check_ratios(
            &[
                node("a", "3", "True"),
                node("b", "1", "True"),
                node("", "1", "True"),
            ],
            None,
        );
    }

    fn slice(zones: &str) -> Value {
        let endpoint =
            |zone: char| value!({"conditions": {"ready": true}, "zone": (zone.to_string())});
        value!({"endpoints": (zones.chars().map(endpoint).collect::<Vec<Value>>())})
    }

    /// The zones where endpoints are, and the zones of their hints.
    #[track_caller]
    fn check(zones: &str, ratios: Option<ByZone>, expect: Result<&str, &str>) {
        let mut changes = SliceChanges {
            create: vec![slice(zones)],
            ..SliceChanges::default()
        };
        let outcome = assign_zone_hints(&mut changes, ratios.as_ref());
        let hint = |endpoint: &Value| endpoint["hints"]["forZones"][0]["name"].str().to_string();
        let hints: String = changes.create[0]["endpoints"]
            .list()
            .iter()
            .map(hint)
            .collect();
        assert_eq!(
            outcome.map(|_| hints),
            expect.map(String::from).map_err(String::from)
        );
    }

    #[test]
    fn hints_move_endpoints_from_large_to_small_zones() {
        let halves = Some(shares(&[("a", 0.5), ("b", 0.5)]));
        check("aabb", halves.clone(), Ok("aabb"));
        check("aaaabb", halves.clone(), Ok("baaabb"));
        check("aaaa", halves.clone(), Ok("bbaa"));
        check(
            "a",
            halves.clone(),
            Err("Insufficient number of endpoints (1 endpoints, 2 zones)"),
        );
        let three = "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold (3 endpoints, 2 zones)";
        check("aab", halves, Err(three));
        let unknown = "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";
        check("aabb", None, Err(unknown));
    }

    #[test]
    fn balanced_slices_stay() {
        let halves = shares(&[("a", 0.5), ("b", 0.5)]);
        let mut changes = SliceChanges {
            create: vec![slice("aabb")],
            ..SliceChanges::default()
        };
        assign_zone_hints(&mut changes, Some(&halves)).expect("there is enough");
        let written = changes.create.remove(0);
        let mut again = SliceChanges {
            unchanged: vec![&written],
            ..SliceChanges::default()
        };
        let counts = assign_zone_hints(&mut again, Some(&halves)).expect("there is enough");
        assert!(again.is_empty());
        assert_eq!(counts, shares(&[("a", 2), ("b", 2)]));
    }

    #[test]
    fn a_service_is_overloaded_when_a_zone_grows_too_large_for_it() {
        let counts = shares(&[("a", 2), ("b", 2)]);
        assert!(!is_overloaded(
            &counts,
            Some(&shares(&[("a", 0.5), ("b", 0.5)]))
        ));
        assert!(is_overloaded(
            &counts,
            Some(&shares(&[("a", 0.8), ("b", 0.2)]))
        ));
        assert!(is_overloaded(
            &counts,
            Some(&shares(&[("a", 0.4), ("b", 0.4), ("c", 0.2)]))
        ));
        assert!(is_overloaded(&counts, None));
        assert!(!is_overloaded(&shares(&[]), None));
    }
}
