//! Merges the aggregated discovery of several servers into one list of groups.
//!
//! Kubernetes: endpoints/discovery/aggregated/peer_aggregated_handler.go, and MergePreservingRelativeOrder of
//! apimachinery/pkg/util/sort. Groups, versions and resources keep the order that servers agree on; what no server orders
//! is sorted by name.

use std::collections::{BTreeMap, BTreeSet};

use mizzen_value::{Str, Value};

/// The groups of all servers, by server ID. Of groups that several servers have, the server with the first ID decides
/// what cannot be merged.
pub(super) fn merge_groups(servers: &BTreeMap<&str, &[Value]>, own: &[Value]) -> Vec<Value> {
    let group_name = |group: &Value| Str::from(group["metadata"]["name"].str());
    let lists: Vec<&[Value]> = servers.values().copied().collect();
    merge_lists(&lists, group_name, merge_group).unwrap_or_else(|| own.to_vec())
}

fn merge_group(group: &Value, other: &Value) -> Option<Value> {
    let versions = merge_lists(
        &[group["versions"].list(), other["versions"].list()],
        |version| version["version"].str().into(),
        merge_version,
    )?;
    Some(with(group, "versions", versions))
}

fn merge_version(version: &Value, other: &Value) -> Option<Value> {
    let resources = merge_lists(
        &[version["resources"].list(), other["resources"].list()],
        |resource| resource["resource"].str().into(),
        |resource, other| (resource != other).then(|| merge_resource(resource, other)),
    )?;
    Some(with(version, "resources", resources))
}

/// A resource with the verbs and subresources of both, sorted.
fn merge_resource(resource: &Value, other: &Value) -> Value {
    let both = [resource, other];
    let verbs = both.iter().flat_map(|one| one["verbs"].list());
    let verbs: BTreeSet<&str> = verbs.map(Value::str).collect();
    let subresources = both.iter().flat_map(|one| one["subresources"].list());
    let subresources: BTreeMap<&str, &Value> = subresources
        .map(|subresource| (subresource["subresource"].str(), subresource))
        .collect();
    let mut merged = resource.clone();
    merged.set(
        "verbs",
        verbs.into_iter().map(Value::from).collect::<Vec<Value>>(),
    );
    if !subresources.is_empty() {
        let subresources: Vec<Value> = subresources.into_values().cloned().collect();
        merged.set("subresources", subresources);
    }
    merged
}

fn with(object: &Value, field: &str, list: Vec<Value>) -> Value {
    let mut object = object.clone();
    object.set(field, list);
    object
}

/// The items of all lists, by name; `merge` joins items of one name, and returns none if that changes nothing. None if
/// all lists are like the first one.
fn merge_lists(
    lists: &[&[Value]],
    name: impl Fn(&Value) -> Str,
    merge: impl Fn(&Value, &Value) -> Option<Value>,
) -> Option<Vec<Value>> {
    let mut items: BTreeMap<Str, Value> = BTreeMap::new();
    let mut orders: Vec<Vec<Str>> = Vec::new();
    let mut is_changed = false;
    for list in lists {
        orders.push(list.iter().map(&name).collect());
        for item in *list {
            let name = name(item);
            match items.get(&name) {
                None => {
                    items.insert(name, item.clone());
                }
                Some(known) => {
                    if let Some(merged) = merge(known, item) {
                        is_changed = true;
                        items.insert(name, merged);
                    }
                }
            }
        }
    }
    let is_ordered = orders.iter().all(|order| *order == orders[0]);
    if !is_changed && is_ordered {
        return None;
    }
    let order = match is_ordered {
        true => orders.swap_remove(0),
        false => merge_orders(&orders),
    };
    let mut in_order = order.iter();
    Some(
        in_order
            .by_ref()
            .filter_map(|name| items.remove(name))
            .collect(),
    )
}

