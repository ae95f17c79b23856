//! Which Rust types does a CustomResourceDefinition describe?
//!
//! ```
//! use mizzen_value::yaml;
//!
//! let definition = yaml::read(br#"
//! apiVersion: apiextensions.k8s.io/v1
//! kind: CustomResourceDefinition
//! metadata: {name: ovens.shop.example.com}
//! spec:
//!   group: shop.example.com
//!   scope: Namespaced
//!   names: {kind: Oven, plural: ovens}
//!   versions:
//!   - name: v1
//!     storage: true
//!     schema:
//!       openAPIV3Schema:
//!         type: object
//!         properties:
//!           spec: {type: object, properties: {maxTemperature: {type: integer, format: int32}}}
//! "#)?.value;
//! let code = mizzen_crd_types::generate(&definition, None)?;
//! assert!(code.contains("pub struct OvenSpec"));
//! assert!(code.contains("pub max_temperature: Option<i32>"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The code derives `kube::CustomResource`, serde's traits and `JsonSchema`. It depends on the crates
//! `kube` (feature `derive`), `k8s-openapi`, `schemars`, `serde` (feature `derive`) and `serde_json`.
//!
//! In the order of reading: `schema` turns the schema into a model of types, `name` finds their names,
//! `emit` writes them.
//!
//! Invariant: the code is a function of the definition; the order of its properties does not matter.

mod emit;
mod name;
mod schema;

use mizzen_value::Value;

use emit::Root;
use schema::Model;

/// Why there are no types.
///
/// ```
/// use mizzen_crd_types::{GenerateError, generate};
/// use mizzen_value::value;
///
/// let error = generate(&value!({"kind": "Pod"}), None).unwrap_err();
/// assert_eq!(error, GenerateError::NotADefinition("Pod".into()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// The object is of another kind, or of an old version.
    #[error("expected a CustomResourceDefinition of apiextensions.k8s.io/v1, found {0:?}")]
    NotADefinition(String),
    /// The definition does not have the version.
    #[error("{name} has no version {version:?}; its versions are {}", .known.join(", "))]
    NoVersion {
        /// The definition.
        name: String,
        /// The version that was asked for.
        version: String,
        /// Its versions.
        known: Vec<String>,
    },
    /// The version has no schema.
    #[error("{name} has no schema of version {version}")]
    NoSchema {
        /// The definition.
        name: String,
        /// The version.
        version: String,
    },
}

/// The Rust code of a version of a CustomResourceDefinition; by default of the version in which its
/// objects are stored.
pub fn generate(definition: &Value, version: Option<&str>) -> Result<String, GenerateError> {
    let (kind, api_version) = (definition["kind"].str(), definition["apiVersion"].str());
    if kind != "CustomResourceDefinition" {
        return Err(GenerateError::NotADefinition(kind.into()));
    }
    if api_version != "apiextensions.k8s.io/v1" {
        return Err(GenerateError::NotADefinition(api_version.into()));
    }
    let name = definition.at("metadata.name").str();
    let spec = &definition["spec"];
    let mut versions = spec["versions"].items();
    let found = match version {
        Some(version) => versions.find(|it| it["name"].str() == version),
        None => versions.find(|it| it["storage"].bool()),
    };
    let found = found.ok_or_else(|| GenerateError::NoVersion {
        name: name.into(),
        version: version.unwrap_or("that is stored").into(),
        known: spec["versions"]
            .items()
            .map(|it| it["name"].str().to_owned())
            .collect(),
    })?;
    let schema = found.at("schema.openAPIV3Schema");
    if schema.is_null() {
        return Err(GenerateError::NoSchema {
            name: name.into(),
            version: found["name"].str().into(),
        });
    }
    let root = Root::new(name, spec, found);
    let model = Model::new(&root.type_name, schema);
    Ok(emit::write(&root, &model))
}
