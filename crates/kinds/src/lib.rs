//! Which kinds ship with us? The data of every built-in kind, and their few native hooks.
//!
//! `data/` has a file per group; [`catalog`] reads them and joins each kind with its [`Behaviour`].
//!
//! ```
//! let catalog = mizzen_kinds::catalog();
//! let deployment = catalog.kinds.iter().find(|kind| kind.gvk.kind == "Deployment").unwrap();
//! assert_eq!((&*deployment.gvk.group, &*deployment.gvk.version), ("apps", "v1"));
//! ```

pub mod amounts;
mod apps;
mod batch;
mod behaviour;
mod core;
mod extensions;
mod groups;
mod number;
mod pod;
pub mod quota;
pub mod references;
pub mod resource_names;
mod retired;
mod table;

pub use crate::core::service::allocate;
pub use batch::{Schedule, check_zone};
pub use behaviour::Behaviour;
pub use groups::{
    Shapes, approval_condition, expression, expression_kinds, expression_warnings,
    requested_groups, requested_name, structural_condition,
};
pub use pod::state as pod_state;
pub use pod::subresource::validate_binding;
pub use pod::{
    disallow_privileged, host_ports, node_affinity, pod_resources, qos_class, same, tolerations,
    validate_tolerations,
};
pub use retired::{LegacyKind, legacy_kinds, was_served};
pub use table::{row_conditions, row_rank, scale_cells, scale_columns};

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use mizzen_object::schema::{ParseError, Schemas, Struct, parse, parse_with};
use mizzen_object::{Column, GroupVersionKind, Kind, KindData};
use mizzen_value::Value;

use crate::pod::subresource::{
    prepare_ephemeral_containers, prepare_resize, validate_ephemeral_containers, validate_resize,
};

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

/// Every built-in kind, and the types that belong to none of them. Clones share them.
#[derive(Clone)]
pub struct Catalog {
    /// The kinds that are served.
    pub kinds: Vec<Kind>,
    /// All types, by full name: `meta/v1.DeleteOptions`.
    pub schemas: Schemas,
}

/// The hooks of a kind that may be no resource of its own, such as a TokenRequest.
pub fn behaviour(gvk: &GroupVersionKind) -> Behaviour {
    behaviour::of(gvk)
}

/// The hooks of a subresource that is the object itself under rules of its own.
pub fn subresource(gvk: &GroupVersionKind, name: &str) -> Option<Behaviour> {
    match (gvk.group.as_str(), gvk.kind.as_str(), name) {
        ("", "Namespace", "finalize") => Some(crate::core::behaviour("Namespace/finalize")),
        ("", "Pod", "ephemeralcontainers") => Some(Behaviour {
            prepare: |new, old, _| with(old, |old| prepare_ephemeral_containers(new, old)),
            validate: |new, old, _, violations| {
                with(old, |old| {
                    validate_ephemeral_containers(new, old, violations)
                })
            },
            ..pod::behaviour()
        }),
        ("", "Pod", "resize") => Some(Behaviour {
            prepare: |new, old, _| with(old, |old| prepare_resize(new, old)),
            validate: |new, old, _, violations| {
                with(old, |old| validate_resize(new, old, violations))
            },
            ..pod::behaviour()
        }),
        ("certificates.k8s.io", "CertificateSigningRequest", "approval") => {
            Some(groups::behaviour(
                &gvk.group,
                &gvk.version,
                "CertificateSigningRequest/approval",
            ))
        }
        _ => None,
    }
}

fn with(old: Option<&Value>, change: impl FnOnce(&Value)) {
    if let Some(old) = old {
        change(old);
    }
}

/// The kinds of the Kubernetes release that we are. They are read once: types that have themselves as a part live as long as
/// the program.
///
/// # Panics
/// If a data file that this crate ships does not parse, which its tests rule out.
pub fn catalog() -> Catalog {
    static READ: LazyLock<Catalog> = LazyLock::new(|| read(DATA.iter().copied()));
    READ.clone()
}

/// The same, and the versions that it had once: each is kept as a kind of [`catalog`].
///
/// # Panics
/// As [`catalog`] does.
pub fn legacy_catalog() -> Catalog {
    static READ: LazyLock<Catalog> = LazyLock::new(|| read(DATA.iter().chain(LEGACY).copied()));
    READ.clone()
}

fn read(files: impl Iterator<Item = (&'static str, &'static str)> + Clone) -> Catalog {
    let mut schemas = parse(files).expect("the data files parse");
    let mut kinds = std::mem::take(&mut schemas.kinds);
    inherit_columns(&mut kinds);
    Catalog {
        kinds: kinds.into_iter().map(kind).collect(),
        schemas,
    }
}

/// A kind that is stored as another has the table of that one unless it has one of its own.
fn inherit_columns(kinds: &mut [KindData]) {
    let tables: HashMap<GroupVersionKind, Vec<Column>> = kinds
        .iter()
        .map(|kind| (kind.gvk.clone(), kind.columns.clone()))
        .collect();
    for kind in kinds.iter_mut().filter(|kind| kind.columns.is_empty()) {
        let table = kind.stored.as_ref().and_then(|stored| tables.get(stored));
        kind.columns = table.cloned().unwrap_or_default();
        kind.rules.shown_as_stored = true;
    }
}

/// The kinds of other files, each given with its name. They may use every built-in type; what they may not is add to a
/// built-in group and version.
pub fn others(files: &[(&str, &str)]) -> Result<Schemas, ParseError> {
    parse_with(catalog().schemas.types, files.iter().copied())
}

/// The shape of every object's metadata.
pub fn object_meta() -> Arc<Struct> {
    static SHAPE: LazyLock<Arc<Struct>> = LazyLock::new(|| {
        let schemas = parse(DATA.iter().copied().take(1)).expect("the data files parse");
        schemas.types["meta/v1.ObjectMeta"].clone()
    });
    SHAPE.clone()
}

fn kind(data: KindData) -> Kind {
    let behaviour = behaviour::of(&data.gvk);
    Kind {
        data: Arc::new(data),
        hooks: Arc::new(behaviour),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_data_file_parses() {
        let catalog = super::catalog();
        assert!(catalog.kinds.len() > 60, "{}", catalog.kinds.len());
        let pod = catalog
            .kinds
            .iter()
            .find(|kind| kind.gvk.kind == "Pod")
            .unwrap();
        let spec = pod.root.field("spec").unwrap().ty.as_struct().unwrap();
        let volume = spec
            .field("volumes")
            .unwrap()
            .ty
            .item()
            .unwrap()
            .as_struct()
            .unwrap();
        assert!(volume.field("emptyDir").unwrap().embedded.is_some());
    }
}
