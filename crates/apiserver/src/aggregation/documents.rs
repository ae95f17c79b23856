//! Discovery and OpenAPI of everything that is served, by whomever.

use parking_lot::Mutex;
use std::sync::Arc;

use bytes::Bytes;
use mizzen_value::{Str, Value, json, value};

use super::Aggregation;
use super::learn::Learned;
use super::local::{self, LocalVersion};
use super::table::{Entry, Table};
use crate::discovery::{self, Group, Version};
use crate::server::Inner;
use mizzen_openapi::{OpenApi, SpecDocument};

/// Documents that are long to write.
#[derive(Default)]
pub(super) struct Cache {
    /// By form and by what they were made of.
    v2: Mutex<Vec<(bool, String, Arc<SpecDocument>)>>,
}

/// One group of this server, of others, or of both.
pub(crate) fn group(server: &Inner, name: &str) -> Option<Group> {
    let own = local::groups(server)
        .iter()
        .find(|group| group.name == name)
        .cloned();
    let table = server.aggregation.configured.table(&server.registry);
    let others = table.entries.iter().filter(|entry| entry.group == name);
    let others = others.filter(|entry| is_other(own.as_slice(), entry));
    let mut groups = own.clone().into_iter().collect();
    for entry in others {
        add_entry(server, &mut groups, entry);
    }
    discovery::sort(&mut groups);
    groups.pop()
}

/// The groups of this server and of others, in the order in which clients see them.
pub(crate) fn groups(server: &Inner) -> Arc<[Group]> {
    let own = local::groups(server);
    let table = server.aggregation.configured.table(&server.registry);
    let others: Vec<&Arc<Entry>> = table
        .entries
        .iter()
        .filter(|entry| is_other(&own, entry))
        .collect();
    if others.is_empty() {
        return own;
    }
    let mut groups = own.to_vec();
    for entry in others {
        add_entry(server, &mut groups, entry);
    }
    discovery::sort(&mut groups);
    groups.into()
}

/// Whether an APIService is about something that this server does not serve itself.
fn is_other(own: &[Group], entry: &Entry) -> bool {
    let group = own.iter().find(|group| group.name == entry.group);
    let served = group.is_some_and(|group| group.version(&entry.version).is_some());
    !entry.group.is_empty() && (entry.service.is_some() || !served)
}

fn add_entry(server: &Inner, groups: &mut Vec<Group>, entry: &Entry) {
    let version = Version {
        name: entry.version.clone(),
        priority: entry.version_priority,
        resources: server.aggregation.resources(&entry.name),
    };
    add(groups, &entry.group, entry.group_priority, version);
}

/// Adds a version to a group, which is new if need be.
pub(super) fn add(groups: &mut Vec<Group>, name: &Str, priority: i64, version: Version) {
    match groups.iter_mut().find(|group| group.name == *name) {
        Some(group) => {
            group.versions.retain(|known| known.name != version.name);
            group.versions.push(version);
            group.priority = group.priority.max(priority);
        }
        None => groups.push(Group {
            name: name.clone(),
            priority,
            versions: vec![version],
        }),
    }
}

/// Marks what may be out of date in an aggregated discovery document, and leaves out what nobody serves.
pub(crate) fn stale(server: &Inner, document: &mut Value) {
    let table = server.aggregation.configured.table(&server.registry);
    let own = local::groups(server);
    let others: Vec<&Arc<Entry>> = table
        .entries
        .iter()
        .filter(|entry| is_other(&own, entry))
        .collect();
    if others.is_empty() {
        return;
    }
    let items = document.entry("items").make_list();
    for group in items.iter_mut() {
        let name: Str = group["metadata"]["name"].str().into();
        let find = |version: &str| {
            others
                .iter()
                .find(|entry| entry.group == name && entry.version == version)
        };
        let versions = group.entry("versions").make_list();
        versions.retain(|version| {
            find(version["version"].str()).is_none_or(|entry| entry.service.is_some())
        });
        for version in versions {
            if find(version["version"].str())
                .is_some_and(|entry| server.aggregation.is_stale(entry))
            {
                version.set("freshness", "Stale");
            }
        }
    }
    items.retain(|group| !group["versions"].is_empty());
}

