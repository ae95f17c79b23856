//! Validation of services.

use mizzen_object::validate::{field, ip, meta, names, repeats};
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::{Value, value};

use super::super::fields::{
    dns_label, dns_subdomain, endpoint_ip, legacy_ip, port_number_or_name, protocol, qualified_name,
};
use super::{
    addresses, is, is_externally_accessible, is_headless, is_load_balancer, needs_health_check,
    needs_node_ports,
};

const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const MODE: &str = "service.kubernetes.io/topology-mode";
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";
const MAX_AFFINITY_SECONDS: i64 = 86_400;

pub(super) fn validate(
    service: &Value,
    old: Option<&Value>,
    context: &HookContext,
    violations: &mut Violations,
) {
    match (context.action, old) {
        (Action::Status, Some(old)) => return status(service, old, violations),
        (Action::Update, Some(old)) => change(service, old, violations),
        _ => {}
    }
    let spec = &service["spec"];
    let path = Path::new("spec");
    let annotations = &service["metadata"]["annotations"];
    if let (Some(mode), Some(hints)) = (annotations.get(MODE), annotations.get(HINTS))
        && mode != hints
    {
        let message = format!("must match annotations[{HINTS}] when both are specified");
        violations.invalid(
            Path::new("metadata").child("annotations").key(MODE),
            mode.str(),
            &message,
        );
    }
    shape(service, &path, violations);
    ports(&spec["ports"], &path.child("ports"), violations);
    meta::labels(&spec["selector"], &path.child("selector"), violations);
    affinity(spec, &path, violations);
    addresses::validate(service, old, violations);
    let place = path.child("externalIPs");
    let known = old
        .map(|old| old["spec"]["externalIPs"].clone())
        .unwrap_or_default();
    for (index, address) in spec["externalIPs"].items().enumerate() {
        let path = place.index(index);
        if legacy_ip(address.str(), &known, &path, violations) {
            endpoint_ip(address.str(), &path, violations);
        }
    }
    field::one_of(
        spec["type"].str(),
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
        &path.child("type"),
        violations,
    );
    duplicate_ports(service, &path.child("ports"), violations);
    source_ranges(service, old, &path, violations);
    if !spec["allocateLoadBalancerNodePorts"].is_null() && !is_load_balancer(spec) {
        violations.forbidden(
            path.child("allocateLoadBalancerNodePorts"),
            ONLY_LOAD_BALANCER,
        );
    }
    load_balancer_class(spec, &path, violations);
    external_traffic(spec, &path, violations);
    if let Some(policy) = spec["internalTrafficPolicy"].as_str() {
        field::one_of(
            policy,
            &["Cluster", "Local"],
            &path.child("internalTrafficPolicy"),
            violations,
        );
    }
    if let Some(distribution) = spec["trafficDistribution"].as_str() {
        let allowed = ["PreferClose", "PreferSameZone", "PreferSameNode"];
        field::one_of(
            distribution,
            &allowed,
            &path.child("trafficDistribution"),
            violations,
        );
    }
}

fn change(service: &Value, old: &Value, violations: &mut Violations) {
    let (spec, old_spec) = (&service["spec"], &old["spec"]);
    let path = Path::new("spec");
    addresses::validate_change(service, old, violations);
    let class = &spec["loadBalancerClass"];
    if is_load_balancer(spec)
        && is_load_balancer(old_spec)
        && *class != old_spec["loadBalancerClass"]
    {
        violations.invalid(
            path.child("loadBalancerClass"),
            class.clone(),
            "may not change once set",
        );
    }
    load_balancer_class(spec, &path, violations);
    let same = spec["healthCheckNodePort"] == old_spec["healthCheckNodePort"];
    if needs_health_check(spec) && needs_health_check(old_spec) && !same {
        violations.forbidden(path.child("healthCheckNodePort"), field::IMMUTABLE);
    }
}

/// Fields that a service type requires or forbids.
fn shape(service: &Value, path: &Path, violations: &mut Violations) {
    let spec = &service["spec"];
    if spec["ports"].is_empty() && !is_headless(spec) && !is(service, "ExternalName") {
        violations.required(path.child("ports"), "");
    }
    if needs_node_ports(spec) && is_headless(spec) {
        let message = format!(
            "may not be set to 'None' for {} services",
            spec["type"].str()
        );
        violations.invalid(path.child("clusterIPs").index(0), "None", &message);
    }
    if is(service, "ExternalName") {
        for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if !spec[field].is_null() {
                violations.forbidden(
                    path.child(field),
                    "may not be set for ExternalName services",
                );
            }
        }
        let name = spec["externalName"].str();
        match name.strip_suffix('.').unwrap_or(name) {
            "" => violations.required(path.child("externalName"), ""),
            name => dns_subdomain(name, &path.child("externalName"), violations),
        }
    }
}

