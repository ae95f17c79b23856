//! Which resources are served, and where a path leads.
//!
//! Built-in resources never change and are found first; custom resources are in a `DefinitionSnapshot` that is replaced
//! whenever a definition changes.

use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use mizzen_object::schema::Schemas;
use mizzen_object::{GroupVersionKind, Hooks, Kind};
use mizzen_openapi::{OpenApi, Published};
use mizzen_outgoing::OutgoingClient;
use mizzen_registry::{Convert, Record, Registry, Resource, Store};
use mizzen_serving::MetaSchemas;
use mizzen_value::Str;

use crate::crd::{CrdDependencies, CustomDefinition, DefinitionSnapshot, TakenNames};
use crate::discovery::{self, Group};
use crate::request::ResourcePath;

/// The kinds that a server has from the beginning, as its composer gives them.
#[derive(Clone)]
pub struct BuiltInKinds {
    /// The kinds with their hooks.
    pub kinds: Vec<Kind>,
    /// All types, by full name: `meta/v1.DeleteOptions`.
    pub schemas: Schemas,
    /// The hooks of a subresource that is the object itself under rules of its own: `namespaces/finalize`.
    pub subresource_hooks: SubresourceHooks,
    /// Whether objects may say that they are of a kind although it is not served: it was once, or is no resource.
    pub was_served: fn(&GroupVersionKind) -> bool,
}

/// The hooks of a kind's subresource, if it has any.
pub type SubresourceHooks = fn(&GroupVersionKind, &str) -> Option<Arc<dyn Hooks>>;

/// The resources that are served.
pub struct Catalog {
    resources: HashMap<(Str, Str, Str), Resource>,
    /// Resources as seen through a subresource that has rules of its own: `namespaces/finalize`.
    subresources: HashMap<(Str, Str, Str), Resource>,
    kinds: Arc<[Kind]>,
    /// The same with their schemas.
    published: Vec<Published>,
    groups: Arc<[Group]>,
    known_groups: HashSet<Str>,
    list_kinds: HashSet<GroupVersionKind>,
    was_served: fn(&GroupVersionKind) -> bool,
    means: CrdDependencies,
    custom: RwLock<Arc<DefinitionSnapshot>>,
    /// Held while definitions change.
    changes: Mutex<()>,
}

/// A kind that is there for good.
pub(crate) struct ServedKind {
    pub published: Published,
    /// Who converts it, if its versions have no hub.
    pub convert: Option<Arc<dyn Convert>>,
}

impl From<Kind> for ServedKind {
    fn from(kind: Kind) -> ServedKind {
        ServedKind {
            published: kind.into(),
            convert: None,
        }
    }
}

impl ServedKind {
    pub(crate) fn kind(&self) -> &Kind {
        &self.published.kind
    }

    /// The kind joined with its place in the store, and by what it is found.
    fn resource(
        &self,
        store: &Store,
        all: &HashMap<GroupVersionKind, Kind>,
    ) -> ((Str, Str, Str), Resource) {
        let kind = self.kind().clone();
        let key = (
            kind.gvk.group.clone(),
            kind.gvk.version.clone(),
            kind.plural.clone(),
        );
        let stored = kind.stored.as_ref().filter(|stored| **stored != kind.gvk);
        let stored = stored.and_then(|stored| all.get(stored)).cloned();
        match &self.convert {
            Some(convert) => (key, Resource::custom(store, kind, convert.clone())),
            None => (key, Resource::new(store, kind, stored)),
        }
    }
}

/// Where a path leads, as of one snapshot of the definitions.
pub(crate) struct Route {
    pub resource: Result<Resource, RouteError>,
    definitions: Arc<DefinitionSnapshot>,
}

/// Where a path leads that leads to no resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteError {
    /// The group is not known.
    Group,
    /// The group is, but nothing of that name.
    Resource,
}

impl Catalog {
    /// Joins the kinds of a composer with their places in the store.
    pub(crate) fn new(store: &Store, built_in: BuiltInKinds) -> Catalog {
        let BuiltInKinds {
            kinds,
            schemas,
            subresource_hooks,
            was_served,
        } = built_in;
        let kinds = kinds.into_iter().map(Into::into).collect();
        Catalog {
            was_served,
            ..Catalog::of(store, kinds, schemas, subresource_hooks)
        }
    }

