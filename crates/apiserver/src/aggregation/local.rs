//! API servers in this process that serve versions for this one. Their APIServices are local: they have no Service.
//!
//! Kubernetes: a delegation target, which is called without filters of its own (`UnprotectedHandler` of
//! apiserver/pkg/server/genericapiserver.go): its requests have passed the filters of this server.

use std::sync::Arc;

use mizzen_value::Str;

use super::documents::add_version;
use crate::discovery::{self, Group, Priority};
use crate::server::ServerParts;
use crate::{BuildError, Builder, Server};

/// An API server of this process.
pub(super) struct LocalServer {
    server: Server,
    priority: Priority,
    /// The groups and versions that it serves.
    versions: Vec<(Str, Str)>,
}

/// A version that a server of this process serves.
pub(super) struct LocalVersion {
    pub server: Server,
    pub group: Str,
    pub version: Str,
    pub priority: Priority,
}

impl Server {
    /// Builds a server in this process, and serves its versions as those of an aggregated API server: with APIServices, in
    /// discovery and in OpenAPI. Requests for them are authenticated, authorized and audited by this server, and served by
    /// the other one, which is returned. Namespaces, admission policies and webhooks of this server apply to its kinds.
    ///
    /// An APIService with a Service takes precedence, as does a CustomResourceDefinition.
    pub fn serve_locally(
        &self,
        builder: Builder,
        priority: Priority,
    ) -> Result<Server, BuildError> {
        let server = builder.behind(self).build()?;
        let groups = server.0.catalog.groups();
        let versions = groups.iter().flat_map(|group| {
            let versions = group.versions.iter();
            versions.map(|version| (group.name.clone(), version.name.clone()))
        });
        let versions = versions.collect();
        let aggregation = &self.0.aggregation;
        aggregation.local.write().push(LocalServer {
            server: server.clone(),
            priority,
            versions,
        });
        aggregation.served_changed();
        Ok(server)
    }
}

/// The server of this process that serves a version, unless this server serves it itself.
pub(super) fn local_server(server: &ServerParts, group: &str, version: &str) -> Option<Server> {
    let local = server.aggregation.local.read();
    let found = local.iter().find(|local| {
        let mut versions = local.versions.iter();
        versions.any(|known| known.0 == group && known.1 == version)
    })?;
    (!serves(server, group, version)).then(|| found.server.clone())
}

/// The versions that other servers of this process serve and this server does not.
pub(super) fn local_versions(server: &ServerParts) -> Vec<LocalVersion> {
    let mut versions = Vec::new();
    for local in server.aggregation.local.read().iter() {
        for (group, version) in &local.versions {
            if !serves(server, group, version) {
                versions.push(LocalVersion {
                    server: local.server.clone(),
                    group: group.clone(),
                    version: version.clone(),
                    priority: local.priority,
                });
            }
        }
    }
    versions
}

/// The groups that are served in this process, in discovery order.
pub(super) fn groups(server: &ServerParts) -> Arc<[Group]> {
    let own = server.catalog.groups();
    let local = local_versions(server);
    if local.is_empty() {
        return own;
    }
    let mut groups = own.to_vec();
    for LocalVersion {
        server: local,
        group: name,
        version: version_name,
        priority,
    } in local
    {
        let version = local
            .0
            .catalog
            .group(&name)
            .and_then(|group| group.version(&version_name).cloned());
        if let Some(mut version) = version {
            version.priority = priority.version;
            add_version(&mut groups, &name, priority.group, version);
        }
    }
    discovery::sort(&mut groups);
    groups.into()
}

fn serves(server: &ServerParts, group: &str, version: &str) -> bool {
    let group = server.catalog.group(group);
    group.is_some_and(|group| group.version(version).is_some())
}
