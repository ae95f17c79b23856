//! The hooks of a kind that a definition describes: those of its schema, then those of the author.

use std::sync::Arc;

use mizzen_object::{HookContext, Hooks, Violations};
use mizzen_value::{Str, Value};

/// Hooks of a schema and of the author of a server.
///
/// Conversion is the author's alone: the schema's is that of [`CrdConverter`](crate::crd::CrdConverter).
pub(super) struct JoinedHooks {
    pub schema: Arc<dyn Hooks>,
    pub own: Arc<dyn Hooks>,
}

impl Hooks for JoinedHooks {
    fn default(&self, object: &mut Value) {
        self.schema.default(object);
        self.own.default(object);
    }

    fn normalize(&self, object: &mut Value) -> Result<(), String> {
        self.schema.normalize(object)?;
        self.own.normalize(object)
    }

    fn prepare(&self, new: &mut Value, old: Option<&Value>, context: &HookContext) {
        self.schema.prepare(new, old, context);
        self.own.prepare(new, old, context);
    }

    fn object_for_managed_fields(&self, object: &Value) -> Option<Value> {
        self.own.object_for_managed_fields(object)
    }

    fn validate(
        &self,
        new: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        self.schema.validate(new, old, context, violations);
        self.own.validate(new, old, context, violations);
    }

    fn validation_cost(&self, new: &Value) -> u64 {
        let own = self.own.validation_cost(new);
        self.schema.validation_cost(new).saturating_add(own)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, context: &HookContext) -> Vec<String> {
        let mut warnings = self.schema.warnings(new, old, context);
        warnings.extend(self.own.warnings(new, old, context));
        warnings
    }

    fn selectable(&self, object: &Value, field: &str) -> Option<Str> {
        let own = self.own.selectable(object, field);
        own.or_else(|| self.schema.selectable(object, field))
    }

    fn cells(&self, object: &Value, now: i64) -> Vec<Value> {
        self.own.cells(object, now)
    }

    fn row_rank(&self) -> Option<fn(&Value) -> i64> {
        self.own.row_rank()
    }

    fn row_conditions(&self, object: &Value) -> Vec<Value> {
        self.own.row_conditions(object)
    }

    fn grace_period(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        self.own.grace_period(object, asked)
    }

    fn mark_deleted(&self, object: &mut Value, now: &str) -> bool {
        self.own.mark_deleted(object, now)
    }

    fn is_removal_blocked(&self, object: &Value) -> bool {
        self.own.is_removal_blocked(object)
    }

    fn to_stored(&self, object: &mut Value) {
        self.own.to_stored(object);
    }

    fn from_stored(&self, object: &mut Value) {
        self.own.from_stored(object);
    }
}
