//! Validation of a schema's defaults against the schema itself.

use std::cell::Cell;
use std::sync::Arc;

use mizzen_object::schema::Struct;
use mizzen_object::structural::{BUDGET, RuleOptions, Structural, type_name};
use mizzen_object::{Path, Violation, ViolationReason, Violations};
use mizzen_value::{Map, Value, json};

use super::openapi::TYPES;
use super::shown::sorted;
use super::walk;

/// Validates the defaults of a structural schema.
pub(super) fn validate(schema: &Value, pruned: bool, path: &Path, violations: &mut Violations) {
    if !walk::any(schema, &|schema| schema.get("default").is_some()) {
        return;
    }
    let checker = DefaultValidator {
        object_meta: mizzen_schemas::object_meta(),
        pruned,
        budget: Cell::new(BUDGET),
    };
    checker.walk(
        schema,
        &DefaultContext {
            root: schema,
            steps: Vec::new(),
            in_meta: false,
        },
        true,
        path,
        violations,
    );
}

/// Whether any default has fields that its schema does not know.
pub(super) fn has_unknown_fields(schema: &Value) -> bool {
    walk::any(schema, &|schema| {
        schema
            .get("default")
            .is_some_and(|default| !is_pruned(schema, default))
    })
}

fn is_pruned(schema: &Value, default: &Value) -> bool {
    let mut pruned = default.clone();
    Structural::compile(schema, false).prune_value(&mut pruned);
    pruned == *default
}

const EMBEDDED: &str = "x-kubernetes-embedded-resource";

/// Kubernetes: a default is not checked to be a number or text where either is allowed (`ToKubeOpenAPI`).
fn without_unions(schema: &Value) -> Value {
    match schema {
        Value::Map(map) => {
            let below = |(name, value)| (name, without_unions(value));
            let kept = map
                .iter()
                .filter(|(name, _)| *name != "x-kubernetes-int-or-string");
            kept.map(below).collect::<Map>().into()
        }
        Value::List(items) => items.iter().map(without_unions).collect::<Vec<_>>().into(),
        other => other.clone(),
    }
}

struct DefaultValidator {
    object_meta: Arc<Struct>,
    /// Whether defaults must not have unknown fields.
    pruned: bool,
    /// The remaining cost budget; negative once it is exceeded, and then no more rules are evaluated.
    budget: Cell<i64>,
}

/// The object around a default, and the way from it to the default.
#[derive(Clone)]
struct DefaultContext<'a> {
    root: &'a Value,
    steps: Vec<SchemaStep<'a>>,
    in_meta: bool,
}

#[derive(Clone, Copy)]
enum SchemaStep<'a> {
    Child(&'a str),
    Index,
}

