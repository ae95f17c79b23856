//! The hooks of kinds as strategies.
//!
//! A kind's file implements [`KindStrategy`]; [`Behaviour`] is the same as a table of functions, so that another version of a
//! kind replaces some functions and inherits the rest.

use mizzen_object::{HookContext, Hooks, Violations};
use mizzen_value::{Str, Value};

/// The functions of a kind that its data cannot describe: upstream's defaults.go, strategy.go, validation.go and
/// conversion.go. See [`Hooks`] for the contract of each.
pub trait KindStrategy {
    /// See [`Hooks::default`].
    fn default(_object: &mut Value) {}

    /// See [`Hooks::normalize`].
    fn normalize(_object: &mut Value) -> Result<(), String> {
        Ok(())
    }

    /// See [`Hooks::prepare`].
    fn prepare(_new: &mut Value, _old: Option<&Value>, _context: &HookContext) {}

    /// See [`Hooks::object_for_managed_fields`].
    fn object_for_managed_fields(_object: &Value) -> Option<Value> {
        None
    }

    /// See [`Hooks::validate`].
    fn validate(
        _new: &Value,
        _old: Option<&Value>,
        _context: &HookContext,
        _violations: &mut Violations,
    ) {
    }

    /// See [`Hooks::validate_unconverted`].
    fn validate_unconverted(_new: &Value, _violations: &mut Violations) {}

    /// See [`Hooks::warnings`].
    fn warnings(_new: &Value, _old: Option<&Value>, _context: &HookContext) -> Vec<String> {
        Vec::new()
    }

    /// See [`Hooks::selectable`].
    fn selectable(_object: &Value, _field: &str) -> Option<Str> {
        None
    }

    /// See [`Hooks::grace_period`].
    fn grace_period(_object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// See [`Hooks::mark_deleted`].
    fn mark_deleted(_object: &mut Value, _now: &str) -> bool {
        false
    }

    /// See [`Hooks::is_removal_blocked`].
    fn is_removal_blocked(_object: &Value) -> bool {
        false
    }

    /// See [`Hooks::to_stored`].
    fn to_stored(_object: &mut Value) {}

    /// See [`Hooks::from_stored`].
    fn from_stored(_object: &mut Value) {}
}

/// The strategy of a kind that its data describes completely.
struct DataOnly;

impl KindStrategy for DataOnly {}

/// The hooks of a kind as a table. See [`Hooks`] for the contract of each.
#[derive(Clone, Copy)]
pub struct Behaviour {
    /// See [`Hooks::default`].
    pub default: fn(&mut Value),
    /// See [`Hooks::normalize`].
    pub normalize: fn(&mut Value) -> Result<(), String>,
    /// See [`Hooks::prepare`].
    pub prepare: fn(&mut Value, Option<&Value>, &HookContext),
    /// See [`Hooks::object_for_managed_fields`].
    pub object_for_managed_fields: fn(&Value) -> Option<Value>,
    /// See [`Hooks::validate`].
    pub validate: fn(&Value, Option<&Value>, &HookContext, &mut Violations),
    /// See [`Hooks::validate_unconverted`].
    pub validate_unconverted: fn(&Value, &mut Violations),
    /// See [`Hooks::warnings`].
    pub warnings: fn(&Value, Option<&Value>, &HookContext) -> Vec<String>,
    /// See [`Hooks::selectable`].
    pub selectable: fn(&Value, &str) -> Option<Str>,
    /// See [`Hooks::cells`].
    pub cells: fn(&Value, i64) -> Vec<Value>,
    /// See [`Hooks::row_rank`].
    pub row_rank: Option<fn(&Value) -> i64>,
    /// See [`Hooks::row_conditions`].
    pub row_conditions: fn(&Value) -> Vec<Value>,
    /// See [`Hooks::grace_period`].
    pub grace_period: fn(&Value, Option<i64>) -> Option<i64>,
    /// See [`Hooks::mark_deleted`].
    pub mark_deleted: fn(&mut Value, &str) -> bool,
    /// See [`Hooks::is_removal_blocked`].
    pub is_removal_blocked: fn(&Value) -> bool,
    /// See [`Hooks::to_stored`].
    pub to_stored: fn(&mut Value),
    /// See [`Hooks::from_stored`].
    pub from_stored: fn(&mut Value),
}

impl Behaviour {
    /// A kind that its data describes completely.
    pub const NONE: Behaviour = Behaviour::of::<DataOnly>();

    /// The functions of a strategy.
    pub const fn of<S: KindStrategy>() -> Behaviour {
        Behaviour {
            default: S::default,
            normalize: S::normalize,
            prepare: S::prepare,
            object_for_managed_fields: S::object_for_managed_fields,
            validate: S::validate,
            validate_unconverted: S::validate_unconverted,
            warnings: S::warnings,
            selectable: S::selectable,
            cells: |_, _| Vec::new(),
            row_rank: None,
            row_conditions: |_| Vec::new(),
            grace_period: S::grace_period,
            mark_deleted: S::mark_deleted,
            is_removal_blocked: S::is_removal_blocked,
            to_stored: S::to_stored,
            from_stored: S::from_stored,
        }
    }
}

impl Hooks for Behaviour {
    fn default(&self, object: &mut Value) {
        (self.default)(object)
    }

    fn normalize(&self, object: &mut Value) -> Result<(), String> {
        (self.normalize)(object)
    }

    fn prepare(&self, new: &mut Value, old: Option<&Value>, context: &HookContext) {
        (self.prepare)(new, old, context)
    }

    fn object_for_managed_fields(&self, object: &Value) -> Option<Value> {
        (self.object_for_managed_fields)(object)
    }

    fn validate(
        &self,
        new: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        (self.validate)(new, old, context, violations)
    }

    fn validate_unconverted(&self, new: &Value, violations: &mut Violations) {
        (self.validate_unconverted)(new, violations)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, context: &HookContext) -> Vec<String> {
        (self.warnings)(new, old, context)
    }

    fn selectable(&self, object: &Value, field: &str) -> Option<Str> {
        (self.selectable)(object, field)
    }

    fn cells(&self, object: &Value, now: i64) -> Vec<Value> {
        (self.cells)(object, now)
    }

    fn row_rank(&self) -> Option<fn(&Value) -> i64> {
        self.row_rank
    }

    fn row_conditions(&self, object: &Value) -> Vec<Value> {
        (self.row_conditions)(object)
    }

    fn grace_period(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        (self.grace_period)(object, requested)
    }

    fn mark_deleted(&self, object: &mut Value, now: &str) -> bool {
        (self.mark_deleted)(object, now)
    }

    fn is_removal_blocked(&self, object: &Value) -> bool {
        (self.is_removal_blocked)(object)
    }

    fn to_stored(&self, object: &mut Value) {
        (self.to_stored)(object)
    }

    fn from_stored(&self, object: &mut Value) {
        (self.from_stored)(object)
    }
}
