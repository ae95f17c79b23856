//! Discovery and OpenAPI of this server and of aggregated ones.

use parking_lot::Mutex;
use std::sync::Arc;

use bytes::Bytes;
use mizzen_value::{Str, Value, json, value};

use super::Aggregation;
use super::api_services::{ApiService, ApiServiceTable};
use super::fetch::RemoteDocuments;
use super::local::{self, LocalVersion};
use crate::discovery::{self, Group, Version};
use crate::server::ServerParts;
use mizzen_openapi::{OpenApi, SpecDocument};

/// Documents that are expensive to render.
#[derive(Default)]
pub(super) struct DocumentCache {
    /// By encoding and by the tags of their parts.
    v2: Mutex<Vec<(bool, String, Arc<SpecDocument>)>>,
}

/// One group of this server, of aggregated ones, or of both.
pub(crate) fn group(server: &ServerParts, name: &str) -> Option<Group> {
    let own = local::groups(server)
        .iter()
        .find(|group| group.name == name)
        .cloned();
    let table = server.aggregation.configured.table(&server.registry);
    let aggregated = table.entries.iter().filter(|entry| entry.group == name);
    let aggregated = aggregated.filter(|entry| is_aggregated(own.as_slice(), entry));
    let mut groups = own.clone().into_iter().collect();
    for entry in aggregated {
        add_entry(server, &mut groups, entry);
    }
    discovery::sort(&mut groups);
    groups.pop()
}

/// The groups of this server and of aggregated ones, in discovery order.
pub(crate) fn groups(server: &ServerParts) -> Arc<[Group]> {
    let own = local::groups(server);
    let table = server.aggregation.configured.table(&server.registry);
    let aggregated: Vec<&Arc<ApiService>> = table
        .entries
        .iter()
        .filter(|entry| is_aggregated(&own, entry))
        .collect();
    if aggregated.is_empty() {
        return own;
    }
    let mut groups = own.to_vec();
    for entry in aggregated {
        add_entry(server, &mut groups, entry);
    }
    discovery::sort(&mut groups);
    groups.into()
}

/// Whether an APIService is for a version that this server does not serve itself.
fn is_aggregated(own: &[Group], entry: &ApiService) -> bool {
    let group = own.iter().find(|group| group.name == entry.group);
    let served = group.is_some_and(|group| group.version(&entry.version).is_some());
    !entry.group.is_empty() && (entry.service.is_some() || !served)
}

fn add_entry(server: &ServerParts, groups: &mut Vec<Group>, entry: &ApiService) {
    let version = Version {
        name: entry.version.clone(),
        priority: entry.version_priority,
        resources: server.aggregation.resources(&entry.name),
    };
    add_version(groups, &entry.group, entry.group_priority, version);
}

/// Adds a version to a group, which is created if it is missing.
pub(super) fn add_version(groups: &mut Vec<Group>, name: &Str, priority: i64, version: Version) {
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

/// Marks stale versions in an aggregated discovery document, and removes versions that no server serves.
pub(crate) fn mark_stale(server: &ServerParts, document: &mut Value) {
    let table = server.aggregation.configured.table(&server.registry);
    let own = local::groups(server);
    let aggregated: Vec<&Arc<ApiService>> = table
        .entries
        .iter()
        .filter(|entry| is_aggregated(&own, entry))
        .collect();
    if aggregated.is_empty() {
        return;
    }
    let items = document.entry("items").make_list();
    for group in items.iter_mut() {
        let name: Str = group["metadata"]["name"].str().into();
        let find = |version: &str| {
            aggregated
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

/// `/openapi/v3` with the documents of aggregated servers.
pub(crate) fn openapi_index(server: &ServerParts, own: Bytes) -> Bytes {
    let table = server.aggregation.configured.table(&server.registry);
    let mut found: Vec<(String, Str)> = server.aggregation.openapi_urls(&table);
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

/// `/openapi/v2` with the paths and types of aggregated servers. Slow the first time: call it where blocking is allowed.
pub(crate) fn openapi_v2(server: &ServerParts, proto: bool) -> Arc<SpecDocument> {
    let own = server.catalog.with_openapi(|openapi| {
        if proto {
            openapi.v2_proto()
        } else {
            openapi.v2_json()
        }
    });
    let table = server.aggregation.configured.table(&server.registry);
    let mut documents = server.aggregation.openapi_documents(&table);
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
            documents.push((document.hash.as_str().into(), only_below(&parsed, &root)));
        }
    }
    if documents.is_empty() {
        return own;
    }
    let tags = documents
        .iter()
        .fold(own.hash.to_string(), |tags, (tag, _)| {
            format!("{tags} {tag}")
        });
    let cache = &server.aggregation.documents.v2;
    if let Some((_, _, document)) = cache
        .lock()
        .iter()
        .find(|known| (known.0, &known.1) == (proto, &tags))
    {
        return document.clone();
    }
    let documents: Vec<Value> = documents
        .into_iter()
        .map(|(_, document)| document)
        .collect();
    let document = Arc::new(
        server
            .catalog
            .with_openapi(|openapi| openapi.v2_with(&documents, proto)),
    );
    let mut cached = cache.lock();
    cached.retain(|known| known.0 != proto);
    cached.push((proto, tags, document.clone()));
    document
}

impl Aggregation {
    /// The last documents of a server.
    pub(super) fn last_documents(&self, name: &str) -> RemoteDocuments {
        let fetched = self.fetched.read();
        fetched
            .get(name)
            .map(|fetched| (**fetched).clone())
            .unwrap_or_default()
    }

    fn resources(&self, name: &str) -> Vec<Value> {
        let fetched = self.fetched.read();
        fetched
            .get(name)
            .map(|fetched| fetched.resources.clone())
            .unwrap_or_default()
    }

    fn is_stale(&self, entry: &ApiService) -> bool {
        let fetched = self.fetched.read();
        !entry.available || fetched.get(&entry.name).is_none_or(|fetched| fetched.stale)
    }

    /// The OpenAPI v3 URLs of aggregated servers.
    fn openapi_urls(&self, table: &ApiServiceTable) -> Vec<(String, Str)> {
        let fetched = self.fetched.read();
        let remote = table.entries.iter().filter(|entry| entry.service.is_some());
        let found = remote.filter_map(|entry| {
            let url = fetched.get(&entry.name)?.v3.clone()?;
            Some((entry.path().trim_start_matches('/').to_owned(), url))
        });
        found.collect()
    }

    /// The OpenAPI v2 documents of aggregated servers, with their tags.
    fn openapi_documents(&self, table: &ApiServiceTable) -> Vec<(Str, Value)> {
        let fetched = self.fetched.read();
        let remote = table.entries.iter().filter(|entry| entry.service.is_some());
        let found = remote.filter_map(|entry| {
            let (tag, document) = fetched.get(&entry.name)?.v2.clone()?;
            Some((
                format!("{}={tag}", entry.name).into(),
                only_below(&document, &entry.path()),
            ))
        });
        found.collect()
    }
}

/// The part of an OpenAPI document with the paths below `root`.
fn only_below(document: &Value, root: &str) -> Value {
    let mut part = document.clone();
    let below = format!("{root}/");
    part.entry("paths")
        .make_map()
        .retain(|path, _| path == root || path.starts_with(&below));
    part
}
