//! A registry on each kind of store, a clock and random bytes that tests set, and the resources that they use.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use mizzen_object::schema::CanonicalObject;
use mizzen_object::select::{FieldSelector, LabelSelector};
use mizzen_object::{Action, Kind, Status, custom, default, schema};
use mizzen_registry::{
    BoxFuture, Create, DeleteOptions, Deleted, Key, ListOptions, NoAdmission, Object, ObjectList,
    Record, Registry, Resource, ResourceWatch, Selection, Store, StoreOptions, Update, UpdateFn,
    Updated, ValidatingAdmission, WatchEvent, WatchOptions,
};
use mizzen_value::clock::{Clock, Random};
use mizzen_value::{Value, json, value};
use tempfile::TempDir;

use crate::convert::Renamer;

/// The time at which every test begins.
pub(crate) const BEGIN: i64 = 1_800_000_000;

/// A registry and its surroundings.
pub(crate) struct Rig {
    pub(crate) registry: Registry,
    pub(crate) clock: Arc<SetClock>,
    pub(crate) random: Arc<SetRandom>,
    directory: Option<TempDir>,
}

/// How tests create an object.
#[derive(Default)]
pub(crate) struct CreateOptions {
    pub(crate) dry_run: bool,
}

/// How tests change an object.
pub(crate) struct UpdateOptions {
    pub(crate) action: Action,
    pub(crate) dry_run: bool,
    pub(crate) create: bool,
    pub(crate) uid_precondition: bool,
}

impl Default for UpdateOptions {
    fn default() -> UpdateOptions {
        UpdateOptions {
            action: Action::Update,
            dry_run: false,
            create: false,
            uid_precondition: false,
        }
    }
}

/// A clock that stands still until a test moves it.
pub(crate) struct SetClock(AtomicI64);

impl SetClock {
    pub(crate) fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for SetClock {
    fn now(&self) -> (i64, u32) {
        (self.0.load(Ordering::Relaxed), 0)
    }
}

/// Bytes that differ each time, except that the next `repeats` suffixes of generated names are equal.
#[derive(Default)]
pub(crate) struct SetRandom {
    counter: AtomicU64,
    pub(crate) repeats: AtomicUsize,
}

const SUFFIX_BYTES: usize = 5;

impl Random for SetRandom {
    fn fill(&self, bytes: &mut [u8]) {
        let repeats = self.repeats.load(Ordering::Relaxed);
        if bytes.len() == SUFFIX_BYTES && repeats > 0 {
            self.repeats.store(repeats - 1, Ordering::Relaxed);
            return bytes.fill(0);
        }
        let number = self.counter.fetch_add(1, Ordering::Relaxed) + 1;
        bytes.fill(0);
        bytes[..4].copy_from_slice(&(number as u32).to_le_bytes());
    }
}

/// A registry on each kind of store.
pub(crate) fn each_store() -> [Rig; 2] {
    each_store_with(&StoreOptions::default())
}

pub(crate) fn each_store_with(options: &StoreOptions) -> [Rig; 2] {
    let directory = TempDir::new().unwrap();
    let disk = Store::open(directory.path(), options.clone()).unwrap();
    [
        Rig::new(Store::in_memory(options.clone()), None),
        Rig::new(disk, Some(directory)),
    ]
}

impl Rig {
    fn new(store: Store, directory: Option<TempDir>) -> Rig {
        let (clock, random) = (
            Arc::new(SetClock(AtomicI64::new(BEGIN))),
            Arc::new(SetRandom::default()),
        );
        Rig {
            registry: Registry::new(store, clock.clone(), random.clone()),
            clock,
            random,
            directory,
        }
    }

    /// The same store opened again, if it is on disk.
    pub(crate) async fn reopened(self) -> Rig {
        let Some(directory) = self.directory else {
            return self;
        };
        self.registry.store().close().await;
        let store = Store::open(directory.path(), StoreOptions::default()).unwrap();
        Rig::new(store, Some(directory))
    }

    /// A built-in resource: `autoscaling/v1/horizontalpodautoscalers`, `v1/configmaps`.
    pub(crate) fn resource(&self, path: &str) -> Resource {
        let (version, plural) = path.rsplit_once('/').unwrap();
        let kinds = mizzen_kinds::catalog().kinds;
        let kind = kinds
            .iter()
            .find(|kind| kind.gvk.api_version() == version && kind.plural == plural)
            .unwrap();
        let stored = kind.stored.as_ref();
        let stored = stored.map(|gvk| kinds.iter().find(|kind| kind.gvk == *gvk).unwrap().clone());
        Resource::new(self.registry.store(), kind.clone(), stored)
    }

    pub(crate) fn config_maps(&self) -> Resource {
        self.resource("v1/configmaps")
    }

    /// The versions `v1`, which is stored, and `v2` of a custom resource, and what converts them.
    pub(crate) fn widgets(&self) -> (Resource, Resource, Arc<Renamer>) {
        let kinds = widget_kinds();
        let convert = Arc::new(Renamer::new(kinds.clone()));
        let resource =
            |kind: &Kind| Resource::custom(self.registry.store(), kind.clone(), convert.clone());
        (resource(&kinds[0]), resource(&kinds[1]), convert.clone())
    }

    pub(crate) fn revision(&self) -> String {
        self.registry.store().revision().to_string()
    }

    pub(crate) async fn create(&self, resource: &Resource, text: &str) -> Result<Object, Status> {
        self.create_with(resource, text, &CreateOptions::default(), &NoAdmission)
            .await
    }

