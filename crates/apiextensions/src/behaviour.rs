//! A kind's hooks as a table of functions, so that each file gives only what its kinds need.

use mizzen_object::{Context, Hooks, Violations};
use mizzen_value::{Str, Value};

/// What data cannot say about a kind. See [`Hooks`] for what each function is for.
#[derive(Clone, Copy)]
pub struct Behaviour {
    /// See [`Hooks::default`].
    pub default: fn(&mut Value),
    /// See [`Hooks::read`].
    pub read: fn(&mut Value) -> Result<(), String>,
    /// See [`Hooks::prepare`].
    pub prepare: fn(&mut Value, Option<&Value>, &Context),
    /// See [`Hooks::foresee`].
    pub foresee: fn(&Value) -> Option<Value>,
    /// See [`Hooks::validate`].
    pub validate: fn(&Value, Option<&Value>, &Context, &mut Violations),
    /// See [`Hooks::validate_unconverted`].
    pub validate_unconverted: fn(&Value, &mut Violations),
    /// See [`Hooks::warnings`].
    pub warnings: fn(&Value, Option<&Value>, &Context) -> Vec<String>,
    /// See [`Hooks::selectable`].
    pub selectable: fn(&Value, &str) -> Option<Str>,
    /// See [`Hooks::cells`].
    pub cells: fn(&Value, i64) -> Vec<Value>,
    /// See [`Hooks::row_rank`].
    pub row_rank: Option<fn(&Value) -> i64>,
    /// See [`Hooks::row_conditions`].
    pub row_conditions: fn(&Value) -> Vec<Value>,
    /// See [`Hooks::grace`].
    pub grace: fn(&Value, Option<i64>) -> Option<i64>,
    /// See [`Hooks::mark_deleted`].
    pub mark_deleted: fn(&mut Value, &str) -> bool,
    /// See [`Hooks::is_held`].
    pub is_held: fn(&Value) -> bool,
    /// See [`Hooks::to_stored`].
    pub to_stored: fn(&mut Value),
    /// See [`Hooks::from_stored`].
    pub from_stored: fn(&mut Value),
}

impl Behaviour {
    /// A kind that data describes whole.
    pub const NONE: Behaviour = Behaviour {
        default: |_| {},
        read: |_| Ok(()),
        prepare: |_, _, _| {},
        foresee: |_| None,
        validate: |_, _, _, _| {},
        validate_unconverted: |_, _| {},
        warnings: |_, _, _| Vec::new(),
        selectable: |_, _| None,
        cells: |_, _| Vec::new(),
        row_rank: None,
        row_conditions: |_| Vec::new(),
        grace: |_, _| None,
        mark_deleted: |_, _| false,
        is_held: |_| false,
        to_stored: |_| {},
        from_stored: |_| {},
    };
}

impl Hooks for Behaviour {
    fn default(&self, object: &mut Value) {
        (self.default)(object)
    }

    fn read(&self, object: &mut Value) -> Result<(), String> {
        (self.read)(object)
    }

    fn prepare(&self, new: &mut Value, old: Option<&Value>, context: &Context) {
        (self.prepare)(new, old, context)
    }

    fn foresee(&self, object: &Value) -> Option<Value> {
        (self.foresee)(object)
    }

    fn validate(
        &self,
        new: &Value,
        old: Option<&Value>,
        context: &Context,
        violations: &mut Violations,
    ) {
        (self.validate)(new, old, context, violations)
    }

    fn validate_unconverted(&self, new: &Value, violations: &mut Violations) {
        (self.validate_unconverted)(new, violations)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, context: &Context) -> Vec<String> {
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

    fn grace(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        (self.grace)(object, asked)
    }

    fn mark_deleted(&self, object: &mut Value, now: &str) -> bool {
        (self.mark_deleted)(object, now)
    }

    fn is_held(&self, object: &Value) -> bool {
        (self.is_held)(object)
    }

    fn to_stored(&self, object: &mut Value) {
        (self.to_stored)(object)
    }

    fn from_stored(&self, object: &mut Value) {
        (self.from_stored)(object)
    }
}