    /// Joins kinds with their places in the store. A kind without verbs is not served: other kinds can
    /// be stored as it.
    pub(crate) fn of(
        store: &Store,
        all: Vec<ServedKind>,
        schemas: Schemas,
        subresource_hooks: SubresourceHooks,
    ) -> Catalog {
        let object_meta = MetaSchemas::new(&schemas).object_meta;
        let by_name: HashMap<GroupVersionKind, Kind> = all
            .iter()
            .map(|served| (served.kind().gvk.clone(), served.kind().clone()))
            .collect();
        let all: Vec<ServedKind> = all
            .into_iter()
            .filter(|served| !served.kind().verbs.is_empty())
            .collect();
        let resources = all
            .iter()
            .map(|served| served.resource(store, &by_name))
            .collect();
        let kinds: Vec<Kind> = all.iter().map(|served| served.kind().clone()).collect();
        let published: Vec<Published> = all.into_iter().map(|served| served.published).collect();
        let openapi = OpenApi::new(published.iter().cloned(), Arc::new(schemas));
        let subresources = kinds.iter().flat_map(|kind| {
            kind.subresources.iter().filter_map(|subresource| {
                let hooks = subresource_hooks(&kind.gvk, &subresource.name)?;
                let key = (
                    kind.gvk.group.clone(),
                    kind.gvk.version.clone(),
                    path(&kind.plural, &subresource.name),
                );
                let kind = Kind {
                    data: kind.data.clone(),
                    hooks,
                };
                let stored = kind
                    .stored
                    .as_ref()
                    .and_then(|stored| by_name.get(stored))
                    .cloned();
                Some((key, Resource::new(store, kind, stored)))
            })
        });
        let subresources = subresources.collect();
        let groups: Arc<[Group]> = discovery::groups(&kinds).into();
        let known_groups = groups.iter().map(|group| group.name.clone()).collect();
        let list_kinds = kinds
            .iter()
            .filter_map(|kind| {
                Some(GroupVersionKind {
                    kind: kind.list_kind.clone()?,
                    ..kind.gvk.clone()
                })
            })
            .collect();
        Catalog {
            resources,
            subresources,
            kinds: kinds.into(),
            published,
            groups,
            known_groups,
            list_kinds,
            was_served: |_| false,
            means: CrdDependencies {
                store: store.clone(),
                object_meta,
                clients: OnceLock::new(),
            },
            custom: RwLock::new(Arc::new(DefinitionSnapshot::new(openapi))),
            changes: Mutex::default(),
        }
    }

    /// The built-in kinds, with the schemas of those that a definition describes.
    pub(crate) fn published(&self) -> &[Published] {
        &self.published
    }

    /// What discovery says of them.
    pub(crate) fn groups(&self) -> Arc<[Group]> {
        self.custom().groups(&self.groups)
    }

    /// What discovery says of one group.
    pub(crate) fn group(&self, name: &str) -> Option<Group> {
        let built_in = self.groups.iter().find(|group| group.name == name);
        built_in.cloned().or_else(|| self.custom().group(name))
    }

    /// The documents that describe all kinds.
    pub(crate) fn with_openapi<T>(&self, read: impl FnOnce(&OpenApi) -> T) -> T {
        read(self.custom().openapi(&self.means.object_meta))
    }