/// One order of all names that agrees with each of `orders`: Kahn's algorithm, by name where there is a choice. Orders
/// that contradict each other yield the order of names.
fn merge_orders(orders: &[Vec<Str>]) -> Vec<Str> {
    let names: BTreeSet<&Str> = orders.iter().flatten().collect();
    let is_complete = |order: &&Vec<Str>| {
        order.len() == names.len() && order.iter().collect::<BTreeSet<_>>().len() == names.len()
    };
    if let Some(complete) = orders.iter().find(is_complete) {
        return complete.clone();
    }
    let mut followers: BTreeMap<&Str, BTreeSet<&Str>> = BTreeMap::new();
    for pair in orders.iter().flat_map(|order| order.windows(2)) {
        followers.entry(&pair[0]).or_default().insert(&pair[1]);
    }
    let mut n_before: BTreeMap<&Str, usize> = names.iter().map(|name| (*name, 0)).collect();
    for follower in followers.values().flatten() {
        *n_before.entry(follower).or_default() += 1;
    }
    let mut ready: BTreeSet<&Str> = names
        .iter()
        .copied()
        .filter(|name| n_before[name] == 0)
        .collect();
    let mut order = Vec::with_capacity(names.len());
    while let Some(name) = ready.pop_first() {
        order.push(name.clone());
        for follower in followers.get(name).into_iter().flatten() {
            if let Some(left) = n_before.get_mut(follower) {
                *left -= 1;
                if *left == 0 {
                    ready.insert(follower);
                }
            }
        }
    }
    match order.len() == names.len() {
        true => order,
        false => names.into_iter().cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    /// Groups in a short form: `apps v1(deployments:get,list pods/log:get) v2(); batch v1(jobs:get)`.
    fn groups(text: &str) -> Vec<Value> {
        let groups = text.split("; ").filter(|group| !group.is_empty());
        let groups = groups.map(|group| {
            let (name, versions) = group.split_once(' ').unwrap();
            let versions = versions.split_terminator(')').map(|version| {
                let (version, resources) = version.trim().split_once('(').unwrap();
                let resources: Vec<Value> = resources.split_whitespace().map(resource).collect();
                value!({ "version": version, "resources": resources, "freshness": "Current" })
            });
            let versions: Vec<Value> = versions.collect();
            value!({ "metadata": { "name": name }, "versions": versions })
        });
        groups.collect()
    }

    /// `pods/log,exec:get,list`.
    fn resource(text: &str) -> Value {
        let (names, verbs) = text.split_once(':').unwrap();
        let (name, below) = names.split_once('/').unwrap_or((names, ""));
        let list = |text: &str| -> Vec<Value> {
            let words = text.split(',').filter(|word| !word.is_empty());
            words.map(Value::from).collect()
        };
        let below = list(below);
        let below: Vec<Value> = below
            .into_iter()
            .map(|name| value!({ "subresource": name }))
            .collect();
        let mut resource = value!({ "resource": name, "verbs": (list(verbs)) });
        if !below.is_empty() {
            resource.set("subresources", below);
        }
        resource
    }

    fn show(groups: &[Value]) -> String {
        let words = |list: &[Value], field: &str| {
            let words = list.iter().map(|one| match field {
                "" => one.str(),
                field => one[field].str(),
            });
            words.collect::<Vec<_>>().join(",")
        };
        let resource = |resource: &Value| {
            let below = words(resource["subresources"].list(), "subresource");
            let slash = if below.is_empty() { "" } else { "/" };
            let verbs = words(resource["verbs"].list(), "");
            format!("{}{slash}{below}:{verbs}", resource["resource"].str())
        };
        let version = |version: &Value| {
            let resources = version["resources"].list().iter().map(resource);
            let resources = resources.collect::<Vec<_>>().join(" ");
            format!("{}({resources})", version["version"].str())
        };
        let groups = groups.iter().map(|group| {
            let versions = group["versions"].list().iter().map(version);
            let versions = versions.collect::<Vec<_>>().join(" ");
            format!("{} {versions}", group["metadata"]["name"].str())
        });
        groups.collect::<Vec<_>>().join("; ")
    }

    #[track_caller]
    fn check(own: &str, peers: &[&str], expected: &str) {
        let (own, peers) = (groups(own), peers.iter().map(|peer| groups(peer)));
        let peers: Vec<(String, Vec<Value>)> = peers
            .enumerate()
            .map(|(n, peer)| (format!("peer-{n}"), peer))
            .collect();
        let mut servers: BTreeMap<&str, &[Value]> = BTreeMap::from([("own", &own[..])]);
        servers.extend(peers.iter().map(|(id, groups)| (&**id, &groups[..])));
        assert_eq!(show(&merge_groups(&servers, &own)), expected);
    }

    #[test]
    fn equal_servers_have_the_document_of_each() {
        check(
            "b v1(x:get); a v1(y:list,get)",
            &[],
            "b v1(x:get); a v1(y:list,get)",
        );
        let own = "b v1(x:get); a v1(y:list,get)";
        check(own, &[own, own], own);
    }

    #[test]
    fn a_peer_adds_groups_versions_and_resources() {
        check(
            "apps v1(deployments:get); batch v1(jobs:get)",
            &[
                "apps v1(deployments:get); autoscaling v2(scales:get); batch v2(jobs:get) v1(jobs:get)",
            ],
            "apps v1(deployments:get); autoscaling v2(scales:get); batch v2(jobs:get) v1(jobs:get)",
        );
        check(
            "apps v1(a:get c:get)",
            &["apps v1(b:get c:get)"],
            "apps v1(a:get b:get c:get)",
        );
        check("", &["apps v1(a:get)"], "apps v1(a:get)");
    }

    #[test]
    fn a_resource_has_the_verbs_and_subresources_of_all_servers() {
        check(
            "apps v1(a/scale:list,get)",
            &["apps v1(a/status:watch)"],
            "apps v1(a/scale,status:get,list,watch)",
        );
    }

    #[test]
    fn an_order_that_servers_agree_on_is_kept() {
        check(
            "z v1(); m v1()",
            &["m v1(); a v1()"],
            "z v1(); m v1(); a v1()",
        );
        check(
            "z v1(); m v1()",
            &["z v1(); b v1()"],
            "z v1(); b v1(); m v1()",
        );
    }

    #[test]
    fn orders_that_contradict_each_other_become_that_of_names() {
        // The first list with all names wins, if there is one.
        check("b v1(); a v1()", &["a v1(); b v1()"], "b v1(); a v1()");
        check(
            "b v1(); a v1()",
            &["a v1(); b v1(); c v1()"],
            "a v1(); b v1(); c v1()",
        );
        check(
            "b v1(); a v1(); d v1()",
            &["a v1(); b v1(); c v1()"],
            "a v1(); b v1(); c v1(); d v1()",
        );
    }
}