fn ports(ports: &Value, path: &Path, violations: &mut Violations) {
    let list = ports.list();
    let repeated = repeats(list, |port| port["name"].str());
    for (index, port) in list.iter().enumerate() {
        let path = path.index(index);
        let name = port["name"].str();
        if !name.is_empty() {
            dns_label(name, &path.child("name"), violations);
            if repeated[index] {
                violations.duplicate(path.child("name"), name);
            }
        } else if list.len() > 1 {
            violations.required(path.child("name"), "");
        }
        self::port(port, &path, violations);
    }
}

fn port(port: &Value, path: &Path, violations: &mut Violations) {
    let number = port["port"].int();
    field::all(
        names::is_port_number(number),
        number,
        &path.child("port"),
        violations,
    );
    protocol(port["protocol"].str(), &path.child("protocol"), violations);
    port_number_or_name(&port["targetPort"], &path.child("targetPort"), violations);
    if let Some(name) = port["appProtocol"].as_str() {
        qualified_name(name, &path.child("appProtocol"), violations);
    }
}

fn affinity(spec: &Value, path: &Path, violations: &mut Violations) {
    let affinity = spec["sessionAffinity"].str();
    field::one_of(
        affinity,
        &["ClientIP", "None"],
        &path.child("sessionAffinity"),
        violations,
    );
    let path = path.child("sessionAffinityConfig");
    match affinity {
        "ClientIP" => {
            // Defaulting has set the timeout.
            let seconds = spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].int();
            if seconds <= 0 || seconds > MAX_AFFINITY_SECONDS {
                let message =
                    format!("must be greater than 0 and less than {MAX_AFFINITY_SECONDS}");
                violations.invalid(
                    path.child("clientIP").child("timeoutSeconds"),
                    seconds,
                    &message,
                );
            }
        }
        "None" if !spec["sessionAffinityConfig"].is_null() => {
            violations.forbidden(path, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

fn duplicate_ports(service: &Value, path: &Path, violations: &mut Violations) {
    let list = service["spec"]["ports"].list();
    if is(service, "ClusterIP") {
        for (index, _) in list
            .iter()
            .enumerate()
            .filter(|(_, port)| port["nodePort"].int() != 0)
        {
            violations.forbidden(
                path.index(index).child("nodePort"),
                "may not be used when `type` is 'ClusterIP'",
            );
        }
    }
    let repeated = repeats(list, |port| {
        (port["protocol"].str(), port["nodePort"].int())
    });
    for (index, port) in list
        .iter()
        .enumerate()
        .filter(|(_, port)| port["nodePort"].int() != 0)
    {
        if repeated[index] {
            violations.duplicate(path.index(index).child("nodePort"), port["nodePort"].int());
        }
    }
    let repeated = repeats(list, |port| (port["protocol"].str(), port["port"].int()));
    for (index, port) in list.iter().enumerate() {
        if repeated[index] {
            // Kubernetes: the message prints Go's struct, of which only the key is filled.
            let (protocol, number) = (port["protocol"].str(), port["port"].int());
            let shown = value!({"Name": "", "Protocol": protocol, "AppProtocol": null, "Port": number, "TargetPort": 0, "NodePort": 0});
            violations.duplicate(path.index(index), shown);
        }
    }
}

/// Kubernetes: the field is spelled with a capital in messages, and its values may be padded with blanks.
fn source_ranges(service: &Value, old: Option<&Value>, path: &Path, violations: &mut Violations) {
    let ranges = service["spec"]["loadBalancerSourceRanges"].list();
    if ranges.is_empty() {
        let annotation = |service: &Value| {
            service["metadata"]["annotations"]
                .get(SOURCE_RANGES)
                .cloned()
        };
        let Some(ranges) = annotation(service) else {
            return;
        };
        let path = Path::new("metadata");
        let path = path.child("annotations");
        let path = path.key(SOURCE_RANGES);
        if !is(service, "LoadBalancer") {
            violations.forbidden(path, ONLY_LOAD_BALANCER);
        }
        let is_known =
            old.is_some_and(|old| annotation(old).unwrap_or_default().str() == ranges.str());
        if is_known || ranges.str().trim().is_empty() {
            return;
        }
        for range in ranges.str().split(',').map(str::trim) {
            field::all(
                ip::is_cidr_for_legacy_field(range),
                range,
                &path,
                violations,
            );
        }
        return;
    }
    let path = path.child("LoadBalancerSourceRanges");
    if !is(service, "LoadBalancer") {
        violations.forbidden(path, ONLY_LOAD_BALANCER);
    }
    let known = old
        .map(|old| old["spec"]["loadBalancerSourceRanges"].clone())
        .unwrap_or_default();
    let is_known = |range: &str| known.items().any(|known| known.str().trim() == range);
    for (index, range) in ranges.iter().enumerate() {
        let range = range.str().trim();
        if !is_known(range) {
            field::all(
                ip::is_cidr_for_legacy_field(range),
                range,
                &path.index(index),
                violations,
            );
        }
    }
}

fn load_balancer_class(spec: &Value, path: &Path, violations: &mut Violations) {
    let Some(class) = spec["loadBalancerClass"].as_str() else {
        return;
    };
    let path = path.child("loadBalancerClass");
    match is_load_balancer(spec) {
        true => qualified_name(class, &path, violations),
        false => violations.forbidden(path, ONLY_LOAD_BALANCER),
    }
}

fn external_traffic(spec: &Value, path: &Path, violations: &mut Violations) {
    let policy = spec["externalTrafficPolicy"].str();
    let policy_path = path.child("externalTrafficPolicy");
    if is_externally_accessible(spec) {
        field::one_of(policy, &["Cluster", "Local"], &policy_path, violations);
    } else if !policy.is_empty() {
        violations.invalid(
            policy_path,
            policy,
            "may only be set for externally-accessible services",
        );
    }
    let port = spec["healthCheckNodePort"].int();
    let path = path.child("healthCheckNodePort");
    match (needs_health_check(spec), port) {
        (false, 0) => {}
        (false, _) => violations.invalid(
            path,
            port,
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        ),
        (true, 0) => violations.required(path, ""),
        (true, _) => field::all(names::is_port_number(port), port, &path, violations),
    }
}

fn status(service: &Value, old: &Value, violations: &mut Violations) {
    let path = Path::new("status");
    let path = path.child("loadBalancer");
    let is_balancer = is(service, "LoadBalancer");
    // The points of ingress of a load balancer, for services and for what else has one.
    let path = path.child("ingress");
    let points = service["status"]["loadBalancer"]["ingress"].list();
    if !is_balancer && !points.is_empty() {
        return violations.forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'");
    }
    let known = Value::List(
        old["status"]["loadBalancer"]["ingress"]
            .items()
            .map(|point| point["ip"].clone())
            .collect(),
    );
    for (index, point) in points.iter().enumerate() {
        let path = path.index(index);
        let (address, hostname) = (point["ip"].str(), point["hostname"].str());
        if !address.is_empty() {
            legacy_ip(address, &known, &path.child("ip"), violations);
        }
        let mode = path.child("ipMode");
        match point["ipMode"].as_str() {
            None if !address.is_empty() => {
                violations.required(mode, "must be specified when `ip` is set")
            }
            Some(_) if address.is_empty() => {
                violations.forbidden(mode, "may not be specified when `ip` is not set")
            }
            Some(text) => field::one_of(text, &["Proxy", "VIP"], &mode, violations),
            None => {}
        }
        if !hostname.is_empty() {
            dns_subdomain(hostname, &path.child("hostname"), violations);
            if ip::parse_sloppy(hostname).is_some() {
                violations.invalid(
                    path.child("hostname"),
                    hostname,
                    "must be a DNS name, not an IP address",
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::check::check;
    use super::super::BEHAVIOUR;

    #[track_caller]
    fn refused(spec: &str, expected: &[&str]) {
        check(BEHAVIOUR)
            .create(&format!(r#"{{"metadata":{{"name":"a"}},"spec":{spec}}}"#))
            .refused(expected);
    }

    #[test]
    fn ports_are_checked_alone_and_together() {
        refused("{}", &["spec.ports: Required value"]);
        refused(
            r#"{"ports":[{"port":0}]}"#,
            &[
                "spec.ports[0].port: Invalid value: 0: must be",
                "spec.ports[0].targetPort: Invalid value: 0: must be",
            ],
        );
        refused(
            r#"{"ports":[{"port":80},{"port":81}]}"#,
            &[
                "spec.ports[0].name: Required value",
                "spec.ports[1].name: Required value",
            ],
        );
        refused(
            r#"{"ports":[{"name":"a","port":80},{"name":"a","port":80}]}"#,
            &[
                "spec.ports[1].name: Duplicate value: \"a\"",
                r#"spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,"NodePort":0}"#,
            ],
        );
        refused(
            r#"{"ports":[{"port":80,"protocol":"X","appProtocol":"a b"}]}"#,
            &[
                r#"spec.ports[0].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP""#,
                "spec.ports[0].appProtocol: Invalid value: \"a b\": name part must consist",
            ],
        );
    }

    #[test]
    fn a_type_excludes_fields() {
        let excluded = |fields: &str, expected: &str| {
            refused(
                &format!(r#"{{"ports":[{{"port":80}}],{fields}}}"#),
                &[expected],
            )
        };
        excluded(
            r#""type":"Nope""#,
            "spec.type: Unsupported value: \"Nope\": supported values: \"ClusterIP\", \"ExternalName\"",
        );
        excluded(
            r#""externalTrafficPolicy":"Local""#,
            "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services",
        );
        excluded(
            r#""healthCheckNodePort":31000"#,
            "spec.healthCheckNodePort: Invalid value: 31000: may only be set when",
        );
        excluded(
            r#""loadBalancerClass":"a/b""#,
            "spec.loadBalancerClass: Forbidden: may only be used when",
        );
        excluded(
            r#""loadBalancerSourceRanges":["10.0.0.0/8"]"#,
            "spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
        );
        excluded(
            r#""type":"NodePort","clusterIP":"None","clusterIPs":["None"]"#,
            "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services",
        );
    }

    #[test]
    fn addresses_fit_together() {
        let addresses = |fields: &str, expected: &[&str]| {
            refused(
                &format!(r#"{{"ports":[{{"port":80}}],{fields}}}"#),
                expected,
            )
        };
        addresses(
            r#""clusterIPs":["10.0.0.240","10.0.0.241"]"#,
            &[
                r#"spec.clusterIPs: Invalid value: ["10.0.0.240","10.0.0.241"]: must be empty when `clusterIP`"#,
                r#"spec.clusterIPs: Invalid value: ["10.0.0.240","10.0.0.241"]: may specify no more than one IP"#,
            ],
        );
        addresses(
            r#""clusterIP":"nope","clusterIPs":["nope"],"ipFamilies":["IPv4","IPv4"],"ipFamilyPolicy":"X""#,
            &[
                "spec.ipFamilies[1]: Duplicate value: \"IPv4\"",
                "spec.ipFamilyPolicy: Unsupported value: \"X\": supported values: \"PreferDualStack\"",
                "spec.clusterIPs[0]: Invalid value: \"nope\": must be a valid IP address",
            ],
        );
        addresses(
            r#""clusterIP":"fd00::1","clusterIPs":["fd00::1"],"ipFamilies":["IPv4"]"#,
            &[
                "spec.clusterIPs[0]: Invalid value: \"fd00::1\": expected an IPv4 value as indicated by `ipFamilies[0]`",
            ],
        );
    }

    #[test]
    fn an_address_stays() {
        let service = |address: &str| {
            format!(
                r#"{{"spec":{{"ports":[{{"port":80}}],"clusterIP":"{address}","clusterIPs":["{address}"]}}}}"#
            )
        };
        check(BEHAVIOUR)
            .update(&service("10.0.0.2"), &service("10.0.0.1"))
            .refused(&[
                r#"spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set"#,
            ]);
    }

    #[test]
    fn a_balancer_reports_where_it_listens() {
        let status = |ingress: &str| {
            format!(
                r#"{{"spec":{{"type":"LoadBalancer"}},"status":{{"loadBalancer":{{"ingress":{ingress}}}}}}}"#
            )
        };
        check(BEHAVIOUR)
            .status(&status(r#"[{"ip":"nope"},{"ip":"1.2.3.4","ipMode":"X"},{"hostname":"1.2.3.4"}]"#), &status("[]"))
            .refused(&[
                "status.loadBalancer.ingress[0].ip: Invalid value: \"nope\": must be a valid IP address",
                "status.loadBalancer.ingress[1].ipMode: Unsupported value: \"X\": supported values: \"Proxy\", \"VIP\"",
                "status.loadBalancer.ingress[2].hostname: Invalid value: \"1.2.3.4\": must be a DNS name",
            ]);
    }
}
