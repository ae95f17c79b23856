//! How much does a pod ask for?

use std::collections::BTreeMap;

use mizzen_object::quantity::Quantity;
use mizzen_object::{Map, Str, Value};

use crate::pod::spec;
use crate::runtime::Role;

/// Amounts by the name of the resource.
pub(crate) type Amounts = BTreeMap<Str, Quantity>;

/// The `requests` or `limits` of a whole pod.
pub(crate) fn total(pod: &Value, field: &str) -> Amounts {
    let mut amounts = of_containers(pod, field);
    let own = &pod["spec"]["resources"][field];
    amounts.extend(read(own).into_iter().filter(|(name, _)| is_for_pods(name)));
    for (name, amount) in read(&pod["spec"]["overhead"]) {
        // Kubernetes: overhead is added to limits only where there is one.
        if field == "requests" || amounts.contains_key(&name) {
            add(&mut amounts, name, &amount);
        }
    }
    amounts
}

/// Amounts as objects have them.
pub(crate) fn to_value(amounts: &Amounts) -> Value {
    Value::Map(
        amounts
            .iter()
            .map(|(name, amount)| (name.clone(), amount.to_string()))
            .collect::<Map>(),
    )
}

/// What regular containers and sidecars need together, or what init containers need before, whichever is more.
fn of_containers(pod: &Value, field: &str) -> Amounts {
    let (mut together, mut sidecars, mut before) = (Amounts::new(), Amounts::new(), Amounts::new());
    for (role, container) in spec::containers(pod) {
        let own = read(&container["resources"][field]);
        match role {
            Role::Regular => sum(&mut together, &own),
            Role::Sidecar => {
                sum(&mut together, &own);
                sum(&mut sidecars, &own);
                at_least(&mut before, &sidecars);
            }
            Role::Init => {
                let mut with = sidecars.clone();
                sum(&mut with, &own);
                at_least(&mut before, &with);
            }
            Role::Ephemeral => {}
        }
    }
    at_least(&mut together, &before);
    together
}

fn read(list: &Value) -> Amounts {
    let amount = |value: &Value| match value {
        Value::String(text) => Quantity::of(text),
        Value::Int(int) => Quantity::of(&int.to_string()),
        _ => Quantity::of("0"),
    };
    list.entries()
        .map(|(name, value)| (name.into(), amount(value)))
        .collect()
}

fn add(amounts: &mut Amounts, name: Str, more: &Quantity) {
    let sum = amounts.get(&name).map_or(*more, |known| known.add(more));
    amounts.insert(name, sum);
}

fn sum(amounts: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        add(amounts, name.clone(), amount);
    }
}

fn at_least(amounts: &mut Amounts, least: &Amounts) {
    for (name, amount) in least {
        if amounts.get(name).is_none_or(|known| known < amount) {
            amounts.insert(name.clone(), *amount);
        }
    }
}

/// Which resources can be given to a pod as a whole.
fn is_for_pods(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_object::json;

    #[track_caller]
    fn check(spec: &str, expected: &str) {
        let pod = json::parse(format!("{{\"spec\":{spec}}}").as_bytes()).unwrap();
        assert_eq!(
            json::to_string(&to_value(&total(&pod, "requests"))),
            expected,
            "{spec}"
        );
    }

    #[test]
    fn containers_are_added_up() {
        check(
            r#"{"containers":[{"resources":{"requests":{"cpu":"100m","memory":"1Gi"}}},{"resources":{"requests":{"cpu":1}}},{}]}"#,
            r#"{"cpu":"1100m","memory":"1Gi"}"#,
        );
    }

    #[test]
    fn an_init_container_counts_with_the_sidecars_before_it() {
        check(
            r#"{"initContainers":[{"restartPolicy":"Always","resources":{"requests":{"cpu":"1"}}},{"resources":{"requests":{"cpu":"4"}}}],
                "containers":[{"resources":{"requests":{"cpu":"2"}}}]}"#,
            r#"{"cpu":"5"}"#,
        );
    }

    #[test]
    fn a_pod_may_ask_as_a_whole_and_has_overhead() {
        check(
            r#"{"resources":{"requests":{"cpu":"3"}},"overhead":{"cpu":"500m"},"containers":[{"resources":{"requests":{"cpu":"1"}}}]}"#,
            r#"{"cpu":"3500m"}"#,
        );
    }
}
