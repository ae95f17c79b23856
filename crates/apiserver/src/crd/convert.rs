//! Versions of a custom kind: how an object of one becomes one of another.
//!
//! What is read from storage loses what the schema of its version no longer knows and gets the defaults that it has
//! come to have; then it is converted, and loses what the asked-for version does not know.
//!
//! Kubernetes: defaults are those of the stored version only (apiserver/customresource_handler.go).

use std::sync::Arc;

use bytes::Bytes;
use mizzen_object::{Kind, Status, schema};
use mizzen_registry::{Convert, Future, Record, Revision};
use mizzen_value::{Value, json};

use super::Means;
use super::webhook::Webhook;

/// Converts objects of one definition.
pub(crate) struct Converter {
    kinds: Arc<[Kind]>,
    stored: Kind,
    /// How the text of an object begins that is stored in today's version.
    head: Bytes,
    /// The revision of the definition: what was written later was written under its rules.
    since: Revision,
    /// Who converts, if it takes more than another name.
    webhook: Option<Webhook>,
}

impl Converter {
    /// None if the definition stores no version.
    pub(crate) fn new(
        definition: &Value,
        kinds: &Arc<[Kind]>,
        since: Revision,
        means: &Means,
    ) -> Option<Converter> {
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
        let webhook = webhook(&definition["spec"]["conversion"], means);
        Some(Converter {
            kinds: kinds.clone(),
            stored,
            head,
            since,
            webhook,
        })
    }

    /// The kind in the version that an object says it is.
    fn kind_of(&self, object: &Value) -> Option<&Kind> {
        let version = object["apiVersion"].str();
        self.kinds
            .iter()
            .find(|kind| kind.gvk.api_version() == version)
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

    async fn convert(&self, objects: Vec<Value>, to: &Kind) -> Result<Vec<Value>, Status> {
        let mut objects = match &self.webhook {
            Some(webhook) => webhook.convert(objects, to).await?,
            None => objects,
        };
        for object in &mut objects {
            object.set("apiVersion", to.gvk.api_version());
            prune(to, object);
            schema::canonical_stored(&to.root, object);
        }
        Ok(objects)
    }
}

fn webhook(conversion: &Value, means: &Means) -> Option<Webhook> {
    let (client, registry) = means
        .outside
        .get()
        .filter(|_| conversion["strategy"].str() == "Webhook")?;
    Some(Webhook::parse(
        &conversion["webhook"],
        client.clone(),
        registry.clone(),
    ))
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
        record.revision > self.since
            && kind.gvk == self.stored.gvk
            && record.value.starts_with(&self.head)
    }

    fn read<'a>(
        &'a self,
        mut objects: Vec<Value>,
        kind: &'a Kind,
    ) -> Future<'a, Result<Vec<Value>, Status>> {
        Box::pin(async move {
            objects
                .iter_mut()
                .try_for_each(|object| self.refresh(object))?;
            self.convert(objects, kind).await
        })
    }

    fn write<'a>(&'a self, mut object: Value, kind: &'a Kind) -> Future<'a, Result<Value, Status>> {
        Box::pin(async move {
            // What is in the stored version already is not converted.
            if kind.gvk != self.stored.gvk {
                let mut converted = self.convert(vec![object], &self.stored).await?;
                object = converted.pop().unwrap_or_default();
            }
            // Read today it would get these defaults; written, it is read without looking.
            self.refresh(&mut object)?;
            Ok(object)
        })
    }

    fn translate<'a>(
        &'a self,
        mut objects: Vec<Value>,
        kind: &'a Kind,
    ) -> Future<'a, Result<Vec<Value>, Status>> {
        Box::pin(async move {
            match &self.webhook {
                Some(webhook) => webhook.convert(objects, kind).await,
                None => {
                    objects
                        .iter_mut()
                        .for_each(|object| object.set("apiVersion", kind.gvk.api_version()));
                    Ok(objects)
                }
            }
        })
    }

    fn only_renames(&self) -> bool {
        self.webhook.is_none()
    }
}
