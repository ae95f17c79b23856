//! Allocation and release of a service's cluster IPs and node ports.
//!
//! Runs before the other hooks, because its results are validated with the rest. The [`ServiceIpPool`] tracks free addresses and
//! ports; this module decides which ones a service needs.
//!
//! Kubernetes: pkg/registry/core/service/storage/{alloc,storage}.go.

mod families;
mod take;

use mizzen_object::Violations;
use mizzen_value::Value;

use super::{NONE, needs_address, needs_health_check, needs_node_ports, node_ports};

/// Addresses and ports that services can have.
pub trait ServiceIpPool {
    /// The families of addresses that the cluster has; the first is the one that services get by default.
    fn families(&self) -> &[&'static str];

    /// Takes a certain address, or any of a family.
    fn take_address(
        &mut self,
        family: &str,
        wanted: Option<&str>,
    ) -> Result<String, AllocationError>;

    /// Takes a certain port, or any.
    fn take_port(&mut self, wanted: Option<i64>) -> Result<i64, AllocationError>;
}

/// Why something cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllocationError {
    /// Nothing is left; the message says of what.
    Full(String),
    /// It is taken, or out of range, as the message says.
    Refused(String),
}

/// Why a service does not get what it asks for.
#[derive(Debug)]
pub enum AllocateError {
    /// It asks for something wrong.
    Invalid(Violations),
    /// The cluster has nothing left: an internal error.
    Internal(String),
    /// Something that upstream has no reason for: an error with nothing but a message.
    Unknown(String),
}

/// What a service no longer uses once a write has succeeded.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Addresses.
    pub addresses: Vec<String>,
    /// Node ports.
    pub ports: Vec<i64>,
}

/// Fills addresses, families and ports of a service that is made or changed.
pub fn allocate(
    service: &mut Value,
    old: Option<&Value>,
    pool: &mut dyn ServiceIpPool,
) -> Result<(), AllocateError> {
    match old {
        None => {
            let spec = service.entry("spec");
            let one = spec["clusterIP"].clone();
            if !one.str().is_empty() && spec["clusterIPs"].is_empty() {
                spec.set("clusterIPs", vec![one]);
            }
        }
        Some(old) => {
            // An update may omit allocated addresses and ports.
            let (old_spec, spec) = (&old["spec"], service.entry("spec"));
            if needs_address(old_spec) && needs_address(spec) {
                for field in ["clusterIP", "clusterIPs"] {
                    if spec[field].is_empty() && !old_spec[field].is_empty() {
                        spec.set(field, old_spec[field].clone());
                    }
                }
            }
            if needs_node_ports(old_spec) && needs_node_ports(spec) {
                // A port of the same name keeps its node port, unless another port has it now.
                let used: Vec<i64> = {
                    let new = node_ports(spec);
                    node_ports(old_spec)
                        .into_iter()
                        .filter(|port| new.contains(port))
                        .collect()
                };
                for port in spec
                    .entry("ports")
                    .list_mut()
                    .iter_mut()
                    .filter(|port| port["nodePort"].int() == 0)
                {
                    let namesake = old_spec["ports"]
                        .items()
                        .rfind(|old| old["name"].str() == port["name"].str());
                    let kept = namesake.map_or(0, |old| old["nodePort"].int());
                    if kept != 0 && !used.contains(&kept) {
                        port.set("nodePort", kept);
                    }
                }
            }
            let health = &old_spec["healthCheckNodePort"];
            if needs_health_check(old_spec)
                && needs_health_check(spec)
                && spec["healthCheckNodePort"].is_empty()
            {
                spec.set("healthCheckNodePort", health.clone());
            }
            // A change of `clusterIP` or `clusterIPs` alone changes both.
            let (old_spec, spec) = (&old["spec"], service.entry("spec"));
            let same_one = spec["clusterIP"].str() == old_spec["clusterIP"].str();
            if same_one && spec["clusterIPs"].is_empty() && !old_spec["clusterIPs"].is_empty() {
                spec.set("clusterIPs", old_spec["clusterIPs"].clone());
            }
            if !same_one && spec["clusterIPs"] == old_spec["clusterIPs"] {
                match spec["clusterIP"].clone() {
                    one if one.str().is_empty() => {
                        spec.remove("clusterIPs");
                    }
                    one => spec.set("clusterIPs", vec![one]),
                }
            }
        }
    }
    families::decide(service, old, pool)?;
    take::addresses(service, old, pool)?;
    take::ports(service, old, pool)?;
    take::health_check_port(service, old, pool)
}

