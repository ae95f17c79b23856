//! Services: defaults and fields that depend on the type.
//!
//! [`allocate`](allocate::allocate) runs before the hooks of this file: it needs what only the whole cluster
//! knows.

mod addresses;
pub mod allocate;
mod validate;
mod warnings;

use mizzen_object::{Action, HookContext};
use mizzen_value::{Value, value};

use crate::Behaviour;
use mizzen_apiextensions::KindStrategy;

pub(super) const BEHAVIOUR: Behaviour = Behaviour {
    validate: validate::validate,
    warnings: warnings::warnings,
    ..Behaviour::of::<ServiceStrategy>()
};

pub(super) struct ServiceStrategy;

impl KindStrategy for ServiceStrategy {
    fn default(service: &mut Value) {
        let spec = service.entry("spec");
        spec.set_default("sessionAffinity", "None");
        spec.set_default("type", "ClusterIP");
        match spec["sessionAffinity"].str() {
            "None" => {
                spec.remove("sessionAffinityConfig");
            }
            "ClientIP"
                if spec
                    .at("sessionAffinityConfig.clientIP.timeoutSeconds")
                    .is_null() =>
            {
                spec.set(
                    "sessionAffinityConfig",
                    value!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}}),
                );
            }
            _ => {}
        }
        spec.entry("ports").list_mut().iter_mut().for_each(|port| {
            port.set_default("protocol", "TCP");
            if port["targetPort"].is_empty() {
                let number = port["port"].int();
                port.set("targetPort", number);
            }
        });
        let ty = spec["type"].str().to_string();
        if is_externally_accessible(spec) {
            spec.set_default("externalTrafficPolicy", "Cluster");
        }
        if ["ClusterIP", "NodePort", "LoadBalancer"].contains(&ty.as_str()) {
            spec.set_default("internalTrafficPolicy", "Cluster");
        }
        if ty == "LoadBalancer" {
            spec.set_default("allocateLoadBalancerNodePorts", true);
        }
        if is(service, "LoadBalancer")
            && let Some(ingress) = service.at_mut("status.loadBalancer.ingress")
        {
            for point in ingress
                .list_mut()
                .iter_mut()
                .filter(|point| !point["ip"].str().is_empty())
            {
                point.set_default("ipMode", "VIP");
            }
        }
    }

    fn prepare(service: &mut Value, old: Option<&Value>, context: &HookContext) {
        if let (Action::Update, Some(old)) = (context.action, old) {
            // Fields that the server may have filled go when the type changes, unless the caller changed them too.
            let (old_spec, spec) = (&old["spec"], service.entry("spec"));
            let same = |spec: &Value, field: &str| spec[field] == old_spec[field];
            if needs_address(old_spec) && !needs_address(spec) {
                if same(spec, "clusterIP") && same(spec, "clusterIPs") {
                    spec.remove("clusterIP");
                    spec.remove("clusterIPs");
                }
                for field in ["ipFamilies", "ipFamilyPolicy"] {
                    drop_if(same(spec, field), spec, field);
                }
            }
            let old_ports = node_ports(old_spec);
            if needs_node_ports(old_spec)
                && !needs_node_ports(spec)
                && node_ports(spec).iter().all(|port| old_ports.contains(port))
            {
                spec.entry("ports")
                    .list_mut()
                    .iter_mut()
                    .for_each(|port| drop_if(true, port, "nodePort"));
            }
            let leaves = |needs: Needs, spec: &Value| needs(old_spec) && !needs(spec);
            for (field, needs) in DEPENDENT {
                drop_if(leaves(needs, spec) && same(spec, field), spec, field);
            }
            if spec["type"].str() != "LoadBalancer" {
                service.entry("status").set("loadBalancer", Value::object());
            }
        }
        // Kubernetes: storage.go's defaultOnRead hides the policy of a service that has no traffic.
        if is(service, "ExternalName")
            && ["Cluster", "Local"].contains(&service["spec"]["internalTrafficPolicy"].str())
        {
            service.entry("spec").remove("internalTrafficPolicy");
        }
    }
}