    /// The resource with this name.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<Resource> {
        let built_in = self
            .resources
            .get(&(group.into(), version.into(), plural.into()));
        built_in
            .cloned()
            .or_else(|| self.defined(group, version, plural))
    }

    fn defined(&self, group: &str, version: &str, plural: &str) -> Option<Resource> {
        let custom = self.custom();
        let definition = custom
            .get(group, plural)
            .filter(|definition| definition.is_served)?;
        definition.resource(&self.means, version)
    }

    /// The resource whose objects are of this kind.
    pub fn of_kind(&self, gvk: &GroupVersionKind) -> Option<Resource> {
        let built_in = self
            .kinds
            .iter()
            .find(|kind| kind.gvk == *gvk)
            .map(|kind| kind.plural.clone());
        let custom = self.custom();
        let defined = || {
            custom
                .of_group(&gvk.group)
                .find(|definition| definition.accepted.kind == gvk.kind)
        };
        let plural =
            built_in.or_else(|| defined().map(|definition| definition.accepted.plural.clone()))?;
        self.get(&gvk.group, &gvk.version, &plural)
    }

    /// All versions of a resource that are served.
    pub(crate) fn versions(&self, resource: &Resource) -> Vec<Resource> {
        match self
            .definition_of(resource)
            .filter(|_| resource.is_custom())
        {
            None => {
                let (own, space) = (resource.kind(), resource.kind().space());
                let same = self
                    .kinds
                    .iter()
                    .filter(|kind| kind.plural == own.plural && kind.space() == space);
                let find = |kind: &Kind| self.get(&kind.gvk.group, &kind.gvk.version, &kind.plural);
                same.filter_map(find).collect()
            }
            Some(definition) => {
                let served = definition.versions.iter().filter(|version| version.served);
                let find = |name: &str| definition.resource(&self.means, name);
                served.filter_map(|version| find(&version.name)).collect()
            }
        }
    }

    /// The resource as a subresource sees it, if that has rules of its own.
    pub(crate) fn subresource(&self, resource: &Resource, name: &str) -> Option<Resource> {
        let kind = resource.kind();
        let key = (
            kind.gvk.group.clone(),
            kind.gvk.version.clone(),
            path(&kind.plural, name),
        );
        self.subresources.get(&key).cloned()
    }

    /// Resolves a path.
    pub(crate) fn route(&self, path: &ResourcePath) -> Route {
        let definitions = self.custom();
        let resource = self
            .get(&path.group, &path.version, &path.resource)
            .filter(|resource| fits(resource, path));
        let resource = resource.ok_or(if self.knows_group(&path.group) {
            RouteError::Resource
        } else {
            RouteError::Group
        });
        Route {
            resource,
            definitions,
        }
    }

    /// Resolves a path again if a definition has changed since it was resolved, or if it was resolved by another
    /// server.
    pub(crate) fn refresh(&self, path: &ResourcePath, route: &mut Route) {
        if !Arc::ptr_eq(&route.definitions, &*self.custom.read()) {
            *route = self.route(path);
        }
    }

    /// Whether anything is served in a group.
    pub(crate) fn knows_group(&self, group: &str) -> bool {
        self.known_groups.contains(group)
    }

    /// Whether objects may say that they are of this kind, whether or not it is served.
    pub(crate) fn knows_kind(&self, gvk: &GroupVersionKind) -> bool {
        let kinds = self.kinds.iter().map(|kind| &kind.gvk);
        let list = |gvk: &GroupVersionKind| {
            gvk.group.is_empty() && gvk.version == "v1" && gvk.kind == "List"
        };
        let of_version =
            |known: &GroupVersionKind| known.group == gvk.group && known.version == gvk.version;
        (self.was_served)(gvk)
            || kinds.clone().any(|known| known == gvk)
            || self.list_kinds.contains(gvk)
            || list(gvk)
            || UNVERSIONED_KINDS.contains(&gvk.kind.as_str())
            || OPTION_KINDS.contains(&gvk.kind.as_str()) && kinds.clone().any(of_version)
    }
}

/// Kubernetes: kinds of `meta/v1` that upstream's scheme has in every version of every group
/// (`AddUnversionedTypes` in apimachinery/pkg/apis/meta/v1/register.go).
const UNVERSIONED_KINDS: &[&str] = &[
    "Status",
    "APIVersions",
    "APIGroupList",
    "APIGroup",
    "APIResourceList",
];

/// Kubernetes: kinds of `meta/v1` that upstream's scheme has in every version that it knows (`AddToGroupVersion`).
const OPTION_KINDS: &[&str] = &[
    "WatchEvent",
    "ListOptions",
    "GetOptions",
    "DeleteOptions",
    "CreateOptions",
    "UpdateOptions",
    "PatchOptions",
];

/// Whether a kind is one of `meta/v1`, whatever version it is known in.
pub(crate) fn is_meta_kind(kind: &str) -> bool {
    UNVERSIONED_KINDS.contains(&kind) || OPTION_KINDS.contains(&kind)
}

/// Custom resources.
impl Catalog {
    /// Sets the client that calls conversion webhooks.
    pub(crate) fn call_with(&self, client: &OutgoingClient, registry: &Registry) {
        let _ = self.means.clients.set((client.clone(), registry.clone()));
    }

    fn custom(&self) -> Arc<DefinitionSnapshot> {
        self.custom.read().clone()
    }

