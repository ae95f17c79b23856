//! The hooks of custom kinds: the order of validation, and conversion to the stored version.

use std::sync::Arc;

use crate::hooks::{Action, HookContext, Hooks};
use crate::kind::ScalePaths;
use crate::names::GroupVersionKind;
use crate::patch::{go_text, go_type_verb};
use crate::structural::Structural;
use crate::validate::names;
use crate::violation::{Path, Violations};
use mizzen_value::{Str, Value};

/// A version of a custom kind.
pub(super) struct Custom {
    pub gvk: GroupVersionKind,
    pub stored: GroupVersionKind,
    pub schema: Arc<Structural>,
    pub stored_schema: Arc<Structural>,
    pub scale: Option<ScalePaths>,
}

impl Hooks for Custom {
    fn validate(
        &self,
        new: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if context.action == Action::Status {
            self.schema.validate_status(new, old, violations);
        } else {
            self.schema.validate(new, old, violations);
            self.validate_scale_spec(new, violations);
        }
        self.validate_scale_status(new, violations);
        if context.action != Action::Status {
            self.schema.validate_embedded(new, violations);
        }
        self.schema.validate_lists(new, old, violations);
        self.schema.validate_rules(new, old, violations);
    }

    fn validation_cost(&self, new: &Value) -> u64 {
        self.schema.validation_cost(new)
    }

    fn warnings(&self, new: &Value, old: Option<&Value>, context: &HookContext) -> Vec<String> {
        if context.action == Action::Status {
            return Vec::new();
        }
        let before = old.map_or(&[] as &[Value], |old| old["metadata"]["finalizers"].list());
        let finalizers = new["metadata"]["finalizers"]
            .list()
            .iter()
            .filter(|name| !before.contains(name));
        let mut added: Vec<&str> = finalizers.map(Value::str).collect();
        added.sort_unstable();
        added.dedup();
        added.into_iter().flat_map(finalizer_warnings).collect()
    }

    fn selectable(&self, object: &Value, field: &str) -> Option<Str> {
        match object.at(field) {
            Value::Null => None,
            value => Some(go_text(value).into()),
        }
    }

    fn to_stored(&self, object: &mut Value) {
        object.set("apiVersion", self.stored.api_version());
        self.stored_schema.prune(object);
        self.stored_schema.default(object);
    }

    /// Kubernetes: defaults are those of the stored version; this version only prunes
    /// (apiserver/customresource_handler.go).
    fn from_stored(&self, object: &mut Value) {
        self.stored_schema.prune(object);
        self.stored_schema.default(object);
        if self.gvk != self.stored {
            object.set("apiVersion", self.gvk.api_version());
            self.schema.prune(object);
        }
    }
}

impl Custom {
    fn validate_scale_spec(&self, object: &Value, violations: &mut Violations) {
        if let Some(scale) = &self.scale {
            validate_replicas(object, &scale.spec_replicas, violations);
        }
    }

    fn validate_scale_status(&self, object: &Value, violations: &mut Violations) {
        let Some(scale) = &self.scale else { return };
        validate_replicas(object, &scale.status_replicas, violations);
        if scale.label_selector.is_empty() {
            return;
        }
        let wrong = match find(object, &scale.label_selector) {
            Ok(Some(value)) if value.as_str().is_none() => {
                Some(accessor(&scale.label_selector, value, "string"))
            }
            Ok(_) => None,
            Err(error) => Some(error),
        };
        if let Some(error) = wrong {
            violations.invalid(&scale.label_selector, "", &error);
        }
    }
}

fn validate_replicas(object: &Value, path: &str, violations: &mut Violations) {
    let replicas = match find(object, path) {
        Ok(None) => return,
        Ok(Some(Value::Int(replicas))) => *replicas,
        Ok(Some(other)) => return violations.invalid(path, 0, &accessor(path, other, "int64")),
        Err(error) => return violations.invalid(path, 0, &error),
    };
    if replicas < 0 {
        violations.invalid(path, replicas, "should be a non-negative integer");
    } else if replicas > i64::from(i32::MAX) {
        violations.invalid(
            path,
            replicas,
            &format!("should be less than or equal to {}", i32::MAX),
        );
    }
}

/// The value at a field path; `None` if it does not exist.
fn find<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let mut value = object;
    let path = path.trim_start_matches('.');
    for (at, name) in path
        .match_indices('.')
        .map(|(at, _)| at)
        .chain([path.len()])
        .zip(path.split('.'))
    {
        match value {
            Value::Map(map) => match map.get(name) {
                Some(below) => value = below,
                None => return Ok(None),
            },
            Value::Null => return Ok(None),
            // Kubernetes: the path in the message ends with the field that was not found.
            other => return Err(accessor(&path[..at], other, "map[string]interface{}")),
        }
    }
    Ok(Some(value))
}

fn accessor(path: &str, value: &Value, wanted: &str) -> String {
    let path = path.trim_start_matches('.');
    let (found, go) = (go_text(value), go_type_verb(value));
    format!(".{path} accessor error: {found} is of the type {go}, expected {wanted}")
}

const PATH: &str = "metadata.finalizers";

fn finalizer_warnings(name: &str) -> Vec<String> {
    let place = Path::new(PATH);
    let shown = mizzen_value::json::quote(name);
    let mut warnings: Vec<String> = names::is_qualified_name(name)
        .iter()
        .map(|wrong| format!("{place}: {shown}: {wrong}"))
        .collect();
    let standard = ["orphan", "foregroundDeletion", "kubernetes"].contains(&name);
    if !name.contains('/') && !standard {
        let path = if name.contains('.') {
            " including a path (/)"
        } else {
            ""
        };
        warnings.push(format!(
            "{place}: {shown}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other \
             finalizer writers"
        ));
    }
    warnings
}
