//! A resource: a kind with its storage.

use std::sync::Arc;

use mizzen_object::schema::CanonicalObject;
use mizzen_object::{Kind, Status, Violations, schema};
use mizzen_store::{Keyspace, Record, Store};
use mizzen_value::{Value, json};

use crate::decode::{decode, decode_outline, header};
use crate::storage_prefix::resource_prefix;
use crate::{Convert, Key, Object};

/// A kind in a version, the version in which it is stored, and where. Cheap to clone.
#[derive(Clone)]
pub struct Resource(Arc<ResourceInner>);

pub(crate) struct ResourceInner {
    kind: Kind,
    versions: VersionRelation,
    space: Keyspace,
    /// How the text of every object begins that is left out inside lists: `{"kind":"Pod","apiVersion":"v1",`.
    head: Box<[u8]>,
}

/// The relation between the requested version and the storage version.
enum VersionRelation {
    /// They are equal.
    Same,
    /// Objects are prepared, validated and stored in this hub version; hooks convert.
    Hub(Kind),
    /// Objects are prepared and validated in the requested version.
    Equals(Arc<dyn Convert>),
}

impl Resource {
    /// The resource of `kind`. `stored` is the kind in its storage version, if that is another one.
    pub fn new(store: &Store, kind: Kind, stored: Option<Kind>) -> Resource {
        let head = head(&kind);
        Resource::with(
            store,
            kind,
            stored.map_or(VersionRelation::Same, VersionRelation::Hub),
            head,
        )
    }

    /// The resource of one version of a custom kind.
    pub fn custom(store: &Store, kind: Kind, convert: Arc<dyn Convert>) -> Resource {
        // Kubernetes: custom objects have kind and apiVersion inside lists, too.
        Resource::with(
            store,
            kind,
            VersionRelation::Equals(convert),
            Box::from(*b"{"),
        )
    }

    fn with(store: &Store, kind: Kind, versions: VersionRelation, head: Box<[u8]>) -> Resource {
        let space = store.keyspace(&kind.space());
        Resource(Arc::new(ResourceInner {
            kind,
            versions,
            space,
            head,
        }))
    }

    pub(crate) fn inner(&self) -> &Arc<ResourceInner> {
        &self.0
    }

    /// The kind in the requested version.
    pub fn kind(&self) -> &Kind {
        &self.0.kind
    }

    /// Whether the kind is defined by a CustomResourceDefinition.
    pub fn is_custom(&self) -> bool {
        matches!(self.0.versions, VersionRelation::Equals(_))
    }

    /// Whether objects are stored in another version, the hub.
    pub fn is_converted(&self) -> bool {
        matches!(self.0.versions, VersionRelation::Hub(_))
    }

    /// The kind in its storage version.
    pub(crate) fn stored(&self) -> &Kind {
        match &self.0.versions {
            VersionRelation::Same => &self.0.kind,
            VersionRelation::Hub(hub) => hub,
            VersionRelation::Equals(convert) => convert.stored(),
        }
    }

    /// The kind in the version in which objects are prepared and validated.
    pub(crate) fn validation_kind(&self) -> &Kind {
        match &self.0.versions {
            VersionRelation::Hub(hub) => hub,
            _ => &self.0.kind,
        }
    }

    /// Whether the record is stored in the requested version.
    pub(crate) fn is_current(&self, record: &Record) -> bool {
        match &self.0.versions {
            VersionRelation::Same => true,
            VersionRelation::Hub(_) => false,
            VersionRelation::Equals(convert) => convert.is_current(record, &self.0.kind),
        }
    }

    /// Whether conversion calls no webhook; labels are equal in all versions then.
    pub fn converts_locally(&self) -> bool {
        match &self.0.versions {
            VersionRelation::Equals(convert) => convert.only_renames(),
            _ => true,
        }
    }

    /// The etcd key under which upstream stores an object.
    pub(crate) fn storage_key(&self, key: &Key) -> String {
        let prefix = resource_prefix(self.space().name(), self.is_custom());
        format!("/registry/{prefix}/{}", key.stored())
    }

    /// Whether upstream has a watch cache for its objects; it has none for those that expire
    /// (DefaultWatchCacheSizes).
    pub(crate) fn is_cached(&self) -> bool {
        self.kind().rules.ttl.is_none()
    }

