//! Identities of objects: uid, kind, namespace and name.
//!
//! The graph has hundreds of thousands of them, so they are small: a uid is 16 bytes, and kinds and
//! namespaces are interned.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

/// The uid of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Uid {
    /// A UUID in lower case, as every server generates it.
    Uuid([u8; 16]),
    /// Any other text in an owner reference.
    Other(Box<str>),
}

impl Uid {
    fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
        if text.len() != 36 || [8, 13, 18, 23].iter().any(|at| text[*at] != b'-') {
            return None;
        }
        let mut digits = text
            .iter()
            .enumerate()
            .filter(|(at, _)| ![8, 13, 18, 23].contains(at))
            .map(|(_, d)| *d);
        let mut uuid = [0; 16];
        for byte in &mut uuid {
            *byte = digit(digits.next()?)? << 4 | digit(digits.next()?)?;
        }
        Some(uuid)
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Uid {
        Uid::parse_uuid(text.as_bytes()).map_or_else(|| Uid::Other(text.into()), Uid::Uuid)
    }
}

/// Upper case is left to `Other`, so that every uid is written as it was read.
fn digit(letter: u8) -> Option<u8> {
    match letter {
        b'0'..=b'9' => Some(letter - b'0'),
        b'a'..=b'f' => Some(letter - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let bytes = match self {
            Uid::Uuid(bytes) => bytes,
            Uid::Other(text) => return f.write_str(text),
        };
        for (at, byte) in bytes.iter().enumerate() {
            let dash = if [4, 6, 8, 10].contains(&at) { "-" } else { "" };
            write!(f, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

/// The kind of an owner reference.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct KindName {
    /// It comes first, so that all versions of a kind are sorted together.
    pub kind: Box<str>,
    pub api_version: Box<str>,
}

/// An object.
///
/// The order, by kind, namespace and name, is the one in which alternate identities are tried.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ObjectIdentity {
    pub kind: Arc<KindName>,
    /// Empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    pub name: Box<str>,
    pub uid: Uid,
}

/// The format of the garbage collector's events.
impl fmt::Display for ObjectIdentity {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let ObjectIdentity {
            kind,
            namespace,
            name,
            uid,
        } = self;
        let KindName { kind, api_version } = &**kind;
        write!(
            f,
            "[{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}]"
        )
    }
}

/// Interned kinds and namespaces.
#[derive(Debug, Default)]
pub(super) struct InternedNames {
    kinds: InternPool<KindName>,
    namespaces: InternPool<str>,
}

impl InternedNames {
    pub(super) fn kind(&mut self, api_version: &str, kind: &str) -> Arc<KindName> {
        let kind = KindName {
            kind: kind.into(),
            api_version: api_version.into(),
        };
        self.kinds.intern(&kind.clone(), || Arc::new(kind))
    }

    pub(super) fn namespace(&mut self, namespace: &str) -> Arc<str> {
        self.namespaces.intern(namespace, || namespace.into())
    }
}

/// Interned values.
#[derive(Debug)]
struct InternPool<T: ?Sized> {
    values: HashSet<Arc<T>>,
    /// The size from which values that are not used any more are dropped.
    limit: usize,
}

impl<T: ?Sized> Default for InternPool<T> {
    fn default() -> InternPool<T> {
        InternPool {
            values: HashSet::new(),
            limit: 1024,
        }
    }
}

impl<T: Hash + Eq + ?Sized> InternPool<T> {
    fn intern(&mut self, value: &T, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        if let Some(known) = self.values.get(value) {
            return known.clone();
        }
        if self.values.len() >= self.limit {
            self.values.retain(|value| Arc::strong_count(value) > 1);
            self.limit = (self.values.len() * 2).max(1024);
        }
        let value = make();
        self.values.insert(value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_uid(text: &str, is_uuid: bool) {
        let uid = Uid::from(text);
        assert_eq!(matches!(uid, Uid::Uuid(_)), is_uuid, "{text}");
        assert_eq!(uid.to_string(), text);
    }

    #[test]
    fn a_uid_is_written_as_it_was_read() {
        check_uid("0123abcd-4567-89ef-0123-456789abcdef", true);
        check_uid("0123ABCD-4567-89ef-0123-456789abcdef", false);
        check_uid("0123abcd-4567-89ef-0123-456789abcdeg", false);
        check_uid("0123abcd045670-89ef-0123-456789abcde", false);
        check_uid("öööööööööööööööööö", false);
        check_uid("", false);
    }

    #[test]
    fn unused_names_are_dropped() {
        let mut names = InternedNames::default();
        let kept = names.namespace("kept");
        (0..5000).for_each(|number| drop(names.namespace(&number.to_string())));
        assert!(names.namespaces.values.len() < 1100);
        assert!(Arc::ptr_eq(&kept, &names.namespace("kept")));
    }
}