/// What is given back when `old` becomes `new`, or goes when there is no `new`.
pub fn released(old: &Value, new: Option<&Value>) -> Released {
    let new = new.map(|new| &new["spec"]);
    Released {
        addresses: difference(own_addresses(&old["spec"]), new.map(own_addresses)),
        ports: difference(own_ports(&old["spec"]), new.map(own_ports)),
    }
}

fn difference<T: PartialEq>(old: Vec<T>, new: Option<Vec<T>>) -> Vec<T> {
    let new = new.unwrap_or_default();
    old.into_iter().filter(|item| !new.contains(item)).collect()
}

fn own_addresses(spec: &Value) -> Vec<String> {
    if !needs_address(spec) {
        return Vec::new();
    }
    spec["clusterIPs"]
        .items()
        .map(|ip| ip.str().to_string())
        .filter(|ip| ip != NONE)
        .collect()
}

fn own_ports(spec: &Value) -> Vec<i64> {
    let mut ports = if needs_node_ports(spec) {
        node_ports(spec)
    } else {
        Vec::new()
    };
    let health = spec["healthCheckNodePort"].int();
    if needs_health_check(spec) && health != 0 {
        ports.push(health);
    }
    ports.dedup();
    ports
}

#[cfg(test)]
mod tests {
    use super::super::super::check::parse;
    use super::super::BEHAVIOUR;
    use super::*;

    /// Gives 10.0.0.1, 10.0.0.2, … and ports from 30000; refuses 10.0.0.9 and port 30009.
    struct Counting(u8);

    impl ServiceIpPool for Counting {
        fn families(&self) -> &[&'static str] {
            &["IPv4"]
        }

        fn take_address(
            &mut self,
            _family: &str,
            wanted: Option<&str>,
        ) -> Result<String, AllocationError> {
            self.0 += 1;
            match wanted {
                Some("10.0.0.9") => Err(AllocationError::Refused(
                    "provided IP is already allocated".into(),
                )),
                Some(ip) => Ok(ip.into()),
                None => Ok(format!("10.0.0.{}", self.0)),
            }
        }

        fn take_port(&mut self, wanted: Option<i64>) -> Result<i64, AllocationError> {
            self.0 += 1;
            match wanted {
                Some(30009) => Err(AllocationError::Refused(
                    "provided port is already allocated".into(),
                )),
                other => Ok(other.unwrap_or(30000 + i64::from(self.0))),
            }
        }
    }

