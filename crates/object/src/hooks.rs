//! Hooks: the rules of a kind that its schema cannot express.
//!
//! Hooks are pure functions of the object and its [`HookContext`]. Prefer the schema; a hook that two
//! kinds need belongs there.

use crate::violation::Violations;
use mizzen_value::{Str, Value};

/// The operation on an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It is created.
    Create,
    /// It is updated through its main resource.
    Update,
    /// It is updated through `/status`.
    Status,
}

/// The context of a hook besides the object.
#[derive(Debug, Clone, Copy)]
pub struct HookContext<'a> {
    /// The operation.
    pub action: Action,
    /// The time, in RFC 3339 to the second.
    pub now: &'a str,
    /// The name of the user.
    pub user: &'a str,
    /// The groups of the user.
    pub groups: &'a [Str],
    /// The UID of the user; may be empty.
    pub uid: &'a str,
    /// The extra fields of the user: lists of strings by key.
    pub extra: &'a Value,
}

/// The rules of a kind that are code.
pub trait Hooks: Send + Sync {
    /// Sets defaults, after those of the schema. Runs whenever an object is decoded.
    fn default(&self, _object: &mut Value) {}

    /// Normalizes an object, or returns why it cannot be decoded. Runs whenever an object is
    /// decoded, before defaults.
    fn normalize(&self, _object: &mut Value) -> Result<(), String> {
        Ok(())
    }

    /// Clears what the client may not set and sets what only the server knows. On an update `old`
    /// is the stored object. Status, generation and system metadata are handled by the registry.
    fn prepare(&self, _new: &mut Value, _old: Option<&Value>, _context: &HookContext) {}

    /// The object for the computation of managed fields, if it differs. Kubernetes: upstream sets
    /// these fields whenever an object is decoded; here [`prepare`](Hooks::prepare) must still
    /// distinguish them from what the client sent.
    fn object_for_managed_fields(&self, _object: &Value) -> Option<Value> {
        None
    }

    /// Validates what the schema cannot. Adds every violation, not the first.
    fn validate(
        &self,
        _new: &Value,
        _old: Option<&Value>,
        _context: &HookContext,
        _violations: &mut Violations,
    ) {
    }

    /// The maximum work of [`Hooks::validate`], in steps of a regular expression search: some
    /// nanoseconds each.
    fn validation_cost(&self, _new: &Value) -> u64 {
        0
    }

    /// Validates what only this version has, before the object is converted to the stored version.
    fn validate_unconverted(&self, _new: &Value, _violations: &mut Violations) {}

    /// Warnings for the client.
    fn warnings(&self, _new: &Value, _old: Option<&Value>, _context: &HookContext) -> Vec<String> {
        Vec::new()
    }

    /// The value of a selectable field that is computed.
    fn selectable(&self, _object: &Value, _field: &str) -> Option<Str> {
        None
    }

    /// The cells of a table row for the columns that have no path, in order. `now` is in Unix
    /// seconds.
    fn cells(&self, _object: &Value, _now: i64) -> Vec<Value> {
        Vec::new()
    }

    /// The sort key of table rows, if they are not in list order.
    fn row_rank(&self) -> Option<fn(&Value) -> i64> {
        None
    }

    /// The conditions of the table row of an object.
    fn row_conditions(&self, _object: &Value) -> Vec<Value> {
        Vec::new()
    }

    /// The grace period in seconds when the client asked for `asked`; 0 deletes at once. `None`
    /// means that objects of this kind have no graceful deletion.
    fn grace_period(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }

    /// Marks an object as terminating, for kinds that do it in their own way; returns whether they
    /// do. `now` is in RFC 3339.
    fn mark_deleted(&self, _object: &mut Value, _now: &str) -> bool {
        false
    }

    /// Whether the object cannot be removed yet for a reason other than `metadata.finalizers`.
    fn is_removal_blocked(&self, _object: &Value) -> bool {
        false
    }

    /// Converts an object of this version to the stored version.
    fn to_stored(&self, _object: &mut Value) {}

    /// Converts a stored object to this version.
    #[expect(
        clippy::wrong_self_convention,
        reason = "it is the object that comes from storage, not the hooks"
    )]
    fn from_stored(&self, _object: &mut Value) {}
}

/// The hooks of a kind that needs none.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {}
