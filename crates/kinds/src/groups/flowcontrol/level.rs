//! PriorityLevelConfigurations.

use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::{Value, value};

use super::validate_conditions;
use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::internal;

pub(super) const LEVEL: Behaviour = Behaviour::of::<PriorityLevelStrategy>();

pub(super) struct PriorityLevelStrategy;

impl KindStrategy for PriorityLevelStrategy {
    fn default(level: &mut Value) {
        let spec = level.entry("spec");
        if let Some(exempt) = spec.get_mut("exempt") {
            exempt.set_default("nominalConcurrencyShares", 0);
            exempt.set_default("lendablePercent", 0);
        }
        if let Some(limited) = spec.get_mut("limited") {
            limited.set_default("nominalConcurrencyShares", DEFAULT_SHARES);
            limited.set_default("lendablePercent", 0);
            if let Some(queuing) = limited.at_mut("limitResponse.queuing") {
                for (name, number) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
                    if queuing[name].is_empty() {
                        queuing.set(name, number);
                    }
                }
            }
        }
    }

    fn validate(
        level: &Value,
        _: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        if context.action != Action::Status {
            if level["metadata"]["annotations"]
                .get(PRESERVE_ZERO)
                .is_some()
            {
                let metadata = Path::new("metadata");
                let detail = format!("annotation '{PRESERVE_ZERO}' is forbidden");
                violations.forbidden(metadata.child("annotations"), &detail);
            }
            let (name, spec) = (level["metadata"]["name"].str(), &level["spec"]);
            let (level_type, path) = (spec["type"].str(), Path::new("spec"));
            if (name == "exempt") != (level_type == "Exempt") {
                let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
                violations.invalid(path.child("type"), level_type, detail);
            }
            let (exempt, limited) = (spec.get("exempt"), spec.get("limited"));
            match level_type {
                "Exempt" => {
                    if limited.is_some() {
                        violations.forbidden(
                            path.child("limited"),
                            "must be nil if the type is not Limited",
                        );
                    }
                    if let Some(exempt) = exempt {
                        validate_shares(exempt, &path.child("exempt"), violations);
                        validate_lendable(exempt, &path.child("exempt"), violations);
                    }
                }
                "Limited" => {
                    if exempt.is_some() {
                        violations
                            .forbidden(path.child("exempt"), "must be nil if the type is Limited");
                    }
                    match limited {
                        Some(limited) => {
                            let path = path.child("limited");
                            validate_shares(limited, &path, violations);
                            validate_response(
                                &limited["limitResponse"],
                                &path.child("limitResponse"),
                                violations,
                            );
                            validate_lendable(limited, &path, violations);
                            if let Some(percent) = limited["borrowingLimitPercent"]
                                .as_int()
                                .filter(|percent| *percent < 0)
                            {
                                let detail = "if specified, must be a non-negative integer";
                                violations.invalid(
                                    path.child("borrowingLimitPercent"),
                                    percent,
                                    detail,
                                );
                            }
                        }
                        None => violations.required(
                            path.child("limited"),
                            "must not be empty when type is Limited",
                        ),
                    }
                }
                "" => violations.required(path.child("type"), ""),
                other => {
                    violations.not_supported(path.child("type"), other, &["Exempt", "Limited"])
                }
            }
            validate_mandatory(name, spec, violations);
        }
        validate_conditions(level["status"]["conditions"].list(), violations);
    }
}

/// The shares of a limited level that says none.
pub(super) const DEFAULT_SHARES: i64 = 30;

/// With this annotation v1beta3 told zero shares from no shares.
pub(super) const PRESERVE_ZERO: &str =
    "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

fn validate_shares(level: &Value, path: &Path, violations: &mut Violations) {
    let shares = level["nominalConcurrencyShares"].int();
    if shares < 0 {
        violations.invalid(
            path.child("nominalConcurrencyShares"),
            shares,
            "must be a non-negative integer",
        );
    }
}

fn validate_lendable(level: &Value, path: &Path, violations: &mut Violations) {
    let percent = level["lendablePercent"].int();
    if !(0..=100).contains(&percent) {
        violations.invalid(
            path.child("lendablePercent"),
            percent,
            "must be between 0 and 100, inclusive",
        );
    }
}

/// Kubernetes: the messages say Limited where they mean Queue.
fn validate_response(response: &Value, path: &Path, violations: &mut Violations) {
    match (response["type"].str(), response.get("queuing")) {
        ("Reject", None) => {}
        ("Reject", Some(_)) => {
            let detail = "must be nil if limited.limitResponse.type is not Limited";
            violations.forbidden(path.child("queuing"), detail);
        }
        ("Queue", None) => {
            let detail = "must not be empty if limited.limitResponse.type is Limited";
            violations.required(path.child("queuing"), detail);
        }
        ("Queue", Some(queuing)) => {
            let path = path.child("queuing");
            let number = |name: &str| queuing[name].int();
            let (length, queues, hand) = (
                number("queueLengthLimit"),
                number("queues"),
                number("handSize"),
            );
            if length <= 0 {
                violations.invalid(path.child("queueLengthLimit"), length, "must be positive");
            }
            if queues <= 0 {
                violations.invalid(path.child("queues"), queues, "must be positive");
            } else if queues > MAX_QUEUES {
                violations.invalid(
                    path.child("queues"),
                    queues,
                    &format!("must not be greater than {MAX_QUEUES}"),
                );
            }
            let path = path.child("handSize");
            if hand <= 0 {
                violations.invalid(path, hand, "must be positive");
            } else if hand > queues {
                violations.invalid(
                    path,
                    hand,
                    &format!("should not be greater than queues ({queues})"),
                );
            } else if ((queues as f64).log2() * hand as f64).ceil() > MAX_HASH_BITS {
                let detail = format!(
                    "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {MAX_HASH_BITS}"
                );
                violations.invalid(path, hand, &detail);
            }
        }
        ("", _) => violations.required(path.child("type"), ""),
        (other, _) => violations.not_supported(path.child("type"), other, &["Queue", "Reject"]),
    }
}

const MAX_QUEUES: i64 = 10_000_000;
const MAX_HASH_BITS: f64 = 60.0;

/// The mandatory priority levels are fixed, except how much `exempt` lends.
fn validate_mandatory(name: &str, spec: &Value, violations: &mut Violations) {
    let (fixed, except) = match name {
        "exempt" => (
            spec["type"].str() == "Exempt" && spec.get("limited").is_none(),
            " except the 'spec.exempt' field",
        ),
        "catch-all" => (
            *spec
                == value!({"type": "Limited", "limited": {
                    "nominalConcurrencyShares": 5,
                    "limitResponse": {"type": "Reject"},
                    "lendablePercent": 0
                }}),
            "",
        ),
        _ => return,
    };
    if !fixed {
        let shown = internal::shown("PriorityLevelConfigurationSpec", spec);
        violations.invalid(
            Path::new("spec"),
            shown,
            &format!("spec of '{name}'{except} must equal the fixed value"),
        );
    }
}
