//! All CustomResourceDefinitions at one moment, so that a request sees one state.
//!
//! A change makes a new snapshot, which shares its content with the previous one. Discovery and OpenAPI of all definitions
//! are rendered on first use.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use imbl::{OrdMap, OrdSet};
use mizzen_object::schema::Struct;
use mizzen_value::{Str, json};

use super::CustomDefinition;
use super::names::TakenNames;
use crate::discovery::{self, Group, Version, is_built_in};
use mizzen_openapi::{OpenApi, Pending};

/// All definitions at one moment.
///
/// Invariant: the cost of a change does not depend on the number of definitions: the maps share their content
/// with the previous snapshot.
pub(crate) struct DefinitionSnapshot {
    /// By group and plural.
    definitions: OrdMap<(Str, Str), Arc<CustomDefinition>>,
    /// The names that are in use, by group.
    taken: OrdMap<Str, TakenNames>,
    /// The keys of definitions that wait for a name.
    waiting: OrdSet<(Str, Str)>,
    /// The served groups and versions, each with the number of definitions that have it.
    served: OrdMap<(Str, Str), usize>,
    /// How often a served version was added or removed.
    served_changes: u64,
    groups: OnceLock<Arc<[Group]>>,
    openapi: OnceLock<Arc<OpenApi>>,
    /// The latest OpenAPI documents before this snapshot.
    written: Arc<OpenApi>,
}

impl DefinitionSnapshot {
    /// Without definitions; `openapi` are the documents of the built-in kinds.
    pub(crate) fn new(openapi: OpenApi) -> DefinitionSnapshot {
        DefinitionSnapshot {
            definitions: OrdMap::new(),
            taken: OrdMap::new(),
            waiting: OrdSet::new(),
            served: OrdMap::new(),
            served_changes: 0,
            groups: OnceLock::new(),
            openapi: OnceLock::new(),
            written: Arc::new(openapi),
        }
    }

    /// This snapshot with one definition added, replaced or removed.
    pub(crate) fn with(
        &self,
        key: (Str, Str),
        definition: Option<Arc<CustomDefinition>>,
    ) -> DefinitionSnapshot {
        let written = self.openapi.get().unwrap_or(&self.written).clone();
        let mut next = DefinitionSnapshot {
            definitions: self.definitions.clone(),
            taken: self.taken.clone(),
            waiting: self.waiting.clone(),
            served: self.served.clone(),
            served_changes: self.served_changes,
            groups: OnceLock::new(),
            openapi: OnceLock::new(),
            written,
        };
        if let Some(before) = next.definitions.remove(&key) {
            next.waiting.remove(&key);
            next.count(&before, false);
        }
        if let Some(definition) = definition {
            next.count(&definition, true);
            if definition.requested != definition.accepted {
                next.waiting.insert(key.clone());
            }
            next.definitions.insert(key, definition);
        }
        next
    }

    /// This snapshot with exactly these definitions.
    pub(crate) fn with_all(
        &self,
        all: impl Iterator<Item = Arc<CustomDefinition>>,
    ) -> DefinitionSnapshot {
        let mut next = self.with((Str::default(), Str::default()), None);
        (next.definitions, next.taken) = (OrdMap::new(), OrdMap::new());
        (next.waiting, next.served) = (OrdSet::new(), OrdMap::new());
        next.served_changes += 1;
        all.fold(next, |next, definition| {
            next.with(definition.key(), Some(definition))
        })
    }

    /// Counts the names and versions of a definition that is added or removed.
    fn count(&mut self, definition: &CustomDefinition, is_added: bool) {
        let taken = self.taken.entry(definition.group.clone()).or_default();
        match is_added {
            true => taken.add(&definition.accepted),
            false => taken.remove(&definition.accepted),
        }
        let served = definition.versions.iter().filter(|version| version.served);
        for version in served.filter(|_| definition.is_established) {
            let key = (definition.group.clone(), version.name.clone());
            let n = self.served.get(&key).copied().unwrap_or_default();
            let n = if is_added { n + 1 } else { n - 1 };
            self.served_changes += u64::from(n == usize::from(is_added));
            match n {
                0 => self.served.remove(&key),
                n => self.served.insert(key, n),
            };
        }
    }

    /// The served groups and versions.
    pub(crate) fn served(&self) -> impl Iterator<Item = &(Str, Str)> {
        self.served.keys()
    }

    /// Changes whenever the served groups and versions change.
    pub(crate) fn served_changes(&self) -> u64 {
        self.served_changes
    }