const AFFINITY_SECONDS: i64 = 10_800;

type Needs = fn(&Value) -> bool;

/// Fields, and what a service must be to have them.
const DEPENDENT: [(&str, Needs); 4] = [
    ("healthCheckNodePort", needs_health_check),
    ("allocateLoadBalancerNodePorts", is_load_balancer),
    ("loadBalancerClass", is_load_balancer),
    ("externalTrafficPolicy", is_externally_accessible),
];

fn drop_if(condition: bool, value: &mut Value, field: &str) {
    if condition {
        value.remove(field);
    }
}

fn node_ports(spec: &Value) -> Vec<i64> {
    spec["ports"]
        .items()
        .map(|port| port["nodePort"].int())
        .filter(|port| *port != 0)
        .collect()
}

fn is(service: &Value, ty: &str) -> bool {
    service["spec"]["type"].str() == ty
}

fn is_load_balancer(spec: &Value) -> bool {
    spec["type"].str() == "LoadBalancer"
}

fn needs_address(spec: &Value) -> bool {
    spec["type"].str() != "ExternalName"
}

fn needs_node_ports(spec: &Value) -> bool {
    ["NodePort", "LoadBalancer"].contains(&spec["type"].str())
}

fn needs_health_check(spec: &Value) -> bool {
    is_load_balancer(spec) && spec["externalTrafficPolicy"].str() == "Local"
}

fn is_externally_accessible(spec: &Value) -> bool {
    needs_node_ports(spec) || spec["type"].str() == "ClusterIP" && !spec["externalIPs"].is_empty()
}

fn is_headless(spec: &Value) -> bool {
    matches!(spec["clusterIPs"].list(), [only] if only.str() == NONE)
}

/// The `clusterIP` of a headless service.
const NONE: &str = "None";

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::*;

    #[test]
    fn a_port_is_enough() {
        check(BEHAVIOUR).create(r#"{"spec":{"ports":[{"port":80}]}}"#).becomes(
            r#"{"spec":{"ports":[{"port":80,"protocol":"TCP","targetPort":80}],"sessionAffinity":"None",
                "type":"ClusterIP","internalTrafficPolicy":"Cluster"}}"#,
        );
    }

    #[test]
    fn a_type_brings_its_fields() {
        check(BEHAVIOUR)
            .create(r#"{"spec":{"ports":[],"type":"LoadBalancer","sessionAffinity":"ClientIP"}}"#)
            .has("spec.externalTrafficPolicy", r#""Cluster""#)
            .has("spec.allocateLoadBalancerNodePorts", "true")
            .has(
                "spec.sessionAffinityConfig",
                r#"{"clientIP":{"timeoutSeconds":10800}}"#,
            );
    }

    #[test]
    fn a_type_takes_its_fields_with_it() {
        let old = r#"{"spec":{"type":"LoadBalancer","clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],
            "ipFamilies":["IPv4"],"ipFamilyPolicy":"SingleStack","externalTrafficPolicy":"Local",
            "healthCheckNodePort":31000,"ports":[{"port":80,"nodePort":30000}]}}"#;
        check(BEHAVIOUR)
            .update(&old.replace("LoadBalancer", "ExternalName"), old)
            .has("spec.clusterIP", "null")
            .has("spec.ipFamilies", "null")
            .has(
                "spec.ports",
                r#"[{"port":80,"protocol":"TCP","targetPort":80}]"#,
            )
            .has("spec.healthCheckNodePort", "null")
            .has("spec.externalTrafficPolicy", "null")
            .has("status", r#"{"loadBalancer":{}}"#);
    }

    #[test]
    fn what_the_caller_changed_stays() {
        let old = r#"{"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":30000}]}}"#;
        let new = r#"{"spec":{"type":"ClusterIP","ports":[{"port":80,"nodePort":30001}]}}"#;
        check(BEHAVIOUR).update(new, old).refused(&[
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        ]);
    }
}
