//! Pods as members of services: whether they are published, with which addresses and ports.

use std::net::IpAddr;

use mizzen_component_helpers::pod_state::is_sidecar;
use mizzen_component_helpers::pod_state::{is_ready, is_terminal};
use mizzen_object::validate::ip::parse_sloppy;
use mizzen_value::Value;
use mizzen_workloads::common::pod;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum IpFamily {
    V4,
    V6,
}

impl IpFamily {
    /// Its name in services and slices.
    pub(crate) fn name(self) -> &'static str {
        match self {
            IpFamily::V4 => "IPv4",
            IpFamily::V6 => "IPv6",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<IpFamily> {
        [IpFamily::V4, IpFamily::V6]
            .into_iter()
            .find(|family| family.name() == name)
    }

    pub(crate) fn from_address(address: IpAddr) -> IpFamily {
        if address.is_ipv4() {
            IpFamily::V4
        } else {
            IpFamily::V6
        }
    }
}

/// Parses an address as Go's ParseIPSloppy does, in canonical form.
pub(crate) fn parse_address(text: &str) -> Option<IpAddr> {
    parse_sloppy(text).map(|address| address.to_canonical())
}

/// Whether a pod is published. A terminating pod only if `with_going`.
pub(crate) fn should_be_in_endpoints(pod: &Value, with_going: bool) -> bool {
    let status = &pod["status"];
    let has_address = !status["podIP"].str().is_empty() || !status["podIPs"].list().is_empty();
    !is_terminal(pod)
        && has_address
        && (with_going || pod["metadata"]["deletionTimestamp"].is_null())
}

/// The condition of a type, or null.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    pod::condition(object, kind).unwrap_or(&Value::Null)
}

/// A pod's addresses of a family in canonical form.
pub(crate) fn addresses(pod: &Value, family: IpFamily) -> Vec<String> {
    let addresses = pod["status"]["podIPs"]
        .list()
        .iter()
        .filter_map(|known| parse_address(known["ip"].str()));
    addresses
        .filter(|address| IpFamily::from_address(*address) == family)
        .map(|address| address.to_string())
        .collect()
}

/// The hostname under which a service publishes a pod, if it has one.
pub(crate) fn hostname<'a>(pod: &'a Value, service: &Value) -> Option<&'a str> {
    let spec = &pod["spec"];
    let same_namespace = pod["metadata"]["namespace"] == service["metadata"]["namespace"];
    let wanted = same_namespace && spec["subdomain"].str() == service["metadata"]["name"].str();
    Some(spec["hostname"].str()).filter(|name| wanted && !name.is_empty())
}

/// The pod's port of a service port.
pub(crate) fn port_number(pod: &Value, port: &Value) -> Option<i64> {
    let Some(name) = port["targetPort"].as_str() else {
        return Some(port["targetPort"].int());
    };
    let spec = &pod["spec"];
    let containers = spec["containers"].list().iter();
    let containers = containers.chain(
        spec["initContainers"]
            .list()
            .iter()
            .filter(|container| is_sidecar(container)),
    );
    let mut ports = containers.flat_map(|container| container["ports"].list());
    let found =
        ports.find(|known| known["name"].str() == name && known["protocol"] == port["protocol"]);
    found.map(|known| known["containerPort"].int())
}

/// Whether a service is headless.
pub(crate) fn is_headless(service: &Value) -> bool {
    matches!(service["spec"]["clusterIP"].str(), "" | "None")
}

/// Whether a service has a selector and is not of type ExternalName.
pub(crate) fn selects_pods(service: &Value) -> bool {
    service["spec"]["type"].str() != "ExternalName" && !service["spec"]["selector"].is_empty()
}

/// Whether a pod changed in anything that endpoints depend on.
pub(crate) fn has_endpoint_change(old: &Value, new: &Value) -> bool {
    let differs = |path: &str| old.at(path) != new.at(path);
    is_ready(old) != is_ready(new)
        || [
            "metadata.labels",
            "metadata.deletionTimestamp",
            "spec.hostname",
            "spec.subdomain",
        ]
        .into_iter()
        .chain([
            "spec.nodeName",
            "status.phase",
            "status.podIP",
            "status.podIPs",
        ])
        .any(differs)
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;

    #[track_caller]
    fn check_port(target: Value, expect: Option<i64>) {
        let pod = value!({"spec": {
            "containers": [{"ports": [
                {"name": "web", "protocol": "TCP", "containerPort": 8080},
                {"name": "dns", "protocol": "UDP", "containerPort": 53}
            ]}],
            "initContainers": [
                {"ports": [{"name": "once", "protocol": "TCP", "containerPort": 1}]},
                {"restartPolicy": "Always", "ports": [{"name": "side", "protocol": "TCP", "containerPort": 9}]}
            ]
        }});
        let port = value!({"protocol": "TCP", "targetPort": (target)});
        assert_eq!(port_number(&pod, &port), expect);
    }

    #[test]
    fn a_port_is_found_by_number_or_by_name_and_protocol() {
        check_port(value!(80), Some(80));
        check_port(value!("web"), Some(8080));
        check_port(value!("side"), Some(9));
        check_port(value!("dns"), None);
        check_port(value!("once"), None);
    }

    #[track_caller]
    fn check_addresses(family: IpFamily, expect: &[&str]) {
        let pod = value!({"status": {"podIPs": [
            {"ip": "10.1.0.010"}, {"ip": "fd00:0::1"}, {"ip": "::ffff:10.0.0.9"}, {"ip": "nonsense"}
        ]}});
        assert_eq!(addresses(&pod, family), expect);
    }

    #[test]
    fn addresses_are_split_by_family_in_canonical_form() {
        check_addresses(IpFamily::V4, &["10.1.0.10", "10.0.0.9"]);
        check_addresses(IpFamily::V6, &["fd00::1"]);
    }

    #[test]
    fn a_pod_is_published_while_it_has_an_address_and_works() {
        let pod = |phase: &str, ip: &str, going: bool| {
            let at = if going {
                value!("2024-01-01T00:00:00Z")
            } else {
                Value::Null
            };
            value!({"metadata": {"deletionTimestamp": (at)}, "status": {"phase": (phase), "podIP": (ip)}})
        };
        assert!(should_be_in_endpoints(
            &pod("Running", "10.0.0.1", false),
            false
        ));
        assert!(!should_be_in_endpoints(&pod("Running", "", false), false));
        assert!(!should_be_in_endpoints(
            &pod("Failed", "10.0.0.1", false),
            true
        ));
        assert!(!should_be_in_endpoints(
            &pod("Running", "10.0.0.1", true),
            false
        ));
        assert!(should_be_in_endpoints(
            &pod("Running", "10.0.0.1", true),
            true
        ));
    }

    #[test]
    fn only_changes_of_endpoint_fields_matter() {
        let pod = value!({"metadata": {"annotations": {"a": "1"}}, "status": {"phase": "Running"}});
        let mut other = pod.clone();
        other
            .entry("metadata")
            .set("annotations", value!({"a": "2"}));
        assert!(!has_endpoint_change(&pod, &other));
        other
            .entry("status")
            .set("conditions", value!([{"type": "Ready", "status": "True"}]));
        assert!(has_endpoint_change(&pod, &other));
    }
}
