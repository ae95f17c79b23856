//! Warnings for services.

use mizzen_object::validate::ip;
use mizzen_object::{Action, HookContext, Path};
use mizzen_value::Value;

use super::{NONE, is};

const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const MODE: &str = "service.kubernetes.io/topology-mode";

pub(super) fn warnings(service: &Value, _: Option<&Value>, context: &HookContext) -> Vec<String> {
    if context.action == Action::Status {
        return ingress(&service["status"]["loadBalancer"]["ingress"]);
    }
    let spec = &service["spec"];
    let path = Path::new("spec");
    let mut warnings = Vec::new();
    if service["metadata"]["annotations"].get(HINTS).is_some() {
        warnings.push(format!(
            "annotation {HINTS} is deprecated, please use {MODE} instead"
        ));
    }
    if !["", NONE].contains(&spec["clusterIP"].str()) {
        warnings.extend(addresses(&spec["clusterIPs"], &path.child("clusterIPs")));
    }
    let headless = is(service, "ClusterIP") && spec["clusterIP"].str() == NONE;
    if headless {
        let ignored = [
            (!spec["loadBalancerIP"].is_empty(), "loadBalancerIP"),
            (!spec["externalIPs"].is_empty(), "externalIPs"),
            (spec["sessionAffinity"].str() != NONE, "SessionAffinity"),
        ];
        let ignored = ignored.into_iter().filter(|(is_set, _)| *is_set);
        let ignored_when_headless: Vec<String> = ignored
            .map(|(_, field)| format!("spec.{field} is ignored for headless services"))
            .collect();
        warnings.extend(ignored_when_headless);
    }
    warnings.extend(addresses(&spec["externalIPs"], &path.child("externalIPs")));
    if !spec["externalIPs"].is_empty() && !headless && !is(service, "ExternalName") {
        warnings.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
                .into(),
        );
    }
    warnings.extend(ip::ip_warning(
        path.child("loadBalancerIP"),
        spec["loadBalancerIP"].str(),
    ));

    let ranges = spec["loadBalancerSourceRanges"].items().enumerate();
    let source_ranges: Vec<String> = ranges
        .flat_map(|(index, range)| {
            ip::cidr_warnings(
                path.child("loadBalancerSourceRanges").index(index),
                range.str(),
            )
        })
        .collect();
    warnings.extend(source_ranges);
    let external_name = if is(service, "ExternalName") {
        let is_set = !spec["externalIPs"].is_empty();
        is_set.then(|| "spec.externalIPs is ignored when spec.type is \"ExternalName\"".into())
    } else {
        let is_set = !spec["externalName"].is_empty();
        is_set.then(|| "spec.externalName is ignored when spec.type is not \"ExternalName\"".into())
    };
    warnings.extend(external_name);
    if spec["trafficDistribution"].str() == "PreferClose" {
        warnings.push(
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\""
                .into(),
        );
    }
    warnings
}

/// Kubernetes: the warning names the point of ingress, not its address.
fn ingress(ingress: &Value) -> Vec<String> {
    let path = Path::new("status");
    let path = path.child("loadBalancer");
    let path = path.child("ingress");
    let points = ingress.items().enumerate();
    points
        .filter_map(|(index, point)| ip::ip_warning(path.index(index), point["ip"].str()))
        .collect()
}

fn addresses(addresses: &Value, path: &Path) -> Vec<String> {
    let addresses = addresses.items().enumerate();
    addresses
        .filter_map(|(index, address)| ip::ip_warning(path.index(index), address.str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::check::check;
    use super::super::BEHAVIOUR;

    #[test]
    fn what_has_no_effect_is_named() {
        check(BEHAVIOUR)
            .create(r#"{"spec":{"clusterIP":"None","externalIPs":["FE80::1"],"externalName":"a"}}"#)
            .warns(&[
                "spec.externalIPs is ignored for headless services",
                r#"spec.externalIPs[0]: IPv6 address "FE80::1" should be in RFC 5952 canonical format ("fe80::1")"#,
                r#"spec.externalName is ignored when spec.type is not "ExternalName""#,
            ]);
    }

    #[test]
    fn deprecated_fields_are_named() {
        check(BEHAVIOUR)
            .create(r#"{"spec":{"externalIPs":["1.2.3.4"],"trafficDistribution":"PreferClose"}}"#)
            .warns(&[
                "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
                r#"spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone""#,
            ]);
    }
}