    pub(crate) async fn create_with(
        &self,
        resource: &Resource,
        text: &str,
        options: &CreateOptions,
        gate: &dyn ValidatingAdmission,
    ) -> Result<Object, Status> {
        let namespace = if resource.kind().is_namespaced() {
            "ns"
        } else {
            ""
        };
        let create = Create {
            dry_run: options.dry_run,
            gate,
            ..Create::new(resource, namespace, draft(resource, text))
        };
        self.registry.create(create).await
    }

    /// Replaces the object named `a`.
    pub(crate) async fn replace(
        &self,
        resource: &Resource,
        text: &str,
        options: &UpdateOptions,
    ) -> Result<Updated, Status> {
        let draft = draft(resource, text);
        self.edit(resource, options, move |_| draft.clone()).await
    }

    /// Changes the object named `a`.
    pub(crate) async fn edit(
        &self,
        resource: &Resource,
        options: &UpdateOptions,
        edit: impl FnMut(Option<&Value>) -> Value + Send,
    ) -> Result<Updated, Status> {
        self.change(resource, options, &mut Edit(edit)).await
    }

    pub(crate) async fn change(
        &self,
        resource: &Resource,
        options: &UpdateOptions,
        change: &mut dyn UpdateFn,
    ) -> Result<Updated, Status> {
        let UpdateOptions {
            action,
            dry_run,
            create,
            uid_precondition,
        } = *options;
        let key = key("a");
        let update = Update {
            action,
            dry_run,
            create,
            uid_precondition,
            ..Update::new(resource, &key, change)
        };
        self.registry.update(update).await
    }

    pub(crate) async fn delete(
        &self,
        resource: &Resource,
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        self.registry
            .delete(resource, &key("a"), options, &NoAdmission)
            .await
    }

    /// The object named `a`.
    pub(crate) async fn read(&self, resource: &Resource) -> Result<Value, Status> {
        Ok(self.registry.read(resource, &key("a"), "").await?.value())
    }

    pub(crate) async fn list(
        &self,
        resource: &Resource,
        options: &ListOptions,
    ) -> Result<ObjectList, Status> {
        self.registry.read_list(resource, options).await
    }

    /// A watch of everything after `version`.
    pub(crate) async fn watch(&self, resource: &Resource, version: &str) -> ResourceWatch {
        let options = WatchOptions {
            version: version.into(),
            ..WatchOptions::default()
        };
        self.registry.watch(resource, options).await.ok().unwrap()
    }
}

fn widget_kinds() -> Vec<Kind> {
    let version = |name: &str, storage: bool, field: &str| {
        let mut spec = Value::object();
        spec.set(field, value!({ "type": "integer" }));
        value!({
            "name": name, "served": true, "storage": storage,
            "schema": { "openAPIV3Schema": {
                "type": "object",
                "properties": { "spec": { "type": "object", "properties": spec } }
            } },
        })
    };
    let definition = value!({
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList" },
            "versions": [(version("v1", true, "size")), (version("v2", false, "width"))],
        },
    });
    custom::kinds(&definition, &mizzen_kinds::object_meta())
}

/// An object as the API server hands it to the registry: with kind and namespace, defaulted, canonical.
pub(crate) fn draft(resource: &Resource, text: &str) -> Value {
    let kind = resource.kind();
    let mut draft = json::parse(text.as_bytes()).unwrap();
    draft.set("kind", &kind.gvk.kind);
    draft.set("apiVersion", kind.gvk.api_version());
    if kind.is_namespaced() {
        draft.entry("metadata").set("namespace", "ns");
    }
    kind.hooks.normalize(&mut draft).unwrap();
    default::apply(&kind.root, &mut draft);
    kind.hooks.default(&mut draft);
    schema::canonical(&kind.root, &mut draft);
    draft
}

/// A change that a closure makes.
pub(crate) struct Edit<F>(pub(crate) F);

impl<F: FnMut(Option<&Value>) -> Value + Send> UpdateFn for Edit<F> {
    fn apply<'a>(
        &'a mut self,
        current: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<CanonicalObject, Status>> {
        let new = (self.0)(current);
        Box::pin(async { Ok(new.into()) })
    }
}

/// The key of an object in the namespace that tests use.
pub(crate) fn key(name: &str) -> Key {
    Key::new("ns", name)
}

/// An object that has nothing but metadata.
pub(crate) fn named(name: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}"}}}}"#)
}

pub(crate) fn selected(labels: &str, fields: &str) -> Selection {
    Selection {
        namespace: "ns".into(),
        labels: LabelSelector::parse(labels).unwrap(),
        fields: FieldSelector::parse(fields).unwrap(),
    }
}

pub(crate) fn names(list: &ObjectList) -> Vec<String> {
    let name = |object: &Object| object.value()["metadata"]["name"].str().to_owned();
    list.items.iter().map(name).collect()
}

/// The next `n` events: what happened, and the object's name and version.
pub(crate) async fn next_events(watch: &mut ResourceWatch, n: usize) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < n {
        seen.extend(watch.next().await.ok().unwrap().iter().map(show));
    }
    seen
}

pub(crate) fn show(event: &WatchEvent) -> String {
    match event {
        WatchEvent::Object(change, object) => {
            let value = object.value();
            let metadata = &value["metadata"];
            let (name, version) = (metadata["name"].str(), metadata["resourceVersion"].str());
            format!("{} {name} {version}", change.word())
        }
        WatchEvent::Initial(revision) => format!("INITIAL {revision}"),
    }
}

/// The record of the object named `a`.
pub(crate) fn record(resource: &Resource) -> Arc<Record> {
    resource.space().snapshot().get("ns/a").unwrap().clone()
}
