//! Untyped objects of any kind, without loss of unknown fields.
//!
//! ```
//! use mizzen_sdk::Object;
//!
//! let pod: Object = serde_json::from_str(r#"{"metadata":{"name":"web","labels":{"app":"shop"}},"spec":{}}"#)?;
//! assert_eq!(pod.name(), "web");
//! assert_eq!(pod.label("app"), Some("shop"));
//! assert_eq!(pod["spec"]["nodeName"].str(), ""); // what is not there is empty
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::ops::{Deref, DerefMut};

use mizzen_object::owner_references;
use mizzen_value::{Value, json, time};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::key::Key;

/// An untyped object of any kind.
///
/// ```
/// use mizzen_sdk::Object;
///
/// let mut pod = Object::parse(br#"{"spec":{"weight":1.50}}"#)?;
/// pod.entry("spec").set("nodeName", "n1");
/// assert_eq!(pod["spec"]["nodeName"].str(), "n1");
/// assert_eq!(serde_json::to_string(&pod)?, r#"{"spec":{"weight":1.50,"nodeName":"n1"}}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Object(pub Value);

impl Object {
    /// An object from its JSON text.
    pub fn parse(text: &[u8]) -> Result<Object, json::SyntaxError> {
        json::parse(text).map(Object)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.meta("name").str()
    }

    /// Its namespace, empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.meta("namespace").str()
    }

    /// Its UID.
    pub fn uid(&self) -> &str {
        self.meta("uid").str()
    }

    /// Its resource version.
    pub fn version(&self) -> &str {
        self.meta("resourceVersion").str()
    }

    /// Its namespace and name.
    pub fn key(&self) -> Key {
        Key::new(self.namespace(), self.name())
    }

    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.meta("labels")[name].as_str()
    }

    /// Its labels.
    pub fn labels(&self) -> Vec<(&str, &str)> {
        let labels = self.meta("labels").entries();
        labels.map(|(label, value)| (label, value.str())).collect()
    }

    /// The value of an annotation.
    ///
    /// ```
    /// use mizzen_sdk::Object;
    ///
    /// let pod = Object::parse(br#"{"metadata":{"annotations":{"note":"hi"},"ownerReferences":[{"uid":"x"},{"uid":"o","controller":true}]}}"#)?;
    /// assert_eq!(pod.annotation("note"), Some("hi"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.meta("annotations")[name].as_str()
    }

    /// Whether it is terminating.
    pub fn is_terminating(&self) -> bool {
        !self.meta("deletionTimestamp").is_null()
    }

    /// Its creation time in Unix seconds; 0 if it is unknown.
    pub fn created(&self) -> i64 {
        time::to_unix(self.meta("creationTimestamp").str()).unwrap_or_default()
    }

    /// Whether it has a finalizer.
    pub fn has_finalizer(&self, finalizer: &str) -> bool {
        self.meta("finalizers")
            .list()
            .iter()
            .any(|known| known.str() == finalizer)
    }

    /// Its owner references.
    ///
    /// ```
    /// use mizzen_sdk::Object;
    ///
    /// let pod = Object::parse(br#"{"metadata":{"annotations":{"note":"hi"},"ownerReferences":[{"uid":"x"},{"uid":"o","controller":true}]}}"#)?;
    /// assert_eq!(pod.owners().len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn owners(&self) -> &[Value] {
        self.meta("ownerReferences").list()
    }

    /// The owner reference of its controller.
    ///
    /// ```
    /// use mizzen_sdk::Object;
    ///
    /// let pod = Object::parse(br#"{"metadata":{"annotations":{"note":"hi"},"ownerReferences":[{"uid":"x"},{"uid":"o","controller":true}]}}"#)?;
    /// assert_eq!(pod.controller().map(|owner| owner["uid"].str()), Some("o"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn controller(&self) -> Option<&Value> {
        owner_references::controller_of(self)
    }

    /// Whether the object with this UID controls it.
    pub fn is_controlled_by(&self, uid: &str) -> bool {
        owner_references::is_controlled_by(self, uid)
    }

    fn meta(&self, field: &str) -> &Value {
        &self.0["metadata"][field]
    }
}

impl Deref for Object {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl DerefMut for Object {
    fn deref_mut(&mut self) -> &mut Value {
        &mut self.0
    }
}

impl From<Value> for Object {
    fn from(value: Value) -> Object {
        Object(value)
    }
}

/// From JSON only: numbers keep their notation.
impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        Object::parse(text.get().as_bytes()).map_err(D::Error::custom)
    }
}

/// To JSON only.
impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(json::to_string(&self.0))
            .map_err(S::Error::custom)?
            .serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = r#"{"metadata":{"name":"web","namespace":"shop","uid":"u","creationTimestamp":"2026-01-01T00:00:00Z","finalizers":["a"],"ownerReferences":[{"uid":"x"},{"uid":"o","controller":true}]},"spec":{"weight":1.50}}"#;

    #[test]
    fn numbers_keep_their_notation() {
        let pod: Object = serde_json::from_str(POD).unwrap();
        assert_eq!(serde_json::to_string(&pod).unwrap(), POD);
    }

    #[test]
    fn metadata_is_read() {
        let pod = Object::parse(POD.as_bytes()).unwrap();
        assert_eq!(pod.key().to_string(), "shop/web");
        assert_eq!(pod.created(), 1_767_225_600);
        assert!(pod.is_controlled_by("o") && !pod.is_controlled_by("x"));
        assert!(pod.has_finalizer("a") && !pod.has_finalizer("b") && !pod.is_terminating());
    }

    #[test]
    fn invalid_json_is_rejected() {
        assert!(serde_json::from_str::<Object>("{").is_err());
    }
}