    fn run(service: &str, old: Option<&str>) -> Result<Value, String> {
        let decoded = |text: &str| {
            let mut service = parse(&format!(r#"{{"metadata":{{"name":"s"}},"spec":{text}}}"#));
            (BEHAVIOUR.default)(&mut service);
            service
        };
        let mut service = decoded(service);
        match allocate(&mut service, old.map(decoded).as_ref(), &mut Counting(0)) {
            Ok(()) => Ok(service["spec"].clone()),
            Err(AllocateError::Invalid(violations)) => Err(violations.0[0].to_string()),
            Err(AllocateError::Internal(message) | AllocateError::Unknown(message)) => Err(message),
        }
    }

    #[track_caller]
    fn check(service: &str, old: Option<&str>, expected: &[(&str, &str)]) {
        let spec = run(service, old).unwrap();
        for (path, value) in expected {
            assert_eq!(
                mizzen_value::json::to_string(spec.at(path)),
                *value,
                "{path}"
            );
        }
    }

    #[test]
    fn a_service_gets_an_address() {
        let expected = [
            ("clusterIP", r#""10.0.0.1""#),
            ("clusterIPs", r#"["10.0.0.1"]"#),
            ("ipFamilies", r#"["IPv4"]"#),
            ("ipFamilyPolicy", r#""SingleStack""#),
        ];
        check(r#"{"ports":[{"port":80}]}"#, None, &expected);
    }

    #[test]
    fn a_headless_service_gets_none() {
        let headless = r#"{"clusterIP":"None","selector":{"a":"b"}}"#;
        check(
            headless,
            None,
            &[("clusterIPs", r#"["None"]"#), ("ipFamilies", r#"["IPv4"]"#)],
        );
        let selectorless = r#"{"clusterIP":"None"}"#;
        let expected = [
            ("ipFamilies", r#"["IPv4","IPv6"]"#),
            ("ipFamilyPolicy", r#""RequireDualStack""#),
        ];
        check(selectorless, None, &expected);
    }

    #[test]
    fn ports_of_two_protocols_share_a_node_port() {
        let ports = r#"{"type":"NodePort","clusterIP":"10.0.0.5","ports":[
            {"name":"a","port":53,"nodePort":30053},{"name":"b","port":53,"protocol":"UDP"}]}"#;
        let spec = run(ports, None).unwrap();
        assert_eq!(node_ports(&spec), [30053, 30053]);
    }

    #[test]
    fn an_update_need_not_repeat_what_was_given() {
        let old = r#"{"type":"NodePort","clusterIP":"10.0.0.5","clusterIPs":["10.0.0.5"],"ipFamilies":["IPv4"],
            "ipFamilyPolicy":"SingleStack","ports":[{"name":"a","port":80,"nodePort":30080}]}"#;
        let new = r#"{"type":"NodePort","ports":[{"name":"a","port":81}]}"#;
        check(
            new,
            Some(old),
            &[
                ("clusterIP", r#""10.0.0.5""#),
                ("clusterIPs", r#"["10.0.0.5"]"#),
            ],
        );
        assert_eq!(node_ports(&run(new, Some(old)).unwrap()), [30080]);
    }

    #[test]
    fn what_is_taken_is_refused() {
        let refused =
            |service: &str, expected: &str| assert_eq!(run(service, None).unwrap_err(), expected);
        refused(
            r#"{"clusterIP":"10.0.0.9","ports":[{"port":80}]}"#,
            r#"spec.clusterIPs: Invalid value: ["10.0.0.9"]: failed to allocate IP 10.0.0.9: provided IP is already allocated"#,
        );
        refused(
            r#"{"type":"NodePort","ports":[{"port":80,"nodePort":30009}]}"#,
            "spec.ports[0].nodePort: Invalid value: 30009: provided port is already allocated",
        );
        refused(
            r#"{"ports":[{"port":80}],"ipFamilyPolicy":"RequireDualStack"}"#,
            r#"spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services"#,
        );
    }

    #[test]
    fn what_is_no_longer_used_is_given_back() {
        let service = |spec: &str| parse(&format!(r#"{{"spec":{spec}}}"#));
        let old = service(
            r#"{"type":"NodePort","clusterIPs":["10.0.0.5"],"ports":[{"nodePort":30001},{"nodePort":30002}]}"#,
        );
        let new = service(
            r#"{"type":"NodePort","clusterIPs":["10.0.0.5"],"ports":[{"nodePort":30002}]}"#,
        );
        assert_eq!(
            released(&old, Some(&new)),
            Released {
                addresses: vec![],
                ports: vec![30001]
            }
        );
        let gone = Released {
            addresses: vec!["10.0.0.5".into()],
            ports: vec![30001, 30002],
        };
        assert_eq!(released(&old, None), gone);
    }
}
