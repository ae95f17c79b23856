//! The capacity of a node.

use mizzen_component_helpers::amounts::quantity;
use mizzen_value::quantity::{Quantity, canonical};
use mizzen_value::{Map, Value};

use crate::eviction::{EvictionConfig, Signal};

/// The default capacity of a node.
pub(crate) fn default_capacity() -> Value {
    let amounts = [
        ("cpu", "8"),
        ("ephemeral-storage", "100Gi"),
        ("hugepages-1Gi", "0"),
        ("hugepages-2Mi", "0"),
        ("memory", "32Gi"),
        ("pods", "110"),
    ];
    Value::Map(amounts.into_iter().collect::<Map>())
}

/// What pods may request: the capacity without what is reserved, and without what hard eviction
/// thresholds keep free. Kubernetes: pkg/kubelet/cm/node_container_manager_linux.go.
pub(crate) fn allocatable(
    capacity: &Value,
    reserved: &Value,
    eviction: Option<&EvictionConfig>,
) -> Value {
    let mut allocatable = capacity.clone();
    for (name, amount) in capacity.entries() {
        let amount = quantity(amount);
        let signal = match name {
            "memory" => Some(Signal::MemoryAvailable),
            "ephemeral-storage" => Some(Signal::NodeFsAvailable),
            _ => None,
        };
        let thresholds = eviction.map_or(&[][..], |eviction| &eviction.thresholds);
        let mut hard = thresholds.iter().filter(|threshold| threshold.is_hard());
        let threshold = hard.find(|threshold| Some(threshold.signal) == signal);
        let kept = threshold.map_or_else(Quantity::default, |it| it.value.of(amount.value()));
        let taken = kept.add(&quantity(&reserved[name]));
        if !taken.is_zero() {
            let left = amount.sub(&taken);
            let least = Quantity::from_int(0, left.format);
            allocatable.set(name, left.max(least).to_string());
        }
    }
    allocatable
}

/// What pods may request without the memory of huge pages, which are requested on their own.
/// Kubernetes: pkg/kubelet/nodestatus/setters.go, `MachineInfo`.
pub(crate) fn without_huge_pages(mut allocatable: Value, capacity: &Value) -> Value {
    let pages = capacity
        .entries()
        .filter(|(name, _)| name.starts_with("hugepages-"));
    let taken = pages.fold(Quantity::default(), |sum, (_, amount)| {
        sum.add(&quantity(amount))
    });
    if !taken.is_zero() {
        let left = quantity(&allocatable["memory"]).sub(&taken);
        let least = Quantity::from_int(0, left.format);
        allocatable.set("memory", left.max(least).to_string());
    }
    allocatable
}

/// The default capacity with the changes of a text such as `cpu=4,memory=16Gi`.
pub fn parse_capacity(text: &str) -> Result<Value, String> {
    let mut capacity = default_capacity();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (name, amount) = part
            .split_once('=')
            .ok_or_else(|| format!("{part:?} is not NAME=AMOUNT"))?;
        let amount = canonical(amount.trim())
            .map_err(|_| format!("{amount:?} is not an amount such as 8 or 16Gi"))?;
        capacity.set(name.trim(), amount);
    }
    Ok(capacity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_that_are_not_named_keep_their_default() {
        let capacity = parse_capacity("cpu=4, acme.com/gpu=2").unwrap();
        let amount = |name: &str| capacity[name].str().to_string();
        assert_eq!(
            (amount("cpu"), amount("acme.com/gpu"), amount("pods")),
            ("4".into(), "2".into(), "110".into())
        );
        assert_eq!(parse_capacity("").unwrap(), default_capacity());
    }

    #[test]
    fn reservations_and_hard_thresholds_are_not_allocatable() {
        let capacity = parse_capacity("cpu=4,memory=1Gi,ephemeral-storage=1000Ki").unwrap();
        let reserved = mizzen_value::value!({ "cpu": "500m", "memory": "24Mi" });
        let all = allocatable(&capacity, &reserved, Some(&EvictionConfig::default()));
        let amount = |name: &str| all[name].str().to_string();
        assert_eq!(amount("cpu"), "3500m");
        assert_eq!(amount("memory"), "900Mi");
        assert_eq!(amount("ephemeral-storage"), "900Ki");
        assert_eq!(amount("pods"), "110");
        // Pods together may use what eviction would keep free.
        let all = allocatable(&capacity, &reserved, None);
        assert_eq!(all["memory"].str(), "1000Mi");
        let much = mizzen_value::value!({ "memory": "2Gi" });
        assert_eq!(allocatable(&capacity, &much, None)["memory"].str(), "0");
    }

    #[test]
    fn the_memory_of_huge_pages_is_not_allocatable() {
        let check = |text: &str, expected: &str| {
            let capacity = parse_capacity(text).unwrap();
            let all = without_huge_pages(capacity.clone(), &capacity);
            assert_eq!(all["memory"].str(), expected, "{text}");
            assert_eq!(all["hugepages-2Mi"], capacity["hugepages-2Mi"]);
        };
        check("memory=1Gi", "1Gi");
        check("memory=1Gi,hugepages-2Mi=24Mi", "1000Mi");
        check("memory=4Gi,hugepages-2Mi=1Gi,hugepages-1Gi=1Gi", "2Gi");
        check("memory=1Gi,hugepages-1Gi=2Gi", "0");
    }

    #[test]
    fn invalid_capacities_are_rejected() {
        assert_eq!(
            parse_capacity("cpu"),
            Err("\"cpu\" is not NAME=AMOUNT".into())
        );
        assert_eq!(
            parse_capacity("cpu=much"),
            Err("\"much\" is not an amount such as 8 or 16Gi".into())
        );
    }
}
