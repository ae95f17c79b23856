//! Validating and mutating webhook configurations.

use mizzen_object::validate::{field, names};
use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::{Value, value};

use super::matching::{self, FAILURE_POLICIES, MATCH_POLICIES, REINVOCATION_POLICIES};
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::expression::ExpressionVariables;
use mizzen_apiextensions::{client, rules};

pub(super) const VALIDATING: Behaviour = Behaviour::of::<ValidatingWebhookStrategy>();
pub(super) const MUTATING: Behaviour = Behaviour::of::<MutatingWebhookStrategy>();

pub(super) struct ValidatingWebhookStrategy;

impl KindStrategy for ValidatingWebhookStrategy {
    fn default(configuration: &mut Value) {
        default_validating(configuration)
    }

    fn validate(new: &Value, old: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        validate_webhooks(new, Demands::of(new, old), false, violations);
    }
}

pub(super) struct MutatingWebhookStrategy;

impl KindStrategy for MutatingWebhookStrategy {
    fn default(configuration: &mut Value) {
        default_mutating(configuration)
    }

    fn validate(new: &Value, old: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        validate_webhooks(new, Demands::of(new, old), true, violations);
    }
}

/// The old version is converted as it stands: it differs in what it takes for granted and what it forgives.
pub(super) const VALIDATING_V1BETA1: Behaviour = Behaviour {
    default: default_validating_v1beta1,
    validate: |new, old, _, violations| {
        validate_webhooks(new, Demands::of_v1beta1(new, old), false, violations)
    },
    ..Behaviour::NONE
};
pub(super) const MUTATING_V1BETA1: Behaviour = Behaviour {
    default: |configuration| {
        default_validating_v1beta1(configuration);
        default_mutating(configuration);
    },
    validate: |new, old, _, violations| {
        validate_webhooks(new, Demands::of_v1beta1(new, old), true, violations)
    },
    ..Behaviour::NONE
};

fn default_validating_v1beta1(configuration: &mut Value) {
    for webhook in configuration
        .get_mut("webhooks")
        .into_iter()
        .flat_map(Value::list_mut)
    {
        webhook.set_default("failurePolicy", "Ignore");
        webhook.set_default("matchPolicy", "Exact");
        webhook.set_default("sideEffects", "Unknown");
        webhook.set_default("timeoutSeconds", 30);
        if webhook["admissionReviewVersions"].is_empty() {
            webhook.set("admissionReviewVersions", value!(["v1beta1"]));
        }
    }
    default_validating(configuration);
}

fn default_validating(configuration: &mut Value) {
    for webhook in configuration
        .get_mut("webhooks")
        .into_iter()
        .flat_map(Value::list_mut)
    {
        webhook.set_default("failurePolicy", "Fail");
        matching::default_matching(webhook);
        webhook.set_default("timeoutSeconds", 10);
        matching::default_rules(webhook.get_mut("rules"));
        if let Some(service) = webhook.at_mut("clientConfig.service") {
            service.set_default("port", 443);
        }
    }
}

fn default_mutating(configuration: &mut Value) {
    default_validating(configuration);
    for webhook in configuration
        .get_mut("webhooks")
        .into_iter()
        .flat_map(Value::list_mut)
    {
        webhook.set_default("reinvocationPolicy", "Never");
    }
}

/// What is demanded. An update forgives what the old configuration already had.
struct Demands {
    conditions: bool,
    no_side_effects: bool,
    known_versions: bool,
    unique_names: bool,
    label_values: bool,
}

impl Demands {
    fn of_v1beta1(new: &Value, old: Option<&Value>) -> Demands {
        Demands {
            no_side_effects: false,
            unique_names: false,
            ..Demands::of(new, old)
        }
    }

    fn of(new: &Value, old: Option<&Value>) -> Demands {
        let Some(old) = old.map(|old| old["webhooks"].list()) else {
            let all = true;
            return Demands {
                conditions: all,
                no_side_effects: all,
                known_versions: all,
                unique_names: all,
                label_values: all,
            };
        };
        let conditions = |webhooks: &[Value]| -> Vec<Value> {
            webhooks
                .iter()
                .map(|webhook| webhook["matchConditions"].clone())
                .collect()
        };
        Demands {
            conditions: conditions(new["webhooks"].list()) != conditions(old),
            no_side_effects: old
                .iter()
                .all(|webhook| NO_SIDE_EFFECTS.contains(&webhook["sideEffects"].str())),
            known_versions: old.iter().all(|webhook| {
                let versions = webhook["admissionReviewVersions"].list();
                versions.is_empty() || versions.iter().any(is_known_version)
            }),
            unique_names: (0..old.len())
                .all(|i| old[..i].iter().all(|other| other["name"] != old[i]["name"])),
            label_values: !old.iter().any(|webhook| {
                SELECTORS
                    .iter()
                    .any(|name| rules::is_bad_selector(&webhook[*name]))
            }),
        }
    }
}

