//! Validation of a pod status.

use std::collections::HashSet;

use mizzen_object::validate::{field, ip, names};
use mizzen_object::{Path, ViolationReason, Violations};
use mizzen_value::Value;
use mizzen_value::quantity::Quantity;

use super::{Options, STATUS_LISTS, internal, is_sidecar, update};
use crate::fields::{dns_label, qualified_name};
use mizzen_component_helpers::resource_names::is_native;

/// A report, mostly of the node that runs it.
pub(super) fn validate(new: &Value, old: &Value, options: &Options, violations: &mut Violations) {
    update::validate_annotations(new, old, options, violations);
    let (status, path) = (&new["status"], Path::new("status"));
    let place = path.child("conditions");
    for (index, condition) in status["conditions"].items().enumerate() {
        let path = place.index(index);
        validate_generation(&condition["observedGeneration"], &path, violations);
        let kind = condition["type"].str();
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            qualified_name(kind, &path.child("Type"), violations);
        }
    }
    if new["spec"]["nodeName"].str() != old["spec"]["nodeName"].str() {
        violations.forbidden(path.child("nodeName"), "may not be changed directly");
    }
    // Where the scheduler would like to put the pod; pointless once it is somewhere.
    let name = new["status"]["nominatedNodeName"].str();
    if !name.is_empty() && name != old["status"]["nominatedNodeName"].str() {
        field::all(
            names::name_is_dns_subdomain(name, false),
            name,
            &path.child("nominatedNodeName"),
            violations,
        );
        if !old["spec"]["nodeName"].str().is_empty() {
            violations.forbidden(
                path.child("nominatedNodeName"),
                "may not be set on pods that are already bound to a node",
            );
        }
    }
    validate_generation(&status["observedGeneration"], &path, violations);
    let old_class = &old["status"]["qosClass"];
    field::immutable_text(
        &status["qosClass"],
        old_class,
        &path.child("qosClass"),
        violations,
    );
    validate_transitions(new, old, &path, violations);
    validate_claims(new, &path.child("resourceClaimStatuses"), violations);
    validate_extended_claim(new, &path.child("extendedResourceClaimStatus"), violations);
    let place = path.child("nodeAllocatableResourceClaimStatuses");
    validate_node_claims(new, &place, violations);
    validate_addresses(new, old, &path, violations);
    for (_, list) in LISTS {
        let path = path.child(list);
        let os = new["spec"]["os"]["name"].as_str().unwrap_or("linux");
        for (index, status) in new["status"][list].items().enumerate() {
            let path = path.index(index);
            let (user, path) = (&status["user"]["linux"], path.child("user"));
            let path = path.child("linux");
            if os == "windows" && !user.is_null() {
                violations.forbidden(path, "cannot be set for a windows pod");
            } else if os == "linux" {
                validate_user(user, &path, violations);
            }
        }
    }
    for (containers, list) in LISTS {
        validate_devices(new, containers, list, &path.child(list), violations);
    }
}

/// The lists of statuses in the order of messages, each with its containers. Ephemeral ones have no resources.
const LISTS: [(&str, &str); 3] = [
    ("containers", STATUS_LISTS[1]),
    ("initContainers", STATUS_LISTS[0]),
    ("ephemeralContainers", STATUS_LISTS[2]),
];

fn validate_generation(generation: &Value, path: &Path, violations: &mut Violations) {
    if generation.int() < 0 {
        violations.invalid(
            path.child("observedGeneration"),
            generation.int(),
            "must be a non-negative integer",
        );
    }
}

/// What has ended stays so, unless it is to be started again.
fn validate_transitions(new: &Value, old: &Value, path: &Path, violations: &mut Violations) {
    let spec = &old["spec"];
    let restarts_all = ["initContainers", "containers"]
        .into_iter()
        .flat_map(|list| spec[list].list())
        .flat_map(|container| container["restartPolicyRules"].list())
        .any(|rule| rule["action"].str() == "RestartAllContainers");
    for (containers, list) in LISTS {
        if restarts_all && containers != "ephemeralContainers" {
            continue;
        }
        let path = path.child(list);
        for (index, was) in old["status"][list].items().enumerate() {
            let ended = &was["state"]["terminated"];
            let mut now = new["status"][list]
                .items()
                .filter(|now| now["name"] == was["name"]);
            let revived = !ended.is_null() && now.any(|now| now["state"]["terminated"].is_null());
            let container = spec[containers]
                .items()
                .find(|container| container["name"] == was["name"]);
            let may = container.is_some_and(|container| {
                // Whether a container is started again after it has ended with a code.
                let code = ended["exitCode"].int();
                if container["restartPolicyRules"].items().any(|rule| {
                    let codes = &rule["exitCodes"];
                    let listed = codes["values"].items().any(|value| value.int() == code);
                    !codes.is_null() && listed == (codes["operator"].str() == "In")
                }) {
                    return true;
                }
                let policy = match container["restartPolicy"].as_str() {
                    Some(policy) => policy,
                    None => spec["restartPolicy"].str(),
                };
                match policy {
                    _ if is_sidecar(container) => true,
                    "Always" => true,
                    "OnFailure" => code != 0,
                    _ => false,
                }
            });
            if revived && (containers == "ephemeralContainers" || !may) {
                violations.forbidden(
                    path.index(index).child("state"),
                    "may not be transitioned to non-terminated state",
                );
            }
        }
    }
}

