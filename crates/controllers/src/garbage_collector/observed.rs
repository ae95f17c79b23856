//! What the graph reads from an object's metadata.

use std::sync::Arc;

use mizzen_value::Value;

use super::identity::{InternedNames, KindName, ObjectIdentity, Uid};

/// The finalizer of foreground deletion.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of orphan deletion.
pub(super) const ORPHAN: &str = "orphan";

/// An observed object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ObservedObject {
    pub identity: ObjectIdentity,
    pub owners: Box<[OwnerReference]>,
    pub deletion: DeletionState,
}

/// The progress of an object's deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct DeletionState {
    /// It has a deletionTimestamp.
    pub is_going: bool,
    /// It is being deleted and has the foregroundDeletion finalizer.
    pub is_foreground: bool,
    /// It is being deleted and has the orphan finalizer.
    pub is_orphaning: bool,
}

/// An owner reference.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OwnerReference {
    pub uid: Uid,
    pub kind: Arc<KindName>,
    pub name: Box<str>,
    /// blockOwnerDeletion.
    pub blocks: bool,
}

impl ObservedObject {
    /// Reads an object's metadata. `kind` is the kind under which it is listed.
    pub(super) fn from_metadata(
        names: &mut InternedNames,
        kind: &Arc<KindName>,
        object: &Value,
    ) -> ObservedObject {
        let metadata = &object["metadata"];
        let identity = ObjectIdentity {
            kind: kind.clone(),
            namespace: names.namespace(metadata["namespace"].str()),
            name: metadata["name"].str().into(),
            uid: metadata["uid"].str().into(),
        };
        ObservedObject {
            identity,
            owners: owners(names, metadata),
            deletion: DeletionState::from_metadata(metadata),
        }
    }
}

pub(super) fn owners(names: &mut InternedNames, metadata: &Value) -> Box<[OwnerReference]> {
    let read = |reference: &Value| OwnerReference {
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

impl DeletionState {
    pub(super) fn from_metadata(metadata: &Value) -> DeletionState {
        let is_going = !metadata["deletionTimestamp"].is_null();
        let waits = |finalizer| is_going && has_finalizer(metadata, finalizer);
        DeletionState {
            is_going,
            is_foreground: waits(FOREGROUND),
            is_orphaning: waits(ORPHAN),
        }
    }
}

pub(super) fn has_finalizer(metadata: &Value, finalizer: &str) -> bool {
    metadata["finalizers"]
        .list()
        .iter()
        .any(|found| found.str() == finalizer)
}