impl DefaultValidator {
    fn walk<'a>(
        &self,
        schema: &'a Value,
        around: &DefaultContext<'a>,
        resource: bool,
        path: &Path,
        violations: &mut Violations,
    ) {
        if self.budget.get() < 0 {
            return;
        }
        let resource = resource || schema[EMBEDDED].bool();
        let own = DefaultContext {
            root: schema,
            steps: Vec::new(),
            in_meta: false,
        };
        let around = if resource { &own } else { around };
        if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
            let mut own = schema.clone();
            if resource {
                own.set(EMBEDDED, true);
            }
            self.check(
                &own,
                resource,
                &sorted(default),
                around,
                &path.child("default"),
                violations,
            );
        }
        if let Some(items) = schema.get("items") {
            self.walk(
                items,
                &around.step(SchemaStep::Index),
                false,
                &path.child("items"),
                violations,
            );
        }
        let places = path.child("properties");
        for (name, below) in schema["properties"].entries() {
            let mut inside = around.step(SchemaStep::Child(name));
            inside.in_meta |= resource && matches!(name, "metadata" | "apiVersion" | "kind");
            self.walk(below, &inside, false, &places.key(name), violations);
        }
    }

    fn check(
        &self,
        schema: &Value,
        resource: bool,
        default: &Value,
        around: &DefaultContext,
        path: &Path,
        violations: &mut Violations,
    ) {
        let compiled = Structural::compile(schema, false);
        if around.in_meta {
            if let Some(wrong) = self.wrong_metadata(default, around) {
                let detail = format!("must result in valid metadata: {wrong}");
                return violations.invalid(path, default.clone(), &detail);
            }
        } else {
            if self.pruned && !is_pruned(schema, default) {
                violations.invalid(path, default.clone(), "must not have unknown fields");
            }
            if !self.is_sound(&compiled, default, path, violations) {
                return;
            }
        }
        let before = violations.0.len();
        // Kubernetes: a value is not of a type that does not exist.
        let unknown = schema["type"].str();
        if !unknown.is_empty() && !TYPES.contains(&unknown) {
            let found = json::quote(type_name(default));
            let message =
                format!("Invalid value: {found}:  in body must be of type {unknown}: {found}");
            violations.push(ViolationReason::TypeInvalid, path, message);
        }
        let plain = Structural::compile(&without_unions(schema), false);
        plain.validate_at(default, &path.to_string(), violations);
        if compiled.has_rules() && violations.0.len() == before {
            self.check_rules(&compiled, default, resource, path, violations);
        }
    }

    /// A default must be one to keep, and one to begin with.
    fn check_rules(
        &self,
        compiled: &Structural,
        default: &Value,
        resource: bool,
        path: &Path,
        violations: &mut Violations,
    ) {
        let (before, budget) = (violations.0.len(), self.budget.get());
        let options = |old| RuleOptions {
            old,
            resource,
            path,
            budget,
        };
        let mut left = compiled.validate_rules_at(default, options(Some(default)), violations);
        if violations.0.len() == before {
            let fresh = compiled.validate_rules_at(default, options(None), violations);
            left = left.min(fresh);
        }
        self.budget.set(left);
    }

    /// Whether the embedded objects in a default are objects.
    fn is_sound(
        &self,
        compiled: &Structural,
        default: &Value,
        path: &Path,
        violations: &mut Violations,
    ) -> bool {
        let before = violations.0.len();
        match compiled.coerce_at(&mut default.clone(), &self.object_meta, path) {
            Err(violation) => violations.0.push(violation),
            Ok(_) => compiled.validate_embedded_at(default, path, violations),
        }
        violations.0.len() == before
    }

    /// Validates the metadata that a default produces.
    fn wrong_metadata(&self, default: &Value, around: &DefaultContext) -> Option<String> {
        let mut root = around.root.clone();
        root.set(EMBEDDED, true);
        let compiled = Structural::compile(&root, false);
        let mut object = around.object(default);
        let mut violations = Violations::default();
        match compiled.coerce_at(&mut object, &self.object_meta, &Path::new("")) {
            Err(violation) => violations.0.push(violation),
            Ok(_) => compiled.validate_embedded_at(&object, &Path::new(""), &mut violations),
        }
        let texts: Vec<String> = violations.0.iter().map(Violation::to_string).collect();
        match texts.as_slice() {
            [] => None,
            [one] => Some(one.clone()),
            many => Some(format!("[{}]", many.join(", "))),
        }
    }
}

impl<'a> DefaultContext<'a> {
    fn step(&self, step: SchemaStep<'a>) -> DefaultContext<'a> {
        let mut around = self.clone();
        around.steps.push(step);
        around
    }

    /// The object that has nothing but the default, and says what it is.
    fn object(&self, default: &Value) -> Value {
        let mut object = self
            .steps
            .iter()
            .rev()
            .fold(default.clone(), |value, step| match step {
                SchemaStep::Child(name) => [(*name, value)].into_iter().collect::<Map>().into(),
                SchemaStep::Index => vec![value].into(),
            });
        object.set_default("apiVersion", "validation/v1");
        object.set_default("kind", "Validation");
        object
    }
}
