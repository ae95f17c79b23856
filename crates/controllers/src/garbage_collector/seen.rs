//! What does the graph want to know of an object?

use std::sync::Arc;

use mizzen_value::Value;

use super::name::{Identity, KindName, Names, Uid};

/// The finalizer of an object whose dependents go first.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object whose dependents stay.
pub(super) const ORPHAN: &str = "orphan";

/// An object as far as the graph is concerned.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Seen {
    /// Which object.
    pub identity: Identity,
    /// To whom it belongs.
    pub owners: Box<[Owner]>,
    /// How far its end has come.
    pub end: End,
}

/// How far an object's end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct End {
    /// It is being deleted.
    pub is_going: bool,
    /// It is being deleted and waits until its dependents are gone.
    pub is_foreground: bool,
    /// It is being deleted and waits until its dependents are on their own.
    pub is_orphaning: bool,
}

/// A reference to an owner.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Owner {
    /// Its uid.
    pub uid: Uid,
    /// Its kind.
    pub kind: Arc<KindName>,
    /// Its name.
    pub name: Box<str>,
    /// Whether it cannot go before this dependent.
    pub blocks: bool,
}

impl Seen {
    /// Reads an object's metadata. `kind` is what the object is listed as.
    pub(super) fn of(names: &mut Names, kind: &Arc<KindName>, object: &Value) -> Seen {
        let metadata = &object["metadata"];
        let identity = Identity {
            kind: kind.clone(),
            namespace: names.namespace(metadata["namespace"].str()),
            name: metadata["name"].str().into(),
            uid: metadata["uid"].str().into(),
        };
        Seen {
            identity,
            owners: owners(names, metadata),
            end: End::of(metadata),
        }
    }
}

/// To whom an object belongs.
pub(super) fn owners(names: &mut Names, metadata: &Value) -> Box<[Owner]> {
    let read = |reference: &Value| Owner {
        uid: reference["uid"].str().into(),
        kind: names.kind(reference["apiVersion"].str(), reference["kind"].str()),
        name: reference["name"].str().into(),
        blocks: reference["blockOwnerDeletion"].bool(),
    };
    metadata["ownerReferences"]
        .list()
        .iter()
        .map(read)
        .collect()
}

impl End {
    /// Reads an object's metadata.
    pub(super) fn of(metadata: &Value) -> End {
        let is_going = !metadata["deletionTimestamp"].is_null();
        let waits = |finalizer| is_going && has_finalizer(metadata, finalizer);
        End {
            is_going,
            is_foreground: waits(FOREGROUND),
            is_orphaning: waits(ORPHAN),
        }
    }
}

/// Whether an object has a finalizer.
pub(super) fn has_finalizer(metadata: &Value, finalizer: &str) -> bool {
    metadata["finalizers"]
        .list()
        .iter()
        .any(|found| found.str() == finalizer)
}
