//! Which resources are served, and where a path leads.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use mizzen_kinds as kinds;
use mizzen_object::{GroupVersionKind, Kind, Str};
use mizzen_registry::{Resource, Store};

use crate::discovery::{self, Group};
use crate::request::ResourcePath;

/// The resources that are served.
pub(crate) struct Catalog {
    resources: HashMap<(Str, Str, Str), Resource>,
    /// Resources as seen through a subresource that has rules of its own: `namespaces/finalize`.
    subresources: HashMap<(Str, Str, Str), Resource>,
    kinds: Arc<[Kind]>,
    groups: Arc<[Group]>,
    known_groups: HashSet<Str>,
    list_kinds: HashSet<GroupVersionKind>,
}

/// Where a path leads that leads to no resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nowhere {
    /// The group is not known.
    Group,
    /// The group is, but nothing of that name.
    Resource,
}

impl Catalog {
    /// Joins the kinds with their places in the store.
    pub fn new(store: &Store, kinds: Vec<Kind>) -> Catalog {
        let by_name: HashMap<&GroupVersionKind, &Kind> = kinds.iter().map(|kind| (&kind.gvk, kind)).collect();
        let resources = kinds
            .iter()
            .map(|kind| {
                let stored = kind.stored.as_ref().filter(|stored| **stored != kind.gvk);
                let stored = stored.and_then(|stored| by_name.get(stored)).map(|kind| (*kind).clone());
                let key = (kind.gvk.group.clone(), kind.gvk.version.clone(), kind.plural.clone());
                (key, Resource::new(store, kind.clone(), stored))
            })
            .collect();
        let subresources = kinds.iter().flat_map(|kind| {
            kind.subresources.iter().filter_map(|subresource| {
                let hooks = kinds::subresource(&kind.gvk, &subresource.name)?;
                let key =
                    (kind.gvk.group.clone(), kind.gvk.version.clone(), path(&kind.plural, &subresource.name));
                let kind = Kind { data: kind.data.clone(), hooks: Arc::new(hooks) };
                Some((key, Resource::new(store, kind, None)))
            })
        });
        let subresources = subresources.collect();
        let groups: Arc<[Group]> = discovery::groups(&kinds).into();
        let known_groups = groups.iter().map(|group| group.name.clone()).collect();
        let list_kinds = kinds
            .iter()
            .filter_map(|kind| Some(GroupVersionKind { kind: kind.list_kind.clone()?, ..kind.gvk.clone() }))
            .collect();
        Catalog { resources, subresources, kinds: kinds.into(), groups, known_groups, list_kinds }
    }

    /// What discovery says of them.
    pub fn groups(&self) -> Arc<[Group]> {
        self.groups.clone()
    }

    /// The kinds that are served.
    pub fn kinds(&self) -> &Arc<[Kind]> {
        &self.kinds
    }

    /// The resource with this name.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<Resource> {
        self.resources.get(&(group.into(), version.into(), plural.into())).cloned()
    }

    /// The resource as a subresource sees it, if that has rules of its own.
    pub fn subresource(&self, resource: &Resource, name: &str) -> Option<Resource> {
        let kind = resource.kind();
        let key = (kind.gvk.group.clone(), kind.gvk.version.clone(), path(&kind.plural, name));
        self.subresources.get(&key).cloned()
    }

    /// The resource that a path is about.
    pub fn find(&self, path: &ResourcePath) -> Result<Resource, Nowhere> {
        let resource =
            self.get(&path.group, &path.version, &path.resource).filter(|resource| fits(resource, path));
        resource.ok_or(if self.knows_group(&path.group) { Nowhere::Resource } else { Nowhere::Group })
    }

    /// Whether anything is served in a group.
    pub fn knows_group(&self, group: &str) -> bool {
        self.known_groups.contains(group)
    }

    /// Whether objects may say that they are of this kind.
    pub fn knows_kind(&self, gvk: &GroupVersionKind) -> bool {
        let everywhere = ["List", "Status", "DeleteOptions", "ListOptions", "WatchEvent"];
        self.kinds.iter().any(|kind| kind.gvk == *gvk)
            || self.list_kinds.contains(gvk)
            || self.knows_group(&gvk.group) && everywhere.contains(&gvk.kind.as_str())
    }
}

fn path(plural: &str, subresource: &str) -> Str {
    format!("{plural}/{subresource}").into()
}

/// Whether the kind's scope allows the path.
fn fits(resource: &Resource, path: &ResourcePath) -> bool {
    match (resource.kind().is_namespaced(), path.namespace.is_empty()) {
        (true, true) => path.name.is_empty(),
        (true, false) | (false, true) => true,
        (false, false) => false,
    }
}
