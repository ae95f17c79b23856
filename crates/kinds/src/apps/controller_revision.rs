//! ControllerRevisions: immutable snapshots of a controller's template.

use mizzen_object::validate::field;
use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::{Value, json};

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<ControllerRevisionStrategy>();

pub(super) struct ControllerRevisionStrategy;

impl KindStrategy for ControllerRevisionStrategy {
    fn validate(new: &Value, old: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        field::non_negative(new["revision"].int(), &Path::new("revision"), violations);
        let (data, path) = (&new["data"], Path::new("data"));
        match (old, data) {
            // Kubernetes: data is bytes, and equal when its bytes are.
            (Some(old), _) if json::to_string(data) != json::to_string(&old["data"]) => {
                violations.invalid_shown(path, &json::to_string(data), field::IMMUTABLE);
            }
            (Some(_), _) | (None, Value::Map(_)) => {}
            (None, Value::Null) => violations.required(path, "data is mandatory"),
            (None, _) => violations.required(path, "data must be a valid JSON object"),
        }
    }
}
