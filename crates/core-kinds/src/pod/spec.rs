//! Validation of a pod spec.

use std::collections::HashSet;

use mizzen_object::validate::{field, ip, meta, names};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::containers::ContainerContext;
use super::{
    NOWHERE, Options, affinity, annotations, containers, env, internal, resources, scheduling,
    security, volumes, windows,
};
use crate::fields::{dns_label, dns_subdomain, qualified_name};
use mizzen_component_helpers::references::MIRROR;

/// Validates a pod on create.
pub(super) fn validate_new(pod: &Value, options: &Options, violations: &mut Violations) {
    validate_whole(pod, options, violations);
    let (spec, path) = (&pod["spec"], Path::new("spec"));
    if !spec["ephemeralContainers"].is_empty() {
        violations.forbidden(path.child("ephemeralContainers"), "cannot be set on create");
    }
    if !spec["nodeName"].str().is_empty() && !spec["schedulingGates"].is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        violations.forbidden(path.child("nodeName"), detail);
    }
    annotations::match_fields(&pod["metadata"]["annotations"], spec, &path, violations);
}

/// Validates a pod without its old version.
pub(super) fn validate_whole(pod: &Value, options: &Options, violations: &mut Violations) {
    let (spec, path) = (&pod["spec"], Path::new("spec"));
    let (metadata, place) = (&pod["metadata"], Path::new("metadata"));
    annotations::validate(
        &metadata["annotations"],
        spec,
        options,
        &place.child("annotations"),
        violations,
    );
    validate(spec, Some(metadata), options, &path, violations);
    // A token needs a service account.
    let place = path.child("volumes");
    if spec["serviceAccountName"].str().is_empty() {
        for (index, volume) in spec["volumes"].items().enumerate() {
            let path = place.index(index);
            let path = path.child("projected");
            let path = path.child("sources");
            for (index, source) in volume["projected"]["sources"].items().enumerate() {
                if !source["serviceAccountToken"].is_null() {
                    let detail = "must not be specified when serviceAccountName is not set";
                    violations.forbidden(path.index(index).child("serviceAccountToken"), detail);
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        let path = path.child(list);
        for (index, container) in spec[list].items().enumerate() {
            containers::validate_image(container, &path.index(index), violations);
        }
    }
}

/// Validates a pod spec. `metadata` is that of the pod; a template has none.
pub(super) fn validate(
    spec: &Value,
    metadata: Option<&Value>,
    options: &Options,
    path: &Path,
    violations: &mut Violations,
) {
    if spec["terminationGracePeriodSeconds"].is_null() {
        violations.required(path.child("terminationGracePeriodSeconds"), "");
    }
    let name = metadata.map(|metadata| metadata["name"].str());
    let around = ContainerContext {
        spec,
        volumes: volumes::validate(spec, name, options, &path.child("volumes"), violations),
        claims: spec["resourceClaims"]
            .items()
            .map(|claim| claim["name"].str())
            .filter(|name| !name.is_empty())
            .collect(),
        options,
    };
    validate_claims(spec, metadata, &path.child("resourceClaims"), violations);
    containers::validate(&around, &path.child("containers"), violations);
    containers::validate_init(&around, &path.child("initContainers"), violations);
    containers::validate_ephemeral(&around, &path.child("ephemeralContainers"), violations);
    resources::validate_pod(
        spec,
        &around.claims,
        options,
        &path.child("resources"),
        violations,
    );
    containers::validate_shared_ports(spec, options, path, violations);
    validate_policies(spec, path, violations);
    meta::labels(
        &spec["nodeSelector"],
        &path.child("nodeSelector"),
        violations,
    );
    security::validate_pod(spec, options, &path.child("securityContext"), violations);
    affinity::validate(
        &spec["affinity"],
        options,
        &path.child("affinity"),
        violations,
    );
    validate_dns(spec, &path.child("dnsConfig"), violations);
    validate_gates(spec, path, violations);
    scheduling::validate_spread(
        spec,
        options,
        &path.child("topologySpreadConstraints"),
        violations,
    );
    windows::validate_host_processes(spec, path, violations);
    security::validate_users(spec, options, path, violations);
    validate_hostname(spec, &path.child("hostnameOverride"), violations);
    validate_names(spec, path, violations);
    scheduling::validate_tolerations(
        &spec["tolerations"],
        options,
        &path.child("tolerations"),
        violations,
    );
    validate_aliases(&spec["hostAliases"], &path.child("hostAliases"), violations);
    validate_classes(spec, path, violations);
    resources::validate_overhead(
        &spec["overhead"],
        options,
        &path.child("overhead"),
        violations,
    );
    windows::validate_os(spec, path, violations);
    validate_group(
        &spec["schedulingGroup"],
        &path.child("schedulingGroup"),
        violations,
    );
    env::validate_files(spec, path, violations);
}

fn validate_claims(
    spec: &Value,
    metadata: Option<&Value>,
    path: &Path,
    violations: &mut Violations,
) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (index, claim) in spec["resourceClaims"].items().enumerate() {
        if metadata.is_some_and(|metadata| !metadata["annotations"][MIRROR].is_null()) {
            violations.forbidden(NOWHERE, "static pods do not support resource claims");
            continue;
        }
        let path = path.index(index);
        let (name, place) = (claim["name"].str(), path.child("name"));
        if name.is_empty() {
            violations.required(place, "");
        } else if seen.contains(&name) {
            violations.duplicate(place, name);
        } else {
            dns_label(name, &place, violations);
            seen.insert(name);
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        let detail = match sources.map(|source| claim[source].is_null()) {
            [false, false] => {
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            }
            [true, true] => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            _ => "",
        };
        if !detail.is_empty() {
            violations.invalid(path, internal::form("PodResourceClaim", claim), detail);
        }
        for source in sources {
            validate_subdomain(&claim[source], &path.child(source), violations);
        }
    }
}

/// A name of something, if it is given.
fn validate_subdomain(name: &Value, path: &Path, violations: &mut Violations) {
    if let Some(name) = name.as_str() {
        field::all(
            names::name_is_dns_subdomain(name, false),
            name,
            path,
            violations,
        );
    }
}

fn validate_policies(spec: &Value, path: &Path, violations: &mut Violations) {
    let policies: [(&str, &[&str]); 2] = [
        ("restartPolicy", &["Always", "OnFailure", "Never"]),
        (
            "dnsPolicy",
            &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
        ),
    ];
    for (key, allowed) in policies {
        match spec[key].str() {
            "" => violations.required(path.child(key), ""),
            policy => field::one_of(policy, allowed, &path.child(key), violations),
        }
    }
}

fn validate_dns(spec: &Value, path: &Path, violations: &mut Violations) {
    let config = &spec["dnsConfig"];
    let servers = config["nameservers"].list();
    if spec["dnsPolicy"].str() == "None" {
        if config.is_null() {
            return violations.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if servers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return violations.required(path.child("nameservers"), detail);
        }
    }
    let place = path.child("nameservers");
    if servers.len() > 3 {
        violations.invalid(
            place,
            config["nameservers"].clone(),
            "must not have more than 3 nameservers",
        );
    }
    for (index, server) in servers.iter().enumerate() {
        field::all(
            ip::is_ip_for_legacy_field(server.str()),
            server.str(),
            &place.index(index),
            violations,
        );
    }
    let searches = &config["searches"];
    let place = path.child("searches");
    let domains: Vec<&str> = searches.items().map(Value::str).collect();
    if domains.len() > 32 {
        violations.invalid(
            place,
            searches.clone(),
            "must not have more than 32 search paths",
        );
    }
    if domains.join(" ").len() > 2048 {
        let detail =
            "must not have more than 2048 characters (including spaces) in the search list";
        violations.invalid(place, searches.clone(), detail);
    }
    for (index, domain) in domains
        .iter()
        .enumerate()
        .filter(|(_, domain)| **domain != ".")
    {
        let domain = domain.strip_suffix('.').unwrap_or(domain);
        field::all(
            names::is_dns1123_subdomain_with_underscore(domain),
            domain,
            &place.index(index),
            violations,
        );
    }
    let place = path.child("options");
    for (index, option) in config["options"].items().enumerate() {
        if option["name"].str().is_empty() {
            violations.required(place.index(index), "must not be empty");
        }
    }
}

/// What must be true before a pod is ready, and before it is scheduled.
fn validate_gates(spec: &Value, path: &Path, violations: &mut Violations) {
    let place = path.child("readinessGates");
    for (index, gate) in spec["readinessGates"].items().enumerate() {
        let kind = gate["conditionType"].str();
        qualified_name(kind, &place.index(index).child("conditionType"), violations);
    }
    let place = path.child("schedulingGates");
    let mut seen: HashSet<&str> = HashSet::new();
    for (index, gate) in spec["schedulingGates"].items().enumerate() {
        let (name, place) = (gate["name"].str(), place.index(index));
        qualified_name(name, &place, violations);
        if seen.contains(&name) {
            violations.duplicate(place, name);
        }
        seen.insert(name);
    }
}

fn validate_hostname(spec: &Value, path: &Path, violations: &mut Violations) {
    let Some(name) = spec["hostnameOverride"].as_str() else {
        return;
    };
    if spec["setHostnameAsFQDN"].bool() {
        violations.forbidden(path, "may not be specified when setHostnameAsFQDN is true");
    }
    if spec["hostNetwork"].bool() {
        violations.forbidden(path, "may not be specified when hostNetwork is true");
    }
    if name.len() > 64 {
        violations.too_long(path, 64);
    }
    dns_subdomain(name, path, violations);
}

fn validate_names(spec: &Value, path: &Path, violations: &mut Violations) {
    let mut check = |key: &str, wrong: fn(&str) -> Vec<String>| {
        let name = spec[key].str();
        if !name.is_empty() {
            field::all(wrong(name), name, &path.child(key), violations);
        }
    };
    check("serviceAccountName", |name| {
        names::name_is_dns_subdomain(name, false)
    });
    check("nodeName", |name| names::name_is_dns_subdomain(name, false));
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_int() {
        let wrong = names::is_in_range(seconds, 1, i32::MAX.into());
        field::all(
            wrong,
            seconds,
            &path.child("activeDeadlineSeconds"),
            violations,
        );
    }
    let mut check = |key: &str| {
        let name = spec[key].str();
        if !name.is_empty() {
            dns_label(name, &path.child(key), violations);
        }
    };
    check("hostname");
    check("subdomain");
}

fn validate_aliases(aliases: &Value, path: &Path, violations: &mut Violations) {
    for (index, alias) in aliases.items().enumerate() {
        let path = path.index(index);
        let address = alias["ip"].str();
        field::all(
            ip::is_ip_for_legacy_field(address),
            address,
            &path.child("ip"),
            violations,
        );
        let path = path.child("hostnames");
        for (index, name) in alias["hostnames"].items().enumerate() {
            dns_subdomain(name.str(), &path.index(index), violations);
        }
    }
}

fn validate_classes(spec: &Value, path: &Path, violations: &mut Violations) {
    if !spec["priorityClassName"].str().is_empty() {
        validate_subdomain(
            &spec["priorityClassName"],
            &path.child("priorityClassName"),
            violations,
        );
    }
    validate_subdomain(
        &spec["runtimeClassName"],
        &path.child("runtimeClassName"),
        violations,
    );
    match spec["preemptionPolicy"].as_str() {
        None => {}
        Some("") => violations.required(path.child("preemptionPolicy"), ""),
        Some(policy) => {
            let policies = ["PreemptLowerPriority", "Never"];
            field::one_of(
                policy,
                &policies,
                &path.child("preemptionPolicy"),
                violations,
            );
        }
    }
}

fn validate_group(group: &Value, path: &Path, violations: &mut Violations) {
    let path = path.child("podGroupName");
    match group["podGroupName"].as_str() {
        _ if group.is_null() => {}
        None => violations.invalid_shown(path, "null", "must specify one of: `podGroupName`"),
        Some(name) => field::all(
            names::name_is_dns_subdomain(name, false),
            name,
            &path,
            violations,
        ),
    }
}
