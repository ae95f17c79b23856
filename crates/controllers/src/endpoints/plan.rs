//! The Endpoints of a service.

use mizzen_component_helpers::pod_state::is_ready;
use mizzen_value::{Value, value};

use crate::services::member::{self, IpFamily};
use crate::services::slice::HEADLESS;
use crate::services::subsets::Subsets;
use crate::services::trigger;

/// The managed-by label and its value.
const MANAGED_BY: (&str, &str) = ("endpoints.kubernetes.io/managed-by", "endpoint-controller");
/// The annotation on truncated Endpoints.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
/// How many addresses are published at most.
const CAPACITY: usize = 1000;

/// The Endpoints to write; none if `current` is right. `moment` is the trigger time.
pub(crate) fn plan(
    service: &Value,
    pods: &[&Value],
    current: Option<&Value>,
    moment: Option<&str>,
) -> Option<Value> {
    let subsets = subsets(service, pods).to_list();
    if current.is_some_and(|current| is_up_to_date(current, service, &subsets)) {
        return None;
    }
    let mut endpoints = current.cloned().unwrap_or_else(|| {
        let metadata = &service["metadata"];
        let (name, namespace) = (metadata["name"].clone(), metadata["namespace"].clone());
        value!({
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {"name": name, "namespace": namespace}
        })
    });
    let (subsets, truncated) = truncate(subsets);
    endpoints.set("subsets", subsets);
    endpoints.entry("metadata").set("labels", labels(service));
    trigger::annotate(&mut endpoints, moment);
    let annotations = endpoints.entry("metadata").entry("annotations");
    annotations.remove(OVER_CAPACITY);
    if truncated {
        annotations.set(OVER_CAPACITY, "truncated");
    }
    Some(endpoints)
}

/// The pods' addresses by port.
fn subsets(service: &Value, pods: &[&Value]) -> Subsets {
    let spec = &service["spec"];
    let publish_all = spec["publishNotReadyAddresses"].bool();
    let mut subsets = Subsets::default();
    for pod in pods
        .iter()
        .filter(|pod| member::should_be_in_endpoints(pod, publish_all))
    {
        let Some(address) = address(service, pod) else {
            continue;
        };
        let ready = publish_all || is_ready(pod);
        if spec["ports"].list().is_empty() && spec["clusterIP"].str() == "None" {
            subsets.add(&address, &Value::Null, ready);
        }
        for port in spec["ports"].list() {
            if let Some(number) = member::port_number(pod, port) {
                let port = value!({
                    "name": (port["name"].clone()),
                    "port": (number),
                    "protocol": (port["protocol"].clone()),
                    "appProtocol": (port["appProtocol"].clone())
                });
                subsets.add(&address, &port, ready);
            }
        }
    }
    subsets
}

fn address(service: &Value, pod: &Value) -> Option<Value> {
    let metadata = &pod["metadata"];
    let ip = member::addresses(pod, family(service, pod))
        .into_iter()
        .next()?;
    // Kubernetes: a pod without a node has an empty `nodeName` here (endpoints_controller.go).
    let mut address = value!({
        "ip": (ip),
        "nodeName": (pod["spec"]["nodeName"].str()),
        "targetRef": {
            "kind": "Pod",
            "namespace": (metadata["namespace"].clone()),
            "name": (metadata["name"].clone()),
            "uid": (metadata["uid"].clone())
        }
    });
    if let Some(hostname) = member::hostname(pod, service) {
        address.set("hostname", hostname);
    }
    Some(address)
}

/// Endpoints have addresses of one family only.
fn family(service: &Value, pod: &Value) -> IpFamily {
    let spec = &service["spec"];
    let said = spec["ipFamilies"][0].as_str().and_then(IpFamily::from_name);
    let own = Some(spec["clusterIP"].str()).filter(|ip| !matches!(*ip, "" | "None"));
    let shown = own.unwrap_or(pod["status"]["podIP"].str());
    said.or_else(|| member::parse_address(shown).map(IpFamily::from_address))
        .unwrap_or(IpFamily::V4)
}

fn labels(service: &Value) -> Value {
    let mut labels = service["metadata"]["labels"].clone();
    labels.make_map().remove(HEADLESS);
    if member::is_headless(service) {
        labels.set(HEADLESS, "");
    }
    labels.set(MANAGED_BY.0, MANAGED_BY.1);
    labels
}

/// Whether `current` has the wanted content.
fn is_up_to_date(current: &Value, service: &Value, subsets: &[Value]) -> bool {
    let now = Subsets::from_list(&current["subsets"]).to_list();
    let is_over = current["metadata"]["annotations"]
        .get(OVER_CAPACITY)
        .is_some();
    // Kubernetes: the headless label is not compared; it cannot change.
    let (labels, wanted) = (
        &current["metadata"]["labels"],
        &service["metadata"]["labels"],
    );
    let own = |name: &str| name == HEADLESS || name == MANAGED_BY.0;
    let rest = || labels.entries().filter(|(name, _)| !own(name));
    !is_over
        && without_versions(&now) == without_versions(subsets)
        && labels[MANAGED_BY.0].str() == MANAGED_BY.1
        && rest().all(|(name, value)| wanted[name] == *value)
        && rest().count() == wanted.entries().count()
}

/// A new resourceVersion of a pod causes no write.
fn without_versions(subsets: &[Value]) -> Vec<Value> {
    let mut subsets = subsets.to_vec();
    for subset in &mut subsets {
        for list in ["addresses", "notReadyAddresses"] {
            for address in subset
                .get_mut(list)
                .map(Value::list_mut)
                .unwrap_or_default()
            {
                address.entry("targetRef").remove("resourceVersion");
            }
        }
    }
    subsets
}

