//! IPAddress objects of Services.
//!
//! Services are the source of truth. After every write of a Service with an address, its IPAddress objects are synced with
//! what is stored, so they are right however the write ended.
//!
//! Where several servers share the store, the IPAddress is created first: its key is unique, so only one server gets the
//! address. If that server ends before it has written the Service, a repair (`repair_address`) deletes the IPAddress after
//! a grace period.
//! Kubernetes: core/service/ipallocator.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

use http::Method;
use mizzen_object::Status;
use mizzen_registry::{Create, DeleteOptions, Key, NoAdmission, Resource, Warnings};
use mizzen_value::address::{family, parse_sloppy};
use mizzen_value::{Value, value};

use mizzen_apiserver::field_manager::RequestFieldManager;
use mizzen_apiserver::request::{Request, ResourcePath};
use mizzen_apiserver::server::ServerParts;
use mizzen_apiserver::verbs::ResourceCall;

const GROUP: &str = "networking.k8s.io";
const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const ALLOCATOR: &str = "ipallocator.k8s.io";

/// The resource of IPAddress objects.
pub(super) fn resource(server: &ServerParts) -> Option<Resource> {
    server.catalog.get(GROUP, "v1", "ipaddresses")
}

/// The Services that a request writes, each with an old or new address.
#[derive(Default)]
pub(super) struct ChangedAddresses(Mutex<Vec<(Key, String)>>);

impl ChangedAddresses {
    /// Records the addresses of a Service that is written. In a shared store new ones were recorded when they were reserved:
    /// others may be reserved by another server, which is about to write a Service of the same name.
    pub(super) fn note(&self, new: Option<&Value>, old: Option<&Value>, is_shared: bool) {
        let (of_new, of_old) = (new.map(addresses_of), old.map(addresses_of));
        if of_new == of_old {
            return;
        }
        let metadata = new.or(old).map(|service| &service["metadata"]);
        let key =
            metadata.map(|metadata| Key::new(metadata["namespace"].str(), metadata["name"].str()));
        let of_new = of_new.filter(|_| !is_shared);
        let both = of_new.into_iter().chain(of_old).flatten();
        let mut noted = self.0.lock();
        noted.extend(
            key.into_iter()
                .flat_map(|key| both.clone().map(move |address| (key.clone(), address))),
        );
    }

    /// Records an address that was reserved for a Service.
    pub(super) fn note_reserved(&self, service: &Key, address: &str) {
        self.0.lock().push((service.clone(), address.into()));
    }

    /// Records an IPAddress that is changed or deleted. Kubernetes: that of a Service with the address is created again
    /// (core/service/ipallocator/controller/repairip.go).
    pub(super) fn note_address(&self, old: &Value) {
        if is_ours(old) {
            self.0.lock().push(of_address(old));
        }
    }

    /// Creates missing IPAddress objects and deletes those without Service. Those of `kept` are known to be right.
    pub(super) async fn follow(&self, call: &ResourceCall<'_>, kept: &HashSet<String>) {
        let mut noted = std::mem::take(&mut *self.0.lock());
        noted.retain(|(_, address)| !kept.contains(address));
        if noted.is_empty() {
            return;
        }
        let server = call.server.clone();
        // A client that disconnects must not leave an address behind.
        let task = tokio::spawn(async move {
            for (service, address) in noted {
                sync_address(&server, &service, &address).await;
            }
        });
        // It fails only when the process ends.
        let _ = task.await;
    }
}

/// Reserves an address for a Service that is yet to be written; false if it is taken.
pub(super) async fn reserve(
    server: &Arc<ServerParts>,
    addresses: &Resource,
    service: &Key,
    address: &str,
) -> Result<bool, Status> {
    match make(server, addresses, service, address).await {
        Ok(()) => Ok(true),
        Err(status) if status.reason == "AlreadyExists" => Ok(false),
        Err(status) => Err(status),
    }
}

/// The Service of an IPAddress, and the address.
pub(super) fn of_address(address: &Value) -> (Key, String) {
    let parent = &address["spec"]["parentRef"];
    let service = Key::new(parent["namespace"].str(), parent["name"].str());
    (service, address["metadata"]["name"].str().into())
}

/// Whether an IPAddress is managed by the allocator.
pub(super) fn is_ours(address: &Value) -> bool {
    address["metadata"]["labels"][MANAGED_BY].str() == ALLOCATOR
}

/// The addresses of a Service in canonical form.
pub(super) fn addresses_of(service: &Value) -> Vec<String> {
    let addresses = service["spec"]["clusterIPs"].list().iter();
    addresses
        .filter_map(|address| parse_sloppy(address.str()))
        .map(|address| address.to_string())
        .collect()
}

