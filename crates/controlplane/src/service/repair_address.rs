//! The repair of cluster IPs: every address of a Service has an IPAddress that refers to it, and no other IPAddress is the
//! allocator's.
//!
//! What lists show is checked first; what looks wrong is read again before anything is changed. What was wrong is
//! told in Events. Kubernetes: core/service/ipallocator/controller/repairip.go, whose metrics are registered only where the
//! gate MultiCIDRServiceAllocator is off, so there are none here.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use mizzen_apiserver::Server;
use mizzen_apiserver::server::ServerParts;
use mizzen_object::Status;
use mizzen_registry::{Key, ListOptions, Resource};
use mizzen_value::address::{Cidr, family, parse_sloppy};
use mizzen_value::{Value, time};

use super::address;
use super::range;
use super::repair_events::Finding;
use crate::ControlPlane;

const CONTROLLER: &str = "ipallocator-repair-controller";

/// How long an IPAddress may be without its Service: as long as a request that writes the Service may take. Kubernetes:
/// gracePeriod in repairip.go.
const GRACE_SECONDS: i64 = 60;
/// How long an IPAddress may be younger than a Service that does not have it: the write of the Service may be rejected.
const CONFLICT_SECONDS: i64 = 5;

/// Repairs the IPAddress objects of all Services.
pub(crate) async fn repair_addresses(server: &Server) {
    let parts = server.parts();
    let services = parts.catalog.get("", "v1", "services");
    if let (Some(services), Some(addresses)) = (services, address::resource(parts)) {
        let repair = AddressRepair {
            server,
            parts,
            services,
            addresses,
            ranges: range::configured(parts),
        };
        repair.run().await;
    }
}

/// One run of the repair.
struct AddressRepair<'a> {
    server: &'a Server,
    parts: &'a Arc<ServerParts>,
    services: Resource,
    addresses: Resource,
    /// The ranges of all ServiceCIDRs.
    ranges: Vec<Cidr>,
}