    /// Locks the definitions for a change; requests go on with the snapshot of before.
    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changes.lock()
    }

    fn set(&self, snapshot: DefinitionSnapshot) {
        *self.custom.write() = Arc::new(snapshot);
    }

    /// The groups and versions of all definitions.
    pub(crate) fn defined_versions(&self) -> HashSet<(Str, Str)> {
        let custom = self.custom();
        let versions = custom.iter().flat_map(|definition| {
            let versions = definition.versions.iter();
            versions.map(|version| (definition.group.clone(), version.name.clone()))
        });
        versions.collect()
    }

    /// The definition of this name.
    pub(crate) fn definition(&self, name: &str) -> Option<Arc<CustomDefinition>> {
        let (plural, group) = name.split_once('.')?;
        self.custom().get(group, plural).cloned()
    }

    /// The definition of a resource's kind.
    pub(crate) fn definition_of(&self, resource: &Resource) -> Option<Arc<CustomDefinition>> {
        let kind = resource.kind();
        self.custom().get(&kind.gvk.group, &kind.plural).cloned()
    }

    /// The resource in which a definition's objects are stored.
    pub(crate) fn stored(&self, definition: &CustomDefinition) -> Option<Resource> {
        definition.stored(&self.means)
    }

    /// Serves a definition as it is stored in `record`, unless a later one is served. One that cannot be decoded, which
    /// is logged, is not served. `resource` is that of definitions.
    pub(crate) fn define(&self, resource: &Resource, record: &Arc<Record>) {
        let _alone = self.changing();
        let before = self.definition(&record.key);
        if before
            .as_ref()
            .is_some_and(|before| before.revision() >= record.revision)
        {
            return;
        }
        let Ok(definition) = CustomDefinition::read(resource, record, before.as_deref()) else {
            return;
        };
        let definition = Arc::new(definition);
        self.set(
            self.custom()
                .with(definition.key(), Some(definition.clone())),
        );
        if let Some(before) = before.filter(|before| !before.is_like(&definition)) {
            before.end();
        }
    }

    /// Replaces all definitions.
    pub(crate) fn define_all<'a>(
        &self,
        resource: &Resource,
        records: impl Iterator<Item = &'a Arc<Record>>,
    ) {
        let _alone = self.changing();
        let before = self.custom();
        let read = |record: &Arc<Record>| CustomDefinition::read(resource, record, None).ok();
        let all: Vec<Arc<CustomDefinition>> = records.filter_map(read).map(Arc::new).collect();
        self.set(before.with_all(all.into_iter()));
        let now = self.custom();
        for definition in before.iter() {
            definition.end();
            let (group, plural) = definition.key();
            if now.get(&group, &plural).is_none() {
                self.release(definition);
            }
        }
    }

    /// Stops serving a definition.
    pub(crate) fn forget(&self, name: &str) {
        let _alone = self.changing();
        if let Some(definition) = self.definition(name) {
            self.set(self.custom().with(definition.key(), None));
            definition.end();
            self.release(&definition);
        }
    }

    /// Has the store close the keyspace of a definition that is gone, once requests and watches have ended.
    fn release(&self, definition: &CustomDefinition) {
        let (group, plural) = definition.key();
        self.means.store.release(&format!("{group}/{plural}"));
    }

    /// The names of definitions whose status is not what it should be.
    pub(crate) fn unsettled(&self) -> Vec<String> {
        let custom = self.custom();
        let unsettled = custom
            .iter()
            .filter(|it| it.requested != it.accepted || !it.is_established || it.is_terminating);
        unsettled
            .map(|definition| definition.name.to_string())
            .collect()
    }

    /// The names of other definitions in the group of `name` that wait for a name to become free.
    pub(crate) fn waiting(&self, name: &str) -> Vec<String> {
        let group = name.split_once('.').map_or("", |(_, group)| group);
        let custom = self.custom();
        let waiting = custom.waiting(group).filter(|it| it.name != name);
        waiting
            .map(|definition| definition.name.to_string())
            .collect()
    }

    /// Groups and versions that definitions serve.
    pub(crate) fn custom_versions(&self) -> Vec<(Str, Str)> {
        self.custom().served().cloned().collect()
    }

    /// While this stays the same, so do [`custom_versions`](Catalog::custom_versions).
    pub(crate) fn custom_version_changes(&self) -> u64 {
        self.custom().served_changes()
    }

    /// The names of a group that are given away.
    pub(crate) fn taken(&self, group: &str) -> TakenNames {
        self.custom().taken(group)
    }
}

fn path(plural: &str, subresource: &str) -> Str {
    format!("{plural}/{subresource}").into()
}

/// Whether the kind's scope allows the path. Kubernetes: the handler of custom resources sees no difference between no
/// namespace and an empty one, and allows verbs, not paths, across all namespaces (`verbs/custom.rs`).
fn fits(resource: &Resource, path: &ResourcePath) -> bool {
    match resource.kind().is_namespaced() {
        true if resource.is_custom() => true,
        false if resource.is_custom() => path.scope().is_empty(),
        true => path.has_namespace || path.name.is_empty() && path.subresource.is_empty(),
        false => !path.has_namespace,
    }
}
