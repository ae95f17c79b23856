//! Which updates of a Service affect its load balancer.

use mizzen_sdk::Object;
use mizzen_value::Value;

use super::FINALIZER;

/// The spec fields that a load balancer depends on; of IP families only the number changes.
const FIELDS: &[&str] = &[
    "loadBalancerSourceRanges",
    "sessionAffinity",
    "sessionAffinityConfig",
    "loadBalancerIP",
    "externalIPs",
    "externalTrafficPolicy",
    "healthCheckNodePort",
    "ports",
];

/// Whether a Service needs the default load balancer: a class selects another implementation.
pub(super) fn wants_load_balancer(service: &Object) -> bool {
    let spec = &service["spec"];
    spec["type"].str() == "LoadBalancer" && spec["loadBalancerClass"].is_null()
}

/// Whether a load balancer must be deleted: the finalizer is set and it is not needed any more.
pub(super) fn needs_cleanup(service: &Object) -> bool {
    let is_wanted = !service.is_terminating() && service["spec"]["type"].str() == "LoadBalancer";
    service.has_finalizer(FINALIZER) && !is_wanted
}

/// Whether an update may change the load balancer.
pub(super) fn needs_update(old: &Object, new: &Object) -> bool {
    let (was_wanted, is_wanted) = (wants_load_balancer(old), wants_load_balancer(new));
    if !was_wanted || !is_wanted {
        return was_wanted != is_wanted;
    }
    let differs = |field: &&str| !is_same(&old["spec"][*field], &new["spec"][*field]);
    let n_families = |service: &Object| service["spec"]["ipFamilies"].list().len();
    FIELDS.iter().any(differs)
        || !is_same(
            &old["metadata"]["annotations"],
            &new["metadata"]["annotations"],
        )
        || old.uid() != new.uid()
        || n_families(old) != n_families(new)
}

/// Whether two fields are equal; empty equals absent.
fn is_same(old: &Value, new: &Value) -> bool {
    old == new || old.is_empty() && new.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    fn service(spec: &str) -> Object {
        let text = format!(
            r#"{{"metadata":{{"uid":"1"}},"spec":{{"type":"LoadBalancer","ports":[{{"port":80}}]{spec}}}}}"#
        );
        Object(json::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn an_update_concerns_the_load_balancer_by_what_it_is_made_of() {
        let old = service("");
        for (spec, expected) in [
            ("", false),
            (r#","externalIPs":[]"#, false),
            (r#","selector":{"a":"b"}"#, false),
            (r#","loadBalancerIP":"192.0.2.7""#, true),
            (r#","externalTrafficPolicy":"Local""#, true),
            (r#","ipFamilies":["IPv4"]"#, true),
            (r#","loadBalancerClass":"example.com/lb""#, true),
        ] {
            assert_eq!(needs_update(&old, &service(spec)), expected, "{spec}");
        }
        let mut changed = service("");
        changed
            .entry("spec")
            .set("ports", json::parse(br#"[{"port":81}]"#).unwrap());
        assert!(needs_update(&old, &changed));
        changed.entry("spec").set("type", "ClusterIP");
        assert!(needs_update(&old, &changed) && !needs_update(&changed, &changed));
    }
}
