//! Table printers of the built-in kinds: the cells of `kubectl get` that are computed.
//!
//! A kind's data lists its columns in order; those with a path are read from the object, the remaining ones get the values of
//! [`cells`], in order. An object is shown as the kind that it is stored as.
//!
//! Kubernetes: words, number types and the few rows with more cells than columns are those of
//! pkg/printers/internalversion/printers.go.
//!
//! ```
//! use mizzen_object::GroupVersionKind;
//! use mizzen_value::value;
//!
//! let kind = GroupVersionKind { group: "apps".into(), version: "v1".into(), kind: "Deployment".into() };
//! let deployment = value!({"spec": {"replicas": 3}, "status": {"readyReplicas": 2, "replicas": 3}});
//! let cells = mizzen_printers::cells(&kind)(&deployment, 0);
//! assert_eq!(cells[0].str(), "2/3");
//! ```

mod access;
mod cluster;
mod network;
mod pod;
mod policy;
mod storage;
mod text;
mod workload;

use mizzen_object::GroupVersionKind;
use mizzen_value::{Str, Value, value};

/// Computes the cells of a row: the object, and the time in Unix seconds.
pub type Cells = fn(&Value, i64) -> Vec<Value>;

/// Cells from anything that is a value: `row![3, "three"]`.
macro_rules! row {
    ($($cell:expr),* $(,)?) => { vec![$(::mizzen_value::Value::from($cell)),*] };
}
use row;

/// The function that computes the cells of a built-in kind.
pub fn cells(gvk: &GroupVersionKind) -> Cells {
    let kind = gvk.kind.as_str();
    match (gvk.group.as_str(), gvk.version.as_str()) {
        ("", _) => match kind {
            "Pod" => pod::cells,
            "PodTemplate" => workload::pod_template,
            "ReplicationController" => workload::replication_controller,
            "Service" | "Endpoints" => network::core(kind),
            "PersistentVolume" | "PersistentVolumeClaim" => storage::core(kind),
            _ => cluster::cells(kind),
        },
        ("apps", _) => workload::apps(kind),
        ("batch", _) => workload::batch(kind),
        ("autoscaling", _) => workload::autoscaler,
        ("policy", _) => workload::disruption_budget,
        ("discovery.k8s.io", _) => network::endpoint_slice,
        ("networking.k8s.io", _) => network::cells(kind),
        ("storage.k8s.io", _) => storage::cells(kind),
        ("resource.k8s.io", _) => storage::devices(kind),
        ("rbac.authorization.k8s.io", _) => access::rbac(kind),
        ("certificates.k8s.io", _) => access::signing_request,
        ("admissionregistration.k8s.io", _) => policy::admission(kind),
        ("flowcontrol.apiserver.k8s.io", _) => policy::flow(kind),
        ("apiregistration.k8s.io", _) => access::api_service,
        ("coordination.k8s.io", _) => cluster::lease,
        ("node.k8s.io", _) => text::only_age,
        ("scheduling.k8s.io", _) => policy::priority_class,
        _ => nothing,
    }
}

fn nothing(_: &Value, _: i64) -> Vec<Value> {
    Vec::new()
}

/// The function that computes the conditions of an object's row: whether it has run to its end.
pub fn row_conditions(gvk: &GroupVersionKind) -> fn(&Value) -> Vec<Value> {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => |pod| match pod["status"]["phase"].str() {
            "Succeeded" => vec![completed(
                "Succeeded",
                "The pod has completed successfully.",
            )],
            "Failed" => vec![completed("Failed", "The pod failed.")],
            _ => Vec::new(),
        },
        _ => |_| Vec::new(),
    }
}

fn completed(reason: &str, message: &str) -> Value {
    value!({"type": "Completed", "status": "True", "reason": reason, "message": message})
}

/// What rows of a list are ordered by first, before the list's own order; most kinds have nothing.
pub fn row_rank(gvk: &GroupVersionKind) -> Option<fn(&Value) -> i64> {
    let is_flow_schema = gvk.group == "flowcontrol.apiserver.k8s.io" && gvk.kind == "FlowSchema";
    is_flow_schema.then_some(|object| object["spec"]["matchingPrecedence"].int())
}

/// Sorted, without repetition, and joined: how sets are shown.
fn join_set(items: impl IntoIterator<Item = Str>) -> String {
    items
        .into_iter()
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests;
