//! The repair of node ports: each is in range and belongs to one Service, and in a store that several servers share the
//! bitmap has those of Services and no others.
//!
//! Kubernetes: core/service/portallocator/controller/repair.go.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use mizzen_apiserver::Server;
use mizzen_metrics::{Collector, CounterVec, Families};
use mizzen_object::Status;
use mizzen_registry::ListOptions;
use mizzen_value::Value;

use super::ports;
use super::repair_events::Finding;
use crate::ControlPlane;

const CONTROLLER: &str = "portallocator-repair-controller";

/// The metrics of the repair.
pub(crate) struct PortRepairMetrics {
    errors: CounterVec<1>,
    failures: CounterVec<0>,
}

impl Default for PortRepairMetrics {
    fn default() -> PortRepairMetrics {
        let metrics = PortRepairMetrics {
            errors: CounterVec::new(
                "apiserver_nodeport_repair_port_errors_total",
                "Errors of node ports that the repair has found, by type: leak, repair, outOfRange, duplicate.",
                ["type"],
            ),
            failures: CounterVec::new(
                "apiserver_nodeport_repair_reconcile_errors_total",
                "Attempts to repair node ports that failed.",
                [],
            ),
        };
        // Shown before the first one.
        metrics.failures.add([], 0);
        metrics
    }
}

impl Collector for PortRepairMetrics {
    fn collect(&self, families: &mut Families) {
        self.errors.collect(families);
        self.failures.collect(families);
    }
}

/// What is wrong with a port of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PortError {
    /// The bitmap does not have it.
    NotAllocated(u16),
    /// Another Service has it, or the same one a second time.
    Duplicate(u16),
    OutOfRange(i64),
}

/// Checks the ports of Services. In a store that several servers share, allocates those that are not, and releases those
/// that have leaked.
pub(crate) async fn repair_ports(server: &Server) -> Result<(), Status> {
    let parts = server.parts();
    let control_plane = ControlPlane::of(parts);
    let metrics = &control_plane.port_repair_metrics;
    let range = &control_plane.service_node_ports;
    let errors = if parts.registry.store().is_shared() {
        let mut leaks = control_plane.node_port_leaks.lock().await;
        let rebuilt = ports::rebuild(parts, &mut leaks).await;
        drop(leaks);
        let rebuilt = rebuilt.inspect_err(|_| metrics.failures.add([], 1))?;
        metrics.failures.add([], rebuilt.n_conflicts);
        if rebuilt.n_leaked > 0 {
            metrics.errors.add(["leak".into()], rebuilt.n_leaked);
        }
        rebuilt.errors
    } else {
        let services = parts.catalog.get("", "v1", "services");
        let services = services.ok_or_else(Status::no_such_resource)?;
        let found = parts.registry.list(&services, &ListOptions::default());
        let found = found.inspect_err(|_| metrics.failures.add([], 1))?;
        let services: Vec<Value> = found.items.iter().map(|object| object.value()).collect();
        inspect(&services, range, None).1
    };
    for (service, error) in errors {
        let (type_, reason, note) = match error {
            PortError::NotAllocated(port) => (
                "repair",
                "PortNotAllocated",
                format!("Port {port} is not allocated; repairing"),
            ),
            PortError::Duplicate(port) => (
                "duplicate",
                "PortAlreadyAllocated",
                format!("Port {port} was assigned to multiple services; please recreate service"),
            ),
            PortError::OutOfRange(port) => (
                "outOfRange",
                "PortOutOfRange",
                format!(
                    "Port {port} is not within the port range {}-{}; please recreate service",
                    range.start(),
                    range.end()
                ),
            ),
        };
        metrics.errors.add([type_.into()], 1);
        let finding = Finding {
            controller: CONTROLLER,
            api_version: "v1",
            kind: "Service",
            reason,
            action: "PortAllocation",
            note,
        };
        let events = &control_plane.repair_events;
        events.record(server, &service, finding).await;
    }
    Ok(())
}

/// The ports in `range` that Services have, and what is wrong with ports. `allocated` are those of the bitmap, if there is
/// one.
pub(super) fn inspect(
    services: &[Value],
    range: &RangeInclusive<u16>,
    allocated: Option<&BTreeSet<u16>>,
) -> (BTreeSet<u16>, Vec<(Value, PortError)>) {
    let (mut ports, mut errors) = (BTreeSet::new(), Vec::new());
    for service in services {
        for number in ports_of(service) {
            let port = u16::try_from(number).ok();
            let Some(port) = port.filter(|port| range.contains(port)) else {
                errors.push((service.clone(), PortError::OutOfRange(number)));
                continue;
            };
            if !ports.insert(port) {
                errors.push((service.clone(), PortError::Duplicate(port)));
            } else if allocated.is_some_and(|allocated| !allocated.contains(&port)) {
                errors.push((service.clone(), PortError::NotAllocated(port)));
            }
        }
    }
    (ports, errors)
}

/// The ports of a Service. Kubernetes: one that several protocols share counts once, and one that a protocol has twice
/// counts twice (collectServiceNodePorts).
fn ports_of(service: &Value) -> Vec<i64> {
    let spec = &service["spec"];
    let (mut ports, mut seen): (Vec<i64>, Vec<(i64, &str)>) = (Vec::new(), Vec::new());
    let own = spec["ports"].list().iter();
    let own = own.map(|port| (port["nodePort"].int(), port["protocol"].str()));
    for (port, protocol) in own.chain([(spec["healthCheckNodePort"].int(), "TCP")]) {
        if port == 0 {
            continue;
        }
        if !ports.contains(&port) || seen.contains(&(port, protocol)) {
            ports.push(port);
        }
        seen.push((port, protocol));
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::value;

    /// The errors of a Service with these ports, each with its protocol, if the bitmap has only port 30000.
    #[track_caller]
    fn check(ports: &[(i64, &str)], health_port: i64, expected: &[PortError]) {
        let ports = ports.iter().map(|(port, protocol)| {
            let (port, protocol) = (*port, *protocol);
            value!({"nodePort": port, "protocol": protocol})
        });
        let mut spec = value!({"healthCheckNodePort": health_port});
        spec.set("ports", Value::List(ports.collect()));
        let service = value!({"spec": spec});
        let allocated = BTreeSet::from([30_000]);
        let (_, errors) = inspect(&[service], &(30_000..=30_010), Some(&allocated));
        let errors: Vec<PortError> = errors.into_iter().map(|(_, error)| error).collect();
        assert_eq!(errors, expected);
    }

    #[test]
    fn a_port_of_several_protocols_counts_once_and_of_one_protocol_each_time() {
        check(&[(30_000, "TCP"), (30_000, "UDP"), (0, "TCP")], 0, &[]);
        let twice = [PortError::Duplicate(30_000)];
        check(&[(30_000, "TCP"), (30_000, "TCP")], 0, &twice);
        check(&[(30_000, "TCP")], 30_000, &twice);
        check(&[(30_000, "UDP")], 30_000, &[]);
    }

    #[test]
    fn a_port_that_is_not_allocated_or_out_of_range_is_an_error() {
        let expected = [
            PortError::OutOfRange(29_999),
            PortError::NotAllocated(30_010),
            PortError::OutOfRange(70_000),
        ];
        check(&[(29_999, "TCP"), (30_010, "TCP")], 70_000, &expected);
    }
}
