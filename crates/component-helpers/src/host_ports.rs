//! Host ports of a pod. Two pods on one node cannot use the same one.
//!
//! The one rule for scheduler and kubelet. Kubernetes: `GetHostPorts` and `HostPortInfo` of the scheduler.

use mizzen_value::{Str, Value};

use crate::pod_state::is_sidecar;

/// A port that a pod takes, on one address of the node or on all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    address: Str,
    protocol: Str,
    port: i64,
}

impl HostPort {
    /// The ports that a pod takes by its spec. Init containers that end give theirs back before the containers start.
    pub fn list(spec: &Value) -> Box<[HostPort]> {
        let sidecars = spec["initContainers"].items();
        let sidecars = sidecars.filter(|container| is_sidecar(container));
        let ports = spec["containers"]
            .items()
            .chain(sidecars)
            .flat_map(|one| one["ports"].list());
        ports
            .filter(|port| port["hostPort"].int() > 0)
            .map(HostPort::of)
            .collect()
    }

    fn of(port: &Value) -> HostPort {
        let or = |text: &str, default: &'static str| match text {
            "" => Str::new_static(default),
            text => text.into(),
        };
        HostPort {
            address: or(port["hostIP"].str(), ANY),
            protocol: or(port["protocol"].str(), "TCP"),
            port: port["hostPort"].int(),
        }
    }

    /// Whether both cannot be had at once.
    pub fn conflicts(&self, other: &HostPort) -> bool {
        let is_same_place =
            self.address == other.address || self.address == ANY || other.address == ANY;
        is_same_place && self.port == other.port && self.protocol == other.protocol
    }
}

/// All addresses of a node.
const ANY: &str = "0.0.0.0";

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    fn port(text: &str) -> HostPort {
        HostPort::of(&json::parse(text.as_bytes()).unwrap())
    }

    #[track_caller]
    fn check(one: &str, other: &str, expected: bool) {
        assert_eq!(port(one).conflicts(&port(other)), expected, "{one} {other}");
        assert_eq!(port(other).conflicts(&port(one)), expected, "{other} {one}");
    }

    #[test]
    fn a_port_is_had_once_by_protocol_and_address() {
        let all = r#"{"hostPort":80}"#;
        check(all, all, true);
        check(all, r#"{"hostPort":80,"hostIP":"10.0.0.1"}"#, true);
        check(all, r#"{"hostPort":81}"#, false);
        check(all, r#"{"hostPort":80,"protocol":"UDP"}"#, false);
        check(
            r#"{"hostPort":80,"hostIP":"10.0.0.1"}"#,
            r#"{"hostPort":80,"hostIP":"10.0.0.2"}"#,
            false,
        );
    }

    #[test]
    fn init_containers_that_end_take_no_port() {
        let spec = r#"{"initContainers":[{"ports":[{"hostPort":1}]},{"restartPolicy":"Always","ports":[{"hostPort":2}]}],
            "containers":[{"ports":[{"hostPort":3},{"containerPort":4}]}]}"#;
        let ports = HostPort::list(&json::parse(spec.as_bytes()).unwrap());
        assert_eq!(
            ports.iter().map(|port| port.port).collect::<Vec<_>>(),
            [3, 2]
        );
    }
}
