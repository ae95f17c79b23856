//! Bindings: assign a pod to a node.

use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::Value;

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<BindingStrategy>();

pub(super) struct BindingStrategy;

impl KindStrategy for BindingStrategy {
    fn validate(binding: &Value, _: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        let path = Path::new("target");
        let kind = binding["target"]["kind"].str();
        if !["", "Node"].contains(&kind) {
            violations.not_supported(path.child("kind"), kind, &["Node", "<empty>"]);
        }
        if binding["target"]["name"].is_empty() {
            violations.required(path.child("name"), "");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::*;

    #[test]
    fn a_target_is_a_node_with_a_name() {
        check(BEHAVIOUR)
            .create(r#"{"target":{"kind":"Pod"}}"#)
            .refused(&[
                r#"target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>""#,
                "target.name: Required value",
            ]);
    }
}
