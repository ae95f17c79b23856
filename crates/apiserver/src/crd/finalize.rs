//! A definition goes only after its objects: they are deleted, and those that somebody holds are waited for.

use std::sync::{Arc, Weak};
use std::time::Duration;

use mizzen_object::Status;
use mizzen_registry::{DeleteOptions, ListOptions, NoGate, Registry, Resource};
use tokio::time::sleep;
use tracing::warn;

use super::definition::is_true;
use super::{conditions, follow};
use crate::server::Inner;

/// Keeps a deleted definition until its objects are gone.
const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// How long to wait before what failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Deletes a definition's objects and then lets it go, in the background. Once begun it goes on by itself.
pub(super) fn begin(server: &Arc<Inner>, name: &str) {
    if !server.definitions.begin_finalizing(name) {
        return;
    }
    let (server, name) = (Arc::downgrade(server), name.to_string());
    tokio::spawn(async move {
        while let Err(status) = finalize(&server, &name).await {
            warn!(
                definition = name,
                error = status.message,
                "its objects could not be deleted"
            );
            sleep(RETRY).await;
        }
        if let Some(server) = server.upgrade() {
            server.definitions.end_finalizing(&name);
        }
    });
}

async fn finalize(server: &Weak<Inner>, name: &str) -> Result<(), Status> {
    while let Some((registry, resource, mut ended)) = stored(server, name) {
        let outcome = tokio::select! {
            outcome = empty(&registry, &resource) => outcome,
            // Somebody changed the definition: look again.
            () = async { drop(ended.wait_for(|ended| *ended).await) } => continue,
        };
        match outcome {
            Ok(()) => break,
            Err(status) => {
                tell(server, name, &status).await?;
                return Err(status);
            }
        }
    }
    let Some(server) = server.upgrade() else {
        return Ok(());
    };
    follow::change(&server, name, |definition, now| {
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

/// Where the objects of an established definition are, and what tells that it has changed.
fn stored(
    server: &Weak<Inner>,
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

async fn tell(server: &Weak<Inner>, name: &str, problem: &Status) -> Result<(), Status> {
    let Some(server) = server.upgrade() else {
        return Ok(());
    };
    let message = format!("could not list instances: {}", problem.message);
    follow::change(&server, name, |definition, now| {
        conditions::terminate(definition, "True", "InstanceDeletionFailed", &message, now)
    })
    .await
}

/// Deletes all objects and waits until none is left.
async fn empty(registry: &Registry, resource: &Resource) -> Result<(), Status> {
    loop {
        let snapshot = resource.space().snapshot();
        if snapshot.is_empty() {
            return Ok(());
        }
        let watch = resource.space().watch(snapshot.at());
        let (list, options) = (ListOptions::default(), DeleteOptions::default());
        registry
            .delete_collection(resource, &list, &options, &NoGate)
            .await?;
        if let (Ok(mut watch), false) = (watch, resource.space().snapshot().is_empty()) {
            let _ = watch.next().await;
        }
    }
}
