//! Managed fields: `metadata.managedFields` and server-side apply.
//!
//! Every write names a manager. A manager owns the fields that it updates, and the fields that it
//! applies as long as it applies them. If two managers apply different values to a field, the
//! second gets a conflict unless it forces.
//!
//! [`FieldManager`] describes a write; [`FieldManager::update`] handles every write that is not an
//! apply, [`FieldManager::apply`] those that are. Both run after decoding and defaulting, and
//! before mutating admission and other changes by the server, which have no manager. Once the
//! object is final, [`keep_times`] makes a write that changes nothing a no-op.
//!
//! Invariant: pure. The time and the version converter are passed in.

mod apply;
mod cap_managers;
mod compare;
mod conflict;
mod entry;
mod field_manager;
mod field_set;
mod fields_v1;
mod last_applied;
mod manager;
mod merge;
mod path_element;
mod prune;
mod rule;
mod scale_handler;
mod shape;
mod structured_merge;
mod to_field_set;
mod update;

#[cfg(test)]
mod tests;

pub use apply::ApplyError;
pub use compare::{Comparison, compare};
pub use conflict::{ApplyConflicts, FieldConflict};
pub use entry::{
    ManagedFields, ManagedFieldsEntry, ManagedFieldsError, ManagedFieldsOperation,
    ManagerIdentifier,
};
pub use field_manager::{FieldManager, OneVersion, VersionConverter};
pub use field_set::{FieldSet, FieldSetNode};
pub use fields_v1::FieldsError;
pub use manager::manager_name;
pub use path_element::PathElement;
pub use rule::ItemError;
pub use scale_handler::ScaleHandler;
pub use structured_merge::{StructuredMergeError, apply_structured_merge};
pub use to_field_set::to_field_set;
pub use update::keep_times;
