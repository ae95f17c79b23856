//! Quota evaluation: the usage of an object under the resource names of a ResourceQuota. Pods, services and claims have
//! evaluators of their own; of other kinds the objects are counted. `scope` matches quota scopes, `pods` evaluates pods.
//!
//! Admission and the quota controller share these rules, so that they agree.

mod pods;
mod scope;

pub use scope::{ScopeSelector, selectors};

use mizzen_value::Value;
use mizzen_value::quantity::{Quantity, QuantityFormat};

use crate::amounts::{Amounts, add};

/// What is never counted: it is not stored, or it must not be kept from being said.
const IGNORED: [(&str, &str); 10] = [
    ("", "bindings"),
    ("", "componentstatuses"),
    ("", "events"),
    ("events.k8s.io", "events"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];
/// What is also counted under its bare name.
const BARE: [&str; 4] = [
    "configmaps",
    "resourcequotas",
    "replicationcontrollers",
    "secrets",
];
const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
const DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// The most devices that a request can get.
const MAX_DEVICES: i64 = 32;

/// What an object is counted as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QuotaEvaluator {
    /// A pod, and what it asks for.
    Pod,
    /// A service, its ports and balancers.
    Service,
    /// A claim of storage, by class.
    VolumeClaim,
    /// A claim of devices, by class.
    DeviceClaim,
    /// One of its kind, under these names.
    Other(Vec<String>),
}

impl QuotaEvaluator {
    /// What objects of a resource are counted as; none if they are not.
    pub fn of(group: &str, plural: &str) -> Option<QuotaEvaluator> {
        if IGNORED.contains(&(group, plural)) {
            return None;
        }
        Some(match (group, plural) {
            ("", "pods") => QuotaEvaluator::Pod,
            ("", "services") => QuotaEvaluator::Service,
            ("", "persistentvolumeclaims") => QuotaEvaluator::VolumeClaim,
            ("resource.k8s.io", "resourceclaims") => QuotaEvaluator::DeviceClaim,
            ("", plural) if BARE.contains(&plural) => {
                QuotaEvaluator::Other(vec![format!("count/{plural}"), plural.to_string()])
            }
            ("", plural) => QuotaEvaluator::Other(vec![format!("count/{plural}")]),
            (group, plural) => QuotaEvaluator::Other(vec![format!("count/{plural}.{group}")]),
        })
    }

    /// Whether a write can change what is taken. `old` is none if the object is new.
    pub fn handles(&self, subresource: &str, old: Option<&Value>, new: &Value) -> bool {
        match (self, subresource, old) {
            (QuotaEvaluator::Pod, "", Some(old)) => {
                pods::is_terminating(old) != pods::is_terminating(new)
            }
            (QuotaEvaluator::Pod, "resize", old) => old.is_some(),
            (QuotaEvaluator::VolumeClaim, "status", Some(_)) => true,
            (QuotaEvaluator::Pod | QuotaEvaluator::Other(_), "", old) => old.is_none(),
            (_, subresource, _) => subresource.is_empty(),
        }
    }

    /// Whether a quota's name for something is about such objects.
    pub fn counts_as(&self, name: &str) -> bool {
        match self {
            QuotaEvaluator::Pod => pods::counts_as(name),
            QuotaEvaluator::Service => {
                matches!(
                    name,
                    "count/services" | "services" | "services.nodeports" | "services.loadbalancers"
                )
            }
            QuotaEvaluator::VolumeClaim => {
                let name = name
                    .split_once(STORAGE_CLASS)
                    .map_or(name, |(_, name)| name);
                matches!(
                    name,
                    "persistentvolumeclaims" | "requests.storage" | "count/persistentvolumeclaims"
                )
            }
            QuotaEvaluator::DeviceClaim => {
                name == "count/resourceclaims.resource.k8s.io" || name.ends_with(DEVICE_CLASS)
            }
            QuotaEvaluator::Other(names) => names.iter().any(|known| known == name),
        }
    }

    /// Whether an object is in a scope.
    pub fn is_in(&self, selector: &ScopeSelector, object: &Value) -> bool {
        match self {
            QuotaEvaluator::Pod => pods::is_in(selector, object),
            QuotaEvaluator::VolumeClaim => {
                selector.scope == "VolumeAttributesClass"
                    && selector.selects(&attributes_classes(object))
            }
            _ => false,
        }
    }

    /// What an object must say of itself before it can be counted under `names`, and does not.
    pub fn missing(&self, names: &[&str], object: &Value) -> Option<String> {
        if *self == QuotaEvaluator::Pod {
            pods::missing(names, object)
        } else {
            None
        }
    }

    /// What an object takes at a time, in seconds since 1970.
    pub fn usage(&self, object: &Value, now: i64) -> Amounts {
        match self {
            QuotaEvaluator::Pod => pods::usage(object, now),
            QuotaEvaluator::Service => service_usage(&object["spec"]),
            QuotaEvaluator::VolumeClaim => claim_usage(object),
            QuotaEvaluator::DeviceClaim => device_usage(object),
            QuotaEvaluator::Other(names) => {
                names.iter().map(|name| (name.clone(), count(1))).collect()
            }
        }
    }
}

/// So many.
fn count(amount: i64) -> Quantity {
    Quantity::from_int(amount, QuantityFormat::Decimal)
}

