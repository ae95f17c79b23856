//! The metadata of objects, typed or not.

use crate::key::Key;
use crate::object::Object;

/// Reads the metadata of an object: of every type of kube, and of untyped ones. Upstream:
/// `meta.Accessor`.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use mizzen_sdk::{Accessor, Object};
///
/// fn describe(object: &impl Accessor) -> String {
///     format!("{} ({})", object.key(), object.label("app").unwrap_or("no app"))
/// }
///
/// let text = r#"{"metadata":{"name":"web","namespace":"shop","labels":{"app":"web"}}}"#;
/// let (typed, untyped): (Pod, Object) = (serde_json::from_str(text)?, serde_json::from_str(text)?);
/// assert_eq!(describe(&typed), "shop/web (web)");
/// assert_eq!(describe(&untyped), describe(&typed));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub trait Accessor: Send + Sync {
    /// Its namespace and name.
    fn key(&self) -> Key;
    /// Its UID.
    fn uid(&self) -> &str;
    /// The value of a label.
    fn label(&self, name: &str) -> Option<&str>;
    /// Whether it is terminating.
    fn is_terminating(&self) -> bool;
    /// The UID of its controller.
    fn controller_uid(&self) -> Option<&str>;
}

impl Accessor for Object {
    fn key(&self) -> Key {
        Object::key(self)
    }

    fn uid(&self) -> &str {
        Object::uid(self)
    }

    fn label(&self, name: &str) -> Option<&str> {
        Object::label(self, name)
    }

    fn is_terminating(&self) -> bool {
        Object::is_terminating(self)
    }

    fn controller_uid(&self) -> Option<&str> {
        self.controller().map(|owner| owner["uid"].str())
    }
}

impl<K: kube::Resource + Send + Sync> Accessor for K {
    fn key(&self) -> Key {
        Key::of(self)
    }

    fn uid(&self) -> &str {
        self.meta().uid.as_deref().unwrap_or_default()
    }

    fn label(&self, name: &str) -> Option<&str> {
        let labels = self.meta().labels.as_ref()?;
        labels.get(name).map(String::as_str)
    }

    fn is_terminating(&self) -> bool {
        self.meta().deletion_timestamp.is_some()
    }

    fn controller_uid(&self) -> Option<&str> {
        crate::owner::controller_of(self).map(|owner| &*owner.uid)
    }
}
