//! Which kinds have people defined? CustomResourceDefinitions, from the moment one is stored to the moment its last
//! object is gone.
//!
//! `definition` is one of them, `snapshot` all of them at one moment, `follow` keeps that up to date: it accepts
//! names (`names`), writes conditions (`conditions`) and sees to it that a deleted definition's objects go first
//! (`finalize`). `convert` turns objects into other versions, by itself or with the help of a `webhook`.

mod conditions;
mod convert;
mod definition;
mod finalize;
mod follow;
mod names;
mod snapshot;
mod webhook;

pub(crate) use convert::Converter;
pub(crate) use definition::Definition;
pub(crate) use follow::{settled, start};
pub(crate) use names::Taken;
pub(crate) use snapshot::Snapshot;

use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use mizzen_object::schema::Struct;
use mizzen_object::{Kind, Status};
use mizzen_registry::{Registry, Revision, Store};
use mizzen_value::Value;
use tokio::sync::watch;

use crate::outgoing::Client;
use crate::verbs::Call;

/// What making kinds takes.
pub(crate) struct Means {
    pub store: Store,
    /// The shape of metadata.
    pub object_meta: Arc<Struct>,
    /// By whom webhooks are called, once that is known.
    pub outside: OnceLock<(Client, Registry)>,
}

/// How far definitions have been followed.
pub(crate) struct Definitions {
    /// None until somebody follows.
    reached: watch::Sender<Option<Revision>>,
    /// The deleted ones whose objects are being deleted.
    finalizing: Mutex<HashSet<String>>,
}

impl Default for Definitions {
    fn default() -> Definitions {
        Definitions {
            reached: watch::Sender::new(None),
            finalizing: Mutex::default(),
        }
    }
}

impl Definitions {
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

    /// False if somebody does that already.
    fn begin_finalizing(&self, name: &str) -> bool {
        self.finalizing.lock().insert(name.into())
    }

    fn end_finalizing(&self, name: &str) {
        self.finalizing.lock().remove(name);
    }
}

/// Whether objects of this kind define kinds.
pub(crate) fn defines(kind: &Kind) -> bool {
    kind.gvk.group == "apiextensions.k8s.io" && kind.gvk.kind == "CustomResourceDefinition"
}

/// Nothing is made of a kind whose definition is going.
pub(crate) fn admit(call: &Call, old: Option<&Value>, object: &Value) -> Result<(), Status> {
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
