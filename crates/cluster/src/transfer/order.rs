//! The order in which objects are written: what others need comes first.
//!
//! Namespaces and definitions come first, then configuration, then workloads, and at last what judges other objects: quotas,
//! policies, webhooks and API services, which would otherwise judge the import before what they depend on runs. An
//! owner comes before its dependents, whatever their kinds.

use std::collections::HashMap;

use mizzen_value::Value;

use super::group_of;

/// Objects that can be written at the same time, since none depends on another one of them.
pub(super) type Stage = Vec<Value>;

/// The stages in which objects are written.
pub(super) fn stages(objects: Vec<Value>) -> Vec<Stage> {
    let places = places(&objects);
    let mut ordered: Vec<_> = objects.into_iter().zip(places).collect();
    ordered.sort_by_key(|(_, place)| *place);
    let mut stages: Vec<Stage> = Vec::new();
    let mut last = None;
    for (object, place) in ordered {
        if last.replace(place) != Some(place) {
            stages.push(Stage::new());
        }
        stages.last_mut().expect("one was pushed").push(object);
    }
    stages
}

/// The rank of a kind: lower ones are written first.
pub(super) fn rank(group: &str, kind: &str) -> u8 {
    match (group, kind) {
        ("", "Namespace") => 0,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => 1,
        ("scheduling.k8s.io", _)
        | ("storage.k8s.io", _)
        | ("node.k8s.io", _)
        | ("resource.k8s.io", "DeviceClass")
        | ("networking.k8s.io", "ServiceCIDR" | "IngressClass")
        | ("", "Node") => 2,
        ("", "ServiceAccount") => 3,
        ("", "Secret" | "ConfigMap" | "PersistentVolume" | "LimitRange")
        | ("rbac.authorization.k8s.io", _) => 4,
        ("", "PersistentVolumeClaim" | "Service") => 5,
        ("", "Pod") => 8,
        ("", "ReplicationController") | ("apps" | "batch", _) => 7,
        ("autoscaling" | "policy" | "networking.k8s.io", _) => 9,
        ("", "ResourceQuota") => 10,
        ("flowcontrol.apiserver.k8s.io", _) | ("apiregistration.k8s.io", _) => 11,
        ("admissionregistration.k8s.io", _) => 12,
        _ => 6,
    }
}

/// How an owner finds its dependents.
type OwnerKey<'a> = (&'a str, &'a str, &'a str, &'a str);

/// The rank of each object, which is at least that of its owners, and how many owners stand above it.
fn places(objects: &[Value]) -> Vec<(u8, usize)> {
    let by_key: HashMap<OwnerKey, usize> = objects
        .iter()
        .enumerate()
        .map(|(index, object)| {
            let metadata = &object["metadata"];
            let key = (
                group_of(object["apiVersion"].str()),
                object["kind"].str(),
                metadata["namespace"].str(),
                metadata["name"].str(),
            );
            (key, index)
        })
        .collect();
    let owners = |object: &Value| -> Vec<usize> {
        let namespace = object["metadata"]["namespace"].str();
        let references = object["metadata"]["ownerReferences"].items();
        let find = |reference: &Value| {
            let group = group_of(reference["apiVersion"].str());
            let (kind, name) = (reference["kind"].str(), reference["name"].str());
            let in_namespace = by_key.get(&(group, kind, namespace, name));
            in_namespace
                .or_else(|| by_key.get(&(group, kind, "", name)))
                .copied()
        };
        references.filter_map(find).collect()
    };
    let owners: Vec<Vec<usize>> = objects.iter().map(owners).collect();
    let mut places: Vec<(u8, usize)> = objects
        .iter()
        .map(|object| {
            (
                rank(group_of(object["apiVersion"].str()), object["kind"].str()),
                0,
            )
        })
        .collect();
    // A chain of owners is short. Owners in a circle stay in the order of their ranks: the loop is bounded.
    for _ in 0..MAX_OWNER_DEPTH {
        let mut is_settled = true;
        for index in 0..places.len() {
            for &owner in owners[index].iter().filter(|owner| **owner != index) {
                let (owner_rank, owner_depth) = places[owner];
                let least = (owner_rank, owner_depth + 1);
                if places[index] < least {
                    places[index] = least;
                    is_settled = false;
                }
            }
        }
        if is_settled {
            break;
        }
    }
    places
}

/// The longest chain of owners that is put in order.
const MAX_OWNER_DEPTH: usize = 32;

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    fn object(
        api_version: &str,
        kind: &str,
        name: &str,
        owner: Option<(&str, &str, &str)>,
    ) -> Value {
        let mut object = value!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": name, "namespace": "shop"},
        });
        if let Some((api_version, kind, name)) = owner {
            let reference = value!([{"apiVersion": api_version, "kind": kind, "name": name}]);
            object.entry("metadata").set("ownerReferences", reference);
        }
        object
    }

    fn names(objects: Vec<Value>) -> Vec<Vec<String>> {
        let name = |object: &Value| object["metadata"]["name"].str().to_owned();
        stages(objects)
            .iter()
            .map(|stage| stage.iter().map(name).collect())
            .collect()
    }

    #[test]
    fn definitions_come_before_and_webhooks_after_everything() {
        let objects = vec![
            object(
                "admissionregistration.k8s.io/v1",
                "ValidatingWebhookConfiguration",
                "hook",
                None,
            ),
            object("shop.example.com/v1", "Oven", "oven", None),
            object(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                "ovens",
                None,
            ),
            object("v1", "Namespace", "shop", None),
        ];
        assert_eq!(names(objects), [["shop"], ["ovens"], ["oven"], ["hook"]]);
    }

    #[test]
    fn an_owner_comes_before_its_dependents_whatever_their_kinds() {
        let objects = vec![
            object(
                "v1",
                "ConfigMap",
                "grandchild",
                Some(("apps/v1", "Deployment", "child")),
            ),
            object(
                "apps/v1",
                "Deployment",
                "child",
                Some(("apps/v1", "Deployment", "parent")),
            ),
            object("apps/v1", "Deployment", "parent", None),
            object("v1", "ConfigMap", "other", None),
        ];
        assert_eq!(
            names(objects),
            [["other"], ["parent"], ["child"], ["grandchild"]]
        );
    }

    #[test]
    fn owners_in_a_circle_end() {
        let objects = vec![
            object("v1", "ConfigMap", "a", Some(("v1", "ConfigMap", "b"))),
            object("v1", "ConfigMap", "b", Some(("v1", "ConfigMap", "a"))),
            object("v1", "ConfigMap", "c", Some(("v1", "ConfigMap", "c"))),
        ];
        assert_eq!(names(objects).concat().len(), 3);
    }
}
