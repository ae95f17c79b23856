//! How much of everything: amounts by the name of what they are of, and what a pod needs in all.

use std::collections::BTreeMap;

use mizzen_object::Value;
use mizzen_object::quantity::Quantity;

/// Amounts by the name of what they are of.
pub type Amounts = BTreeMap<String, Quantity>;

/// Reads a list of amounts, such as a container's requests.
pub fn amounts(list: &Value) -> Amounts {
    list.entries()
        .map(|(name, amount)| (name.to_string(), Quantity::of(amount.str())))
        .collect()
}

/// Adds `more` to `total`.
pub fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = total.get(name).map_or(*amount, |found| found.add(amount));
        total.insert(name.clone(), sum);
    }
}

/// Raises `total` to what `other` has where that is more.
pub fn raise(total: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        let most = total
            .get(name)
            .map_or(*amount, |found| (*found).max(*amount));
        total.insert(name.clone(), most);
    }
}

/// What a pod asks for as a whole: what all its containers ask for together, unless it says it itself. `of` is
/// what one container asks for, `field` is `requests` or `limits`.
pub fn pod_total(spec: &Value, field: &str, of: impl Fn(&Value) -> Amounts) -> Amounts {
    let mut total = containers_total(spec, of);
    let whole = amounts(&spec["resources"][field]);
    total.extend(whole.into_iter().filter(|(name, _)| is_pod_level(name)));
    total
}

/// Whether a pod can ask for this as a whole.
pub fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// What all containers of a pod ask for together: those that run side by side add up, those that run one after
/// the other need as much as the largest.
fn containers_total(spec: &Value, of: impl Fn(&Value) -> Amounts) -> Amounts {
    let (mut total, mut beside, mut peak) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in spec["containers"].list() {
        add(&mut total, &of(container));
    }
    for container in spec["initContainers"].list() {
        let mut needed = of(container);
        if container["restartPolicy"].str() == "Always" {
            add(&mut total, &needed);
            add(&mut beside, &needed);
            needed = beside.clone();
        } else {
            add(&mut needed, &beside);
        }
        raise(&mut peak, &needed);
    }
    raise(&mut total, &peak);
    total
}
