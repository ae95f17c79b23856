//! Allocation of cluster IPs, node ports and the health check port from the pool.

use mizzen_object::{Path, Violations};
use mizzen_value::Value;

use super::super::{NONE, is, needs_health_check, needs_node_ports, node_ports};
use super::{AllocateError, AllocationError, ServiceIpPool, families, own_addresses};

pub(super) fn addresses(
    service: &mut Value,
    old: Option<&Value>,
    pool: &mut dyn ServiceIpPool,
) -> Result<(), AllocateError> {
    if is(service, "ExternalName") || service["spec"]["clusterIPs"][0].str() == NONE {
        return Ok(());
    }
    let kept = old
        .map(|old| own_addresses(&old["spec"]))
        .unwrap_or_default();
    let was_headless = old.is_some_and(|old| old["spec"]["clusterIPs"][0].str() == NONE);
    if was_headless || old.is_some_and(|old| families::is_settled(service, old)) {
        return Ok(());
    }
    let n_families = service["spec"]["ipFamilies"].list().len();
    let first = if kept.is_empty() {
        0
    } else {
        kept.len().min(n_families)
    };
    for index in first..n_families {
        address(service, index, pool)?;
    }
    Ok(())
}

fn address(
    service: &mut Value,
    index: usize,
    pool: &mut dyn ServiceIpPool,
) -> Result<(), AllocateError> {
    let spec = &service["spec"];
    let family = spec["ipFamilies"][index].str();
    let wanted = spec["clusterIPs"][index]
        .as_str()
        .filter(|wanted| !wanted.is_empty());
    let taken = pool.take_address(family, wanted).map_err(|error| {
        let message = match (wanted, error) {
            (None, AllocationError::Full(message)) => {
                let name = service["metadata"]["name"].str();
                return AllocateError::Internal(format!(
                    "failed to allocate a serviceIP for Service \"{name}\": {message}"
                ));
            }
            (None, AllocationError::Refused(message)) => {
                format!("failed to allocate IP: {message}")
            }
            (Some(ip), AllocationError::Full(message) | AllocationError::Refused(message)) => {
                format!("failed to allocate IP {ip}: {message}")
            }
        };
        // Kubernetes: there is a place for the address of each family by then (core/service/storage/alloc.go).
        let spec = &service["spec"];
        let mut addresses = spec["clusterIPs"].list().to_vec();
        let n_families = spec["ipFamilies"].list().len();
        addresses.resize_with(addresses.len().max(n_families), || "".into());
        let mut violations = Violations::default();
        violations.invalid(Path::new("spec").child("clusterIPs"), addresses, &message);
        AllocateError::Invalid(violations)
    })?;

    let spec = service.entry("spec");
    if index == 0 {
        spec.set("clusterIP", taken.as_str());
    }
    let addresses = spec.entry("clusterIPs").make_list();
    addresses.truncate(index);
    addresses.push(taken.into());
    Ok(())
}

pub(super) fn ports(
    service: &mut Value,
    old: Option<&Value>,
    pool: &mut dyn ServiceIpPool,
) -> Result<(), AllocateError> {
    let spec = service.entry("spec");
    if !needs_node_ports(spec) {
        return Ok(());
    }
    let every_port =
        spec["type"].str() == "NodePort" || spec["allocateLoadBalancerNodePorts"].bool();
    let mut own = old.map(|old| node_ports(&old["spec"])).unwrap_or_default();
    for index in 0..spec["ports"].list().len() {
        let wanted = wanted_node_port(spec, index, old.is_none());
        if wanted.is_none() && !every_port {
            continue;
        }
        let is_own = |port: &i64| {
            if old.is_some() {
                own.contains(port)
            } else {
                // An earlier port of the same number may have allocated it.
                let node_port = *port;
                let ports = spec["ports"].list();
                let number = &ports[index]["port"];
                ports[..index]
                    .iter()
                    .any(|port| port["port"] == *number && port["nodePort"].int() == node_port)
            }
        };
        let port = match wanted.filter(is_own) {
            Some(port) => port,
            None => pool.take_port(wanted).map_err(|error| {
                let (AllocationError::Full(message) | AllocationError::Refused(message)) = error;
                let Some(port) = wanted else {
                    return AllocateError::Internal(format!(
                        "failed to allocate a nodePort: {message}"
                    ));
                };
                let mut violations = Violations::default();
                let path = Path::new("spec");
                let path = path.child("ports");
                violations.invalid(path.index(index).child("nodePort"), port, &message);
                AllocateError::Invalid(violations)
            })?,
        };
        own.push(port);
        spec.entry("ports").list_mut()[index].set("nodePort", port);
        if old.is_some() {
            // Kubernetes: on create this is left to validation.
            let taken = |port: &Value| (port["protocol"].clone(), port["nodePort"].clone());
            let ports = spec["ports"].list();
            let (protocol, node_port) = taken(&ports[index]);
            if ports[..index]
                .iter()
                .any(|port| taken(port) == (protocol.clone(), node_port.clone()))
            {
                return Err(AllocateError::Unknown(format!(
                    "duplicate nodePort: {{{} {}}}",
                    protocol.str(),
                    node_port.int()
                )));
            }
        }
    }
    Ok(())
}

/// The node port that a port names. On create, ports that share a number (in two protocols) share it too.
fn wanted_node_port(spec: &Value, index: usize, shares: bool) -> Option<i64> {
    let ports = spec["ports"].list();
    let own = ports[index]["nodePort"].int();
    if own != 0 || !shares {
        return Some(own).filter(|own| *own != 0);
    }
    let same_number =
        |port: &&Value| port["port"] == ports[index]["port"] && port["nodePort"].int() != 0;
    ports
        .iter()
        .find(same_number)
        .map(|port| port["nodePort"].int())
}

pub(super) fn health_check_port(
    service: &mut Value,
    old: Option<&Value>,
    pool: &mut dyn ServiceIpPool,
) -> Result<(), AllocateError> {
    let spec = service.entry("spec");
    if !needs_health_check(spec) || old.is_some_and(|old| needs_health_check(&old["spec"])) {
        return Ok(());
    }
    let wanted = Some(spec["healthCheckNodePort"].int()).filter(|port| *port != 0);
    let port = pool.take_port(wanted).map_err(|error| {
        let (AllocationError::Full(message) | AllocationError::Refused(message)) = error;
        AllocateError::Internal(match wanted {
            Some(port) => {
                format!("failed to allocate requested HealthCheck NodePort {port}: {message}")
            }
            None => format!("failed to allocate a HealthCheck NodePort 0: {message}"),
        })
    })?;
    spec.set("healthCheckNodePort", port);
    Ok(())
}
