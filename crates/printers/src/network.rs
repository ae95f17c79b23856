//! Table cells of services, endpoints and networking.k8s.io.

use mizzen_value::Value;

use super::text::{NONE, UNSET, age, cut_short, given_or, join, labels, selector};
use super::{Cells, join_set, row};

pub(super) fn core(kind: &str) -> Cells {
    if kind == "Service" {
        service
    } else {
        |object, now| {
            let subsets = object["subsets"].list();
            let addresses: Vec<String> = subsets
                .iter()
                .flat_map(|subset| -> Vec<String> {
                    let ips = || {
                        subset["addresses"]
                            .items()
                            .map(|address| address["ip"].str())
                    };
                    match subset["ports"].list() {
                        [] => ips().map(Into::into).collect(),
                        ports => ports
                            .iter()
                            .flat_map(|port| {
                                ips().map(|ip| {
                                    let port = port["port"].int();
                                    if ip.contains(':') {
                                        format!("[{ip}]:{port}")
                                    } else {
                                        format!("{ip}:{port}")
                                    }
                                })
                            })
                            .collect(),
                    }
                })
                .collect();
            let shown = if subsets.is_empty() {
                NONE.into()
            } else {
                cut_short(&addresses, 3, ",")
            };
            row![shown, age(object, now)]
        }
    }
}

pub(super) fn cells(kind: &str) -> Cells {
    match kind {
        "Ingress" => |object, now| {
            let spec = &object["spec"];
            let ports = if spec["tls"].list().is_empty() {
                "80"
            } else {
                "80, 443"
            };
            // Kubernetes: three hosts are shown, and any rule after the third host makes it "more", with a host or without.
            let rules = spec["rules"].list();

            let with_host = || {
                rules
                    .iter()
                    .enumerate()
                    .filter(|(_, rule)| !rule["host"].str().is_empty())
            };
            let shown: Vec<_> = with_host()
                .take(3)
                .map(|(_, rule)| rule["host"].str())
                .collect();
            let rest = with_host()
                .nth(2)
                .map_or(0, |(third, _)| rules.len() - 1 - third);
            let ingress_hosts = match rest {
                _ if shown.is_empty() => "*".into(),
                0 => shown.join(","),
                _ => format!("{} + {} more...", shown.join(","), rules.len() - 3),
            };
            row![
                given_or(&spec["ingressClassName"], NONE),
                ingress_hosts,
                balancer_addresses(object),
                ports,
                age(object, now),
            ]
        },
        "IngressClass" => |object, now| {
            let (metadata, spec) = (&object["metadata"], &object["spec"]);
            let is_default = metadata["annotations"]["ingressclass.kubernetes.io/is-default-class"]
                .str()
                == "true";
            let name = format!(
                "{}{}",
                metadata["name"].str(),
                if is_default { " (default)" } else { "" }
            );
            let (reference, named) = (&spec["parameters"], spec["parameters"]["name"].str());
            let kind = reference["kind"].str();
            let parameters = match reference["apiGroup"].as_str() {
                _ if reference.is_null() => NONE.into(),
                Some(group) => format!("{kind}.{group}/{named}"),
                None => format!("{kind}/{named}"),
            };
            row![name, spec["controller"].str(), parameters, age(object, now)]
        },
        "IPAddress" => |object, now| {
            // Kubernetes: the row has an age for which there is no column.
            row![parent(&object["spec"]["parentRef"]), age(object, now)]
        },
        "ServiceCIDR" => |object, now| row![join(&object["spec"]["cidrs"], ","), age(object, now)],
        _ => |object, now| row![selector(&object["spec"]["podSelector"]), age(object, now)],
    }
}

fn service(object: &Value, now: i64) -> Vec<Value> {
    let spec = &object["spec"];

    let ports: Vec<_> = spec["ports"]
        .items()
        .map(|port| {
            let (number, protocol) = (port["port"].int(), port["protocol"].str());
            match port["nodePort"].int() {
                0 => format!("{number}/{protocol}"),
                node => format!("{number}:{node}/{protocol}"),
            }
        })
        .collect();
    let service_ports = if ports.is_empty() {
        NONE.into()
    } else {
        ports.join(",")
    };
    let external = join(&spec["externalIPs"], ",");
    let external_address = match spec["type"].str() {
        "ExternalName" => spec["externalName"].str().into(),
        "LoadBalancer" => match balancer_addresses(object) {
            balancer if balancer.is_empty() && external.is_empty() => "<pending>".into(),
            balancer if balancer.is_empty() => external,
            balancer if external.is_empty() => balancer,
            balancer => format!("{balancer},{external}"),
        },
        "ClusterIP" | "NodePort" if external.is_empty() => NONE.into(),
        "ClusterIP" | "NodePort" => external,
        _ => "<unknown>".into(),
    };
    row![
        spec["type"].str(),
        given_or(&spec["clusterIPs"][0], NONE),
        external_address,
        service_ports,
        age(object, now),
        labels(&spec["selector"]),
    ]
}

fn balancer_addresses(object: &Value) -> String {
    let points = object["status"]["loadBalancer"]["ingress"].items();
    let addresses = points.map(|point| match point["ip"].str() {
        "" => point["hostname"].str(),
        ip => ip,
    });
    join_set(
        addresses
            .filter(|address| !address.is_empty())
            .map(Into::into),
    )
}

pub(super) fn endpoint_slice(object: &Value, now: i64) -> Vec<Value> {
    let ports: Vec<_> = object["ports"]
        .items()
        .map(|port| match port["port"].as_int() {
            Some(number) => number.to_string(),
            None => given_or(&port["name"], "*").into(),
        })
        .collect();
    let addresses = object["endpoints"]
        .items()
        .flat_map(|endpoint| endpoint["addresses"].list());
    let addresses: Vec<_> = addresses.map(|address| address.str().to_string()).collect();
    let show = |items: &[String]| Some(cut_short(items, 3, ",")).filter(|shown| !shown.is_empty());
    row![
        show(&ports).unwrap_or(UNSET.into()),
        show(&addresses).unwrap_or(UNSET.into()),
        age(object, now),
    ]
}

fn parent(parent: &Value) -> String {
    let (resource, name) = (parent["resource"].str(), parent["name"].str());
    let resource = match parent["group"].str() {
        "" => resource.to_lowercase(),
        group => format!("{resource}.{group}").to_lowercase(),
    };
    match parent["namespace"].str() {
        _ if parent.is_null() => NONE.into(),
        "" => format!("{resource}/{name}"),
        namespace => format!("{resource}/{namespace}/{name}"),
    }
}
