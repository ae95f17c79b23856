//! Aggregated discovery: all of discovery in one `APIGroupDiscoveryList`, which clients request by media type.

use mizzen_value::{Value, value};

use super::{Group, Version, is_built_in};

/// The document of `/api` (for the core group) and `/apis` (for all other groups).
pub fn aggregated<'a>(groups: impl IntoIterator<Item = &'a Group>) -> Value {
    let items: Vec<Value> = groups.into_iter().map(group).collect();
    value!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn group(group: &Group) -> Value {
    let mut metadata = Value::object();
    if !group.name.is_empty() {
        metadata.set("name", group.name.clone());
    }
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|known| version(group, known))
        .collect();
    value!({"metadata": metadata, "versions": versions})
}

fn version(group: &Group, version: &Version) -> Value {
    let mut resources: Vec<Value> = Vec::new();
    for line in &version.resources {
        let name = line["name"].str();
        match name.split_once('/') {
            None => resources.push(resource(group, version, line)),
            Some((parent, name)) => {
                let owner = resources
                    .iter_mut()
                    .find(|resource| resource["resource"].str() == parent);
                if let Some(owner) = owner {
                    owner.entry("subresources").make_list().push(value!({
                        "subresource": name,
                        "responseKind": (response_kind(group, version, line)),
                        "verbs": (line["verbs"].clone()),
                    }));
                }
            }
        }
    }
    resources.sort_by(|a, b| a["resource"].str().cmp(b["resource"].str()));
    value!({"version": (version.name.clone()), "resources": resources, "freshness": "Current"})
}

fn resource(group: &Group, version: &Version, line: &Value) -> Value {
    let mut resource = value!({
        "resource": (line["name"].clone()),
        "responseKind": (response_kind(group, version, line)),
        "scope": (if line["namespaced"].bool() { "Namespaced" } else { "Cluster" }),
        "singularResource": (line["singularName"].clone()),
        "verbs": (line["verbs"].clone()),
    });
    for names in ["shortNames", "categories"] {
        if !line[names].is_empty() {
            resource.set(names, line[names].clone());
        }
    }
    resource
}

/// Kubernetes: for built-in kinds, group and version are set only where they differ from the list's.
fn response_kind(group: &Group, version: &Version, line: &Value) -> Value {
    let (group, version) = match line["version"].str() {
        "" if is_built_in(&group.name) => ("", ""),
        "" => (group.name.as_str(), version.name.as_str()),
        version => (line["group"].str(), version),
    };
    value!({"group": group, "version": version, "kind": (line["kind"].clone())})
}
