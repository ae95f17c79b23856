//! What a write takes besides its place in the store, and gives back if it is not stored.

use mizzen_object::Status;
use mizzen_object::schema::CanonicalObject;
use mizzen_registry::BoxFuture;
use mizzen_value::Value;

use super::Attributes;
use crate::verbs::ResourceCall;

/// What a component does around the writes of some resources. Kubernetes: `BeginCreate`, `BeginUpdate` and
/// `BeforeDelete` of a resource's storage (registry/generic/registry/store.go).
pub trait WriteStrategy: Send + Sync {
    /// Begins the write of one request; none if the component is not concerned with it.
    fn begin(&self, call: &ResourceCall) -> Option<Box<dyn WriteTransaction>> {
        let _ = call;
        None
    }

    /// Rejects the deletion of one object before the object is read.
    fn check_delete(&self, call: &ResourceCall) -> Result<(), Status> {
        let _ = call;
        Ok(())
    }
}

/// The part of a component in the writes of one request: it allocates addresses, or charges a quota.
///
/// Invariant: [`settle`](WriteTransaction::settle) is called at the end unless the client goes away; whatever must be given
/// back then is given back on drop.
pub trait WriteTransaction: Send + Sync {
    /// Allocates what an object needs, after everything that mutates it. Called anew for every attempt.
    fn allocate<'a>(
        &'a self,
        call: &'a ResourceCall<'a>,
        old: Option<&'a Value>,
        object: &'a mut CanonicalObject,
    ) -> BoxFuture<'a, Result<(), Status>> {
        let _ = (call, old, object);
        Box::pin(std::future::ready(Ok(())))
    }

    /// An attempt to store `new` begins; none is a deletion. What an earlier attempt took may not be what this one needs.
    fn begin_attempt<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        new: Option<&'a Value>,
    ) -> BoxFuture<'a, ()> {
        let _ = (attributes, new);
        Box::pin(std::future::ready(()))
    }

    /// Takes what an object needs once all plug-ins have admitted it, or rejects it.
    fn reserve<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        new: &'a Value,
    ) -> BoxFuture<'a, Result<(), Status>> {
        let _ = (attributes, new);
        Box::pin(std::future::ready(Ok(())))
    }

    /// The request is done; `outcome` says whether its writes were stored.
    fn settle<'a>(
        &'a self,
        call: &'a ResourceCall<'a>,
        outcome: WriteOutcome,
    ) -> BoxFuture<'a, ()> {
        let _ = (call, outcome);
        Box::pin(std::future::ready(()))
    }
}

/// Whether the writes of a request were stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// They were.
    Stored,
    /// They were not, and will not be.
    NotStored,
    /// The store did not say; they may be stored at any later time.
    Unknown,
}

impl WriteOutcome {
    pub(super) fn of<T>(outcome: &Result<T, Status>) -> WriteOutcome {
        match outcome {
            Ok(_) => WriteOutcome::Stored,
            Err(status) if status.is_outcome_unknown => WriteOutcome::Unknown,
            Err(_) => WriteOutcome::NotStored,
        }
    }

    /// Whether what was taken for the writes must be kept.
    pub fn may_be_stored(self) -> bool {
        self != WriteOutcome::NotStored
    }
}
