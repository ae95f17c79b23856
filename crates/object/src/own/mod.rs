//! Who owns which field of an object: `metadata.managedFields` and server-side apply.
//!
//! Every write names a manager. What he changes he owns from then on; what he applies he owns as long as he
//! applies it. Two who apply different values to one field are in conflict, and nobody overwrites the other
//! unless he insists.
//!
//! [`Writer`] says who writes, how and when; [`Writer::update`] is for every write that is not an apply,
//! [`Writer::apply`] for those that are. Both come after decoding and defaults and before mutating admission and
//! everything else that the server itself changes, for what it changes nobody owns. Once the object is what will
//! be stored, [`keep_times`] turns a write that changes nothing into none.
//!
//! Invariant: pure. The time comes in, and so does the conversion between versions.

mod apply;
mod cap;
mod check;
mod compare;
mod conflict;
mod element;
mod fields_v1;
mod last_applied;
mod lay;
mod managed;
mod manager;
mod merge;
mod of;
mod prune;
mod rule;
mod scale;
mod set;
mod update;
mod writer;

#[cfg(test)]
mod tests;

pub use apply::ApplyError;
pub use compare::{Comparison, compare};
pub use conflict::{Conflict, Conflicts};
pub use element::Element;
pub use fields_v1::FieldsError;
pub use lay::{LayError, lay};
pub use managed::{Entry, Managed, ManagedError, Operation, Owner};
pub use manager::manager_name;
pub use of::fields_of;
pub use rule::ItemError;
pub use scale::ScaleOwners;
pub use set::{FieldSet, Node};
pub use update::keep_times;
pub use writer::{OneVersion, Versions, Writer};
