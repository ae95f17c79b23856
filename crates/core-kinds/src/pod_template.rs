//! PodTemplates.

use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::Value;

use crate::{Behaviour, pod};
use mizzen_apiextensions::KindStrategy;

pub(super) const BEHAVIOUR: Behaviour = Behaviour::of::<PodTemplateStrategy>();

pub(super) struct PodTemplateStrategy;

impl KindStrategy for PodTemplateStrategy {
    fn default(template: &mut Value) {
        pod::default_template(template.entry("template"));
    }

    fn prepare(template: &mut Value, old: Option<&Value>, _: &HookContext) {
        pod::drop_disabled(template.entry("template"), old.map(|old| &old["template"]));
    }

    fn validate(
        template: &Value,
        old: Option<&Value>,
        _: &HookContext,
        violations: &mut Violations,
    ) {
        let old = old.map(|old| &old["template"]);
        pod::validate_template(
            &template["template"],
            old,
            &Path::new("template"),
            violations,
        );
    }

    fn warnings(template: &Value, old: Option<&Value>, context: &HookContext) -> Vec<String> {
        let generation = |template: &Value| template["metadata"]["generation"].int();
        if context.action == Action::Update
            && old.is_some_and(|old| generation(old) == generation(template))
        {
            return Vec::new();
        }
        pod::template_warnings(&template["template"], &Path::new("template"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::*;

    #[test]
    fn a_template_is_filled_and_checked() {
        check(BEHAVIOUR)
            .create(r#"{"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}"#)
            .has("template.spec.restartPolicy", r#""Always""#)
            .refused(&[]);
        check(BEHAVIOUR)
            .create("{}")
            .refused(&["template.spec.containers: Required value"]);
    }
}