    /// The keyspace of its objects.
    pub fn space(&self) -> &Keyspace {
        &self.0.space
    }

    /// The prefix of an object's JSON with kind and apiVersion, which lists leave out.
    pub fn head(&self) -> &[u8] {
        &self.0.head
    }

    /// Converts an object to the hub version and returns violations that cannot be detected there.
    pub(crate) fn validate_and_convert(&self, object: &mut CanonicalObject) -> Violations {
        let mut violations = Violations::default();
        if self.is_converted() {
            let hooks = &self.0.kind.hooks;
            hooks.validate_unconverted(object, &mut violations);
            self.to_hub(object);
        }
        violations
    }

    /// Converts an object of this version to the hub version.
    pub(crate) fn to_hub(&self, value: &mut Value) {
        if let VersionRelation::Hub(hub) = &self.0.versions {
            self.0.kind.hooks.to_stored(value);
            set_type_meta(hub, value);
            schema::canonical(&hub.root, value);
        }
    }

    /// Converts an object of the hub version to this version.
    #[expect(
        clippy::wrong_self_convention,
        reason = "it is the object that comes from the hub"
    )]
    pub(crate) fn from_hub(&self, value: &mut Value) {
        if let VersionRelation::Hub(_) = &self.0.versions {
            self.0.kind.hooks.from_stored(value);
            set_type_meta(&self.0.kind, value);
            schema::canonical(&self.0.kind.root, value);
        }
    }

    /// Converts a validated object to the storage version.
    pub(crate) async fn to_stored(&self, value: &mut Value) -> Result<(), Status> {
        if let VersionRelation::Equals(convert) = &self.0.versions {
            *value = convert.write(std::mem::take(value), &self.0.kind).await?;
        }
        Ok(())
    }

    /// Converts an object to the storage version and back. Kubernetes: so does a dry run
    /// (registry/generic/registry/dryrun.go).
    pub(crate) async fn through_storage(&self, value: &mut Value) -> Result<(), Status> {
        if let VersionRelation::Equals(convert) = &self.0.versions {
            let stored = convert.write(std::mem::take(value), &self.0.kind).await?;
            *value = convert
                .read(vec![stored], &self.0.kind)
                .await?
                .pop()
                .unwrap_or_default();
        }
        Ok(())
    }

    /// A stored object in the version in which objects are validated.
    pub(crate) fn validation_value(&self, object: &Object) -> Result<Value, Status> {
        match (&self.0.versions, object.record()) {
            (VersionRelation::Hub(_), Some(record)) => decode(self, record),
            _ => Ok(object.value()),
        }
    }

    /// Decodes a record in its storage version, without some members. A record that cannot be decoded is logged and
    /// counted.
    pub fn decode_outline(&self, record: &Record, uninteresting: &[&str]) -> Result<Value, Status> {
        decode_outline(self, record, uninteresting)
    }

    /// The object in its storage version with the kind of that version, if tables show it.
    pub fn in_storage_version(&self, object: &Value) -> Option<(&Kind, Value)> {
        let VersionRelation::Hub(hub) = &self.0.versions else {
            return None;
        };
        if !self.kind().rules.shown_as_stored {
            return None;
        }
        let mut object = object.clone();
        self.to_hub(&mut object);
        Some((hub, object))
    }

    /// Converts an object to the hub version and back.
    pub fn round_trip(&self, value: &mut Value) {
        self.to_hub(value);
        self.from_hub(value);
    }

    /// An object of this version in another one that has the same hub.
    pub fn convert(&self, object: &Value, to: &Resource) -> Value {
        let mut object = object.clone();
        self.to_hub(&mut object);
        to.from_hub(&mut object);
        object
    }

    /// Converts an object of another version of the same kind to this one. May call a conversion webhook.
    pub async fn convert_from(&self, object: &Value, from: &Resource) -> Result<Value, Status> {
        match &self.0.versions {
            VersionRelation::Equals(convert) => {
                let turned = convert
                    .read(vec![object.clone()], &self.0.kind)
                    .await?
                    .pop();
                Ok(turned.expect("as many objects as were given"))
            }
            _ => Ok(from.convert(object, self)),
        }
    }

    /// Converts an object from the validation version, as a [`ValidatingAdmission`](crate::ValidatingAdmission) gets it, to this version.
    pub fn from_validation_version(&self, validated: &Value) -> Value {
        let mut object = validated.clone();
        self.from_hub(&mut object);
        object
    }

    /// Converts an object of another version of a custom kind to this one, without pruning.
    pub async fn translate(&self, mut object: Value) -> Result<Value, Status> {
        match &self.0.versions {
            VersionRelation::Equals(convert) if !convert.only_renames() => {
                let mut translated = convert.translate(vec![object], &self.0.kind).await?;
                Ok(translated.pop().unwrap_or_default())
            }
            _ => {
                set_type_meta(&self.0.kind, &mut object);
                Ok(object)
            }
        }
    }

    /// Renders a stored object in this version, if no converter has to be called.
    pub(crate) fn render_without_converter(
        &self,
        record: &Arc<Record>,
    ) -> Result<Option<Object>, Status> {
        let header = header(self, record)?;
        if self.is_current(record) {
            return Ok(Some(Object::stored(record.clone())));
        }
        if let Some(object) = self.rendered(record, header) {
            return Ok(Some(object));
        }
        match &self.0.versions {
            VersionRelation::Equals(_) => Ok(None),
            _ => {
                let mut value = decode(self, record)?;
                self.from_hub(&mut value);
                Ok(Some(self.render(record.clone(), &value)))
            }
        }
    }

    /// Renders stored objects in this version. Those that are not cached in it are converted in one call.
    pub(crate) async fn render_all(
        &self,
        records: Vec<Arc<Record>>,
    ) -> Result<Vec<Object>, Status> {
        let mut objects = Vec::with_capacity(records.len());
        let mut unknown = Vec::new();
        for (at, record) in records.iter().enumerate() {
            let object = self.render_without_converter(record)?;
            if object.is_none() {
                unknown.push((at, decode(self, record)?));
            }
            objects.push(object);
        }
        if let (VersionRelation::Equals(convert), false) = (&self.0.versions, unknown.is_empty()) {
            let (places, values): (Vec<usize>, Vec<Value>) = unknown.into_iter().unzip();
            let converted = convert.read(values, &self.0.kind).await?;
            for (at, value) in places.into_iter().zip(&converted) {
                objects[at] = Some(self.render(records[at].clone(), value));
            }
        }
        Ok(objects
            .into_iter()
            .map(|object| object.expect("as many objects as were given"))
            .collect())
    }

    /// Renders one stored object in this version.
    pub(crate) async fn render_one(&self, record: Arc<Record>) -> Result<Object, Status> {
        match self.render_without_converter(&record)? {
            Some(object) => Ok(object),
            None => Ok(self
                .render_all(vec![record])
                .await?
                .pop()
                .expect("as many objects as records")),
        }
    }

    pub(crate) fn not_found(&self, name: &str) -> Status {
        Status::not_found(&self.kind().resource(), name)
    }

    pub(crate) fn record(&self, key: &Key) -> Option<Arc<Record>> {
        self.space().snapshot().get(&key.stored()).cloned()
    }

    /// The error for a missing object. Kubernetes: without a namespace the request is invalid
    /// (registry/generic/registry/store.go).
    pub(crate) fn missing(&self, key: &Key) -> Status {
        self.check_namespace(&key.namespace)
            .err()
            .unwrap_or_else(|| self.not_found(&key.name))
    }

    /// Rejects an empty namespace for a namespaced kind.
    pub fn check_namespace(&self, namespace: &str) -> Result<(), Status> {
        match self.kind().is_namespaced() && namespace.is_empty() {
            true => Err(Status::bad_request("Namespace parameter required.")),
            false => Ok(()),
        }
    }
}

/// Sets kind and apiVersion.
pub(crate) fn set_type_meta(kind: &Kind, value: &mut Value) {
    value.set("kind", &kind.gvk.kind);
    value.set("apiVersion", kind.gvk.api_version());
}

fn head(kind: &Kind) -> Box<[u8]> {
    let mut head = b"{\"kind\":".to_vec();
    json::write_string(&kind.gvk.kind, &mut head);
    head.extend_from_slice(b",\"apiVersion\":");
    json::write_string(&kind.gvk.api_version(), &mut head);
    head.push(b',');
    head.into()
}
