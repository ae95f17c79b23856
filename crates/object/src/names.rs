//! Group, version, kind and resource names.

use std::fmt;

use mizzen_value::Str;

/// A kind in a version: `apps/v1, Deployment`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionKind {
    /// The API group, `""` for core.
    pub group: Str,
    /// The version in it.
    pub version: Str,
    /// The name of the kind.
    pub kind: Str,
}

impl GroupVersionKind {
    /// A kind by its names: `GroupVersionKind::new("apps", "v1", "Deployment")`.
    pub const fn new(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
    ) -> GroupVersionKind {
        GroupVersionKind {
            group: Str::new_static(group),
            version: Str::new_static(version),
            kind: Str::new_static(kind),
        }
    }

    /// The `apiVersion` of objects: `v1`, `apps/v1`.
    pub fn api_version(&self) -> Str {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version).into()
        }
    }
}

impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// A resource in any version: `deployments.apps`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    /// The API group, `""` for core.
    pub group: Str,
    /// The plural name.
    pub resource: Str,
}

impl GroupResource {
    /// A resource by its names: `GroupResource::new("apps", "deployments")`.
    pub const fn new(group: &'static str, resource: &'static str) -> GroupResource {
        GroupResource {
            group: Str::new_static(group),
            resource: Str::new_static(resource),
        }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self.group.as_str() {
            "" => f.write_str(&self.resource),
            group => write!(f, "{}.{group}", self.resource),
        }
    }
}