    /// The definitions of a group that wait for a name.
    pub(crate) fn waiting<'a>(
        &'a self,
        group: &'a str,
    ) -> impl Iterator<Item = &'a Arc<CustomDefinition>> {
        let from = (Str::from(group), Str::default());
        self.waiting
            .range(from..)
            .take_while(move |key| key.0 == group)
            .filter_map(|key| self.definitions.get(key))
    }

    /// The definition of a resource.
    pub(crate) fn get(&self, group: &str, plural: &str) -> Option<&Arc<CustomDefinition>> {
        self.definitions.get(&(group.into(), plural.into()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<CustomDefinition>> {
        self.definitions.values()
    }

    /// The definitions of a group.
    pub(crate) fn of_group<'a>(
        &'a self,
        group: &'a str,
    ) -> impl Iterator<Item = &'a Arc<CustomDefinition>> {
        let from = (Str::from(group), Str::default());
        self.definitions
            .range(from..)
            .take_while(move |(key, _)| key.0 == group)
            .map(|(_, it)| it)
    }

    /// The names that are in use in a group.
    pub(crate) fn taken(&self, group: &str) -> TakenNames {
        self.taken.get(group).cloned().unwrap_or_default()
    }

    /// The discovery of a group.
    pub(crate) fn group(&self, name: &str) -> Option<Group> {
        let mut group = Group {
            name: name.into(),
            priority: 0,
            versions: Vec::new(),
        };
        for definition in self
            .of_group(name)
            .filter(|definition| definition.is_established)
        {
            for version in definition.versions.iter().filter(|version| version.served) {
                let priority = discovery::priority(name, &version.name);
                group.priority = priority.group;
                let at = group
                    .versions
                    .iter()
                    .position(|known| known.name == version.name);
                let at = at.unwrap_or_else(|| {
                    let name = version.name.clone();
                    let fresh = Version {
                        name,
                        priority: priority.version,
                        resources: Vec::new(),
                    };
                    group.versions.push(fresh);
                    group.versions.len() - 1
                });
                group.versions[at]
                    .resources
                    .extend(discovery::api_resources(&definition.outline(version)));
            }
        }
        discovery::sort(std::slice::from_mut(&mut group));
        (!group.versions.is_empty()).then_some(group)
    }

    /// The discovery of all groups, including `built_in`.
    pub(crate) fn groups(&self, built_in: &Arc<[Group]>) -> Arc<[Group]> {
        if self.definitions.is_empty() {
            return built_in.clone();
        }
        let merge = || {
            let mut names: Vec<&Str> = self.definitions.keys().map(|key| &key.0).collect();
            names.dedup();
            let custom = names.into_iter().filter(|name| !is_built_in(name));
            let mut groups: Vec<Group> = built_in.to_vec();
            groups.extend(custom.filter_map(|name| self.group(name)));
            discovery::sort(&mut groups);
            groups.into()
        };
        self.groups.get_or_init(merge).clone()
    }

    /// The OpenAPI documents of all kinds.
    pub(crate) fn openapi(&self, object_meta: &Arc<Struct>) -> &OpenApi {
        self.openapi.get_or_init(|| {
            if self.definitions.is_empty() && !self.written.has_custom() {
                return self.written.clone();
            }
            Arc::new(self.written.with_custom(self.pending(object_meta)))
        })
    }

    /// The OpenAPI documents to render, one for each group version.
    fn pending(&self, object_meta: &Arc<Struct>) -> Vec<Pending> {
        let mut pages: BTreeMap<(Str, Str), Vec<Arc<CustomDefinition>>> = BTreeMap::new();
        for definition in self.iter().filter(|definition| definition.is_established) {
            for version in definition.versions.iter().filter(|version| version.served) {
                let key = (definition.group.clone(), version.name.clone());
                pages.entry(key).or_default().push(definition.clone());
            }
        }
        let page = |((group, version), definitions): ((Str, Str), Vec<Arc<CustomDefinition>>)| {
            let seed: Vec<&str> = definitions
                .iter()
                .map(|definition| definition.identity())
                .collect();
            let (seed, object_meta, name) = (
                json::quote(&seed.join("\n")),
                object_meta.clone(),
                version.clone(),
            );
            let make = move || {
                definitions
                    .iter()
                    .filter_map(|definition| definition.published(&name, &object_meta))
                    .collect()
            };
            Pending {
                group,
                version,
                seed,
                make: Arc::new(make),
            }
        };
        pages.into_iter().map(page).collect()
    }
}
