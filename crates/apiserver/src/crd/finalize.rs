//! The finalizer of CustomResourceDefinitions: a definition is deleted only after all of its objects.

use std::sync::{Arc, Weak};
use std::time::Duration;

use mizzen_object::Status;
use mizzen_registry::{DeleteOptions, ListOptions, NoAdmission, Registry, Resource};
use tokio::time::sleep;
use tracing::warn;

use super::definition::is_true;
use super::{conditions, follow};
use crate::server::ServerParts;

/// Keeps a deleted definition until its objects are deleted.
const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// How long to wait after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// Starts the deletion of a definition's objects in the background, and then removes the finalizer.
pub(super) fn begin(server: &Arc<ServerParts>, name: &str) {
    if !server.definitions.begin_finalizing(name) {
        return;
    }
    let (server, name) = (Arc::downgrade(server), name.to_string());
    tokio::spawn(async move {
        while let Err(status) = finalize(&server, &name).await {
            warn!(
                definition = name,
                error = status.message,
                "failed to delete the objects of a CustomResourceDefinition, will retry"
            );
            sleep(RETRY).await;
        }
        if let Some(server) = server.upgrade() {
            server.definitions.end_finalizing(&name);
        }
    });
}

async fn finalize(server: &Weak<ServerParts>, name: &str) -> Result<(), Status> {
    while let Some((registry, resource, mut ended)) = stored_objects(server, name) {
        let outcome = tokio::select! {
            outcome = delete_objects(&registry, &resource) => outcome,
            // The definition has changed: start again.
            () = async { drop(ended.wait_for(|ended| *ended).await) } => continue,
        };
        match outcome {
            Ok(()) => break,
            Err(status) => {
                let message = format!("could not list instances: {}", status.message);
                if let Some(server) = server.upgrade() {
                    let reason = "InstanceDeletionFailed";
                    follow::update_status(&server, name, |definition, now| {
                        conditions::terminate(definition, "True", reason, &message, now)
                    })
                    .await?;
                }
                return Err(status);
            }
        }
    }
    let Some(server) = server.upgrade() else {
        return Ok(());
    };
    follow::update_status(&server, name, |definition, now| {
        let (reason, message) = match is_true(definition, "Established") {
            true => ("InstanceDeletionCompleted", "removed all instances"),
            false => ("NeverEstablished", "resource was never established"),
        };
        conditions::terminate(definition, "False", reason, message, now);
        let finalizers = definition.entry("metadata").entry("finalizers").make_list();
        finalizers.retain(|finalizer| finalizer.str() != FINALIZER);
        true
    })
    .await
}

/// The objects of an established definition, and what becomes true when the definition changes.
fn stored_objects(
    server: &Weak<ServerParts>,
    name: &str,
) -> Option<(Registry, Resource, tokio::sync::watch::Receiver<bool>)> {
    let server = server.upgrade()?;
    let definition = server
        .catalog
        .definition(name)
        .filter(|definition| definition.is_established)?;
    let resource = server.catalog.stored(&definition)?;
    Some((server.registry.clone(), resource, definition.ended()))
}

/// Deletes all objects and waits until there are none.
async fn delete_objects(registry: &Registry, resource: &Resource) -> Result<(), Status> {
    loop {
        // Another server may have created some.
        let latest = registry.store().latest(resource.space()).await;
        let snapshot = latest.map_err(|error| Status::unknown(error.to_string()))?;
        if snapshot.is_empty() {
            return Ok(());
        }
        let watch = resource.space().watch(snapshot.at());
        let (list, options) = (ListOptions::default(), DeleteOptions::default());
        registry
            .delete_collection(resource, &list, &options, &NoAdmission)
            .await?;
        if let (Ok(mut watch), false) = (watch, resource.space().snapshot().is_empty()) {
            let _ = watch.next().await;
        }
    }
}
