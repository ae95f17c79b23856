//! Does a pod stand behind a service, and where is it reached?

use std::net::IpAddr;

use mizzen_kinds::pod_state::is_sidecar;
use mizzen_object::validate::ip::parse_sloppy;
use mizzen_value::Value;

use crate::common::pod::{self, is_ready, is_terminal};

/// Which of its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Family {
    /// Four bytes.
    V4,
    /// Sixteen bytes.
    V6,
}

impl Family {
    /// Its name, in services as in slices.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    /// The family of this name.
    pub(crate) fn named(name: &str) -> Option<Family> {
        [Family::V4, Family::V6]
            .into_iter()
            .find(|family| family.name() == name)
    }

    /// The family of an address.
    pub(crate) fn of(address: IpAddr) -> Family {
        if address.is_ipv4() {
            Family::V4
        } else {
            Family::V6
        }
    }
}

/// An address as people may have written it.
pub(crate) fn address(text: &str) -> Option<IpAddr> {
    parse_sloppy(text).map(|address| address.to_canonical())
}

/// Whether a pod can be published at all. A pod that is going is published `with_going` only.
pub(crate) fn is_published(pod: &Value, with_going: bool) -> bool {
    let status = &pod["status"];
    let has_address = !status["podIP"].str().is_empty() || !status["podIPs"].list().is_empty();
    !is_terminal(pod)
        && has_address
        && (with_going || pod["metadata"]["deletionTimestamp"].is_null())
}

/// The condition of an object's status of this type, or null.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    pod::condition(object, kind).unwrap_or(&Value::Null)
}

/// A pod's addresses of a family, in the one way to write them.
pub(crate) fn addresses(pod: &Value, family: Family) -> Vec<String> {
    let addresses = pod["status"]["podIPs"]
        .list()
        .iter()
        .filter_map(|known| address(known["ip"].str()));
    addresses
        .filter(|address| Family::of(*address) == family)
        .map(|address| address.to_string())
        .collect()
}

/// The name under which a service publishes a pod, if the pod wants one there.
pub(crate) fn hostname<'a>(pod: &'a Value, service: &Value) -> Option<&'a str> {
    let spec = &pod["spec"];
    let same_namespace = pod["metadata"]["namespace"] == service["metadata"]["namespace"];
    let wanted = same_namespace && spec["subdomain"].str() == service["metadata"]["name"].str();
    Some(spec["hostname"].str()).filter(|name| wanted && !name.is_empty())
}

/// The port of a pod to which a port of a service leads.
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

/// Whether a service has no address of its own.
pub(crate) fn is_headless(service: &Value) -> bool {
    matches!(service["spec"]["clusterIP"].str(), "" | "None")
}

/// Whether a loop looks for the pods of a service: it has a selector, and leads nowhere else.
pub(crate) fn selects_pods(service: &Value) -> bool {
    service["spec"]["type"].str() != "ExternalName" && !service["spec"]["selector"].is_empty()
}

/// Whether anything of a pod changed that decides about its place behind a service.
pub(crate) fn matters(old: &Value, new: &Value) -> bool {
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
    fn check_addresses(family: Family, expect: &[&str]) {
        let pod = value!({"status": {"podIPs": [
            {"ip": "10.1.0.010"}, {"ip": "fd00:0::1"}, {"ip": "::ffff:10.0.0.9"}, {"ip": "nonsense"}
        ]}});
        assert_eq!(addresses(&pod, family), expect);
    }

    #[test]
    fn addresses_are_told_apart_by_family_and_written_in_one_way() {
        check_addresses(Family::V4, &["10.1.0.10", "10.0.0.9"]);
        check_addresses(Family::V6, &["fd00::1"]);
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
        assert!(is_published(&pod("Running", "10.0.0.1", false), false));
        assert!(!is_published(&pod("Running", "", false), false));
        assert!(!is_published(&pod("Failed", "10.0.0.1", false), true));
        assert!(!is_published(&pod("Running", "10.0.0.1", true), false));
        assert!(is_published(&pod("Running", "10.0.0.1", true), true));
    }

    #[test]
    fn only_what_decides_about_its_place_matters() {
        let pod = value!({"metadata": {"annotations": {"a": "1"}}, "status": {"phase": "Running"}});
        let mut other = pod.clone();
        other
            .entry("metadata")
            .set("annotations", value!({"a": "2"}));
        assert!(!matters(&pod, &other));
        other
            .entry("status")
            .set("conditions", value!([{"type": "Ready", "status": "True"}]));
        assert!(matters(&pod, &other));
    }
}