impl AddressRepair<'_> {
    async fn run(&self) {
        let (services, addresses) = (self.list(&self.services), self.list(&self.addresses));
        let by_name: HashMap<&str, &Value> = addresses
            .iter()
            .map(|address| (address["metadata"]["name"].str(), address))
            .collect();
        let mut owners: HashMap<String, Vec<Key>> = HashMap::new();
        for service in services.iter().filter(|service| is_address_set(service)) {
            let key = key_of(service);
            for text in service["spec"]["clusterIPs"].list() {
                let Some(ip) = self.valid_address(service, text.str()).await else {
                    continue;
                };
                let known = by_name.get(ip.to_string().as_str());
                let is_right = known
                    .is_some_and(|known| address::is_of(known, &key) && address::has_labels(known));
                if !is_right {
                    log_failure(ip, self.repair_address(&key, ip).await);
                }
                owners.entry(ip.to_string()).or_default().push(key.clone());
            }
        }
        for found in addresses.iter().filter(|found| address::is_ours(found)) {
            let (service, name) = address::of_address(found);
            let is_owned = owners.get(&name).is_some_and(|all| all.contains(&service));
            if !(is_owned && address::refers_to_service(found)) {
                log_failure(&name, self.clean_up(&name).await);
            }
        }
    }

    /// All objects of a resource, as the cache has them.
    fn list(&self, resource: &Resource) -> Vec<Value> {
        let found = self.parts.registry.list(resource, &ListOptions::default());
        let objects = found.map(|found| found.items).unwrap_or_default();
        objects.iter().map(|object| object.value()).collect()
    }

    /// An address of a Service, unless it is none or is in no range.
    async fn valid_address(&self, service: &Value, text: &str) -> Option<IpAddr> {
        let Some(ip) = parse_sloppy(text) else {
            // Kubernetes: the Event has what the text was parsed to.
            let note = "Cluster IP <nil> is not a valid IP; please recreate Service";
            let action = "ClusterIPValidation";
            self.report_service(service, "ClusterIPNotValid", action, note.into())
                .await;
            return None;
        };
        if !self.ranges.iter().any(|range| range.gives(ip)) {
            let note = format!(
                "Cluster IP [{}]: {ip} is not within any configured Service CIDR; please recreate service",
                family(ip)
            );
            self.report_allocation(service, "ClusterIPOutOfRange", note)
                .await;
            return None;
        }
        Some(ip)
    }

    /// Repairs the IPAddress of an address that a Service has.
    async fn repair_address(&self, key: &Key, ip: IpAddr) -> Result<(), Status> {
        let (family, name) = (family(ip), ip.to_string());
        if ControlPlane::of(self.parts).allocations.is_claimed(&name) {
            // A write of this server is about to create it.
            return Ok(());
        }
        // The Service is read last: it may be written after its IPAddress.
        let found = self.read(&self.addresses, &Key::new("", &name)).await?;
        let service = self.read(&self.services, key).await?;
        let Some(service) = service.filter(|service| address::has_address(service, &name)) else {
            return Ok(());
        };
        let Some(found) = found else {
            match address::make(self.parts, &self.addresses, key, &name).await {
                // Another server was faster.
                Err(status) if status.reason == "AlreadyExists" => return Ok(()),
                made => made?,
            }
            let note = format!("Cluster IP [{family}]: {ip} is not allocated; repairing");
            self.report_allocation(&service, "ClusterIPNotAllocated", note)
                .await;
            return Ok(());
        };
        let mut is_wrong = !address::refers_to_service(&found);
        if !is_wrong && !address::is_of(&found, key) {
            let (other, _) = address::of_address(&found);
            let other = self.read(&self.services, &other).await?;
            is_wrong = other.is_none();
            if other.is_some_and(|other| address::has_address(&other, &name)) {
                let note = format!(
                    "Cluster IP [{family}]:{ip} was assigned to multiple services; please recreate service"
                );
                self.report_allocation(&service, "ClusterIPAlreadyAllocated", note)
                    .await;
            }
            // That of a Service with other addresses is cleaned up first.
        }
        if is_wrong {
            let note = format!(
                "the ClusterIP [{family}]: {ip} for Service {}/{} has a wrong reference; repairing",
                key.namespace, key.name
            );
            self.report_allocation(&service, "ClusterIPNotAllocated", note)
                .await;
        }
        match is_wrong || !address::has_labels(&found) {
            true => address::recreate(self.parts, &self.addresses, &found, key).await,
            false => Ok(()),
        }
    }

    /// Deletes an IPAddress of the allocator unless its Service has it.
    async fn clean_up(&self, name: &str) -> Result<(), Status> {
        let found = self.read(&self.addresses, &Key::new("", name)).await?;
        let Some(found) = found.filter(address::is_ours) else {
            return Ok(());
        };
        let (reason, note) = match address::refers_to_service(&found) {
            true => match self.why_unused(&found).await? {
                Some(why) => why,
                None => return Ok(()),
            },
            false => {
                let parent = &found["spec"]["parentRef"];
                let [group, resource, namespace, name_of_parent] =
                    ["group", "resource", "namespace", "name"].map(|field| parent[field].str());
                let note = format!(
                    "IPAddress {name} appears to have been modified, not referencing a Service \
                     &ParentReference{{Group:{group},Resource:{resource},Namespace:{namespace},Name:{name_of_parent},}}: \
                     cleaning up"
                );
                ("IPAddressNotAllocated", note)
            }
        };
        if address::remove(self.parts, &self.addresses, &found).await {
            let finding = Finding {
                controller: CONTROLLER,
                api_version: "networking.k8s.io/v1",
                kind: "IPAddress",
                reason,
                action: "IPAddressAllocation",
                note,
            };
            self.report(&found, finding).await;
        }
        Ok(())
    }

    /// Why an IPAddress is deleted that refers to a Service; none if it is used, or about to be.
    async fn why_unused(&self, found: &Value) -> Result<Option<(&'static str, String)>, Status> {
        let (key, name) = address::of_address(found);
        let about = format!(
            "IPAddress: {name} for Service {}/{}",
            key.namespace, key.name
        );
        // Alone, a server creates an IPAddress after its Service.
        let is_shared = self.parts.registry.store().is_shared();
        let age = self.parts.registry.now() - created(found);
        let waits = |seconds| is_shared && age < seconds;
        let Some(service) = self.read(&self.services, &key).await? else {
            let note = format!("{about} appears to have leaked: cleaning up");
            return Ok((!waits(GRACE_SECONDS)).then_some(("IPAddressNotAllocated", note)));
        };
        let may_get_it = service["spec"]["type"].str() == "ExternalName" && waits(GRACE_SECONDS);
        let may_conflict = created(found) > created(&service) && waits(CONFLICT_SECONDS);
        if address::has_address(&service, &name) || may_get_it || may_conflict {
            return Ok(None);
        }
        let note = format!("{about} has a wrong reference; cleaning up");
        Ok(Some(("IPAddressWrongReference", note)))
    }

    async fn read(&self, resource: &Resource, key: &Key) -> Result<Option<Value>, Status> {
        address::read(self.parts, resource, key).await
    }

    async fn report_allocation(&self, service: &Value, reason: &'static str, note: String) {
        self.report_service(service, reason, "ClusterIPAllocation", note)
            .await;
    }

    async fn report_service(
        &self,
        service: &Value,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        let finding = Finding {
            controller: CONTROLLER,
            api_version: "v1",
            kind: "Service",
            reason,
            action,
            note,
        };
        self.report(service, finding).await;
    }

    async fn report(&self, regarding: &Value, finding: Finding) {
        let events = &ControlPlane::of(self.parts).repair_events;
        events.record(self.server, regarding, finding).await;
    }
}

fn log_failure(address: impl std::fmt::Display, repaired: Result<(), Status>) {
    if let Err(status) = repaired {
        tracing::warn!(%address, error = %status.message, "an allocated address could not be repaired");
    }
}

fn key_of(object: &Value) -> Key {
    let metadata = &object["metadata"];
    Key::new(metadata["namespace"].str(), metadata["name"].str())
}

/// When an object was created, in Unix seconds.
fn created(object: &Value) -> i64 {
    time::to_unix(object["metadata"]["creationTimestamp"].str()).unwrap_or_default()
}

/// Whether a Service has a cluster IP. Kubernetes: IsServiceIPSet in core/v1/helper.
fn is_address_set(service: &Value) -> bool {
    !matches!(service["spec"]["clusterIP"].str(), "" | "None")
}
