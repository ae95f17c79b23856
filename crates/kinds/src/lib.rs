//! The built-in kinds: their hooks, joined with their data.
//!
//! `mizzen-schemas` has a data file per group; [`catalog`] joins each kind of them with its [`Behaviour`].
//!
//! ```
//! let catalog = mizzen_kinds::catalog();
//! let deployment = catalog.kinds.iter().find(|kind| kind.gvk.kind == "Deployment").unwrap();
//! assert_eq!((&*deployment.gvk.group, &*deployment.gvk.version), ("apps", "v1"));
//! ```

mod apps;
mod batch;
mod extensions;
mod groups;
mod manifest;
mod range_allocation;
mod retired;

pub use groups::{requested_groups, requested_name};
pub use manifest::complete;
pub use mizzen_apiextensions::Behaviour;
pub use mizzen_schemas::object_meta;
pub use range_allocation::range_allocation;
pub use retired::{LegacyKind, legacy_kinds, was_served};

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use mizzen_object::schema::Schemas;
use mizzen_object::{Column, GroupVersionKind, Kind, KindData};

/// Every built-in kind, and the types that belong to none of them. Clones share them.
#[derive(Clone)]
pub struct KindCatalog {
    /// The kinds that are served.
    pub kinds: Vec<Kind>,
    /// All types, by full name: `meta/v1.DeleteOptions`.
    pub schemas: Schemas,
}

impl KindCatalog {
    /// Every kind, with the kind as which its objects are stored.
    pub fn stored_kinds(&self) -> impl Iterator<Item = (Kind, Kind)> {
        let stored = |gvk: &GroupVersionKind| self.kinds.iter().find(|kind| kind.gvk == *gvk);
        self.kinds.iter().map(move |kind| {
            let stored = kind.stored.as_ref().and_then(stored).unwrap_or(kind);
            (kind.clone(), stored.clone())
        })
    }
}

/// The hooks of a kind that may be no resource of its own, such as a TokenRequest.
pub fn behaviour(gvk: &GroupVersionKind) -> Behaviour {
    let (version, kind) = (gvk.version.as_str(), gvk.kind.as_str());
    let behaviour = match gvk.group.as_str() {
        "" => mizzen_core_kinds::behaviour(kind),
        "apps" => apps::behaviour(version, kind),
        "batch" => batch::behaviour(kind),
        "extensions" => extensions::behaviour(kind),
        group => groups::behaviour(group, version, kind),
    };
    Behaviour {
        cells: mizzen_printers::cells(gvk),
        row_rank: mizzen_printers::row_rank(gvk),
        row_conditions: mizzen_printers::row_conditions(gvk),
        ..behaviour
    }
}

/// The hooks of a subresource that is the object itself under rules of its own.
pub fn subresource(gvk: &GroupVersionKind, name: &str) -> Option<Behaviour> {
    let kind = format!("{}/{name}", gvk.kind);
    match (gvk.group.as_str(), kind.as_str()) {
        ("", "Namespace/finalize") => Some(mizzen_core_kinds::behaviour(&kind)),
        ("", "Pod/ephemeralcontainers" | "Pod/resize") => Some(Behaviour {
            row_conditions: mizzen_printers::row_conditions(gvk),
            ..mizzen_core_kinds::behaviour(&kind)
        }),
        ("certificates.k8s.io", "CertificateSigningRequest/approval") => {
            Some(groups::behaviour(&gvk.group, &gvk.version, &kind))
        }
        _ => None,
    }
}

/// The kinds of the Kubernetes release that we are. They are read once: types that have themselves as a part live as long as
/// the program.
///
/// # Panics
/// If a data file that this crate ships does not parse, which its tests rule out.
pub fn catalog() -> KindCatalog {
    static READ: LazyLock<KindCatalog> = LazyLock::new(|| read(mizzen_schemas::schemas()));
    READ.clone()
}

/// The same, and the versions that it had once: each is kept as a kind of [`catalog`].
///
/// # Panics
/// As [`catalog`] does.
pub fn legacy_catalog() -> KindCatalog {
    static READ: LazyLock<KindCatalog> = LazyLock::new(|| read(mizzen_schemas::legacy_schemas()));
    READ.clone()
}

/// The kinds of [`catalog`], in every version in which an etcd that upstream wrote may have them: those that upstream
/// v1.36 decodes, and removed ones.
///
/// # Panics
/// As [`catalog`] does.
pub fn storage_catalog() -> KindCatalog {
    static READ: LazyLock<KindCatalog> = LazyLock::new(|| {
        let mut schemas = mizzen_schemas::stored_schemas().clone();
        let older = std::mem::take(&mut schemas.kinds).into_iter().map(kind);
        let mut kinds = catalog().kinds;
        kinds.extend(older);
        KindCatalog { kinds, schemas }
    });
    READ.clone()
}

fn read(schemas: &Schemas) -> KindCatalog {
    let mut schemas = schemas.clone();
    let mut kinds = std::mem::take(&mut schemas.kinds);
    // A kind that is stored as another has the table of that one unless it has one of its own.
    let tables: HashMap<GroupVersionKind, Vec<Column>> = kinds
        .iter()
        .map(|kind| (kind.gvk.clone(), kind.columns.clone()))
        .collect();
    for kind in kinds.iter_mut().filter(|kind| kind.columns.is_empty()) {
        let table = kind.stored.as_ref().and_then(|stored| tables.get(stored));
        kind.columns = table.cloned().unwrap_or_default();
        kind.rules.shown_as_stored = true;
    }
    KindCatalog {
        kinds: kinds.into_iter().map(kind).collect(),
        schemas,
    }
}

fn kind(data: KindData) -> Kind {
    let behaviour = behaviour(&data.gvk);
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
