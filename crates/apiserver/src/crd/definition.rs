//! One definition: what is known of it at once, and its kinds, which are made when somebody asks for them.
//!
//! A definition may be large and never used, so that only names, versions and state are read when it is stored. Its
//! schemas stay in the store's text until a request needs them.
//!
//! Invariant: what is compiled belongs to one spec and one set of accepted names; it is passed on from one state of
//! a definition to the next as long as these are the same.

use std::sync::{Arc, OnceLock};

use mizzen_object::condition;
use mizzen_object::schema::Struct;
use mizzen_object::{
    GroupVersionKind, Kind, KindData, NoHooks, Scope, Status, Subresource, custom,
};
use mizzen_registry::{Record, Resource, Revision};
use mizzen_value::{Str, Value, json};
use tokio::sync::watch;

use super::Means;
use super::convert::Converter;
use super::names::Names;
use mizzen_openapi::Published;

/// What a definition says, and what has come of it.
pub(crate) struct Definition {
    pub name: Str,
    pub group: Str,
    pub asked: Names,
    pub accepted: Names,
    pub is_terminating: bool,
    pub is_established: bool,
    /// Whether requests for its objects are answered.
    pub is_served: bool,
    pub versions: Vec<Version>,
    scope: Scope,
    /// What tells this definition from others of the same name, and this spec from earlier ones.
    identity: String,
    record: Arc<Record>,
    live: Arc<Live>,
}

/// One version of a definition.
pub(crate) struct Version {
    pub name: Str,
    pub served: bool,
    storage: bool,
    subresources: Vec<&'static str>,
}

/// What goes with one spec and one set of names.
struct Live {
    /// Turns true when they are no longer so.
    ended: watch::Sender<bool>,
    compiled: OnceLock<Vec<Resource>>,
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

impl Definition {
    /// Reads a stored definition. What `previous` has compiled is taken over if it still holds. `resource` is that of
    /// definitions themselves.
    pub(crate) fn read(
        resource: &Resource,
        record: &Arc<Record>,
        previous: Option<&Definition>,
    ) -> Result<Definition, Status> {
        let value = resource.decode_outline(record, &["schema", "managedFields"])?;
        let (spec, status, metadata) = (&value["spec"], &value["status"], &value["metadata"]);
        let holds = |condition: &str| is_true(&value, condition);
        let is_established = holds("Established");
        let accepted = Names::read(&status["acceptedNames"]);
        let identity = format!(
            "{}/{}/{accepted:?}",
            metadata["uid"].str(),
            metadata["generation"].int()
        );
        let live = previous
            .filter(|previous| previous.identity == identity)
            .map(|same| same.live.clone());
        Ok(Definition {
            name: metadata["name"].str().into(),
            group: spec["group"].str().into(),
            asked: Names::read(&spec["names"]),
            accepted,
            is_terminating: holds("Terminating"),
            is_established,
            is_served: is_established || holds("NamesAccepted"),
            versions: spec["versions"].list().iter().map(Version::read).collect(),
            scope: if spec["scope"].str() == "Cluster" {
                Scope::Cluster
            } else {
                Scope::Namespaced
            },
            identity,
            record: record.clone(),
            live: live.unwrap_or_default(),
        })
    }

    /// The revision of the record that this was read from.
    pub(crate) fn revision(&self) -> Revision {
        self.record.revision
    }

    /// By which the definition's place among others is found.
    pub(crate) fn key(&self) -> (Str, Str) {
        (self.group.clone(), self.asked.plural.clone())
    }

    /// The whole definition.
    pub(crate) fn value(&self) -> Value {
        json::parse(&self.record.value).expect("the record was decoded when it was read")
    }

    /// Whether `other` has the same spec and the same names.
    pub(crate) fn is_like(&self, other: &Definition) -> bool {
        Arc::ptr_eq(&self.live, &other.live)
    }

    /// Ends whatever depends on the spec as it was.
    pub(crate) fn end(&self) {
        self.live.ended.send_replace(true);
    }

    /// Turns true when spec and names are no longer what they are now.
    pub(crate) fn ended(&self) -> watch::Receiver<bool> {
        self.live.ended.subscribe()
    }

    /// The resource of a version that is served.
    pub(crate) fn resource(&self, means: &Means, version: &str) -> Option<Resource> {
        let at = self
            .versions
            .iter()
            .position(|known| known.name == version && known.served)?;
        Some(self.resources(means).get(at)?.clone())
    }

    /// The resource of the version in which objects are stored.
    pub(crate) fn stored(&self, means: &Means) -> Option<Resource> {
        let at = self.versions.iter().position(|known| known.storage)?;
        Some(self.resources(means).get(at)?.clone())
    }

    fn resources(&self, means: &Means) -> &[Resource] {
        self.live.compiled.get_or_init(|| {
            let definition = self.value();
            let kinds: Arc<[Kind]> = custom::kinds(&definition, &means.object_meta).into();
            let Some(converter) = Converter::new(&definition, &kinds, self.revision(), means)
            else {
                return Vec::new();
            };
            let converter = Arc::new(converter);
            kinds
                .iter()
                .map(|kind| Resource::custom(&means.store, kind.clone(), converter.clone()))
                .collect()
        })
    }

    /// A version as discovery describes it.
    pub(crate) fn outline(&self, version: &Version) -> Kind {
        let names = &self.accepted;
        let gvk = |version: &Version| GroupVersionKind {
            group: self.group.clone(),
            version: version.name.clone(),
            kind: names.kind.clone(),
        };
        let verbs: &[&str] = if self.is_terminating {
            &LAST_VERBS
        } else {
            &VERBS
        };
        let shapeless = Arc::new(Struct::new("", "", false));
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
                .map(|name| subresource(name))
                .collect(),
            stored: self
                .versions
                .iter()
                .find(|version| version.storage)
                .map(gvk),
            ..KindData::new(gvk(version), shapeless)
        };
        Kind {
            data: Arc::new(data),
            hooks: Arc::new(NoHooks),
        }
    }

    /// What OpenAPI says of a version. Reads the whole definition; ask where that is allowed.
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

    /// What tells everything that is published of this definition from everything else.
    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }
}

impl Version {
    fn read(version: &Value) -> Version {
        let declared = &version["subresources"];
        let has = |name: &&'static str| declared.get(name).is_some();
        Version {
            name: version["name"].str().into(),
            served: version["served"].bool(),
            storage: version["storage"].bool(),
            subresources: ["status", "scale"].into_iter().filter(has).collect(),
        }
    }
}

impl Default for Live {
    fn default() -> Live {
        Live {
            ended: watch::Sender::new(false),
            compiled: OnceLock::new(),
        }
    }
}

fn subresource(name: &'static str) -> Subresource {
    let scale = GroupVersionKind {
        group: "autoscaling".into(),
        version: "v1".into(),
        kind: "Scale".into(),
    };
    let verbs = ["get", "patch", "update"].map(Str::from).to_vec();
    Subresource {
        name: name.into(),
        verbs,
        kind: (name == "scale").then_some(scale),
        resets: None,
    }
}

/// Whether a condition of a definition holds.
pub(super) fn is_true(definition: &Value, type_: &str) -> bool {
    condition::is_true(&definition["status"]["conditions"], type_)
}
