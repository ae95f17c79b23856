//! IPAddresses and ServiceCIDRs.

use mizzen_object::validate::{field, ip, names};
use mizzen_object::{Action, HookContext, Path, Violations};
use mizzen_value::Value;

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;
use mizzen_apiextensions::{internal, rules};

pub(super) const ADDRESS: Behaviour = Behaviour::of::<IpAddressStrategy>();
pub(super) const RANGE: Behaviour = Behaviour::of::<ServiceCidrStrategy>();

pub(super) struct IpAddressStrategy;

impl KindStrategy for IpAddressStrategy {
    fn validate(
        address: &Value,
        old: Option<&Value>,
        _: &HookContext,
        violations: &mut Violations,
    ) {
        let (parent, spec) = (&address["spec"]["parentRef"], Path::new("spec"));
        let path = spec.child("parentRef");
        if parent.is_null() {
            violations.required(path, "");
        } else {
            if let Some(group) = parent["group"].as_str() {
                rules::text(
                    group,
                    names::is_dns1123_subdomain,
                    &path.child("group"),
                    violations,
                );
            }
            for field in ["resource", "name"] {
                rules::required_text(
                    &parent[field],
                    names::is_path_segment_name,
                    &path.child(field),
                    violations,
                );
            }
            rules::text(
                parent["namespace"].str(),
                names::is_path_segment_name,
                &path.child("namespace"),
                violations,
            );
        }
        if old.is_some_and(|old| old["spec"]["parentRef"] != *parent) {
            let shown = if parent.is_null() {
                Value::Null
            } else {
                internal::shown("ParentReference", parent)
            };
            violations.invalid(path, shown, field::IMMUTABLE);
        }
    }
}

pub(super) struct ServiceCidrStrategy;

impl KindStrategy for ServiceCidrStrategy {
    fn validate(
        range: &Value,
        old: Option<&Value>,
        context: &HookContext,
        violations: &mut Violations,
    ) {
        match (context.action, old) {
            (Action::Create, _) | (_, None) => validate_cidrs(range, violations),
            (Action::Update, Some(old)) => {
                // A second family may be added; everything else stays.
                let (new, old) = (&range["spec"]["cidrs"], &old["spec"]["cidrs"]);
                let path = Path::new("spec");
                let path = path.child("cidrs");
                let grows = old.list().len() == 1 && new.list().len() == 2;
                if !grows && old.list().len() != new.list().len() {
                    violations.invalid(path, new.clone(), field::IMMUTABLE);
                } else {
                    for (index, (new, old)) in new.items().zip(old.list()).enumerate() {
                        field::immutable(new, old, &path.index(index), violations);
                    }
                    if grows {
                        validate_cidrs(range, violations);
                    }
                }
            }
            (Action::Status, _) => {}
        }
    }
}

fn validate_cidrs(range: &Value, violations: &mut Violations) {
    let cidrs = &range["spec"]["cidrs"];
    let path = Path::new("spec");
    let path = path.child("cidrs");
    match cidrs.list() {
        [] => return violations.required(path, "at least one CIDR required"),
        [_] | [_, _] => {}
        _ => {
            let shown = internal::shown("ServiceCIDRSpec", &range["spec"]);
            return violations.invalid(path, shown, "may only hold up to 2 values");
        }
    }
    for (index, cidr) in cidrs.items().enumerate() {
        rules::text(cidr.str(), ip::is_cidr, &path.index(index), violations);
    }
    let families: Vec<Option<bool>> = cidrs
        .items()
        .map(|cidr| {
            // Whether a range is one of IPv6; IPv4 in its clothes is not.
            let cidr = cidr.str();
            ip::Cidr::parse_sloppy(cidr).map(|block| block.ip.to_canonical().is_ipv6())
        })
        .collect();
    if let [Some(first), Some(second)] = families[..]
        && first == second
    {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        violations.invalid(path, cidrs.clone(), detail);
    }
}
