//! Which endpoints should a service have, by the ports that lead to them?

use std::collections::{BTreeMap, HashMap};

use mizzen_value::{Value, value};

use crate::common::pod::is_ready;
use crate::services::member::{self, Family};
use crate::services::slice::{self, Endpoints};

/// Endpoints that offer the same ports.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Group {
    /// The ports.
    pub ports: Vec<Value>,
    /// Those who offer them.
    pub endpoints: Endpoints,
}

/// What a service should have of one family.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// The endpoints, by what tells their ports apart.
    pub groups: BTreeMap<String, Group>,
    /// Why pods are left out that may be published later.
    pub complaints: Vec<String>,
}

/// What `service` should have of a family. `nodes` has the labels of a node, if there is such a node.
pub(crate) fn wanted(
    service: &Value,
    pods: &[&Value],
    nodes: &dyn Fn(&str) -> Option<Value>,
    family: Family,
) -> Wanted {
    let mut wanted = Wanted::default();
    let mut known = HashMap::new();
    for pod in pods.iter().filter(|pod| member::is_published(pod, true)) {
        let ports = ports(service, pod);
        let group = wanted.groups.entry(slice::port_key(&ports)).or_default();
        group.ports = ports;
        let node = pod["spec"]["nodeName"].str();
        let labels = known.entry(node).or_insert_with(|| nodes(node)).as_ref();
        if labels.is_none() && !service["spec"]["publishNotReadyAddresses"].bool() {
            wanted.complaints.push(complaint(service, pod));
            continue;
        }
        let endpoint = endpoint(service, pod, labels.unwrap_or(&Value::Null), family);
        if !endpoint["addresses"].list().is_empty() {
            group.endpoints.insert(slice::identity(&endpoint), endpoint);
        }
    }
    wanted
}

fn complaint(service: &Value, pod: &Value) -> String {
    let (service, name) = (&service["metadata"], pod["metadata"]["name"].str());
    let (namespace, service) = (service["namespace"].str(), service["name"].str());
    let node = pod["spec"]["nodeName"].str();
    format!("skipping Pod {name} for Service {namespace}/{service}: Node {node} Not Found")
}

fn endpoint(service: &Value, pod: &Value, labels: &Value, family: Family) -> Value {
    let metadata = &pod["metadata"];
    let serving = is_ready(pod);
    let terminating = !metadata["deletionTimestamp"].is_null();
    let ready = service["spec"]["publishNotReadyAddresses"].bool() || (serving && !terminating);
    let mut endpoint = value!({
        "addresses": (member::addresses(pod, family).into_iter().map(Value::from).collect::<Vec<_>>()),
        "conditions": {"ready": (ready), "serving": (serving), "terminating": (terminating)},
        "targetRef": {
            "kind": "Pod",
            "namespace": (metadata["namespace"].clone()),
            "name": (metadata["name"].clone()),
            "uid": (metadata["uid"].clone())
        }
    });
    let zone = labels["topology.kubernetes.io/zone"].str();
    let parts = [("nodeName", pod["spec"]["nodeName"].str()), ("zone", zone)];
    let hostname = member::hostname(pod, service).map(|hostname| ("hostname", hostname));
    for (name, text) in parts
        .into_iter()
        .chain(hostname)
        .filter(|(_, text)| !text.is_empty())
    {
        endpoint.set(name, text);
    }
    endpoint
}

fn ports(service: &Value, pod: &Value) -> Vec<Value> {
    let port = |port: &Value| {
        let mut found = value!({
            "name": (port["name"].str()),
            "port": (member::port_number(pod, port)?),
            "protocol": (port["protocol"].clone())
        });
        if let Some(app_protocol) = port["appProtocol"].as_str() {
            found.set("appProtocol", app_protocol);
        }
        Some(found)
    };
    service["spec"]["ports"]
        .list()
        .iter()
        .filter_map(port)
        .collect()
}

