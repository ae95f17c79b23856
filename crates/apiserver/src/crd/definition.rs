//! One CustomResourceDefinition. Its kinds are compiled on first use.
//!
//! A definition may be large and never used, so only names, versions and conditions are decoded when it is stored. Its
//! schemas stay in the store's JSON until a request needs them.
//!
//! Invariant: compiled kinds belong to one spec and one set of accepted names. A later state of the definition reuses them
//! as long as these are the same.

use std::sync::{Arc, OnceLock};

use mizzen_object::condition;
use mizzen_object::schema::Struct;
use mizzen_object::{
    GroupVersionKind, Kind, KindData, NoHooks, ResourceScope, Status, Subresource, custom,
};
use mizzen_registry::{Record, Resource, Revision};
use mizzen_value::{Str, Value, json};
use tokio::sync::watch;

use super::CrdDependencies;
use super::convert::CrdConverter;
use super::names::DefinitionNames;
use mizzen_openapi::Published;

/// A CustomResourceDefinition and its compiled kinds.
pub(crate) struct CustomDefinition {
    pub name: Str,
    pub group: Str,
    pub requested: DefinitionNames,
    pub accepted: DefinitionNames,
    pub is_terminating: bool,
    pub is_established: bool,
    /// Whether its objects are served.
    pub is_served: bool,
    pub versions: Vec<DefinitionVersion>,
    scope: ResourceScope,
    /// UID, generation and accepted names: distinguishes this spec from earlier ones and from other definitions.
    identity: String,
    record: Arc<Record>,
    compiled: Arc<CompiledSpec>,
}

/// One version of a definition.
pub(crate) struct DefinitionVersion {
    pub name: Str,
    pub served: bool,
    storage: bool,
    subresources: Vec<&'static str>,
}

/// The compiled kinds of one spec and one set of names.
struct CompiledSpec {
    /// True once spec or names have changed.
    ended: watch::Sender<bool>,
    resources: OnceLock<Vec<Resource>>,
}

const VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];
const LAST_VERBS: [&str; 5] = ["delete", "deletecollection", "get", "list", "watch"];

impl CustomDefinition {
    /// Decodes a stored definition. The compiled kinds of `previous` are reused if they are still valid. `resource` is that
    /// of CustomResourceDefinitions.
    pub(crate) fn read(
        resource: &Resource,
        record: &Arc<Record>,
        previous: Option<&CustomDefinition>,
    ) -> Result<CustomDefinition, Status> {
        let value = resource.decode_outline(record, &["schema", "managedFields"])?;
        let (spec, status, metadata) = (&value["spec"], &value["status"], &value["metadata"]);
        let holds = |condition: &str| is_true(&value, condition);
        let is_established = holds("Established");
        let accepted = DefinitionNames::read(&status["acceptedNames"]);
        let identity = format!(
            "{}/{}/{accepted:?}",
            metadata["uid"].str(),
            metadata["generation"].int()
        );
        let compiled = previous
            .filter(|previous| previous.identity == identity)
            .map(|same| same.compiled.clone());
        Ok(CustomDefinition {
            name: metadata["name"].str().into(),
            group: spec["group"].str().into(),
            requested: DefinitionNames::read(&spec["names"]),
            accepted,
            is_terminating: holds("Terminating"),
            is_established,
            is_served: is_established || holds("NamesAccepted"),
            versions: spec["versions"]
                .list()
                .iter()
                .map(DefinitionVersion::read)
                .collect(),
            scope: if spec["scope"].str() == "Cluster" {
                ResourceScope::Cluster
            } else {
                ResourceScope::Namespaced
            },
            identity,
            record: record.clone(),
            compiled: compiled.unwrap_or_default(),
        })
    }

    /// The revision of the record that this was read from.
    pub(crate) fn revision(&self) -> Revision {
        self.record.revision
    }

    /// The key in a snapshot: group and plural.
    pub(crate) fn key(&self) -> (Str, Str) {
        (self.group.clone(), self.requested.plural.clone())
    }

    /// The whole definition, parsed again.
    pub(crate) fn value(&self) -> Value {
        json::parse(&self.record.value).expect("the record was decoded when it was read")
    }

    /// Whether `other` has the same spec and the same names.
    pub(crate) fn is_like(&self, other: &CustomDefinition) -> bool {
        Arc::ptr_eq(&self.compiled, &other.compiled)
    }

