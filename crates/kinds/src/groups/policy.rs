//! policy: PodDisruptionBudgets.

use mizzen_object::validate::{condition, field};
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::{Value, value};

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::{internal, rules};

pub(super) fn behaviour(version: &str, kind: &str) -> Behaviour {
    match (version, kind) {
        ("v1beta1", "PodDisruptionBudget") => Behaviour::of::<DisruptionBudgetV1beta1Strategy>(),
        (_, "PodDisruptionBudget") => Behaviour::of::<DisruptionBudgetStrategy>(),
        _ => Behaviour::NONE,
    }
}

pub(super) struct DisruptionBudgetV1beta1Strategy;

impl KindStrategy for DisruptionBudgetV1beta1Strategy {
    /// Kubernetes: v1 checks the numbers in a status, v1beta1 never did.
    fn validate(
        budget: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        match context.action {
            Action::Status => {
                let conditions = Path::new("status");
                condition::conditions(
                    &budget["status"]["conditions"],
                    &conditions.child("conditions"),
                    violations,
                );
            }
            Action::Create | Action::Update => validate_budget(budget, old, context, violations),
        }
    }

    fn to_stored(budget: &mut Value) {
        match budget.at_mut("spec.selector") {
            None | Some(Value::Null) => {}
            Some(selector) if is_empty(selector) => *selector = only_key("Exists"),
            Some(selector) => strip_key(selector),
        }
    }

    fn from_stored(budget: &mut Value) {
        match budget.at_mut("spec.selector") {
            None | Some(Value::Null) => {}
            Some(selector) if is_empty(selector) => *selector = only_key("DoesNotExist"),
            Some(selector) if *selector == only_key("Exists") => *selector = Value::object(),
            Some(_) => {}
        }
    }
}

pub(super) struct DisruptionBudgetStrategy;

impl KindStrategy for DisruptionBudgetStrategy {
    /// Kubernetes: pkg/apis/policy/v1/conversion.go strips v1beta1's key where a user combined it with other terms.
    fn default(budget: &mut Value) {
        if let Some(selector) = budget
            .at_mut("spec.selector")
            .filter(|selector| **selector != only_key("Exists"))
        {
            strip_key(selector);
        }
    }

    fn validate(
        budget: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        validate_budget(budget, old, context, violations)
    }
}

/// With this key v1beta1 told "selects all" from "selects none": its empty selector selects nothing.
const V1BETA1_KEY: &str = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match";

/// The selector that has nothing but the key.
fn only_key(operator: &str) -> Value {
    value!({"matchExpressions": [{"key": V1BETA1_KEY, "operator": operator}]})
}

fn is_empty(selector: &Value) -> bool {
    selector["matchLabels"].is_empty() && selector["matchExpressions"].is_empty()
}

fn strip_key(selector: &mut Value) {
    if let Some(Value::List(expressions)) = selector.get_mut("matchExpressions") {
        expressions.retain(|term| term["key"].str() != V1BETA1_KEY);
    }
}

fn validate_budget(
    budget: &Value,
    old: Option<&Value>,
    context: &HookContext,
    violations: &mut Violations,
) {
    match context.action {
        Action::Status => {
            let status = &budget["status"];
            let path = Path::new("status");
            condition::conditions(&status["conditions"], &path.child("conditions"), violations);
            for field in [
                "disruptionsAllowed",
                "currentHealthy",
                "desiredHealthy",
                "expectedPods",
            ] {
                field::non_negative(status[field].int(), &path.child(field), violations);
            }
        }
        Action::Create | Action::Update => {
            let spec = &budget["spec"];
            let old = old.map(|old| &old["spec"]);
            let path = Path::new("spec");
            if spec.get("minAvailable").is_some() && spec.get("maxUnavailable").is_some() {
                let detail = "minAvailable and maxUnavailable cannot be both set";
                violations.invalid(
                    path,
                    internal::shown("PodDisruptionBudgetSpec", spec),
                    detail,
                );
            }
            for field in ["minAvailable", "maxUnavailable"] {
                if let Some(amount) = spec.get(field) {
                    rules::count_or_percent(amount, &path.child(field), violations);
                }
            }
            let selector = old.map(|old| &old["selector"]);
            rules::selector(
                &spec["selector"],
                selector,
                &path.child("selector"),
                violations,
            );

            let field = "unhealthyPodEvictionPolicy";
            rules::optional_word(
                &spec[field],
                &["AlwaysAllow", "IfHealthyBudget"],
                &path.child(field),
                violations,
            );
        }
    }
}
