//! The key of an object.

use std::sync::Arc;

use mizzen_value::Str;

/// Namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Key {
    /// The namespace; `""` for cluster-scoped kinds.
    pub namespace: Str,
    /// The name.
    pub name: Str,
}

impl Key {
    /// The key of an object.
    pub fn new(namespace: &str, name: &str) -> Key {
        Key {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The key in the store: namespaces sort by their name and a slash, as upstream's keys do.
    pub(crate) fn stored(&self) -> Arc<str> {
        match self.namespace.as_str() {
            "" => self.name.as_str().into(),
            namespace => format!("{namespace}/{}", self.name).into(),
        }
    }

    /// What the keys of a namespace begin with; everything for `""`.
    pub(crate) fn prefix(namespace: &str) -> String {
        if namespace.is_empty() {
            String::new()
        } else {
            format!("{namespace}/")
        }
    }

    /// The key of a stored record.
    pub(crate) fn of(stored: &str) -> Key {
        match stored.split_once('/') {
            Some((namespace, name)) => Key::new(namespace, name),
            None => Key::new("", stored),
        }
    }
}