    /// Ends watches and tasks that depend on this spec.
    pub(crate) fn end(&self) {
        self.compiled.ended.send_replace(true);
    }

    /// Becomes true when spec or names change.
    pub(crate) fn ended(&self) -> watch::Receiver<bool> {
        self.compiled.ended.subscribe()
    }

    /// The resource of a version that is served.
    pub(crate) fn resource(
        &self,
        dependencies: &CrdDependencies,
        version: &str,
    ) -> Option<Resource> {
        let at = self
            .versions
            .iter()
            .position(|known| known.name == version && known.served)?;
        Some(self.resources(dependencies).get(at)?.clone())
    }

    /// The resource of the storage version.
    pub(crate) fn stored(&self, dependencies: &CrdDependencies) -> Option<Resource> {
        let at = self.versions.iter().position(|known| known.storage)?;
        Some(self.resources(dependencies).get(at)?.clone())
    }

    fn resources(&self, dependencies: &CrdDependencies) -> &[Resource] {
        self.compiled.resources.get_or_init(|| {
            let definition = self.value();
            let kinds: Arc<[Kind]> = custom::kinds(&definition, &dependencies.object_meta).into();
            let Some(converter) =
                CrdConverter::new(&definition, &kinds, self.revision(), dependencies)
            else {
                return Vec::new();
            };
            let converter = Arc::new(converter);
            kinds
                .iter()
                .map(|kind| Resource::custom(&dependencies.store, kind.clone(), converter.clone()))
                .collect()
        })
    }

    /// The kind of a version without its schema, for discovery.
    pub(crate) fn outline(&self, version: &DefinitionVersion) -> Kind {
        let names = &self.accepted;
        let gvk = |version: &DefinitionVersion| GroupVersionKind {
            group: self.group.clone(),
            version: version.name.clone(),
            kind: names.kind.clone(),
        };
        let verbs: &[&str] = if self.is_terminating {
            &LAST_VERBS
        } else {
            &VERBS
        };
        let no_schema = Arc::new(Struct::new("", "", false));
        let data = KindData {
            list_kind: Some(names.list_kind.clone()),
            plural: names.plural.clone(),
            singular: names.singular.clone(),
            short_names: names.short_names.clone(),
            categories: names.categories.clone(),
            scope: self.scope,
            verbs: verbs.iter().map(|verb| Str::from(*verb)).collect(),
            subresources: version
                .subresources
                .iter()
                .map(|name| Subresource {
                    name: (*name).into(),
                    verbs: ["get", "patch", "update"].map(Str::from).to_vec(),
                    kind: (*name == "scale").then(|| GroupVersionKind {
                        group: "autoscaling".into(),
                        version: "v1".into(),
                        kind: "Scale".into(),
                    }),
                    resets: None,
                })
                .collect(),
            stored: self
                .versions
                .iter()
                .find(|version| version.storage)
                .map(gvk),
            ..KindData::new(gvk(version), no_schema)
        };
        Kind {
            data: Arc::new(data),
            hooks: Arc::new(NoHooks),
        }
    }

    /// The OpenAPI source of a version. Parses the whole definition.
    pub(crate) fn published(&self, version: &str, object_meta: &Arc<Struct>) -> Option<Published> {
        let definition = self.value();
        let at = self
            .versions
            .iter()
            .position(|known| known.name == version)?;
        let kind = custom::kinds(&definition, object_meta)
            .into_iter()
            .nth(at)?;
        let schema =
            definition["spec"]["versions"].list().get(at)?["schema"]["openAPIV3Schema"].clone();
        Some(Published {
            kind,
            schema: Some(Arc::new(schema)),
        })
    }

    /// Changes with everything that is published of this definition.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }
}

impl DefinitionVersion {
    fn read(version: &Value) -> DefinitionVersion {
        let declared = &version["subresources"];
        let has = |name: &&'static str| declared.get(name).is_some();
        DefinitionVersion {
            name: version["name"].str().into(),
            served: version["served"].bool(),
            storage: version["storage"].bool(),
            subresources: ["status", "scale"].into_iter().filter(has).collect(),
        }
    }
}

impl Default for CompiledSpec {
    fn default() -> CompiledSpec {
        CompiledSpec {
            ended: watch::Sender::new(false),
            resources: OnceLock::new(),
        }
    }
}

/// Whether a condition of a definition is true.
pub(super) fn is_true(definition: &Value, type_: &str) -> bool {
    condition::is_true(&definition["status"]["conditions"], type_)
}
