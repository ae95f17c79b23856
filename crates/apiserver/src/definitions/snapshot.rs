//! All definitions at one moment, so that a request sees one state.
//!
//! A change makes a new snapshot, which shares everything with the old one but the list itself. What is written from
//! all definitions, discovery and OpenAPI, is made when it is first asked for.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use mizzen_object::schema::Struct;
use mizzen_object::{Str, json};

use super::Definition;
use super::names::Taken;
use crate::discovery::{self, Group, Version, is_built_in};
use crate::openapi::{OpenApi, Pending};

/// All definitions at one moment.
pub(crate) struct Snapshot {
    /// By group and plural.
    definitions: BTreeMap<(Str, Str), Arc<Definition>>,
    groups: OnceLock<Arc<[Group]>>,
    openapi: OnceLock<Arc<OpenApi>>,
    /// The latest documents that were written before this snapshot.
    written: Arc<OpenApi>,
}

impl Snapshot {
    /// The state after a change; `openapi` are the documents without definitions.
    pub(crate) fn new(openapi: OpenApi) -> Snapshot {
        Snapshot {
            definitions: BTreeMap::new(),
            groups: OnceLock::new(),
            openapi: OnceLock::new(),
            written: Arc::new(openapi),
        }
    }

    /// This state with one definition more, other or less.
    pub(crate) fn with(&self, key: (Str, Str), definition: Option<Arc<Definition>>) -> Snapshot {
        let mut definitions = self.definitions.clone();
        match definition {
            Some(definition) => definitions.insert(key, definition),
            None => definitions.remove(&key),
        };
        self.next(definitions)
    }

    /// The same with these definitions in place of all.
    pub(crate) fn with_all(&self, all: impl Iterator<Item = Arc<Definition>>) -> Snapshot {
        self.next(
            all.map(|definition| (definition.key(), definition))
                .collect(),
        )
    }

    fn next(&self, definitions: BTreeMap<(Str, Str), Arc<Definition>>) -> Snapshot {
        let written = self.openapi.get().unwrap_or(&self.written).clone();
        Snapshot {
            definitions,
            groups: OnceLock::new(),
            openapi: OnceLock::new(),
            written,
        }
    }

    /// The definition of a resource.
    pub(crate) fn get(&self, group: &str, plural: &str) -> Option<&Arc<Definition>> {
        self.definitions.get(&(group.into(), plural.into()))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Definition>> {
        self.definitions.values()
    }

    /// The definitions of a group.
    pub(crate) fn of_group<'a>(
        &'a self,
        group: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Definition>> {
        let from = (Str::from(group), Str::default());
        self.definitions
            .range(from..)
            .take_while(move |(key, _)| key.0 == group)
            .map(|(_, it)| it)
    }

    /// The names of a group that are given away.
    pub(crate) fn taken(&self, group: &str) -> Taken {
        let mut taken = Taken::default();
        self.of_group(group)
            .for_each(|definition| taken.add(&definition.accepted));
        taken
    }

    /// What discovery says of a group.
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
                    .extend(discovery::resources_of(&definition.outline(version)));
            }
        }
        discovery::sort(std::slice::from_mut(&mut group));
        (!group.versions.is_empty()).then_some(group)
    }

    /// What discovery says of everything, `built_in` included.
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

    /// The documents that describe everything.
    pub(crate) fn openapi(&self, object_meta: &Arc<Struct>) -> &OpenApi {
        self.openapi.get_or_init(|| {
            if self.definitions.is_empty() && !self.written.has_custom() {
                return self.written.clone();
            }
            Arc::new(self.written.with_custom(self.pending(object_meta)))
        })
    }

    /// What has to be described, a page for each group version.
    fn pending(&self, object_meta: &Arc<Struct>) -> Vec<Pending> {
        let mut pages: BTreeMap<(Str, Str), Vec<Arc<Definition>>> = BTreeMap::new();
        for definition in self.iter().filter(|definition| definition.is_established) {
            for version in definition.versions.iter().filter(|version| version.served) {
                let key = (definition.group.clone(), version.name.clone());
                pages.entry(key).or_default().push(definition.clone());
            }
        }
        let page = |((group, version), definitions): ((Str, Str), Vec<Arc<Definition>>)| {
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
