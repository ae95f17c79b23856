//! The key of an object: its namespace and name.

use std::fmt;
use std::str::FromStr;

/// The namespace and name of an object. Formatted as `namespace/name`, or `name` for cluster-scoped
/// objects.
///
/// ```
/// use mizzen_sdk::Key;
///
/// let key: Key = "shop/web".parse()?;
/// assert_eq!(key, Key::new("shop", "web"));
/// assert_eq!((key.namespace(), key.name()), ("shop", "web"));
/// assert_eq!(Key::cluster("node-1").to_string(), "node-1");
/// # Ok::<(), mizzen_sdk::ParseKeyError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Key {
    namespace: Box<str>,
    name: Box<str>,
}

impl Key {
    /// The object `name` in `namespace`, which is empty for cluster-scoped objects.
    pub fn new(namespace: impl Into<Box<str>>, name: impl Into<Box<str>>) -> Key {
        Key {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The cluster-scoped object `name`.
    pub fn cluster(name: impl Into<Box<str>>) -> Key {
        Key::new("", name)
    }

    /// The key of an object.
    pub fn of<K: kube::Resource>(object: &K) -> Key {
        let meta = object.meta();
        let part = |part: &Option<String>| part.as_deref().unwrap_or_default().into();
        Key {
            namespace: part(&meta.namespace),
            name: part(&meta.name),
        }
    }

    /// Its namespace, empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match &*self.namespace {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// Text that is no key.
///
/// ```
/// let error = "a/b/c".parse::<mizzen_sdk::Key>().unwrap_err();
/// assert_eq!(error.to_string(), r#"unexpected key format: "a/b/c""#);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unexpected key format: {0:?}")]
pub struct ParseKeyError(String);

impl FromStr for Key {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Key, ParseKeyError> {
        match text.split('/').collect::<Vec<_>>().as_slice() {
            [name] => Ok(Key::cluster(*name)),
            [namespace, name] => Ok(Key::new(*namespace, *name)),
            _ => Err(ParseKeyError(text.into())),
        }
    }
}