const SELECTORS: [&str; 2] = ["namespaceSelector", "objectSelector"];
const NO_SIDE_EFFECTS: [&str; 2] = ["None", "NoneOnDryRun"];
const SIDE_EFFECTS: [&str; 4] = ["None", "NoneOnDryRun", "Some", "Unknown"];

fn is_known_version(version: &Value) -> bool {
    matches!(version.str(), "v1" | "v1beta1")
}

fn validate_webhooks(new: &Value, demands: Demands, mutating: bool, violations: &mut Violations) {
    let (webhooks, path) = (new["webhooks"].list(), Path::new("webhooks"));
    for (index, webhook) in webhooks.iter().enumerate() {
        let (name, path) = (&webhook["name"], path.index(index));
        validate_webhook(webhook, &demands, mutating, &path, violations);
        let versions = &webhook["admissionReviewVersions"];
        let (list, place) = (versions.list(), path.child("admissionReviewVersions"));
        if list.is_empty() {
            violations.required(place, "must specify one of v1, v1beta1");
        }
        for (index, version) in list.iter().enumerate() {
            let (text, place) = (version.str(), place.index(index));
            if list[..index].contains(version) {
                violations.invalid(place, text, "duplicate version");
            } else {
                rules::text(text, names::is_dns1035_label, &place, violations);
            }
        }
        if demands.known_versions && !list.is_empty() && !list.iter().any(is_known_version) {
            let detail = "must include at least one of v1, v1beta1";
            violations.invalid(place, versions.clone(), detail);
        }
        let repeated = webhooks[..index]
            .iter()
            .any(|earlier| earlier["name"] == *name);
        if demands.unique_names && !name.is_empty() && repeated {
            violations.duplicate(path.child("name"), name.str());
        }
    }
}

fn validate_webhook(
    webhook: &Value,
    demands: &Demands,
    mutating: bool,
    path: &Path,
    violations: &mut Violations,
) {
    names::fully_qualified_name(webhook["name"].str(), &path.child("name"), violations);
    for (index, rule) in webhook["rules"].items().enumerate() {
        matching::validate_rule(rule, &path.child("rules").index(index), violations);
    }
    rules::optional_word(
        &webhook["failurePolicy"],
        &FAILURE_POLICIES,
        &path.child("failurePolicy"),
        violations,
    );
    rules::optional_word(
        &webhook["matchPolicy"],
        &MATCH_POLICIES,
        &path.child("matchPolicy"),
        violations,
    );
    let allowed: &[&str] = if demands.no_side_effects {
        &NO_SIDE_EFFECTS
    } else {
        &SIDE_EFFECTS
    };
    match webhook["sideEffects"].as_str() {
        None => violations.required(
            path.child("sideEffects"),
            &format!("must specify one of {}", allowed.join(", ")),
        ),
        Some(class) => field::one_of(class, allowed, &path.child("sideEffects"), violations),
    }
    if let Some(seconds) = webhook["timeoutSeconds"]
        .as_int()
        .filter(|seconds| !(1..=30).contains(seconds))
    {
        let detail = "the timeout value must be between 1 and 30 seconds";
        violations.invalid(path.child("timeoutSeconds"), seconds, detail);
    }
    for name in SELECTORS {
        if let Some(selector) = webhook.get(name) {
            rules::lenient_selector(
                selector,
                !demands.label_values,
                &path.child(name),
                violations,
            );
        }
    }
    if mutating {
        let place = path.child("reinvocationPolicy");
        rules::optional_word(
            &webhook["reinvocationPolicy"],
            &REINVOCATION_POLICIES,
            &place,
            violations,
        );
    }
    client::validate(
        &webhook["clientConfig"],
        &path.child("clientConfig"),
        violations,
    );
    if demands.conditions {
        let place = path.child("matchConditions");
        let scope = ExpressionVariables {
            authorizer: true,
            ..ExpressionVariables::default()
        };
        matching::validate_conditions(webhook["matchConditions"].list(), scope, &place, violations);
    }
}
