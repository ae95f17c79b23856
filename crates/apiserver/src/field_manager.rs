//! Field ownership: how a write of this request changes `metadata.managedFields`.

use parking_lot::Mutex;
use std::sync::Arc;

use mizzen_object::managed_fields::{FieldManager, FieldSet, VersionConverter, manager_name};
use mizzen_object::schema::{CanonicalObject, Struct};
use mizzen_object::{GroupVersionKind, Status};
use mizzen_registry::Resource;
use mizzen_value::Value;

use crate::catalog::Catalog;
use crate::verbs::ResourceCall;

/// The field manager of a request.
pub struct RequestFieldManager<'a> {
    call: &'a ResourceCall<'a>,
    manager: String,
    now: String,
    reset: FieldSet,
    versions: OtherVersions<'a>,
}

impl<'a> RequestFieldManager<'a> {
    /// The writer of a request.
    pub fn new(call: &'a ResourceCall<'a>) -> RequestFieldManager<'a> {
        let request = call.request;
        RequestFieldManager {
            call,
            manager: manager_name(
                request.query.text("fieldManager"),
                &request.header("user-agent"),
            ),
            now: call.server.registry.timestamp(),
            reset: FieldSet::of_names(&call.resource.kind().resets(&call.path.subresource)),
            versions: OtherVersions::new(&call.server.catalog, call.resource),
        }
    }

    /// [`update`](Self::update), for kinds with a conversion webhook, too.
    pub async fn update_any(&self, old: Option<&Value>, new: &mut CanonicalObject) {
        if self.call.resource.converts_locally() {
            return self.update_in_form(old, new);
        }
        loop {
            let mut attempt = new.clone();
            self.update_in_form(old, &mut attempt);
            if !self.versions.fetch().await {
                *new = attempt;
                return;
            }
        }
    }

    /// [`apply`](Self::apply), for kinds with a conversion webhook, too.
    pub(crate) async fn apply_any(
        &self,
        current: Option<&Value>,
        config: &Value,
    ) -> Result<Value, Status> {
        loop {
            let applied = self.apply(current, config);
            if !self.versions.fetch().await {
                return applied;
            }
        }
    }

    /// [`update`](Self::update) of an object that keeps its form.
    fn update_in_form(&self, old: Option<&Value>, new: &mut CanonicalObject) {
        let is_last = !self.call.resource.is_custom() && !new["metadata"].is_empty();
        match is_last {
            // Managed fields are the last field of the metadata.
            true => new.edit_in_form(|new| self.update(old, new)),
            false => self.update(old, new),
        }
    }

    /// Makes the manager of this request the owner of what `new` changes.
    pub fn update(&self, old: Option<&Value>, new: &mut Value) {
        let subresource = !self.call.path.subresource.is_empty();
        if let (true, Some(old)) = (subresource, old) {
            new.entry("metadata")
                .set("managedFields", old["metadata"]["managedFields"].clone());
        }
        let Some(mut owned) = self.owned(new) else {
            return self.own(old, new);
        };
        self.own(old, &mut owned);
        match owned["metadata"]["managedFields"].clone() {
            Value::Null => drop(new.entry("metadata").remove("managedFields")),
            owners => new.entry("metadata").set("managedFields", owners),
        }
    }

    /// The object whose fields are owned, if it differs from `new`: as it will be read from storage, or with the fields
    /// that the kind will fill in.
    fn owned(&self, new: &Value) -> Option<Value> {
        let resource = self.call.resource;
        if !resource.is_converted() {
            return resource.kind().hooks.object_for_managed_fields(new);
        }
        let mut stored = new.clone();
        resource.round_trip(&mut stored);
        Some(stored)
    }

    fn own(&self, old: Option<&Value>, new: &mut Value) {
        let kind = self.call.resource.kind();
        self.writer(&kind.gvk, &kind.root).update(old, new);
    }

    /// The object after `config` is applied to it.
    pub(crate) fn apply(&self, current: Option<&Value>, config: &Value) -> Result<Value, Status> {
        let kind = self.call.resource.kind();
        self.apply_as(&kind.gvk, &kind.root, current, config)
    }

    /// [`apply`](Self::apply) to a representation of the object, such as its Scale.
    pub(crate) fn apply_as(
        &self,
        gvk: &GroupVersionKind,
        schema: &Arc<Struct>,
        current: Option<&Value>,
        config: &Value,
    ) -> Result<Value, Status> {
        let force = self.call.request.query.bool("force").unwrap_or(false);
        self.writer(gvk, schema)
            .apply(current, config, force)
            .map_err(|error| error.to_status())
    }

    /// [`update`](Self::update) of a representation of the object, such as its Scale.
    pub fn update_as(
        &self,
        gvk: &GroupVersionKind,
        schema: &Arc<Struct>,
        old: &Value,
        new: &mut Value,
    ) {
        self.writer(gvk, schema).update(Some(old), new);
    }

    fn writer<'b>(
        &'b self,
        gvk: &'b GroupVersionKind,
        schema: &'b Arc<Struct>,
    ) -> FieldManager<'b> {
        FieldManager {
            schema,
            gvk,
            manager: &self.manager,
            subresource: &self.call.path.subresource,
            now: &self.now,
            reset_fields: &self.reset,
            versions: &self.versions,
        }
    }
}

