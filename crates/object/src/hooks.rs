//! What a schema cannot say about a kind.
//!
//! Hooks are pure: they see the object and what they are told, and touch nothing else. Before writing one
//! ask whether the schema could say it; if two kinds need the same hook, it belongs in the schema.

use crate::violation::Violations;
use mizzen_value::{Str, Value};

/// What is being done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It is made.
    Create,
    /// It is changed through its main resource.
    Update,
    /// Its status is changed through `/status`.
    Status,
}

/// What a hook may know besides the object.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// What is being done.
    pub action: Action,
    /// The time, in RFC 3339 to the second.
    pub now: &'a str,
    /// Who asks.
    pub user: &'a str,
    /// The groups they are in.
    pub groups: &'a [Str],
    /// What tells them from an earlier user of the same name; may be empty.
    pub uid: &'a str,
    /// What else is known of them: lists of texts by name.
    pub extra: &'a Value,
}

/// The rules of a kind that are code.
pub trait Hooks: Send + Sync {
    /// Fills what nobody has said, after the schema's own defaults. Runs whenever an object is decoded.
    fn default(&self, _object: &mut Value) {}

    /// Puts what may be written in several ways into one, or says why it cannot be read at all. Runs whenever an
    /// object is decoded, before defaults.
    fn read(&self, _object: &mut Value) -> Result<(), String> {
        Ok(())
    }

    /// Clears what the caller may not set and fills what only the server knows. On an update `old` is
    /// the object as stored. Status, generation and system metadata are the machine's business.
    fn prepare(&self, _new: &mut Value, _old: Option<&Value>, _context: &Context) {}

    /// The object as whoever writes it will own it, if that is more than is in it yet. Kubernetes: upstream fills it in
    /// whenever an object is decoded; here [`prepare`](Hooks::prepare) must still tell it from what the caller said.
    fn foresee(&self, _object: &Value) -> Option<Value> {
        None
    }

    /// The rules that the schema cannot say. Adds every violation, not the first.
    fn validate(
        &self,
        _new: &Value,
        _old: Option<&Value>,
        _context: &Context,
        _violations: &mut Violations,
    ) {
    }

    /// How much work [`Hooks::validate`] may be at most, in steps of a search: some nanoseconds each.
    fn validation_cost(&self, _new: &Value) -> u64 {
        0
    }

    /// Rules that only this version has, on an object that is not yet turned into the stored version: what
    /// would not be seen of it there.
    fn validate_unconverted(&self, _new: &Value, _violations: &mut Violations) {}

    /// What to tell a client that does something legal but unwise.
    fn warnings(&self, _new: &Value, _old: Option<&Value>, _context: &Context) -> Vec<String> {
        Vec::new()
    }

    /// A selectable field whose value is not simply the field's.
    fn selectable(&self, _object: &Value, _field: &str) -> Option<Str> {
        None
    }

    /// The cells of a table row for those columns that have no path, in their order. `now` is in Unix seconds.
    fn cells(&self, _object: &Value, _now: i64) -> Vec<Value> {
        Vec::new()
    }

    /// By what the rows of a table are ordered, if not as they are listed.
    fn row_rank(&self) -> Option<fn(&Value) -> i64> {
        None
    }

    /// The conditions of an object's row in a table.
    fn row_conditions(&self, _object: &Value) -> Vec<Value> {
        Vec::new()
    }

    /// How long, in seconds, deleting this object takes when the caller asked for `asked`; 0 is at once.
    /// `None` means that objects of this kind never linger.
    fn grace(&self, _object: &Value, _asked: Option<i64>) -> Option<i64> {
        None
    }

    /// Marks an object as being deleted, for kinds that show it in a way of their own; true if they do. `now` is in
    /// RFC 3339.
    fn mark_deleted(&self, _object: &mut Value, _now: &str) -> bool {
        false
    }

    /// Whether something besides `metadata.finalizers` keeps a deleted object from going.
    fn is_held(&self, _object: &Value) -> bool {
        false
    }

    /// Turns an object of this version into the version in which it is stored.
    fn to_stored(&self, _object: &mut Value) {}

    /// Turns a stored object into this version.
    #[expect(
        clippy::wrong_self_convention,
        reason = "it is the object that comes from storage, not the hooks"
    )]
    fn from_stored(&self, _object: &mut Value) {}
}

/// A kind that data describes whole.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {}
