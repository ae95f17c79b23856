//! A kind joined with the place where its objects are kept.

use std::sync::Arc;

use bytes::Bytes;
use mizzen_object::{Kind, Status, Value, Violations, json, schema};
use mizzen_store::{Space, Store};

use crate::{Key, Object};

/// A kind in a version, the version in which it is stored, and where. Cheap to clone.
#[derive(Clone)]
pub struct Resource(Arc<Inner>);

struct Inner {
    kind: Kind,
    stored: Option<Kind>,
    space: Space,
    /// How the text of every object begins: `{"kind":"Pod","apiVersion":"v1",`.
    head: Box<[u8]>,
}

impl Resource {
    /// Joins `kind` with its space. `stored` is the kind in the version in which objects are kept, if that
    /// is another one.
    pub fn new(store: &Store, kind: Kind, stored: Option<Kind>) -> Resource {
        let space = store.space(&kind.space());
        let head = head(&kind);
        Resource(Arc::new(Inner { kind, stored, space, head }))
    }

    /// The kind in the version that is asked for.
    pub fn kind(&self) -> &Kind {
        &self.0.kind
    }

    /// The kind in the version that is kept.
    pub(crate) fn stored(&self) -> &Kind {
        self.0.stored.as_ref().unwrap_or(&self.0.kind)
    }

    /// Whether objects are kept in another version.
    pub fn is_converted(&self) -> bool {
        self.0.stored.is_some()
    }

    /// Where its objects are.
    pub fn space(&self) -> &Space {
        &self.0.space
    }

    /// The part of an object's text that says what it is; inside lists it is left out.
    pub fn head(&self) -> &[u8] {
        &self.0.head
    }

    /// Turns an object of this version into the stored one, and says what is wrong with it that cannot be
    /// seen afterwards.
    pub(crate) fn judge_and_convert(&self, value: &mut Value) -> Violations {
        let mut violations = Violations::default();
        if self.is_converted() {
            self.0.kind.hooks.validate_unconverted(value, &mut violations);
        }
        self.to_stored(value);
        violations
    }

    /// Turns an object of this version into the stored one.
    pub(crate) fn to_stored(&self, value: &mut Value) {
        if let Some(stored) = &self.0.stored {
            self.0.kind.hooks.to_stored(value);
            name_it(stored, value);
            schema::canonical(&stored.root, value);
        }
    }

    /// Turns a stored object into this version.
    #[expect(clippy::wrong_self_convention, reason = "it is the object that comes from storage")]
    pub(crate) fn from_stored(&self, value: &mut Value) {
        if self.is_converted() {
            self.0.kind.hooks.from_stored(value);
            name_it(&self.0.kind, value);
            schema::canonical(&self.0.kind.root, value);
        }
    }

    /// An object as it comes back from storage.
    pub fn round_trip(&self, value: &mut Value) {
        self.to_stored(value);
        self.from_stored(value);
    }

    /// An object of this version in another one.
    pub fn convert(&self, object: &Value, to: &Resource) -> Value {
        let mut object = object.clone();
        self.to_stored(&mut object);
        to.from_stored(&mut object);
        object
    }

    /// The text of a stored object in this version.
    pub(crate) fn present(&self, stored: &Bytes) -> Bytes {
        if !self.is_converted() {
            return stored.clone();
        }
        let mut value = json::parse(stored).unwrap_or_default();
        self.from_stored(&mut value);
        json::to_string(&value).into()
    }

    pub(crate) fn not_found(&self, name: &str) -> Status {
        Status::not_found(&self.kind().resource(), name)
    }

    pub(crate) fn find(&self, key: &Key) -> Option<Object> {
        let record = self.space().snapshot().get(&key.stored())?.clone();
        Some(Object::stored(self, record))
    }
}

/// Sets what an object says it is.
pub(crate) fn name_it(kind: &Kind, value: &mut Value) {
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
