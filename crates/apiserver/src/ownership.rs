//! Who owns which field: what a write through this request changes in `metadata.managedFields`.

use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;

use mizzen_object::managed_fields::{FieldManager, FieldSet, VersionConverter, manager_name};
use mizzen_object::schema::Struct;
use mizzen_object::{GroupVersionKind, Status};
use mizzen_registry::Resource;
use mizzen_value::Value;

use crate::catalog::Catalog;
use crate::verbs::Call;

/// The writer that a request is.
pub struct Owning<'a> {
    call: &'a Call<'a>,
    manager: String,
    now: String,
    reset: FieldSet,
    others: Others<'a>,
}

impl<'a> Owning<'a> {
    /// The writer of a request.
    pub fn new(call: &'a Call<'a>) -> Owning<'a> {
        let request = call.request;
        Owning {
            call,
            manager: manager_name(
                request.query.text("fieldManager"),
                &request.header("user-agent"),
            ),
            now: call.server.registry.timestamp(),
            reset: FieldSet::of_names(&call.resource.kind().resets(&call.path.subresource)),
            others: Others::new(&call.server.catalog, call.resource),
        }
    }

    /// Gives the writer what `new` changes, whoever has to be asked for other versions of it.
    pub async fn update_any(&self, old: Option<&Value>, new: &mut Value) {
        if self.call.resource.converts_alone() {
            return self.update(old, new);
        }
        loop {
            let mut attempt = new.clone();
            self.update(old, &mut attempt);
            if !self.others.fetch().await {
                *new = attempt;
                return;
            }
        }
    }

    /// The object after `config` is applied to it, whoever has to be asked for other versions of it.
    pub(crate) async fn apply_any(
        &self,
        current: Option<&Value>,
        config: &Value,
    ) -> Result<Value, Status> {
        loop {
            let applied = self.apply(current, config);
            if !self.others.fetch().await {
                return applied;
            }
        }
    }

    /// Gives the writer what `new` changes.
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
        let owners = owned["metadata"]["managedFields"].clone();
        new.entry("metadata").set("managedFields", owners);
    }

    /// What is owned of an object, if that is something else than the object that is judged: what comes back from
    /// storage, or what will be filled in.
    fn owned(&self, new: &Value) -> Option<Value> {
        let resource = self.call.resource;
        if !resource.is_converted() {
            return resource.kind().hooks.foresee(new);
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

    /// The same for something that stands for the object, such as its Scale.
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

    /// Gives the writer what `new` changes in something that stands for the object, such as its Scale.
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
            versions: &self.others,
        }
    }
}

/// The other versions of a kind, in which some may own what they own.
struct Others<'a> {
    catalog: &'a Catalog,
    resource: &'a Resource,
    /// What somebody else has to convert, and has converted so far.
    conversions: Mutex<Conversions>,
}

/// Conversions are asked for in the middle of a computation that cannot wait. What is not known yet is noted, fetched,
/// and the computation done again.
#[derive(Default)]
struct Conversions {
    missing: Vec<(Value, Resource)>,
    known: Vec<(Value, Resource, Option<Value>)>,
}

impl<'a> Others<'a> {
    fn new(catalog: &'a Catalog, resource: &'a Resource) -> Others<'a> {
        Others {
            catalog,
            resource,
            conversions: Mutex::default(),
        }
    }

    fn conversions(&self) -> MutexGuard<'_, Conversions> {
        self.conversions.lock()
    }

    /// Has everything converted that was asked for and not known; false if that was nothing.
    async fn fetch(&self) -> bool {
        let missing = std::mem::take(&mut self.conversions().missing);
        let any = !missing.is_empty();
        for (object, to) in missing {
            let converted = to.translate(object.clone()).await.ok();
            self.conversions().known.push((object, to, converted));
        }
        any
    }

    /// The object in the version of `to`, if somebody else has converted it.
    fn translated(&self, object: &Value, to: Resource) -> Option<Value> {
        let mut conversions = self.conversions();
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

impl VersionConverter for Others<'_> {
    fn schema(&self, api_version: &str) -> Option<Arc<Struct>> {
        self.find(api_version)
            .map(|resource| resource.kind().root.clone())
    }

    fn convert(&self, object: &Value, from: &str, to: &str) -> Option<Value> {
        let (from, to) = (self.find(from)?, self.find(to)?);
        if !to.is_custom() {
            return Some(from.convert(object, &to));
        }
        if !to.converts_alone() {
            return self.translated(object, to);
        }
        // Kubernetes: unlike what is read from storage, this keeps what the other version does not know.
        let mut object = object.clone();
        object.set("apiVersion", to.kind().gvk.api_version());
        Some(object)
    }
}