/// The other versions of a kind: managed fields may name any of them.
struct OtherVersions<'a> {
    catalog: &'a Catalog,
    resource: &'a Resource,
    /// Conversions by webhook: those that are missing, and results so far.
    conversions: Mutex<Conversions>,
}

/// Managed fields are computed synchronously, and a webhook is not. A conversion that is missing is recorded; then the webhook is
/// called and the computation repeated.
#[derive(Default)]
struct Conversions {
    missing: Vec<(Value, Resource)>,
    known: Vec<(Value, Resource, Option<Value>)>,
}

impl<'a> OtherVersions<'a> {
    fn new(catalog: &'a Catalog, resource: &'a Resource) -> OtherVersions<'a> {
        OtherVersions {
            catalog,
            resource,
            conversions: Mutex::default(),
        }
    }

    /// Fetches the missing conversions. Returns whether there were any.
    async fn fetch(&self) -> bool {
        let missing = std::mem::take(&mut self.conversions.lock().missing);
        let any = !missing.is_empty();
        for (object, to) in missing {
            let converted = to.translate(object.clone()).await.ok();
            let known = &mut self.conversions.lock().known;
            known.push((object, to, converted));
        }
        any
    }

    /// The object in the version of `to`, if the webhook has converted it.
    fn translated(&self, object: &Value, to: Resource) -> Option<Value> {
        let mut conversions = self.conversions.lock();
        let same = |known: &&(Value, Resource, Option<Value>)| {
            known.0 == *object && known.1.kind().gvk == to.kind().gvk
        };
        if let Some((_, _, converted)) = conversions.known.iter().find(same) {
            return converted.clone();
        }
        conversions.missing.push((object.clone(), to));
        None
    }

    fn find(&self, api_version: &str) -> Option<Resource> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = self
            .catalog
            .get(group, version, &self.resource.kind().plural)?;
        (found.space().name() == self.resource.space().name()).then_some(found)
    }
}

impl VersionConverter for OtherVersions<'_> {
    fn schema(&self, api_version: &str) -> Option<Arc<Struct>> {
        self.find(api_version)
            .map(|resource| resource.kind().root.clone())
    }

    fn convert(&self, object: &Value, from: &str, to: &str) -> Option<Value> {
        let (from, to) = (self.find(from)?, self.find(to)?);
        if !to.is_custom() {
            return Some(from.convert(object, &to));
        }
        if !to.converts_locally() {
            return self.translated(object, to);
        }
        // Kubernetes: unlike a read from storage, this keeps fields that the other version does not have.
        let mut object = object.clone();
        object.set("apiVersion", to.kind().gvk.api_version());
        Some(object)
    }
}