/// Truncates addresses, those that are not ready first, each subset in proportion.
fn truncate(mut subsets: Vec<Value>) -> (Vec<Value>, bool) {
    let count = |subsets: &[Value], list: &str| {
        subsets.iter().map(|subset| subset[list].list().len()).sum()
    };
    let (ready, unready): (usize, usize) = (
        count(&subsets, "addresses"),
        count(&subsets, "notReadyAddresses"),
    );
    if ready + unready <= CAPACITY {
        return (subsets, false);
    }
    let (list, room, total) = match ready > CAPACITY {
        true => ("addresses", CAPACITY, ready),
        false => ("notReadyAddresses", CAPACITY - ready, unready),
    };
    let mut left = room;
    for subset in &mut subsets {
        let share = (subset[list].list().len() * room).div_ceil(total).min(left);
        if let Some(addresses) = subset.get_mut(list) {
            addresses.make_list().truncate(share);
            left -= addresses.list().len();
        }
        if ready > CAPACITY {
            subset.remove("notReadyAddresses");
        }
    }
    (subsets, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(spec: Value) -> Value {
        value!({"metadata": {"name": "s", "namespace": "a", "labels": {"team": "x"}}, "spec": (spec)})
    }

    fn pod(name: &str, ip: &str, ready: bool) -> Value {
        let ready = if ready { "True" } else { "False" };
        value!({
            "metadata": {"name": (name), "namespace": "a", "uid": (name)},
            "spec": {"nodeName": "n"},
            "status": {"podIP": (ip), "podIPs": [{"ip": (ip)}], "conditions": [{"type": "Ready", "status": (ready)}]}
        })
    }

    fn address(name: &str, ip: &str) -> Value {
        let target = value!({"kind": "Pod", "namespace": "a", "name": (name), "uid": (name)});
        value!({"ip": (ip), "nodeName": "n", "targetRef": (target)})
    }

    fn web() -> Value {
        value!({"clusterIP": "10.0.0.1", "ports": [{"port": 80, "targetPort": 8080, "protocol": "TCP"}]})
    }

    #[track_caller]
    fn check(spec: Value, pods: &[Value], subsets: Value) -> Value {
        let service = service(spec);
        let pods: Vec<&Value> = pods.iter().collect();
        let endpoints = plan(&service, &pods, None, None).expect("there are none yet");
        assert_eq!(endpoints["subsets"], subsets);
        assert_eq!(
            plan(&service, &pods, Some(&endpoints), None),
            None,
            "written once is enough"
        );
        endpoints
    }

    #[test]
    fn pods_that_are_not_ready_are_not_ready_addresses() {
        let endpoints = check(
            web(),
            &[pod("p", "10.1.0.1", true), pod("q", "10.1.0.2", false)],
            value!([{
                "addresses": [(address("p", "10.1.0.1"))],
                "notReadyAddresses": [(address("q", "10.1.0.2"))],
                "ports": [{"port": 8080, "protocol": "TCP"}]
            }]),
        );
        let labels =
            value!({"team": "x", "endpoints.kubernetes.io/managed-by": "endpoint-controller"});
        assert_eq!(endpoints["metadata"]["labels"], labels);
    }

    #[test]
    fn a_service_may_publish_pods_that_are_not_ready() {
        let mut spec = web();
        spec.set("publishNotReadyAddresses", true);
        let ports = value!([{"port": 8080, "protocol": "TCP"}]);
        check(
            spec,
            &[pod("q", "10.1.0.2", false)],
            value!([{"addresses": [(address("q", "10.1.0.2"))], "ports": (ports)}]),
        );
    }

    #[test]
    fn a_headless_service_needs_no_ports() {
        let endpoints = check(
            value!({"clusterIP": "None"}),
            &[pod("p", "10.1.0.1", true)],
            value!([{"addresses": [(address("p", "10.1.0.1"))]}]),
        );
        assert_eq!(endpoints["metadata"]["labels"][HEADLESS], value!(""));
    }

    #[test]
    fn only_addresses_of_the_first_family_are_published() {
        let mut spec = web();
        spec.set("ipFamilies", value!(["IPv6", "IPv4"]));
        check(spec, &[pod("p", "10.1.0.1", true)], value!([]));
    }

    #[test]
    fn a_foreign_label_or_address_is_corrected() {
        let (service, pod) = (service(web()), pod("p", "10.1.0.1", true));
        let right = plan(&service, &[&pod], None, None).expect("there are none yet");
        for (path, value) in [("metadata.labels", value!({})), ("subsets", value!([]))] {
            let mut wrong = right.clone();
            *wrong.at_mut(path).expect("it is there") = value;
            assert_eq!(
                plan(&service, &[&pod], Some(&wrong), None),
                Some(right.clone())
            );
        }
    }

    #[test]
    fn no_more_than_a_thousand_addresses_are_published() {
        let pods: Vec<Value> = (0..1100)
            .map(|n| {
                pod(
                    &format!("p{n}"),
                    &format!("10.1.{}.{}", n / 200, n % 200 + 1),
                    n < 400,
                )
            })
            .collect();
        let pods: Vec<&Value> = pods.iter().collect();
        let endpoints = plan(&service(web()), &pods, None, None).expect("there are none yet");
        let subset = &endpoints["subsets"][0];
        assert_eq!(subset["addresses"].list().len(), 400);
        assert_eq!(subset["notReadyAddresses"].list().len(), 600);
        assert_eq!(
            endpoints["metadata"]["annotations"][OVER_CAPACITY].str(),
            "truncated"
        );
    }
}