/// Whether a Service has an address in canonical form.
pub(super) fn has_address(service: &Value, address: &str) -> bool {
    addresses_of(service).iter().any(|known| known == address)
}

/// Syncs one IPAddress: it exists if the Service has the address.
async fn sync_address(server: &Arc<ServerParts>, service: &Key, address: &str) {
    let (Some(services), Some(addresses)) =
        (server.catalog.get("", "v1", "services"), resource(server))
    else {
        return;
    };
    // The Service is read last: it is written after its IPAddress. An object that cannot be decoded, which is logged, keeps
    // its address.
    let Ok(found) = read(server, &addresses, &Key::new("", address)).await else {
        return;
    };
    let Ok(stored) = read(server, &services, service).await else {
        return;
    };
    let has = stored.is_some_and(|stored| has_address(&stored, address));
    match found {
        // It may have been created already.
        None if has => drop(make(server, &addresses, service, address).await),
        Some(found) if !has && is_ours(&found) && is_of(&found, service) => {
            remove(server, &addresses, &found).await;
        }
        // It lacks the labels of the allocator.
        Some(found) if has && is_of(&found, service) && !has_labels(&found) => {
            // It may have been created already.
            let _ = recreate(server, &addresses, &found, service).await;
        }
        // What a write does not account for is left to a repair.
        _ => {}
    }
}

/// An object with all writes that were acknowledged; none if it does not exist.
pub(super) async fn read(
    server: &ServerParts,
    resource: &Resource,
    key: &Key,
) -> Result<Option<Value>, Status> {
    match server.registry.read(resource, key, "").await {
        Ok(found) => Ok(Some(found.value())),
        Err(status) if status.code == 404 => Ok(None),
        Err(status) => Err(status),
    }
}

/// Deletes an IPAddress. Returns whether it was there.
pub(super) async fn remove(
    server: &Arc<ServerParts>,
    addresses: &Resource,
    address: &Value,
) -> bool {
    let metadata = &address["metadata"];
    let options = DeleteOptions {
        // Not one that was created since, for another Service.
        uid: Some(metadata["uid"].str().into()),
        ..DeleteOptions::default()
    };
    let key = Key::new("", metadata["name"].str());
    let deleted = server
        .registry
        .delete(addresses, &key, &options, &NoAdmission)
        .await;
    deleted.is_ok()
}

/// Replaces an IPAddress by that of a Service.
pub(super) async fn recreate(
    server: &Arc<ServerParts>,
    addresses: &Resource,
    address: &Value,
    service: &Key,
) -> Result<(), Status> {
    remove(server, addresses, address).await;
    let name = address["metadata"]["name"].str();
    make(server, addresses, service, name).await
}

/// Whether an IPAddress has the labels of the allocator.
pub(super) fn has_labels(address: &Value) -> bool {
    is_ours(address) && has_family(address)
}

fn has_family(address: &Value) -> bool {
    let metadata = &address["metadata"];
    metadata["labels"][FAMILY].str() == family_of(metadata["name"].str())
}

fn family_of(address: &str) -> &'static str {
    address.parse().map_or("IPv4", family)
}

/// Whether an IPAddress refers to a Service, of whatever name.
pub(super) fn refers_to_service(address: &Value) -> bool {
    let parent = &address["spec"]["parentRef"];
    parent["group"].str().is_empty() && parent["resource"].str() == "services"
}

/// Whether an IPAddress is that of a Service.
pub(super) fn is_of(address: &Value, service: &Key) -> bool {
    refers_to_service(address) && of_address(address).0 == *service
}

/// Creates the IPAddress of a Service.
pub(super) async fn make(
    server: &Arc<ServerParts>,
    addresses: &Resource,
    service: &Key,
    address: &str,
) -> Result<(), Status> {
    let mut object = value!({
        "metadata": { "name": address },
        "spec": { "parentRef": {
            "resource": "services", "namespace": (&service.namespace), "name": (&service.name)
        } }
    });
    let labels = object.entry("metadata").entry("labels");
    labels.set(FAMILY, family_of(address));
    labels.set(MANAGED_BY, ALLOCATOR);
    let path = ResourcePath {
        group: GROUP.into(),
        version: "v1".into(),
        resource: "ipaddresses".into(),
        ..ResourcePath::default()
    };
    let (request, notes) = (
        Request::of_server(Method::POST, path.clone()),
        Warnings::default(),
    );
    let call = ResourceCall::of_server(server, &request, &path, addresses, &notes);
    RequestFieldManager::new(&call).update(None, &mut object);
    let create = Create {
        user: request.user.clone(),
        ..Create::new(addresses, "", object)
    };
    server.registry.create(create).await.map(drop)
}
