//! The desired endpoints of a service, grouped by their ports.

use std::collections::{BTreeMap, HashMap};

use mizzen_component_helpers::pod_state::is_ready;
use mizzen_value::{Value, value};

use crate::services::member::{self, IpFamily};
use crate::services::slice::{self, Endpoints};

/// Endpoints with the same ports.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct PortEndpoints {
    pub ports: Vec<Value>,
    pub endpoints: Endpoints,
}

/// The desired endpoints of one address family.
#[derive(Debug, Default)]
pub(crate) struct DesiredEndpoints {
    /// The endpoints by port key.
    pub groups: BTreeMap<String, PortEndpoints>,
    /// Why pods are left out that may be published later.
    pub skipped: Vec<String>,
}

/// The desired endpoints of a family. `nodes` returns the labels of a node; none if it does not
/// exist.
pub(crate) fn desired_endpoints(
    service: &Value,
    pods: &[&Value],
    nodes: &dyn Fn(&str) -> Option<Value>,
    family: IpFamily,
) -> DesiredEndpoints {
    let mut wanted = DesiredEndpoints::default();
    let mut known = HashMap::new();
    for pod in pods
        .iter()
        .filter(|pod| member::should_be_in_endpoints(pod, true))
    {
        let ports = ports(service, pod);
        let group = wanted.groups.entry(slice::port_key(&ports)).or_default();
        group.ports = ports;
        let node = pod["spec"]["nodeName"].str();
        let labels = known.entry(node).or_insert_with(|| nodes(node)).as_ref();
        if labels.is_none() && !service["spec"]["publishNotReadyAddresses"].bool() {
            let (service, pod) = (&service["metadata"], pod["metadata"]["name"].str());
            let (namespace, service) = (service["namespace"].str(), service["name"].str());
            wanted.skipped.push(format!(
                "skipping Pod {pod} for Service {namespace}/{service}: Node {node} Not Found"
            ));
            continue;
        }
        let endpoint = endpoint(service, pod, labels.unwrap_or(&Value::Null), family);
        if !endpoint["addresses"].list().is_empty() {
            group
                .endpoints
                .insert(slice::endpoint_identity(&endpoint), endpoint);
        }
    }
    wanted
}

fn endpoint(service: &Value, pod: &Value, labels: &Value, family: IpFamily) -> Value {
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

/// The address families of a service.
pub(crate) fn families(service: &Value) -> Vec<IpFamily> {
    let spec = &service["spec"];
    let specified: Vec<IpFamily> = spec["ipFamilies"]
        .list()
        .iter()
        .filter_map(|name| IpFamily::from_name(name.str()))
        .collect();
    if !specified.is_empty() {
        return specified;
    }
    match member::parse_address(spec["clusterIP"].str()) {
        Some(own) => vec![IpFamily::from_address(own)],
        None => vec![IpFamily::V4, IpFamily::V6],
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
    fn check(service: &Value, pod: &Value, family: IpFamily, expect: Result<Value, &str>) {
        let nodes =
            |name: &str| (name == "n").then(|| value!({"topology.kubernetes.io/zone": "z"}));
        let wanted = desired_endpoints(service, &[pod], &nodes, family);
        let group = wanted.groups.values().next().expect("there is one");
        let endpoint = group.endpoints.values().next().cloned();
        assert_eq!(
            group.ports,
            [value!({"name": "", "port": 8080, "protocol": "TCP"})]
        );
        match expect {
            Ok(expect) => assert_eq!((endpoint, wanted.skipped), (Some(expect), vec![])),
            Err(reason) => assert_eq!((endpoint, wanted.skipped), (None, vec![reason.to_string()])),
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
            IpFamily::V4,
            Ok(endpoint("10.1.0.1", conditions.clone())),
        );
        check(
            &service(value!({})),
            &pod("n"),
            IpFamily::V6,
            Ok(endpoint("fd00::1", conditions)),
        );
    }

    #[test]
    fn a_terminating_pod_is_serving_but_not_ready() {
        let mut pod = pod("n");
        pod.entry("metadata")
            .set("deletionTimestamp", "2024-01-01T00:00:00Z");
        let conditions = value!({"ready": false, "serving": true, "terminating": true});
        check(
            &service(value!({})),
            &pod,
            IpFamily::V4,
            Ok(endpoint("10.1.0.1", conditions)),
        );
        let all = service(value!({"publishNotReadyAddresses": true}));
        let conditions = value!({"ready": true, "serving": true, "terminating": true});
        check(
            &all,
            &pod,
            IpFamily::V4,
            Ok(endpoint("10.1.0.1", conditions)),
        );
    }

    #[test]
    fn a_pod_with_a_missing_node_is_left_out() {
        let reason = "skipping Pod p for Service a/s: Node gone Not Found";
        check(
            &service(value!({})),
            &pod("gone"),
            IpFamily::V4,
            Err(reason),
        );
    }

    #[test]
    fn a_service_says_which_families_it_has() {
        let check = |spec: Value, expect: &[IpFamily]| {
            assert_eq!(families(&value!({"spec": (spec)})), expect)
        };
        check(
            value!({"ipFamilies": ["IPv6", "IPv4"]}),
            &[IpFamily::V6, IpFamily::V4],
        );
        check(value!({"clusterIP": "fd00::5"}), &[IpFamily::V6]);
        check(value!({"clusterIP": "None"}), &[IpFamily::V4, IpFamily::V6]);
    }
}