/// `/openapi/v3` with the documents of others.
pub(crate) fn openapi_index(server: &Inner, own: Bytes) -> Bytes {
    let table = server.aggregation.configured.table(&server.registry);
    let mut found: Vec<(String, Str)> = server.aggregation.indexed(&table);
    for LocalVersion {
        server: local,
        group,
        version,
        ..
    } in local::local_versions(server)
    {
        let index = local.0.catalog.with_openapi(OpenApi::v3_index);
        let index = json::parse(&index).unwrap_or_default();
        let path = format!("apis/{group}/{version}");
        if table.remote(&group, &version).is_none()
            && let Some(url) = index["paths"][path.as_str()]["serverRelativeURL"].as_str()
        {
            found.push((path, url.into()));
        }
    }
    if found.is_empty() {
        return own;
    }
    let mut index = json::parse(&own).unwrap_or_default();
    let paths = index.entry("paths").make_map();
    for (path, url) in found {
        paths.insert(path, value!({ "serverRelativeURL": url }));
    }
    paths.sort();
    json::to_string(&index).into()
}

/// `/openapi/v2` with the paths and types of others. Takes its time at first; ask where blocking is allowed.
pub(crate) fn openapi_v2(server: &Inner, proto: bool) -> Arc<SpecDocument> {
    let own = server.catalog.with_openapi(|openapi| {
        if proto {
            openapi.v2_proto()
        } else {
            openapi.v2_json()
        }
    });
    let table = server.aggregation.configured.table(&server.registry);
    let mut others = server.aggregation.described(&table);
    for LocalVersion {
        server: local,
        group,
        version,
        ..
    } in local::local_versions(server)
    {
        if table.remote(&group, &version).is_none() {
            let document = local.0.catalog.with_openapi(OpenApi::v2_json);
            let parsed = json::parse(&document.bytes).unwrap_or_default();
            let root = format!("/apis/{group}/{version}");
            others.push((document.hash.as_str().into(), only(&parsed, &root)));
        }
    }
    if others.is_empty() {
        return own;
    }
    let made_of = others
        .iter()
        .fold(own.hash.to_string(), |made_of, (tag, _)| {
            format!("{made_of} {tag}")
        });
    let cache = &server.aggregation.documents.v2;
    let kept = || cache.lock();
    if let Some((_, _, document)) = kept()
        .iter()
        .find(|known| (known.0, &known.1) == (proto, &made_of))
    {
        return document.clone();
    }
    let documents: Vec<Value> = others.into_iter().map(|(_, document)| document).collect();
    let document = Arc::new(
        server
            .catalog
            .with_openapi(|openapi| openapi.v2_with(&documents, proto)),
    );
    let mut kept = kept();
    kept.retain(|known| known.0 != proto);
    kept.push((proto, made_of, document.clone()));
    document
}

impl Aggregation {
    /// What a server has said so far.
    pub(super) fn said_before(&self, name: &str) -> Learned {
        let learned = self.learned.read();
        learned
            .get(name)
            .map(|learned| (**learned).clone())
            .unwrap_or_default()
    }

    fn resources(&self, name: &str) -> Vec<Value> {
        let learned = self.learned.read();
        learned
            .get(name)
            .map(|learned| learned.resources.clone())
            .unwrap_or_default()
    }

    fn is_stale(&self, entry: &Entry) -> bool {
        let learned = self.learned.read();
        !entry.available || learned.get(&entry.name).is_none_or(|learned| learned.stale)
    }

    /// Where documents of others are.
    fn indexed(&self, table: &Table) -> Vec<(String, Str)> {
        let learned = self.learned.read();
        let remote = table.entries.iter().filter(|entry| entry.service.is_some());
        let found = remote.filter_map(|entry| {
            let url = learned.get(&entry.name)?.v3.clone()?;
            Some((entry.path().trim_start_matches('/').to_owned(), url))
        });
        found.collect()
    }

    /// What others say about the versions that they serve for us, with the tags of it.
    fn described(&self, table: &Table) -> Vec<(Str, Value)> {
        let learned = self.learned.read();
        let remote = table.entries.iter().filter(|entry| entry.service.is_some());
        let found = remote.filter_map(|entry| {
            let (tag, document) = learned.get(&entry.name)?.v2.clone()?;
            Some((
                format!("{}={tag}", entry.name).into(),
                only(&document, &entry.path()),
            ))
        });
        found.collect()
    }
}

/// The part of an OpenAPI document that is about paths below `root`.
fn only(document: &Value, root: &str) -> Value {
    let mut part = document.clone();
    let below = format!("{root}/");
    part.entry("paths")
        .make_map()
        .retain(|path, _| path == root || path.starts_with(&below));
    part
}
