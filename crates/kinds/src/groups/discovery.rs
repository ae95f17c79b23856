//! discovery.k8s.io: EndpointSlices.

use mizzen_object::validate::{field, ip, names, repeats};
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::Value;

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::rules;

const SLICE: Behaviour = Behaviour::of::<EndpointSliceStrategy>();

pub(super) struct EndpointSliceStrategy;

impl KindStrategy for EndpointSliceStrategy {
    fn default(slice: &mut Value) {
        for port in slice.get_mut("ports").into_iter().flat_map(Value::list_mut) {
            port.set_default("name", "");
            port.set_default("protocol", "TCP");
        }
    }

    /// Kubernetes: the topology of v1beta1 stays only in endpoints that do not change.
    fn prepare(slice: &mut Value, old: Option<&Value>, _: &HookContext) {
        if old.is_some_and(|old| old["endpoints"] == slice["endpoints"]) {
            return;
        }
        for endpoint in slice
            .get_mut("endpoints")
            .into_iter()
            .flat_map(Value::list_mut)
        {
            endpoint.remove("deprecatedTopology");
        }
    }

    fn validate(slice: &Value, old: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        let (address_type, path) = (slice["addressType"].str(), Path::new("addressType"));
        match address_type {
            "" => violations.required(path, ""),
            word => field::one_of(word, &["FQDN", "IPv4", "IPv6"], &path, violations),
        }
        let ports = slice["ports"].list();
        let ports_path = Path::new("ports");
        if ports.len() > MAX_PORTS {
            violations.too_many(ports_path, ports.len(), MAX_PORTS);
        } else {
            let repeated = repeats(ports, |port| port["name"].str());
            for (index, port) in ports.iter().enumerate() {
                let (name, ports_path) = (port["name"].str(), ports_path.index(index));
                if !name.is_empty() {
                    rules::text(
                        name,
                        names::is_dns1123_label,
                        &ports_path.child("name"),
                        violations,
                    );
                }
                if repeated[index] {
                    violations.duplicate(ports_path.child("name"), name);
                }
                let protocols = ["SCTP", "TCP", "UDP"];
                field::one_of(
                    port["protocol"].str(),
                    &protocols,
                    &ports_path.child("protocol"),
                    violations,
                );
                if let Some(protocol) = port["appProtocol"].as_str() {
                    rules::text(
                        protocol,
                        names::is_qualified_name,
                        &ports_path.child("appProtocol"),
                        violations,
                    );
                }
            }
        }
        if old.is_none_or(|old| old["endpoints"] != slice["endpoints"]) {
            validate_endpoints(slice["endpoints"].list(), address_type, violations);
        }
        if let Some(old) = old {
            field::immutable(
                &slice["addressType"],
                &old["addressType"],
                &path,
                violations,
            );
        }
    }

    fn warnings(slice: &Value, _: Option<&Value>, context: &HookContext) -> Vec<String> {
        let mut warnings = Vec::new();
        if context.action == Action::Create && slice["addressType"].str() == "FQDN" {
            warnings.push("spec.addressType: FQDN endpoints are deprecated".to_string());
        }
        let manager = slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"].str();
        if CONTROLLERS.contains(&manager) {
            return warnings;
        }
        for (i, endpoint) in slice["endpoints"].items().enumerate() {
            for (j, address) in endpoint["addresses"].items().enumerate() {
                warnings.extend(ip::ip_warning(
                    format!("endpoints[{i}].addresses[{j}]"),
                    address.str(),
                ));
            }
        }
        warnings
    }
}

pub(super) fn behaviour(version: &str, kind: &str) -> Behaviour {
    match (version, kind) {
        // Kubernetes: a client of v1beta1 may write any topology (registry/discovery/endpointslice/strategy.go).
        ("v1beta1", "EndpointSlice") => Behaviour {
            prepare: |_, _, _| {},
            to_stored: |slice| {
                each_endpoint(slice, |endpoint| {
                    // The zone becomes a field, and a host name that is the node's is left out; the rest of the topology stays a map.
                    let Some(mut topology) = endpoint.remove("topology") else {
                        return;
                    };
                    if let Some(zone) = topology.remove(ZONE) {
                        endpoint.set("zone", zone);
                    }
                    if topology
                        .get(HOSTNAME)
                        .is_some_and(|host| *host == endpoint["nodeName"])
                    {
                        topology.remove(HOSTNAME);
                    }
                    if !topology.is_empty() {
                        endpoint.set("deprecatedTopology", topology);
                    }
                })
            },
            from_stored: |slice| {
                each_endpoint(slice, |endpoint| {
                    let mut topology = endpoint
                        .remove("deprecatedTopology")
                        .unwrap_or_else(Value::object);
                    if let Some(zone) = endpoint.remove("zone").filter(|zone| !zone.is_null()) {
                        topology.set(ZONE, zone);
                    }
                    let node = &endpoint["nodeName"];
                    if !node.is_null() && topology[HOSTNAME].is_empty() {
                        topology.set(HOSTNAME, node.clone());
                    }
                    if !topology.is_empty() {
                        endpoint.set("topology", topology);
                    }
                })
            },
            ..SLICE
        },
        (_, "EndpointSlice") => SLICE,
        _ => Behaviour::NONE,
    }
}

