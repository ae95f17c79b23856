//! The built-in kinds as data: a file per group in `data/`, in the form of its README.
//!
//! There is no rule here that is code; `mizzen-kinds` has these. An API server with other kinds uses the types.
//!
//! ```
//! assert!(mizzen_schemas::schemas().types.contains_key("meta/v1.ObjectMeta"));
//! ```

use std::sync::{Arc, LazyLock};

use mizzen_object::schema::{SchemaParseError, Schemas, Struct, parse, parse_with};

macro_rules! data {
    ($($file:literal),* $(,)?) => {
        &[$(($file, include_str!(concat!("../data/", $file)))),*]
    };
}

/// The data files, by name.
pub const DATA: &[(&str, &str)] = data![
    "meta.kinds",
    "core.kinds",
    "admission.k8s.io.kinds",
    "admissionregistration.k8s.io.kinds",
    "apidiscovery.k8s.io.kinds",
    "apiextensions.k8s.io.kinds",
    "apiregistration.k8s.io.kinds",
    "apps.kinds",
    "authentication.k8s.io.kinds",
    "authorization.k8s.io.kinds",
    "autoscaling.kinds",
    "batch.kinds",
    "certificates.k8s.io.kinds",
    "coordination.k8s.io.kinds",
    "discovery.k8s.io.kinds",
    "events.k8s.io.kinds",
    "flowcontrol.apiserver.k8s.io.kinds",
    "networking.k8s.io.kinds",
    "node.k8s.io.kinds",
    "policy.kinds",
    "rbac.authorization.k8s.io.kinds",
    "resource.k8s.io.kinds",
    "scheduling.k8s.io.kinds",
    "storage.k8s.io.kinds",
];

/// The data files of versions that Kubernetes serves no more, by name.
pub const LEGACY: &[(&str, &str)] = data![
    "legacy/admissionregistration.k8s.io.kinds",
    "legacy/apiextensions.k8s.io.kinds",
    "legacy/apiregistration.k8s.io.kinds",
    "legacy/apps.kinds",
    "legacy/authentication.k8s.io.kinds",
    "legacy/authorization.k8s.io.kinds",
    "legacy/autoscaling.kinds",
    "legacy/batch.kinds",
    "legacy/certificates.k8s.io.kinds",
    "legacy/coordination.k8s.io.kinds",
    "legacy/discovery.k8s.io.kinds",
    "legacy/events.k8s.io.kinds",
    "legacy/extensions.kinds",
    "legacy/flowcontrol.apiserver.k8s.io.kinds",
    "legacy/networking.k8s.io.kinds",
    "legacy/node.k8s.io.kinds",
    "legacy/policy.kinds",
    "legacy/rbac.authorization.k8s.io.kinds",
    "legacy/scheduling.k8s.io.kinds",
    "legacy/storage.k8s.io.kinds",
];

/// The data files of versions in which upstream's etcd may have objects, and which are never served, by name.
pub const STORED: &[(&str, &str)] = data![
    "stored/admissionregistration.k8s.io.kinds",
    "stored/networking.k8s.io.kinds",
    "stored/node.k8s.io.kinds",
    "stored/rbac.authorization.k8s.io.kinds",
    "stored/resource.k8s.io.kinds",
    "stored/storage.k8s.io.kinds",
];

/// The kinds of the Kubernetes release that we are, and all types. They are parsed once: types that have themselves as a part
/// live as long as the program.
///
/// # Panics
/// If a data file that this crate ships does not parse, which its tests rule out.
pub fn schemas() -> &'static Schemas {
    static READ: LazyLock<Schemas> =
        LazyLock::new(|| parse(DATA.iter().copied()).expect("the data files parse"));
    &READ
}

/// The same, and the versions that it had once.
///
/// # Panics
/// As [`schemas`] does.
pub fn legacy_schemas() -> &'static Schemas {
    static READ: LazyLock<Schemas> =
        LazyLock::new(|| parse(DATA.iter().chain(LEGACY).copied()).expect("the data files parse"));
    &READ
}

/// The kinds in the other versions that etcd may have, removed and never served ones, and all types. Those of [`schemas`]
/// are shared.
///
/// # Panics
/// As [`schemas`] does.
pub fn stored_schemas() -> &'static Schemas {
    static READ: LazyLock<Schemas> = LazyLock::new(|| {
        let files = LEGACY.iter().chain(STORED).copied();
        parse_with(schemas().types.clone(), files).expect("the data files parse")
    });
    &READ
}

/// The kinds of other files, each given with its name. They may use every built-in type; what they may not is add to a
/// built-in group and version.
pub fn others(files: &[(&str, &str)]) -> Result<Schemas, SchemaParseError> {
    parse_with(schemas().types.clone(), files.iter().copied())
}

/// The shape of every object's metadata.
///
/// # Panics
/// As [`schemas`] does.
pub fn object_meta() -> Arc<Struct> {
    static SHAPE: LazyLock<Arc<Struct>> = LazyLock::new(|| {
        let schemas = parse(DATA.iter().copied().take(1)).expect("the data files parse");
        schemas.types["meta/v1.ObjectMeta"].clone()
    });
    SHAPE.clone()
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_data_file_parses() {
        assert!(super::schemas().kinds.len() > 60);
        assert!(super::legacy_schemas().kinds.len() > super::schemas().kinds.len());
        assert!(super::stored_schemas().kinds.len() > super::LEGACY.len());
    }
}