fn validate_claims(pod: &Value, path: &Path, violations: &mut Violations) {
    let known = pod["spec"]["resourceClaims"].list();
    let mut seen: HashSet<&str> = HashSet::new();
    for (index, status) in pod["status"]["resourceClaimStatuses"].items().enumerate() {
        let path = path.index(index);
        let name = status["name"].str();
        if !known.iter().any(|claim| claim["name"].str() == name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            violations.invalid(path.child("name"), name, detail);
        }
        if seen.contains(&name) {
            violations.duplicate(path.child("name"), name);
        }
        seen.insert(name);
        if let Some(claim) = status["resourceClaimName"].as_str() {
            let wrong = names::name_is_dns_subdomain(claim, false);
            field::all(wrong, claim, &path.child("resourceClaimName"), violations);
        }
    }
}

fn validate_extended_claim(pod: &Value, path: &Path, violations: &mut Violations) {
    let status = &pod["status"]["extendedResourceClaimStatus"];
    if status.is_null() {
        return;
    }
    let place = path.child("requestMappings");
    if status["requestMappings"].is_empty() {
        violations.required(place, "at least one request mapping is required");
    }
    let mut seen = HashSet::new();
    for (index, mapping) in status["requestMappings"].items().enumerate() {
        let place = place.index(index);
        let (container, resource) = (
            mapping["containerName"].str(),
            mapping["resourceName"].str(),
        );
        let lists = ["containers", "initContainers"];
        let mut containers = lists.into_iter().flat_map(|list| pod["spec"][list].list());
        match containers.find(|other| other["name"].str() == container) {
            None => {
                let detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                violations.invalid(place.child("containerName"), container, detail);
            }
            Some(container) if container["resources"]["requests"].get(resource).is_none() => {
                let detail = "must match the extended resource name of an entry in \
                          spec.initContainers.resources.requests or spec.containers.resources.requests";
                violations.invalid(place.child("resourceName"), resource, detail);
            }
            Some(_) => {}
        }
        let request = mapping["requestName"].str();
        dns_label(request, &path.child("requestName"), violations);
        let parts = ["containerName", "resourceName", "requestName"]
            .map(|part| (part, mapping[part].str()));
        if seen.contains(&parts) {
            for (part, name) in parts {
                violations.duplicate(place.child(part), name);
            }
        }
        seen.insert(parts);
    }
    match status["resourceClaimName"].str() {
        "" => violations.required(path.child("resourceClaimName"), ""),
        name => {
            let wrong = names::name_is_dns_subdomain(name, false);
            field::all(wrong, name, &path.child("resourceClaimName"), violations);
        }
    }
}

fn validate_node_claims(pod: &Value, path: &Path, violations: &mut Violations) {
    let references = pod["spec"]["resourceClaims"]
        .items()
        .chain(pod["status"]["resourceClaimStatuses"].list());
    let known: Vec<&str> = references
        .filter_map(|claim| claim["resourceClaimName"].as_str())
        .collect();
    for (index, status) in pod["status"]["nodeAllocatableResourceClaimStatuses"]
        .items()
        .enumerate()
    {
        let path = path.index(index);
        let name = status["resourceClaimName"].str();
        if name.is_empty() {
            violations.required(path.child("resourceClaimName"), "must not be empty");
        }
        if !known.contains(&name) {
            violations.invalid(
                path.child("resourceClaimName"),
                name,
                "no mapping found in pod reference",
            );
        }
        for key in ["containers", "resources"] {
            if status[key].is_empty() {
                violations.required(path.child(key), "must not be empty");
            }
        }
        let path = path.child("resources");
        for (name, amount) in status["resources"].entries() {
            if !is_native(name) {
                violations.invalid(
                    path.key(name),
                    name,
                    "must be a node allocatable resource name",
                );
            }
            if Quantity::parse_or_zero(amount.str()).is_negative() {
                violations.invalid(path.key(name), amount.clone(), "must be non-negative");
            }
        }
    }
}

