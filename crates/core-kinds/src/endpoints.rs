//! Endpoints: addresses behind a service, and the ports that they share.

use mizzen_object::validate::{field, ip, meta, names};
use mizzen_object::{Action, HookContext, NameRule, Path, Violations};
use mizzen_value::Value;

use super::fields::{dns_label, dns_subdomain, endpoint_ip, protocol, qualified_name};
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<EndpointsStrategy>();

pub(super) struct EndpointsStrategy;

impl KindStrategy for EndpointsStrategy {
    fn default(endpoints: &mut Value) {
        for subset in endpoints.entry("subsets").list_mut() {
            subset
                .entry("ports")
                .list_mut()
                .iter_mut()
                .for_each(|port| port.set_default("protocol", "TCP"));
        }
    }

    fn validate(
        endpoints: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if context.action == Action::Update {
            meta::native_object_meta(
                &endpoints["metadata"],
                true,
                NameRule::Subdomain,
                violations,
            );
        }
        // What was accepted once may stay.
        if old.is_some_and(|old| old["subsets"] == endpoints["subsets"]) {
            return;
        }
        let path = Path::new("subsets");
        for (index, subset) in endpoints["subsets"].items().enumerate() {
            self::subset(subset, &path.index(index), violations);
        }
    }

    fn warnings(endpoints: &Value, _: Option<&Value>, _: &HookContext) -> Vec<String> {
        if endpoints["metadata"]["labels"][MANAGED_BY].str() == CONTROLLER {
            return Vec::new();
        }
        let mut warnings = Vec::new();
        for (subset_idx, subset) in endpoints["subsets"].items().enumerate() {
            for list in ADDRESS_LISTS {
                let addresses = subset[list].items().enumerate();
                warnings.extend(addresses.filter_map(|(index, address)| {
                    ip::ip_warning(
                        format!("subsets[{subset_idx}].{list}[{index}].ip"),
                        address["ip"].str(),
                    )
                }));
            }
        }
        warnings
    }
}

const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const CONTROLLER: &str = "endpoint-controller";
const ADDRESS_LISTS: [&str; 2] = ["addresses", "notReadyAddresses"];

fn subset(subset: &Value, path: &Path, violations: &mut Violations) {
    if ADDRESS_LISTS.iter().all(|list| subset[*list].is_empty()) {
        violations.required(path, "must specify `addresses` or `notReadyAddresses`");
    }
    for list in ADDRESS_LISTS {
        let path = path.child(list);
        for (index, address) in subset[list].items().enumerate() {
            self::address(address, &path.index(index), violations);
        }
    }
    let path = path.child("ports");
    let ports = subset["ports"].list();
    for (index, port) in ports.iter().enumerate() {
        self::port(port, ports.len() > 1, &path.index(index), violations);
    }
}

fn address(address: &Value, path: &Path, violations: &mut Violations) {
    let (text, ip_path) = (address["ip"].str(), path.child("ip"));
    field::all(ip::is_ip_for_legacy_field(text), text, &ip_path, violations);
    if !address["hostname"].is_empty() {
        dns_label(
            address["hostname"].str(),
            &path.child("hostname"),
            violations,
        );
    }
    if let Some(node) = address["nodeName"].as_str() {
        dns_subdomain(node, &path.child("nodeName"), violations);
    }
    endpoint_ip(text, &ip_path, violations);
}

fn port(port: &Value, needs_name: bool, path: &Path, violations: &mut Violations) {
    match port["name"].str() {
        "" if needs_name => violations.required(path.child("name"), ""),
        "" => {}
        name => dns_label(name, &path.child("name"), violations),
    }
    let number = port["port"].int();
    field::all(
        names::is_port_number(number),
        number,
        &path.child("port"),
        violations,
    );
    protocol(port["protocol"].str(), &path.child("protocol"), violations);
    if let Some(name) = port["appProtocol"].as_str() {
        qualified_name(name, &path.child("appProtocol"), violations);
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::*;

    #[track_caller]
    fn refused(subsets: &str, expected: &[&str]) {
        check(BEHAVIOUR)
            .create(&format!(r#"{{"subsets":{subsets}}}"#))
            .refused(expected);
    }

    #[test]
    fn addresses_can_be_reached() {
        refused(
            "[{}]",
            &["subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"],
        );
        refused(
            r#"[{"addresses":[{"ip":"nope"},{"ip":"127.0.0.1"},{"ip":"169.254.1.1"},{"ip":"0.0.0.0"},{"ip":"224.0.0.1"}]}]"#,
            &[
                r#"subsets[0].addresses[0].ip: Invalid value: "nope": must be a valid IP address, (e.g."#,
                r#"subsets[0].addresses[0].ip: Invalid value: "nope": must be a valid IP address"#,
                r#"subsets[0].addresses[1].ip: Invalid value: "127.0.0.1": may not be in the loopback range"#,
                r#"subsets[0].addresses[2].ip: Invalid value: "169.254.1.1": may not be in the link-local range"#,
                r#"subsets[0].addresses[3].ip: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)"#,
                r#"subsets[0].addresses[4].ip: Invalid value: "224.0.0.1": may not be in the link-local multicast"#,
            ],
        );
    }

    #[test]
    fn many_ports_have_names() {
        refused(
            r#"[{"addresses":[{"ip":"10.0.0.1","hostname":"Bad_H"}],"ports":[{"port":80},{"name":"b","port":0}]}]"#,
            &[
                r#"subsets[0].addresses[0].hostname: Invalid value: "Bad_H": a lowercase RFC 1123 label"#,
                "subsets[0].ports[0].name: Required value",
                "subsets[0].ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            ],
        );
    }

    #[test]
    fn what_was_accepted_once_may_stay() {
        let endpoints = r#"{"metadata":{"name":"e","namespace":"n"},"subsets":[{}]}"#;
        check(BEHAVIOUR).update(endpoints, endpoints).refused(&[]);
    }
}