/// The families of which a service has addresses.
pub(crate) fn families(service: &Value) -> Vec<Family> {
    let spec = &service["spec"];
    let said: Vec<Family> = spec["ipFamilies"]
        .list()
        .iter()
        .filter_map(|name| Family::named(name.str()))
        .collect();
    if !said.is_empty() {
        return said;
    }
    match member::address(spec["clusterIP"].str()) {
        Some(own) => vec![Family::of(own)],
        None => vec![Family::V4, Family::V6],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(more: Value) -> Value {
        let mut spec = value!({"ports": [{"port": 80, "targetPort": "web", "protocol": "TCP"}]});
        more.entries()
            .for_each(|(name, value)| spec.set(name, value.clone()));
        value!({"metadata": {"namespace": "a", "name": "s"}, "spec": (spec)})
    }

    fn pod(node: &str) -> Value {
        value!({
            "metadata": {"namespace": "a", "name": "p", "uid": "1"},
            "spec": {
                "nodeName": (node), "hostname": "h", "subdomain": "s",
                "containers": [{"ports": [{"name": "web", "containerPort": 8080, "protocol": "TCP"}]}]
            },
            "status": {
                "podIPs": [{"ip": "10.1.0.1"}, {"ip": "fd00::1"}],
                "conditions": [{"type": "Ready", "status": "True"}]
            }
        })
    }

    #[track_caller]
    fn check(service: &Value, pod: &Value, family: Family, expect: Result<Value, &str>) {
        let nodes =
            |name: &str| (name == "n").then(|| value!({"topology.kubernetes.io/zone": "z"}));
        let wanted = wanted(service, &[pod], &nodes, family);
        let group = wanted.groups.values().next().expect("there is one");
        let endpoint = group.endpoints.values().next().cloned();
        assert_eq!(
            group.ports,
            [value!({"name": "", "port": 8080, "protocol": "TCP"})]
        );
        match expect {
            Ok(expect) => assert_eq!((endpoint, wanted.complaints), (Some(expect), vec![])),
            Err(complaint) => assert_eq!(
                (endpoint, wanted.complaints),
                (None, vec![complaint.to_string()])
            ),
        }
    }

    fn endpoint(ip: &str, conditions: Value) -> Value {
        value!({
            "addresses": [(ip)], "conditions": (conditions), "nodeName": "n", "zone": "z", "hostname": "h",
            "targetRef": {"kind": "Pod", "namespace": "a", "name": "p", "uid": "1"}
        })
    }

    #[test]
    fn a_pod_becomes_an_endpoint_of_each_family() {
        let conditions = value!({"ready": true, "serving": true, "terminating": false});
        check(
            &service(value!({})),
            &pod("n"),
            Family::V4,
            Ok(endpoint("10.1.0.1", conditions.clone())),
        );
        check(
            &service(value!({})),
            &pod("n"),
            Family::V6,
            Ok(endpoint("fd00::1", conditions)),
        );
    }

    #[test]
    fn a_pod_that_goes_serves_but_is_not_ready() {
        let mut pod = pod("n");
        pod.entry("metadata")
            .set("deletionTimestamp", "2024-01-01T00:00:00Z");
        let conditions = value!({"ready": false, "serving": true, "terminating": true});
        check(
            &service(value!({})),
            &pod,
            Family::V4,
            Ok(endpoint("10.1.0.1", conditions)),
        );
        let all = service(value!({"publishNotReadyAddresses": true}));
        let conditions = value!({"ready": true, "serving": true, "terminating": true});
        check(&all, &pod, Family::V4, Ok(endpoint("10.1.0.1", conditions)));
    }

    #[test]
    fn a_pod_whose_node_is_not_there_waits() {
        let complaint = "skipping Pod p for Service a/s: Node gone Not Found";
        check(
            &service(value!({})),
            &pod("gone"),
            Family::V4,
            Err(complaint),
        );
    }

    #[test]
    fn a_service_says_which_families_it_has() {
        let check = |spec: Value, expect: &[Family]| {
            assert_eq!(families(&value!({"spec": (spec)})), expect)
        };
        check(
            value!({"ipFamilies": ["IPv6", "IPv4"]}),
            &[Family::V6, Family::V4],
        );
        check(value!({"clusterIP": "fd00::5"}), &[Family::V6]);
        check(value!({"clusterIP": "None"}), &[Family::V4, Family::V6]);
    }
}
