//! CustomResourceDefinitions, from the moment one is stored until its last object is deleted.
//!
//! `definition` is one of them, `snapshot` all of them at one moment. The controller in `follow` keeps the snapshot up to
//! date: it accepts names (`names`), writes conditions (`conditions`) and deletes the objects of a deleted definition
//! (`finalize`). `convert` converts objects between versions, itself or by a `webhook`.

mod conditions;
mod convert;
mod definition;
mod finalize;
mod follow;
mod names;
mod snapshot;
mod webhook;

pub(crate) use convert::CrdConverter;
pub(crate) use definition::CustomDefinition;
pub(crate) use follow::{start, synced};
pub(crate) use names::TakenNames;
pub(crate) use snapshot::DefinitionSnapshot;

use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use mizzen_object::schema::Struct;
use mizzen_object::{Kind, Status};
use mizzen_outgoing::OutgoingClient;
use mizzen_registry::{Registry, Revision, Store};
use mizzen_value::Value;
use tokio::sync::watch;

use crate::verbs::ResourceCall;

/// What compiling custom kinds needs.
pub(crate) struct CrdDependencies {
    pub store: Store,
    /// The schema of metadata.
    pub object_meta: Arc<Struct>,
    /// For conversion webhooks; set once the server has started.
    pub clients: OnceLock<(OutgoingClient, Registry)>,
}

/// The progress of the CRD controller.
pub(crate) struct CrdProgress {
    /// The last revision that is served; `None` until the controller runs.
    reached: watch::Sender<Option<Revision>>,
    /// The deleted definitions whose objects are being deleted.
    finalizing: Mutex<HashSet<String>>,
}

impl Default for CrdProgress {
    fn default() -> CrdProgress {
        CrdProgress {
            reached: watch::Sender::new(None),
            finalizing: Mutex::default(),
        }
    }
}

impl CrdProgress {
    fn reach(&self, revision: Revision) {
        self.reached.send_if_modified(|reached| {
            let further = reached.is_none_or(|reached| reached < revision);
            *reached = (*reached).max(Some(revision));
            further
        });
    }

    fn reached(&self) -> watch::Receiver<Option<Revision>> {
        self.reached.subscribe()
    }

    /// Returns false if it has already begun.
    fn begin_finalizing(&self, name: &str) -> bool {
        self.finalizing.lock().insert(name.into())
    }

    fn end_finalizing(&self, name: &str) {
        self.finalizing.lock().remove(name);
    }
}

/// Whether this is the kind CustomResourceDefinition.
pub(crate) fn is_crd(kind: &Kind) -> bool {
    kind.gvk.group == "apiextensions.k8s.io" && kind.gvk.kind == "CustomResourceDefinition"
}

/// Rejects the creation of objects whose definition is terminating.
pub(crate) fn admit(
    call: &ResourceCall,
    old: Option<&Value>,
    object: &Value,
) -> Result<(), Status> {
    let (resource, catalog) = (call.resource, &call.server.catalog);
    if old.is_some() || !resource.is_custom() {
        return Ok(());
    }
    let kind = resource.kind().resource();
    let definition = catalog.definition(&format!("{}.{}", kind.resource, kind.group));
    match definition.is_some_and(|definition| definition.is_terminating) {
        true => {
            let why = "create not allowed while custom resource definition is terminating";
            Err(Status::forbidden(
                &kind,
                object["metadata"]["name"].str(),
                why,
            ))
        }
        false => Ok(()),
    }
}