fn validate_addresses(new: &Value, old: &Value, path: &Path, violations: &mut Violations) {
    let status = &new["status"];
    validate_address_list(status, &old["status"], "podIPs", "PodIP", path, violations);
    let first = status["hostIPs"][0]["ip"].str();
    if !status["hostIPs"].is_empty() && status["hostIP"].str() != first {
        let place = path.child("hostIPs");
        violations.invalid(
            place.index(0).child("ip"),
            first,
            "must be equal to `hostIP`",
        );
    }
    validate_address_list(
        status,
        &old["status"],
        "hostIPs",
        "HostIP",
        path,
        violations,
    );
}

/// One address, or one of each family. What was accepted once may stay.
fn validate_address_list(
    new: &Value,
    old: &Value,
    list: &str,
    ty: &str,
    path: &Path,
    violations: &mut Violations,
) {
    let path = path.child(list);
    let addresses: Vec<&str> = new[list]
        .items()
        .map(|address| address["ip"].str())
        .collect();
    for (index, address) in addresses.iter().enumerate() {
        if !old[list].items().any(|old| old["ip"].str() == *address) {
            field::all(
                ip::is_ip_for_legacy_field(address),
                *address,
                &path.index(index),
                violations,
            );
        }
    }
    if addresses.len() < 2 {
        return;
    }
    let families: Option<Vec<bool>> = addresses
        .iter()
        .map(|address| ip::parse_sloppy(address).map(|address| address.is_ipv6()))
        .collect();
    let is_dual = families
        .as_ref()
        .is_some_and(|families| families.contains(&true) && families.contains(&false));
    if let Some(index) = addresses
        .iter()
        .position(|address| ip::parse_sloppy(address).is_none())
    {
        let detail = format!("invalid IP[{index}]: {}", addresses[index]);
        let message = format!("Internal error: failed to check for dual stack with error:{detail}");
        violations.push(ViolationReason::Internal, path, message);
    }
    if !is_dual || addresses.len() > 2 {
        let shown = internal::form_list(ty, new[list].list());
        violations.invalid(
            path,
            shown,
            "may specify no more than one IP for each IP family",
        );
    }
}

fn validate_user(user: &Value, path: &Path, violations: &mut Violations) {
    for key in ["uid", "gid"] {
        field::all(
            names::is_user_id(user[key].int()),
            user[key].int(),
            &path.child(key),
            violations,
        );
    }
    let path = path.child("supplementalGroups");
    for (index, group) in user["supplementalGroups"].items().enumerate() {
        field::all(
            names::is_user_id(group.int()),
            group.int(),
            &path.index(index),
            violations,
        );
    }
}

/// The health of devices that containers use.
fn validate_devices(
    pod: &Value,
    containers: &str,
    list: &str,
    path: &Path,
    violations: &mut Violations,
) {
    for (index, status) in pod["status"][list].items().enumerate() {
        let path = path.index(index);
        let (devices, path) = (
            status["allocatedResourcesStatus"].list(),
            path.child("allocatedResourcesStatus"),
        );
        if containers == "ephemeralContainers" {
            if !devices.is_empty() {
                violations.forbidden(path, "must not be specified in container status");
            }
            continue;
        }
        let container = pod["spec"][containers]
            .items()
            .find(|other| other["name"] == status["name"]);
        for (index, device) in devices.iter().enumerate() {
            let path = path.index(index);
            if let Some(container) = container {
                let name = device["name"].str();
                let resources = &container["resources"];
                if name.starts_with("claim:") {
                    let is_claim = |claim: &Value| match claim["request"].str() {
                        "" => name == format!("claim:{}", claim["name"].str()),
                        request => name == format!("claim:{}/{request}", claim["name"].str()),
                    };
                    if !resources["claims"].items().any(is_claim) {
                        let detail = "must match one of the container's resource claims in a format \
                          'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty";
                        violations.invalid(path.child("name"), name, detail);
                    }
                } else if resources["requests"].get(name).is_none() {
                    violations.invalid(
                        path.child("name"),
                        name,
                        "must match one of the container's resource requests",
                    );
                }
            }
            let path = path.child("resources");
            let mut seen: HashSet<&str> = HashSet::new();
            for (index, device) in device["resources"].items().enumerate() {
                let path = path.index(index);
                let health = ["Healthy", "Unhealthy", "Unknown"];
                field::one_of(
                    device["health"].str(),
                    &health,
                    &path.child("health"),
                    violations,
                );
                match device["message"].as_str().map(str::len) {
                    Some(0) => {
                        violations.required(path.child("message"), "must be non-empty if specified")
                    }
                    Some(length) if length > 1024 => {
                        violations.too_long(path.child("message"), 1024)
                    }
                    _ => {}
                }
                let id = device["resourceID"].str();
                if seen.contains(&id) {
                    violations.duplicate(path.child("resourceID"), id);
                }
                seen.insert(id);
            }
        }
    }
}