fn service_usage(spec: &Value) -> Amounts {
    let ports = spec["ports"].list();
    let balanced = spec["type"].str() == "LoadBalancer";
    let node_ports = match spec["type"].str() {
        "LoadBalancer" if spec["allocateLoadBalancerNodePorts"].as_bool() == Some(false) => ports
            .iter()
            .filter(|port| port["nodePort"].int() != 0)
            .count(),
        "LoadBalancer" | "NodePort" => ports.len(),
        _ => 0,
    };
    let usage = [
        ("count/services", 1),
        ("services", 1),
        ("services.loadbalancers", i64::from(balanced)),
        (
            "services.nodeports",
            i64::try_from(node_ports).unwrap_or(i64::MAX),
        ),
    ];
    usage
        .into_iter()
        .map(|(name, amount)| (name.to_string(), count(amount)))
        .collect()
}

/// The class of storage that a claim names, in the field or in the old annotation.
pub fn storage_class(claim: &Value) -> &str {
    let old = claim["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"].as_str();
    old.unwrap_or_else(|| claim["spec"]["storageClassName"].str())
}

fn claim_usage(claim: &Value) -> Amounts {
    let class = storage_class(claim);
    let mut usage = Amounts::from([("count/persistentvolumeclaims".to_string(), count(1))]);
    let mut note = |name: &str, amount: Quantity| {
        if !class.is_empty() {
            usage.insert(format!("{class}{STORAGE_CLASS}{name}"), amount);
        }
        usage.insert(name.to_string(), amount);
    };
    note("persistentvolumeclaims", count(1));
    if let Some(requested) = claim["spec"]["resources"]["requests"]["storage"].as_str() {
        let given = claim["status"]["allocatedResources"]["storage"]
            .as_str()
            .map(Quantity::parse_or_zero);
        let requested = Quantity::parse_or_zero(requested);
        note(
            "requests.storage",
            given.map_or(requested, |given| given.max(requested)),
        );
    }
    usage
}

/// The classes of volumes that a claim names, has, or is about to have.
fn attributes_classes(claim: &Value) -> Vec<&str> {
    let status = &claim["status"];
    let names = [
        &claim["spec"]["volumeAttributesClassName"],
        &status["currentVolumeAttributesClassName"],
        &status["modifyVolumeStatus"]["targetVolumeAttributesClassName"],
    ];
    names
        .into_iter()
        .map(Value::str)
        .filter(|name| !name.is_empty())
        .collect()
}

/// What a claim may get of each class of devices, at worst.
fn device_usage(claim: &Value) -> Amounts {
    let mut usage = Amounts::from([("count/resourceclaims.resource.k8s.io".to_string(), count(1))]);
    for request in claim["spec"]["devices"]["requests"].list() {
        let alternatives = request["firstAvailable"].list();
        let exactly = Some(&request["exactly"])
            .filter(|exactly| alternatives.is_empty() && !exactly.is_null());
        let mut most = Amounts::new();
        for wanted in alternatives.iter().chain(exactly) {
            let name = format!("{}{DEVICE_CLASS}", wanted["deviceClassName"].str());
            let devices = match wanted["allocationMode"].str() {
                "ExactCount" => wanted["count"].int(),
                "All" => MAX_DEVICES,
                _ => 0,
            };
            let found = most.entry(name).or_default();
            *found = (*found).max(count(devices));
        }
        add(&mut usage, &most);
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    #[track_caller]
    fn check(usage: fn(&Value) -> Amounts, object: &str, expected: &str) {
        let found = usage(&json::parse(object.as_bytes()).unwrap());
        let found: Vec<String> = found
            .iter()
            .map(|(name, amount)| format!("{name}={amount}"))
            .collect();
        assert_eq!(found.join(" "), expected);
    }

    #[test]
    fn services_count_their_ports_and_balancers() {
        let of_spec = |service: &Value| service_usage(service);
        check(
            of_spec,
            r#"{"type":"ClusterIP","ports":[{}]}"#,
            "count/services=1 services=1 services.loadbalancers=0 services.nodeports=0",
        );
        check(
            of_spec,
            r#"{"type":"NodePort","ports":[{},{}]}"#,
            "count/services=1 services=1 services.loadbalancers=0 services.nodeports=2",
        );
        check(
            of_spec,
            r#"{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"ports":[{"nodePort":30000},{}]}"#,
            "count/services=1 services=1 services.loadbalancers=1 services.nodeports=1",
        );
    }

    #[test]
    fn claims_count_by_class_too() {
        check(
            claim_usage,
            r#"{"spec":{"storageClassName":"fast","resources":{"requests":{"storage":"1Gi"}}},"status":{"allocatedResources":{"storage":"2Gi"}}}"#,
            "count/persistentvolumeclaims=1 fast.storageclass.storage.k8s.io/persistentvolumeclaims=1 fast.storageclass.storage.k8s.io/requests.storage=2Gi persistentvolumeclaims=1 requests.storage=2Gi",
        );
    }

    #[test]
    fn devices_count_at_worst() {
        check(
            device_usage,
            r#"{"spec":{"devices":{"requests":[
            {"exactly":{"deviceClassName":"gpu","allocationMode":"ExactCount","count":2}},
            {"firstAvailable":[{"deviceClassName":"gpu","allocationMode":"ExactCount","count":1},{"deviceClassName":"gpu","allocationMode":"ExactCount","count":4},{"deviceClassName":"nic","allocationMode":"All"}]}]}}}"#,
            "count/resourceclaims.resource.k8s.io=1 gpu.deviceclass.resource.k8s.io/devices=6 nic.deviceclass.resource.k8s.io/devices=32",
        );
    }
}
