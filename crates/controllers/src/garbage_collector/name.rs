//! How is an object told from others? By its uid; where it is found say its kind, namespace and name.
//!
//! A graph has hundreds of thousands of these, so that they are small: a uid is a number, and kinds and namespaces are
//! shared by all who have them.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

/// What tells an object from an earlier one of its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Uid {
    /// What every server gives: a UUID in lower case.
    Uuid([u8; 16]),
    /// What people write into owner references.
    Other(Box<str>),
}

impl From<&str> for Uid {
    fn from(text: &str) -> Uid {
        read_uuid(text.as_bytes()).map_or_else(|| Uid::Other(text.into()), Uid::Uuid)
    }
}

fn read_uuid(text: &[u8]) -> Option<[u8; 16]> {
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

/// Capital letters are left to `Other`, so that every uid is written as it was read.
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

/// A kind as references name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct KindName {
    /// Its name. It comes first, so that all versions of a kind are neighbours.
    pub kind: Box<str>,
    /// Its group and version: `apps/v1`, `v1`.
    pub api_version: Box<str>,
}

/// Which object, and where it is found.
///
/// They are in the order in which one is looked for under several names: by kind, then namespace, then name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Identity {
    /// Its kind.
    pub kind: Arc<KindName>,
    /// Its namespace, empty for objects in none.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its uid.
    pub uid: Uid,
}

/// As the garbage collector writes it into events.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Identity {
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

/// The kinds and namespaces that are in use, each once.
#[derive(Debug, Default)]
pub(super) struct Names {
    kinds: Pool<KindName>,
    namespaces: Pool<str>,
}

impl Names {
    /// A kind.
    pub(super) fn kind(&mut self, api_version: &str, kind: &str) -> Arc<KindName> {
        let kind = KindName {
            kind: kind.into(),
            api_version: api_version.into(),
        };
        self.kinds.share(&kind.clone(), || Arc::new(kind))
    }

    /// A namespace.
    pub(super) fn namespace(&mut self, namespace: &str) -> Arc<str> {
        self.namespaces.share(namespace, || namespace.into())
    }
}

/// Values that many share.
#[derive(Debug)]
struct Pool<T: ?Sized> {
    values: HashSet<Arc<T>>,
    /// How many there may be before those that nobody has any more are dropped.
    limit: usize,
}

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Pool<T> {
        Pool {
            values: HashSet::new(),
            limit: 1024,
        }
    }
}

impl<T: Hash + Eq + ?Sized> Pool<T> {
    fn share(&mut self, value: &T, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
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
    fn names_that_nobody_has_are_dropped() {
        let mut names = Names::default();
        let kept = names.namespace("kept");
        (0..5000).for_each(|number| drop(names.namespace(&number.to_string())));
        assert!(names.namespaces.values.len() < 1100);
        assert!(Arc::ptr_eq(&kept, &names.namespace("kept")));
    }
}
