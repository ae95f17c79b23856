//! What is an endpoint slice made of, and what tells one from another?

use std::collections::BTreeMap;

use mizzen_object::owner_references::controller_reference;
use mizzen_value::{Value, value};

/// The label with the name of a slice's service.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label with the name of the loop that keeps a slice.
pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The label of what belongs to a service without an address.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";

/// Endpoints by what tells them apart.
pub(crate) type Endpoints = BTreeMap<String, Value>;

/// What is to be done to the slices of a service.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Changes<'a> {
    /// Slices that are missing; the server names them.
    pub create: Vec<Value>,
    /// Slices as they should be.
    pub update: Vec<Value>,
    /// Slices that are too many.
    pub delete: Vec<&'a Value>,
    /// Slices that are as they should be.
    pub unchanged: Vec<&'a Value>,
}

impl<'a> Changes<'a> {
    /// Adds what is to be done to others.
    pub(crate) fn append(&mut self, other: Changes<'a>) {
        self.create.extend(other.create);
        self.update.extend(other.update);
        self.delete.extend(other.delete);
        self.unchanged.extend(other.unchanged);
    }

    /// Whether there is nothing to do.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.create.is_empty() && self.update.is_empty() && self.delete.is_empty()
    }

    /// Makes new slices of old ones that would go, where they are of one family: a write less, and the watchers of
    /// services see addresses change instead of vanish.
    pub(crate) fn recycle(&mut self, may_become: impl Fn(&Value) -> bool) {
        let mut kept = Vec::new();
        for old in std::mem::take(&mut self.delete) {
            let family = &old["addressType"];
            let found = self
                .create
                .iter()
                .rposition(|new| new["addressType"] == *family);
            match found.filter(|_| may_become(old)) {
                Some(at) => {
                    let mut new = self.create.remove(at);
                    new.entry("metadata")
                        .set("name", old["metadata"]["name"].clone());
                    self.update.push(new);
                }
                None => kept.push(old),
            }
        }
        self.delete = kept;
    }
}

/// What tells sets of ports apart, whatever their order.
pub(crate) fn port_key(ports: &[Value]) -> String {
    let mut keys: Vec<String> = ports.iter().map(one_port_key).collect();
    keys.sort();
    keys.join(",")
}

fn one_port_key(port: &Value) -> String {
    let part = |name: &str| {
        port[name]
            .as_str()
            .map_or("-".to_string(), |text| format!("{text:?}"))
    };
    format!(
        "{}:{}:{}:{}",
        part("name"),
        part("protocol"),
        port["port"].int(),
        part("appProtocol")
    )
}

/// What tells an endpoint from another. Whatever else there is of it may change in place.
pub(crate) fn identity(endpoint: &Value) -> String {
    let mut addresses: Vec<&str> = endpoint["addresses"]
        .list()
        .iter()
        .map(Value::str)
        .collect();
    addresses.sort();
    let target = &endpoint["targetRef"];
    let (namespace, name) = (target["namespace"].str(), target["name"].str());
    format!(
        "{} {:?} {namespace}/{name}",
        addresses.join(","),
        endpoint["hostname"].str()
    )
}

/// Whether two endpoints of one identity are the same in everything that is published.
pub(crate) fn is_same(one: &Value, other: &Value) -> bool {
    const CONDITIONS: [&str; 3] = ["ready", "serving", "terminating"];
    let target = |endpoint: &Value| {
        let mut target = endpoint["targetRef"].clone();
        target.remove("resourceVersion");
        target
    };
    one["nodeName"] == other["nodeName"]
        && one["zone"] == other["zone"]
        && CONDITIONS
            .iter()
            .all(|name| one["conditions"][*name] == other["conditions"][*name])
        && target(one) == target(other)
}

/// An empty slice that belongs to an object.
pub(crate) fn empty(owner: (&str, &Value), family: &str, ports: &[Value], labels: Value) -> Value {
    let (kind, owner) = owner;
    let metadata = &owner["metadata"];
    value!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": (prefix(metadata["name"].str())),
            "namespace": (metadata["namespace"].clone()),
            "labels": (labels),
            "ownerReferences": [(controller_reference(owner, "v1", kind))]
        },
        "addressType": (family),
        "endpoints": [],
        "ports": (ports.to_vec())
    })
}

/// How the names of slices begin. A dash makes them prettier, unless the name is too long for it.
fn prefix(name: &str) -> String {
    const MAX_NAME: usize = 253;
    if name.len() < MAX_NAME {
        format!("{name}-")
    } else {
        name.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_the_same_in_any_order() {
        let web = value!({"name": "web", "port": 80, "protocol": "TCP"});
        let dns = value!({"name": "dns", "port": 53, "protocol": "UDP"});
        let key = |ports: &[&Value]| {
            port_key(&ports.iter().map(|port| (*port).clone()).collect::<Vec<_>>())
        };
        assert_eq!(key(&[&web, &dns]), key(&[&dns, &web]));
        assert_ne!(key(&[&web]), key(&[&web, &dns]));
        assert_ne!(
            key(&[&web]),
            key(&[&value!({"name": "web", "port": 80, "protocol": "TCP", "appProtocol": "h2"})])
        );
    }

    #[track_caller]
    fn check_same(change: fn(&mut Value), expect: (bool, bool)) {
        let endpoint = value!({
            "addresses": ["10.0.0.1"], "nodeName": "n", "conditions": {"ready": true},
            "targetRef": {"namespace": "a", "name": "p", "uid": "1"}
        });
        let mut other = endpoint.clone();
        change(&mut other);
        assert_eq!(
            (
                identity(&endpoint) == identity(&other),
                is_same(&endpoint, &other)
            ),
            expect
        );
    }

    #[test]
    fn an_endpoint_is_told_from_others_by_address_name_and_target() {
        check_same(|_| (), (true, true));
        check_same(|endpoint| endpoint.set("hostname", "h"), (false, true));
        check_same(
            |endpoint| endpoint.set("addresses", value!(["10.0.0.2"])),
            (false, true),
        );
        check_same(|endpoint| endpoint.set("nodeName", "m"), (true, false));
        check_same(
            |endpoint| endpoint.entry("conditions").set("ready", false),
            (true, false),
        );
        check_same(
            |endpoint| endpoint.entry("targetRef").set("uid", "2"),
            (true, false),
        );
        check_same(
            |endpoint| endpoint.entry("targetRef").set("resourceVersion", "7"),
            (true, true),
        );
    }

    #[test]
    fn a_slice_that_would_go_becomes_one_that_is_missing() {
        let slice = |name: &str, family: &str| value!({"metadata": {"name": (name)}, "addressType": (family)});
        let (four, six) = (slice("old4", "IPv4"), slice("old6", "IPv6"));
        let mut changes = Changes {
            create: vec![slice("", "IPv4"), slice("", "IPv4")],
            delete: vec![&six, &four],
            ..Changes::default()
        };
        changes.recycle(|_| true);
        assert_eq!(changes.create.len(), 1);
        assert_eq!(changes.update, [slice("old4", "IPv4")]);
        assert_eq!(changes.delete, [&six]);
    }
}
