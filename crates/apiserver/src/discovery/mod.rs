//! Discovery: the documents that list groups, versions and resources.
//!
//! [`groups`] turns kinds into groups once; each document is a view of them. Groups of aggregated servers join the list as
//! values and need no kinds.
//!
//! Invariant: a document does not depend on the user; it changes only with the list of groups.

mod aggregated;
mod order;
mod resources;
#[cfg(test)]
mod tests;

pub use aggregated::aggregated;
pub use order::{Priority, compare_versions, is_built_in, priority};
pub(crate) use resources::api_resources;
pub use resources::storage_version_hash;

use std::collections::BTreeSet;

use mizzen_object::Kind;
use mizzen_value::{Str, Value, value};

/// An API group.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Its name, `""` for core.
    pub name: Str,
    /// Its priority among groups: larger comes first.
    pub priority: i64,
    /// Its versions, the preferred one first.
    pub versions: Vec<Version>,
}

/// One version of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct Version {
    /// Its name: `v1`.
    pub name: Str,
    /// Its priority among the group's versions: larger comes first.
    pub priority: i64,
    /// Its resources, as items of an `APIResourceList`.
    pub resources: Vec<Value>,
}

impl Group {
    /// The version `name`.
    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The `apiVersion` of its objects: `v1`, `apps/v1`.
    pub fn api_version(&self, version: &str) -> Str {
        if self.name.is_empty() {
            version.into()
        } else {
            format!("{}/{version}", self.name).into()
        }
    }
}

/// The groups of `kinds`, including core, in discovery order.
pub fn groups(kinds: &[Kind]) -> Vec<Group> {
    let mut groups = Vec::new();
    for kind in kinds {
        let (name, version) = (&kind.gvk.group, &kind.gvk.version);
        let priority = priority(name, version);
        let group = find_or_push(
            &mut groups,
            |group: &Group| group.name == *name,
            || Group {
                name: name.clone(),
                priority: priority.group,
                versions: Vec::new(),
            },
        );
        let version = find_or_push(
            &mut group.versions,
            |known| known.name == *version,
            || Version {
                name: version.clone(),
                priority: priority.version,
                resources: Vec::new(),
            },
        );
        version.resources.extend(api_resources(kind));
    }
    sort(&mut groups);
    groups
}

/// Sorts groups and their versions in discovery order.
pub fn sort(groups: &mut [Group]) {
    groups.sort_by(|a, b| {
        b.priority
            .cmp(&a.priority)
            .then_with(|| a.name.cmp(&b.name))
    });
    for group in groups {
        group.versions.sort_by(|a, b| {
            b.priority
                .cmp(&a.priority)
                .then_with(|| compare_versions(&b.name, &a.name))
        });
    }
}

fn find_or_push<T>(
    list: &mut Vec<T>,
    is_it: impl Fn(&T) -> bool,
    make: impl FnOnce() -> T,
) -> &mut T {
    let at = list.iter().position(is_it).unwrap_or_else(|| {
        list.push(make());
        list.len() - 1
    });
    &mut list[at]
}

/// `/api`: the versions of the core group, and the address of this server.
///
/// Kubernetes: documents below `/api` carry no `apiVersion`.
pub fn core_versions(server_address: &str) -> Value {
    value!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

/// `/apis`: every group but core.
pub fn group_list(groups: &[Group]) -> Value {
    let named = groups.iter().filter(|group| !group.name.is_empty());
    let list: Vec<Value> = named.map(|group| describe(value!({}), group)).collect();
    value!({"kind": "APIGroupList", "apiVersion": "v1", "groups": list})
}

/// `/apis/{group}`.
pub fn group(group: &Group) -> Value {
    describe(value!({"kind": "APIGroup", "apiVersion": "v1"}), group)
}

fn describe(mut into: Value, group: &Group) -> Value {
    let version =
        |name: &Str| value!({"groupVersion": (group.api_version(name)), "version": (name.clone())});
    let versions: Vec<Value> = group
        .versions
        .iter()
        .map(|known| version(&known.name))
        .collect();
    let preferred = versions.first().cloned();
    into.set("name", group.name.clone());
    into.set("versions", versions);
    into.set("preferredVersion", preferred);
    into
}

/// `/api/v1` and `/apis/{group}/{version}`.
pub fn resource_list(group: &Group, version: &Version) -> Value {
    let mut list = value!({"kind": "APIResourceList"});
    if !group.name.is_empty() {
        list.set("apiVersion", "v1");
    }
    list.set("groupVersion", group.api_version(&version.name));
    list.set("resources", version.resources.clone());
    list
}

/// The paths that every server has.
const FIXED_PATHS: &[&str] = &[
    "/.well-known/openid-configuration",
    "/api",
    "/apis",
    "/apis/",
    "/healthz",
    "/healthz/ping",
    "/livez",
    "/livez/ping",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/",
    "/openid/v1/jwks",
    "/readyz",
    "/readyz/ping",
    "/version",
];

/// `/`: every path, including `more`.
pub fn root_paths(groups: &[Group], more: &[impl AsRef<str>]) -> Value {
    let mut paths: BTreeSet<String> = FIXED_PATHS.iter().map(|path| path.to_string()).collect();
    paths.extend(more.iter().map(|path| path.as_ref().to_string()));
    for group in groups {
        let root = if group.name.is_empty() {
            "/api".into()
        } else {
            format!("/apis/{}", group.name)
        };
        paths.extend(
            group
                .versions
                .iter()
                .map(|version| format!("{root}/{}", version.name)),
        );
        paths.insert(root);
    }
    value!({"paths": (paths.into_iter().map(Value::from).collect::<Vec<_>>())})
}

/// The Kubernetes version that this server implements, in the form that tools parse.
pub const GIT_VERSION: &str = "v1.36.4+mizzen";

/// `/version`.
pub fn version() -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    value!({
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": (format!("{}/{architecture}", std::env::consts::OS)),
    })
}
