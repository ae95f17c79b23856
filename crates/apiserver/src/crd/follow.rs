//! The CRD controller: it watches CustomResourceDefinitions; each change is served, and its status written, before the next.
//!
//! A write of a definition waits for that ([`synced`]), so that a kind can be used once its definition has been accepted.
//!
//! Invariant: the controller decides from stored state only; a missed change is covered by the next one.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use mizzen_object::Status;
use mizzen_registry::{Key, Resource, Revision};
use mizzen_value::Value;
use tokio::time::timeout;
use tracing::warn;

use super::definition::CustomDefinition;
use super::{conditions, finalize};
use crate::server::ServerParts;
use crate::verbs;

/// How long a write waits at most until its definition is served.
const SYNC_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves the stored definitions, and starts the controller.
pub(crate) async fn start(server: &Arc<ServerParts>) {
    let Some(resource) = resource(server) else {
        return;
    };
    let seen = sync_all(server, &resource).await;
    server.definitions.reach(seen);
    tokio::spawn(run(Arc::downgrade(server), resource, seen));
}

/// Waits until all changes so far are served.
pub(crate) async fn synced(server: &Arc<ServerParts>) {
    let Some(resource) = resource(server) else {
        return;
    };
    let target = resource.space().snapshot().revision();
    let mut reached = server.definitions.reached();
    let is_synced = reached.wait_for(|reached| reached.is_none_or(|reached| reached >= target));
    let _ = timeout(SYNC_TIMEOUT, is_synced).await;
}

/// The resource of CustomResourceDefinitions.
pub(crate) fn resource(server: &ServerParts) -> Option<Resource> {
    server
        .catalog
        .get("apiextensions.k8s.io", "v1", "customresourcedefinitions")
}

async fn sync_all(server: &Arc<ServerParts>, resource: &Resource) -> Revision {
    let snapshot = resource.space().snapshot();
    server
        .catalog
        .define_all(resource, snapshot.range("", None));
    for name in server.catalog.unsettled() {
        sync(server, resource, &name).await;
    }
    snapshot.at()
}

async fn run(server: Weak<ServerParts>, resource: Resource, mut seen: Revision) {
    let mut last_served = None;
    loop {
        let Ok(mut watch) = resource.space().watch(seen) else {
            let Some(server) = server.upgrade() else {
                return;
            };
            seen = sync_all(&server, &resource).await;
            server.definitions.reach(seen);
            continue;
        };
        while let Ok(events) = watch.next().await {
            let Some(server) = server.upgrade() else {
                return;
            };
            for event in events {
                sync(&server, &resource, &event.record.key).await;
                seen = event.revision;
                server.definitions.reach(seen);
                let served = server.catalog.custom_version_changes();
                if last_served.replace(served) != Some(served) {
                    server.aggregation.served_changed();
                }
            }
        }
    }
}

/// Serves a definition as it is stored now, and then those that waited for its names.
async fn sync(server: &Arc<ServerParts>, resource: &Resource, name: &str) {
    let mut names = VecDeque::from([name.to_string()]);
    while let Some(name) = names.pop_front() {
        match sync_one(server, resource, &name).await {
            Ok(true) => names.extend(server.catalog.waiting(&name)),
            Ok(false) => {}
            Err(status) => warn!(
                definition = name,
                error = status.message,
                "failed to sync a CustomResourceDefinition"
            ),
        }
    }
}

/// Returns whether names may have become free.
async fn sync_one(
    server: &Arc<ServerParts>,
    resource: &Resource,
    name: &str,
) -> Result<bool, Status> {
    let before = server.catalog.definition(name);
    if !refresh(server, resource, name) {
        return Ok(true);
    }
    let group = name.split_once('.').map_or("", |(_, group)| group);
    let taken = server.catalog.taken(group);
    update_status(server, name, |definition, now| {
        conditions::update(definition, &taken, now)
    })
    .await?;
    let after = server.catalog.definition(name);
    if after
        .as_ref()
        .is_some_and(|definition| definition.is_terminating)
    {
        let (reason, message) = (
            "InstanceDeletionInProgress",
            "CustomResource deletion is in progress",
        );
        // Deletion is in progress once the condition says so.
        let is_pending = |definition: &Value| {
            let conditions = definition["status"]["conditions"].list();
            conditions
                .iter()
                .any(|condition| condition["reason"].str() == "InstanceDeletionPending")
        };
        update_status(server, name, |definition, now| {
            is_pending(definition)
                && conditions::terminate(definition, "True", reason, message, now)
        })
        .await?;
        finalize::begin(server, name);
    }
    let names = |definition: Option<Arc<CustomDefinition>>| {
        definition.map(|definition| definition.accepted.clone())
    };
    let (before, after) = (names(before), names(after));
    Ok(before.is_some() && before != after)
}

/// Serves a definition as it is stored now. Returns false if it has been deleted.
fn refresh(server: &ServerParts, resource: &Resource, name: &str) -> bool {
    match resource.space().snapshot().get(name) {
        Some(record) => server.catalog.define(resource, record),
        None => server.catalog.forget(name),
    }
    server.catalog.definition(name).is_some()
}

/// Updates the status of a definition, and retries on a conflict. `edit` returns whether it changed anything.
///
/// A retry starts from the store: the cache may lag behind it, and would lead to the same conflict again and again.
pub(super) async fn update_status(
    server: &Arc<ServerParts>,
    name: &str,
    edit: impl Fn(&mut Value, &str) -> bool,
) -> Result<(), Status> {
    let Some(resource) = resource(server) else {
        return Ok(());
    };
    let key = Key::new("", name);
    let mut found = server.registry.get(&resource, &key, "");
    loop {
        let mut definition = match found {
            Ok(object) => object.value(),
            Err(status) if status.code == 404 => return Ok(()),
            Err(status) => return Err(status),
        };
        if !edit(&mut definition, &server.registry.timestamp()) {
            return Ok(());
        }
        match verbs::put_status(server, &resource, name, definition).await {
            Err(status) if status.code == 409 => {
                found = server.registry.read(&resource, &key, "").await;
            }
            Err(status) if status.code == 404 => return Ok(()),
            outcome => {
                refresh(server, &resource, name);
                return outcome;
            }
        }
    }
}
