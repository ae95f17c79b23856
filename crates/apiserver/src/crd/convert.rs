//! Conversion between the versions of a custom kind.
//!
//! An object that is read from storage is pruned and defaulted by the schema of its version, converted, and pruned by the
//! schema of the requested version.
//!
//! Kubernetes: defaults are those of the storage version only (apiserver/customresource_handler.go).

use std::sync::Arc;

use bytes::Bytes;
use mizzen_object::{Kind, Status, schema};
use mizzen_registry::{BoxFuture, Convert, Record, Revision};
use mizzen_value::{Value, json};

use super::CrdDependencies;
use super::webhook::ConversionWebhook;

/// Converts objects of one definition.
pub(crate) struct CrdConverter {
    kinds: Arc<[Kind]>,
    stored: Kind,
    /// The beginning of the JSON of an object in the storage version.
    head: Bytes,
    /// The revision of the definition: objects that were written later comply with its schema.
    since: Revision,
    /// The conversion webhook, unless only `apiVersion` changes.
    webhook: Option<ConversionWebhook>,
    /// Whether the hooks of the kinds convert, through the storage version.
    uses_hooks: bool,
}

impl CrdConverter {
    /// `None` if the definition has no storage version.
    pub(crate) fn new(
        definition: &Value,
        kinds: &Arc<[Kind]>,
        since: Revision,
        dependencies: &CrdDependencies,
    ) -> Option<CrdConverter> {
        let versions = definition["spec"]["versions"].list();
        let at = versions
            .iter()
            .position(|version| version["storage"].bool())?;
        let stored = kinds.get(at)?.clone();
        let head = format!(
            "{{\"apiVersion\":{},",
            json::quote(&stored.gvk.api_version())
        )
        .into();
        let conversion = &definition["spec"]["conversion"];
        let is_webhook = conversion["strategy"].str() == "Webhook";
        let clients = dependencies.clients.get().filter(|_| is_webhook);
        let webhook = clients.map(|(client, registry)| {
            let config = &conversion["webhook"];
            ConversionWebhook::parse(config, client.clone(), registry.clone())
        });
        Some(CrdConverter {
            kinds: kinds.clone(),
            stored,
            head,
            since,
            webhook,
            uses_hooks: false,
        })
    }

    /// Converts by the hooks of the kinds, with the storage version as the hub.
    pub(crate) fn converting_by_hooks(self) -> CrdConverter {
        CrdConverter {
            uses_hooks: true,
            ..self
        }
    }

    /// Converts an object without a webhook, without pruning.
    fn convert_locally(&self, object: &mut Value, to: &Kind) {
        if self.uses_hooks {
            let from = self.kind_of(object);
            if let Some(from) = from.filter(|from| from.gvk != self.stored.gvk) {
                from.hooks.to_stored(object);
            }
            if to.gvk != self.stored.gvk {
                to.hooks.from_stored(object);
            }
        }
        object.set("apiVersion", to.gvk.api_version());
    }

    /// The kind in the version of an object.
    fn kind_of(&self, object: &Value) -> Option<&Kind> {
        let version = object["apiVersion"].str();
        self.kinds
            .iter()
            .find(|kind| kind.gvk.api_version() == version)
    }

    /// Prunes and defaults a stored object by the current schema of its version.
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

    async fn convert(&self, objects: Vec<Value>, to: &Kind) -> Result<Vec<Value>, Status> {
        let mut objects = match &self.webhook {
            Some(webhook) => webhook.convert(objects, to).await?,
            None => objects,
        };
        for object in &mut objects {
            self.convert_locally(object, to);
            prune(to, object);
            schema::canonical_stored(&to.root, object);
        }
        Ok(objects)
    }
}

fn prune(kind: &Kind, object: &mut Value) {
    if let Some(rest) = kind.root.rest() {
        rest.prune(object);
    }
}

impl Convert for CrdConverter {
    fn stored(&self) -> &Kind {
        &self.stored
    }

    fn is_current(&self, record: &Record, kind: &Kind) -> bool {
        record.revision > self.since
            && kind.gvk == self.stored.gvk
            && record.value.starts_with(&self.head)
    }

    fn read<'a>(
        &'a self,
        mut objects: Vec<Value>,
        kind: &'a Kind,
    ) -> BoxFuture<'a, Result<Vec<Value>, Status>> {
        Box::pin(async move {
            objects
                .iter_mut()
                .try_for_each(|object| self.refresh(object))?;
            self.convert(objects, kind).await
        })
    }

    fn write<'a>(
        &'a self,
        mut object: Value,
        kind: &'a Kind,
    ) -> BoxFuture<'a, Result<Value, Status>> {
        Box::pin(async move {
            // An object in the storage version is not converted.
            if kind.gvk != self.stored.gvk {
                let mut converted = self.convert(vec![object], &self.stored).await?;
                object = converted.pop().unwrap_or_default();
            }
            // Objects that comply with the schema are read without pruning and defaulting, so that happens now.
            self.refresh(&mut object)?;
            Ok(object)
        })
    }

    fn translate<'a>(
        &'a self,
        mut objects: Vec<Value>,
        kind: &'a Kind,
    ) -> BoxFuture<'a, Result<Vec<Value>, Status>> {
        Box::pin(async move {
            match &self.webhook {
                Some(webhook) => webhook.convert(objects, kind).await,
                None => {
                    objects
                        .iter_mut()
                        .for_each(|object| self.convert_locally(object, kind));
                    Ok(objects)
                }
            }
        })
    }

    fn only_renames(&self) -> bool {
        self.webhook.is_none() && !self.uses_hooks
    }
}
