//! EndpointSlices: labels, identity of endpoints, and planned changes.

use std::collections::BTreeMap;

use mizzen_object::owner_references::controller_reference;
use mizzen_value::{Value, value};
use mizzen_workloads::common::template::generate_name;

/// The label with the name of the service.
pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label with the name of the controller.
pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The label of headless services.
pub(crate) const HEADLESS: &str = "service.kubernetes.io/headless";

/// Endpoints by identity.
pub(crate) type Endpoints = BTreeMap<String, Value>;

/// The planned changes of a service's slices.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct SliceChanges<'a> {
    /// The server generates their names.
    pub create: Vec<Value>,
    pub update: Vec<Value>,
    pub delete: Vec<&'a Value>,
    pub unchanged: Vec<&'a Value>,
}

impl<'a> SliceChanges<'a> {
    pub(crate) fn append(&mut self, other: SliceChanges<'a>) {
        self.create.extend(other.create);
        self.update.extend(other.update);
        self.delete.extend(other.delete);
        self.unchanged.extend(other.unchanged);
    }

    /// Whether there is nothing to write.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.create.is_empty() && self.update.is_empty() && self.delete.is_empty()
    }

    /// Updates slices that would be deleted instead of creating new ones of the same family: one
    /// write less, and watchers see addresses change instead of vanish.
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

/// A key of a set of ports, independent of their order.
pub(crate) fn port_key(ports: &[Value]) -> String {
    let key = |port: &Value| {
        let [name, protocol, app_protocol] = ["name", "protocol", "appProtocol"].map(|field| {
            let text = port[field].as_str();
            text.map_or("-".to_string(), |text| format!("{text:?}"))
        });
        format!("{name}:{protocol}:{}:{app_protocol}", port["port"].int())
    };
    let mut keys: Vec<String> = ports.iter().map(key).collect();
    keys.sort();
    keys.join(",")
}

/// The identity of an endpoint. All other fields may change in place.
pub(crate) fn endpoint_identity(endpoint: &Value) -> String {
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

/// Whether two endpoints of one identity are equal.
pub(crate) fn is_same_endpoint(one: &Value, other: &Value) -> bool {
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

/// An empty slice of an owner.
pub(crate) fn empty_slice(
    owner: (&str, &Value),
    family: &str,
    ports: &[Value],
    labels: Value,
) -> Value {
    let (kind, owner) = owner;
    let metadata = &owner["metadata"];
    value!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": (generate_name(metadata["name"].str())),
            "namespace": (metadata["namespace"].clone()),
            "labels": (labels),
            "ownerReferences": [(controller_reference(owner, "v1", kind))]
        },
        "addressType": (family),
        "endpoints": [],
        "ports": (ports.to_vec())
    })
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
                endpoint_identity(&endpoint) == endpoint_identity(&other),
                is_same_endpoint(&endpoint, &other)
            ),
            expect
        );
    }

    #[test]
    fn an_endpoint_is_identified_by_address_hostname_and_target() {
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
    fn a_surplus_slice_is_updated_instead_of_a_create() {
        let slice = |name: &str, family: &str| value!({"metadata": {"name": (name)}, "addressType": (family)});
        let (four, six) = (slice("old4", "IPv4"), slice("old6", "IPv6"));
        let mut changes = SliceChanges {
            create: vec![slice("", "IPv4"), slice("", "IPv4")],
            delete: vec![&six, &four],
            ..SliceChanges::default()
        };
        changes.recycle(|_| true);
        assert_eq!(changes.create.len(), 1);
        assert_eq!(changes.update, [slice("old4", "IPv4")]);
        assert_eq!(changes.delete, [&six]);
    }
}
