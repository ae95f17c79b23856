//! NetworkPolicies.

use mizzen_object::validate::ip::{self, Cidr};
use mizzen_object::validate::{field, names};
use mizzen_object::{HookContext, Path, Violations};
use mizzen_value::{Value, value};

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::rules;

pub(super) const POLICY: Behaviour = Behaviour::of::<NetworkPolicyStrategy>();

pub(super) struct NetworkPolicyStrategy;

impl KindStrategy for NetworkPolicyStrategy {
    fn default(policy: &mut Value) {
        let spec = policy.entry("spec");
        for (direction, _) in DIRECTIONS {
            for rule in spec
                .get_mut(direction)
                .into_iter()
                .flat_map(Value::list_mut)
            {
                for port in rule.get_mut("ports").into_iter().flat_map(Value::list_mut) {
                    port.set_default("protocol", "TCP");
                }
            }
        }
        if spec["policyTypes"].is_empty() {
            let types = if spec["egress"].is_empty() {
                value!(["Ingress"])
            } else {
                value!(["Ingress", "Egress"])
            };
            spec.set("policyTypes", types);
        }
    }

    fn validate(policy: &Value, old: Option<&Value>, _: &HookContext, violations: &mut Violations) {
        let leniency = old.map(Leniency::of).unwrap_or_default();
        let (spec, path) = (&policy["spec"], Path::new("spec"));
        rules::lenient_selector(
            &spec["podSelector"],
            leniency.selectors,
            &path.child("podSelector"),
            violations,
        );
        for (direction, side) in DIRECTIONS {
            let path = path.child(direction);
            for (index, rule) in spec[direction].items().enumerate() {
                let path = path.index(index);
                for (index, port) in rule["ports"].items().enumerate() {
                    validate_port(port, &path.child("ports").index(index), violations);
                }
                for (index, peer) in rule[side].items().enumerate() {
                    validate_peer(peer, &path.child(side).index(index), &leniency, violations);
                }
            }
        }
        let types = &spec["policyTypes"];
        if types.list().len() > 2 {
            return violations.invalid(
                path.child("policyTypes"),
                types.clone(),
                "may not specify more than two policyTypes",
            );
        }
        for (index, policy_type) in types.items().enumerate() {
            field::one_of(
                policy_type.str(),
                &["Ingress", "Egress"],
                &path.child("policyTypes").index(index),
                violations,
            );
        }
    }

    fn warnings(policy: &Value, _: Option<&Value>, _: &HookContext) -> Vec<String> {
        let mut warnings = Vec::new();
        for (place, peer) in peers(&policy["spec"]) {
            let Some(block) = peer.get("ipBlock") else {
                continue;
            };
            warnings.extend(ip::cidr_warnings(
                format!("{place}.ipBlock.cidr"),
                block["cidr"].str(),
            ));
            for (index, except) in block["except"].items().enumerate() {
                warnings.extend(ip::cidr_warnings(
                    format!("{place}.ipBlock.except[{index}]"),
                    except.str(),
                ));
            }
        }
        warnings
    }
}

/// The two directions: where their rules are, and where a rule names the other side.
const DIRECTIONS: [(&str, &str); 2] = [("ingress", "from"), ("egress", "to")];

/// What an update forgives because the old object had it.
#[derive(Default)]
struct Leniency<'a> {
    selectors: bool,
    ranges: Vec<&'a str>,
}

impl<'a> Leniency<'a> {
    fn of(old: &'a Value) -> Leniency<'a> {
        let spec = &old["spec"];
        let blocks = peers(spec).map(|(_, peer)| &peer["ipBlock"]);
        let ranges =
            blocks.flat_map(|block| std::iter::once(&block["cidr"]).chain(block["except"].list()));
        Leniency {
            selectors: rules::is_bad_selector(&spec["podSelector"]),
            ranges: ranges.filter_map(Value::as_str).collect(),
        }
    }
}

/// Every peer that a policy names, with its place.
fn peers(spec: &Value) -> impl Iterator<Item = (String, &Value)> {
    DIRECTIONS.into_iter().flat_map(move |(direction, side)| {
        spec[direction]
            .items()
            .enumerate()
            .flat_map(move |(rule_idx, rule)| {
                let place = move |index| format!("spec.{direction}[{rule_idx}].{side}[{index}]");
                rule[side]
                    .items()
                    .enumerate()
                    .map(move |(index, peer)| (place(index), peer))
            })
    })
}

fn validate_port(port: &Value, path: &Path, violations: &mut Violations) {
    rules::optional_word(
        &port["protocol"],
        &["TCP", "UDP", "SCTP"],
        &path.child("protocol"),
        violations,
    );
    let (end, end_path) = (port["endPort"].as_int(), &path.child("endPort"));
    match &port["port"] {
        Value::Int(number) => {
            rules::port(*number, &path.child("port"), violations);
            if let Some(end) = end {
                if end < *number {
                    violations.invalid(
                        end_path,
                        *number,
                        "must be greater than or equal to `port`",
                    );
                }
                rules::port(end, end_path, violations);
            }
        }
        Value::String(name) => {
            if let Some(end) = end {
                violations.invalid(
                    end_path,
                    end,
                    "may not be specified when `port` is non-numeric",
                );
            }
            rules::text(name, names::is_port_name, &path.child("port"), violations);
        }
        _ => {
            if let Some(end) = end {
                violations.invalid(
                    end_path,
                    end,
                    "may not be specified when `port` is not specified",
                );
            }
        }
    }
}

fn validate_peer(peer: &Value, path: &Path, leniency: &Leniency, violations: &mut Violations) {
    for name in ["podSelector", "namespaceSelector"] {
        if let Some(selector) = peer.get(name) {
            rules::lenient_selector(selector, leniency.selectors, &path.child(name), violations);
        }
    }
    if let Some(block) = peer.get("ipBlock") {
        let path = path.child("ipBlock");
        let known = &leniency.ranges;
        let range = block["cidr"].str();
        if range.is_empty() {
            violations.required(path.child("cidr"), "");
        } else {
            validate_range(range, known, &path.child("cidr"), violations);
            if let Some(range) = Cidr::parse_sloppy(range) {
                for (index, except) in block["except"].items().enumerate() {
                    let path = path.child("except");
                    let path = path.index(index);
                    validate_range(except.str(), known, &path, violations);
                    let part = Cidr::parse_sloppy(except.str());
                    let inside =
                        part.map(|part| range.contains_block(&part) && range.prefix < part.prefix);
                    if inside == Some(false) {
                        violations.invalid(path, except.str(), "must be a strict subset of `cidr`");
                    }
                }
            }
        }
    }
    match peer.entries().count() {
        0 => violations.required(path, "must specify a peer"),
        2.. if peer.get("ipBlock").is_some() => {
            violations.forbidden(path, "may not specify both ipBlock and another peer");
        }
        _ => {}
    }
}

/// What was stored before it was checked may stay.
fn validate_range(range: &str, known: &[&str], path: &Path, violations: &mut Violations) {
    if !known.contains(&range) {
        rules::text(range, ip::is_cidr_for_legacy_field, path, violations);
    }
}