/// The keys of a v1beta1 topology that are fields now.
const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";

fn each_endpoint(slice: &mut Value, convert: fn(&mut Value)) {
    slice
        .get_mut("endpoints")
        .into_iter()
        .flat_map(Value::list_mut)
        .for_each(convert);
}

const MAX_PORTS: usize = 20_000;
const MAX_ENDPOINTS: usize = 1_000;
const MAX_ADDRESSES: usize = 100;
const MAX_HINTS: usize = 8;

fn validate_endpoints(endpoints: &[Value], address_type: &str, violations: &mut Violations) {
    let path = Path::new("endpoints");
    if endpoints.len() > MAX_ENDPOINTS {
        return violations.too_many(path, endpoints.len(), MAX_ENDPOINTS);
    }
    for (index, endpoint) in endpoints.iter().enumerate() {
        let path = path.index(index);
        let addresses = endpoint["addresses"].list();
        let place = path.child("addresses");
        if addresses.is_empty() {
            violations.required(place, "must contain at least 1 address");
        } else if addresses.len() > MAX_ADDRESSES {
            violations.too_many(place, addresses.len(), MAX_ADDRESSES);
        }
        for (index, address) in addresses.iter().enumerate() {
            let (address, item) = (address.str(), place.index(index));
            match address_type {
                family @ ("IPv4" | "IPv6") => {
                    validate_ip(address, family, &place, &item, violations);
                }
                "FQDN" => names::fully_qualified_domain_name(address, &item, violations),
                _ => {}
            }
        }
        if let Some(node) = endpoint["nodeName"].as_str() {
            rules::text(
                node,
                names::is_dns1123_subdomain,
                &path.child("nodeName"),
                violations,
            );
        }
        if let Some(hostname) = endpoint["hostname"].as_str() {
            rules::text(
                hostname,
                names::is_dns1123_label,
                &path.child("hostname"),
                violations,
            );
        }
        validate_hints(&endpoint["hints"], &path.child("hints"), violations);
    }
}

/// Kubernetes: an address of the wrong family is said of the whole list.
fn validate_ip(text: &str, family: &str, list: &Path, item: &Path, violations: &mut Violations) {
    let is_ipv4 = family == "IPv4";
    let wrong = match is_ipv4 {
        true => ip::is_ip_for_legacy_field(text),
        false => ip::is_ip(text),
    };
    let Some(address) = ip::parse_sloppy(text).filter(|_| wrong.is_empty()) else {
        return field::all(wrong, text, item, violations);
    };
    if address.is_ipv4() != is_ipv4 {
        violations.invalid(list, text, &format!("must be an {family} address"));
    }
    mizzen_core_kinds::fields::endpoint_ip(text, item, violations);
}

fn validate_hints(hints: &Value, path: &Path, violations: &mut Violations) {
    let checks: [(&str, rules::Check); 2] = [
        ("forZones", names::is_label_value),
        ("forNodes", names::is_dns1123_subdomain),
    ];
    for (name, check) in checks {
        let (list, path) = (hints[name].list(), path.child(name));
        if list.len() > MAX_HINTS {
            return violations.too_many(path, list.len(), MAX_HINTS);
        }
        for (index, hint) in list.iter().enumerate() {
            let path = path.index(index);
            if list[..index].contains(hint) {
                violations.duplicate(path.child("name"), hint["name"].str());
            }
            rules::text(hint["name"].str(), check, &path.child("name"), violations);
        }
    }
}

const CONTROLLERS: [&str; 2] = [
    "endpointslice-controller.k8s.io",
    "endpointslicemirroring-controller.k8s.io",
];
