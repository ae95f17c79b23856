//! Versions of a custom kind: how an object of one becomes one of another.
//!
//! What is read from storage loses what the schema of its version no longer knows and gets the defaults that it has
//! come to have; then it is converted, and loses what the asked-for version does not know.
//!
//! Kubernetes: defaults are those of the stored version only (apiserver/customresource_handler.go).

use std::sync::Arc;

use bytes::Bytes;
use mizzen_object::{Kind, Status, Value, json, schema};
use mizzen_registry::{Convert, Future, Record, Revision};

/// Converts objects of one definition.
pub(super) struct Converter {
    kinds: Arc<[Kind]>,
    stored: Kind,
    /// How the text of an object begins that is stored in today's version.
    head: Bytes,
    /// The revision of the definition: what was written later was written under its rules.
    since: Revision,
}

impl Converter {
    /// None if the definition stores no version.
    pub fn new(definition: &Value, kinds: &Arc<[Kind]>, since: Revision) -> Option<Converter> {
        let versions = definition["spec"]["versions"].list();
        let at = versions.iter().position(|version| version["storage"].bool())?;
        let stored = kinds.get(at)?.clone();
        let head = format!("{{\"apiVersion\":{},", json::quote(&stored.gvk.api_version())).into();
        Some(Converter { kinds: kinds.clone(), stored, head, since })
    }

    /// The kind in the version that an object says it is.
    fn kind_of(&self, object: &Value) -> Option<&Kind> {
        let version = object["apiVersion"].str();
        self.kinds.iter().find(|kind| kind.gvk.api_version() == version)
    }

    /// A stored object as its own version sees it today.
    fn refresh(&self, object: &mut Value) -> Result<(), Status> {
        let kind = self.kind_of(object).ok_or_else(|| {
            Status::unknown(format!(
                "request to convert CR from an invalid group/version: {}",
                object["apiVersion"].str()
            ))
        })?;
        prune(kind, object);
        if let Some(rest) = kind.root.rest() {
            rest.default(object);
        }
        Ok(())
    }

    fn convert(&self, mut object: Value, to: &Kind) -> Value {
        if object["apiVersion"].str() != to.gvk.api_version() {
            object.set("apiVersion", to.gvk.api_version());
            prune(to, &mut object);
        }
        schema::canonical_stored(&to.root, &mut object);
        object
    }
}

fn prune(kind: &Kind, object: &mut Value) {
    if let Some(rest) = kind.root.rest() {
        rest.prune(object);
    }
}

impl Convert for Converter {
    fn stored(&self) -> &Kind {
        &self.stored
    }

    fn is_current(&self, record: &Record, kind: &Kind) -> bool {
        record.revision > self.since && kind.gvk == self.stored.gvk && record.value.starts_with(&self.head)
    }

    fn read<'a>(&'a self, mut objects: Vec<Value>, kind: &'a Kind) -> Future<'a, Result<Vec<Value>, Status>> {
        Box::pin(async move {
            objects.iter_mut().try_for_each(|object| self.refresh(object))?;
            Ok(objects.into_iter().map(|object| self.convert(object, kind)).collect())
        })
    }

    fn write<'a>(&'a self, object: Value, _kind: &'a Kind) -> Future<'a, Result<Value, Status>> {
        Box::pin(async move {
            let mut object = self.convert(object, &self.stored);
            // Read today it would get these defaults; written, it is read without looking.
            self.refresh(&mut object)?;
            Ok(object)
        })
    }
}
