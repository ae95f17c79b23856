//! The Node object, as a kubelet registers it.

use mizzen_object::condition::find;
use mizzen_value::{Value, value};

use crate::eviction::NodePressure;
use crate::moment::{Moment, to_value};
use crate::runtime::RuntimeFeatures;
use crate::settings::NodeSettings;

/// The kubelet version of the nodes.
const VERSION: &str = "v1.36.4";

/// The declared features of that version.
const FEATURES: [&str; 4] = [
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];

/// The conditions of a healthy node: type, status, reason, message.
const CONDITIONS: [[&str; 4]; 4] = [
    [
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ],
    [
        "DiskPressure",
        "False",
        "KubeletHasNoDiskPressure",
        "kubelet has no disk pressure",
    ],
    [
        "PIDPressure",
        "False",
        "KubeletHasSufficientPID",
        "kubelet has sufficient PID available",
    ],
    [
        "Ready",
        "True",
        "KubeletReady",
        "kubelet is posting ready status",
    ],
];

/// The label of nodes with real containers, by which volumes are made only for them.
const RUNTIME_LABEL: &str = "mizzen.dev/node-runtime";
/// The conditions of a node that runs short of something.
const PRESSURES: [[&str; 4]; 3] = [
    [
        "MemoryPressure",
        "True",
        "KubeletHasInsufficientMemory",
        "kubelet has insufficient memory available",
    ],
    [
        "DiskPressure",
        "True",
        "KubeletHasDiskPressure",
        "kubelet has disk pressure",
    ],
    [
        "PIDPressure",
        "True",
        "KubeletHasInsufficientPID",
        "kubelet has insufficient PID available",
    ],
];

/// The row of the condition Ready.
const READY: usize = 3;

/// A node as it is registered.
pub(crate) fn node_object(settings: &NodeSettings, name: &str) -> Value {
    value!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": (labels(settings, name)),
            "annotations": (annotations(settings, name)),
        },
        "status": (status(settings, name, &Value::Null)),
    })
}

/// The annotations that a kubelet keeps on its node. Nodes that share an address serve metrics at a
/// path of their own, which metrics-server finds in an annotation.
pub(super) fn annotations(settings: &NodeSettings, name: &str) -> Value {
    let mut annotations =
        value!({ "volumes.kubernetes.io/controller-managed-attach-detach": "true" });
    if settings.share_an_address() {
        let path = format!("/metrics/nodes/{name}/metrics/resource");
        annotations.set("metrics.k8s.io/resource-metrics-path", path);
    }
    annotations
}

/// The labels that a kubelet keeps on its node.
pub(super) fn labels(settings: &NodeSettings, name: &str) -> Value {
    let (os, arch) = ("linux", architecture());
    let mut labels = value!({
        "beta.kubernetes.io/arch": arch,
        "beta.kubernetes.io/os": os,
        "kubernetes.io/arch": arch,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": os,
    });
    if settings.runtime.runs_processes() {
        labels.set(RUNTIME_LABEL, "cri");
    }
    labels
}

/// The status of a healthy node; `known` is its current status.
pub(super) fn status(settings: &NodeSettings, name: &str, known: &Value) -> Value {
    let now = settings.now();
    let health = settings.health();
    let pressures = settings.pressures.lock().clone();
    let conditions: Vec<Value> = conditions(&health, &pressures)
        .iter()
        .map(|row| condition(row, known, now))
        .collect();
    let mut status = value!({
        "addresses": [
            { "type": "InternalIP", "address": (settings.host(name).address) },
            { "type": "Hostname", "address": name },
        ],
        "allocatable": (settings.allocatable.clone()),
        "capacity": (settings.capacity.clone()),
        "conditions": conditions,
        "declaredFeatures": (FEATURES.map(Value::from).to_vec()),
        "daemonEndpoints": { "kubeletEndpoint": { "Port": (settings.port) } },
        "images": (settings.runtime.images()),
        "nodeInfo": (node_info(settings, name)),
    });
    match settings.runtime.features() {
        None => status.set("features", value!({ "supplementalGroupsPolicy": true })),
        Some(features) => set_features(&mut status, &features),
    }
    status
}

/// What the runtime says that it can do. Kubernetes: pkg/kubelet/nodestatus/setters.go.
fn set_features(status: &mut Value, features: &RuntimeFeatures) {
    if let Some(has_policy) = features.supplemental_groups_policy {
        status.set(
            "features",
            value!({ "supplementalGroupsPolicy": has_policy }),
        );
    }
    let handlers = features.handlers.iter().map(|handler| {
        let features = value!({
            "recursiveReadOnlyMounts": (handler.recursive_read_only),
            "userNamespaces": (handler.user_namespaces),
        });
        let mut shown = value!({ "features": features });
        if !handler.name.is_empty() {
            shown.set("name", handler.name.as_str());
        }
        shown
    });
    let handlers: Vec<Value> = handlers.collect();
    if !handlers.is_empty() {
        status.set("runtimeHandlers", handlers);
    }
}

/// The conditions of a node, with the health of its runtime, and what it runs short of.
fn conditions<'a>(health: &'a Result<(), String>, pressures: &[NodePressure]) -> [[&'a str; 4]; 4] {
    let mut rows: [[&str; 4]; 4] = CONDITIONS;
    for row in PRESSURES {
        if pressures.iter().any(|pressure| pressure.name() == row[0])
            && let Some(healthy) = rows.iter_mut().find(|healthy| healthy[0] == row[0])
        {
            *healthy = row;
        }
    }
    if let Err(message) = health {
        rows[READY] = ["Ready", "False", "KubeletNotReady", message];
    }
    rows
}

fn condition([name, status, reason, message]: &[&str; 4], known: &Value, now: Moment) -> Value {
    let before = find(&known["conditions"], name);
    let same = before.filter(|before| before["status"].str() == *status);
    let since = same.map_or_else(
        || to_value(now),
        |before| before["lastTransitionTime"].clone(),
    );
    value!({
        "type": (*name),
        "status": (*status),
        "lastHeartbeatTime": (to_value(now)),
        "lastTransitionTime": since,
        "reason": (*reason),
        "message": (*message),
    })
}

/// Whether a node's status is not that of a healthy node of this process.
pub(super) fn needs_status(settings: &NodeSettings, name: &str, node: &Value) -> bool {
    let known = &node["status"];
    let wanted = status(settings, name, known);
    let fields = [
        "addresses",
        "capacity",
        "allocatable",
        "daemonEndpoints",
        "images",
        "features",
        "runtimeHandlers",
    ];
    let differs = fields.iter().any(|field| known[*field] != wanted[*field]);
    let health = settings.health();
    // Why a node is not ready may change while it is not.
    let is_well = |[name, status, _, message]: &[&str; 4]| {
        find(&known["conditions"], name).is_some_and(|known| {
            let same_reason = health.is_ok() || known["message"].str() == *message;
            known["status"].str() == *status && same_reason
        })
    };
    let pressures = settings.pressures.lock().clone();
    differs || !conditions(&health, &pressures).iter().all(is_well)
}

fn node_info(settings: &NodeSettings, name: &str) -> Value {
    let number = crate::digest(name);
    let machine = format!("{number:016x}{:016x}", number.rotate_left(32));
    let uuid = format!(
        "{}-{}-{}-{}-{}",
        &machine[..8],
        &machine[8..12],
        &machine[12..16],
        &machine[16..20],
        &machine[20..]
    );
    if let Some(machine) = settings.runtime.machine() {
        return value!({
            "architecture": (architecture()),
            "bootID": (&machine.boot_id),
            "containerRuntimeVersion": (settings.runtime.version()),
            "kernelVersion": (&machine.kernel_version),
            "kubeProxyVersion": "",
            "kubeletVersion": VERSION,
            "machineID": (&machine.machine_id),
            "operatingSystem": "linux",
            "osImage": (&machine.os_image),
            "systemUUID": (&machine.machine_id),
        });
    }
    value!({
        "architecture": (architecture()),
        "bootID": (&uuid),
        "containerRuntimeVersion": (settings.runtime.version()),
        "kernelVersion": "simulated",
        "kubeProxyVersion": "",
        "kubeletVersion": VERSION,
        "machineID": (&machine),
        "operatingSystem": "linux",
        "osImage": "Mizzen",
        "systemUUID": (&uuid),
    })
}

/// The architecture of this machine, as Go names it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::RuntimeHandler;

    #[test]
    fn a_node_has_the_features_that_its_runtime_reports() {
        let shown = |features: RuntimeFeatures| {
            let mut status = Value::object();
            set_features(&mut status, &features);
            status
        };
        assert_eq!(shown(RuntimeFeatures::default()), Value::object());
        let features = RuntimeFeatures {
            supplemental_groups_policy: Some(false),
            handlers: vec![
                RuntimeHandler {
                    recursive_read_only: true,
                    ..RuntimeHandler::default()
                },
                RuntimeHandler {
                    name: "kata".into(),
                    user_namespaces: true,
                    ..RuntimeHandler::default()
                },
            ],
        };
        let handlers = value!([
            { "features": { "recursiveReadOnlyMounts": true, "userNamespaces": false } },
            { "features": { "recursiveReadOnlyMounts": false, "userNamespaces": true }, "name": "kata" },
        ]);
        assert_eq!(
            shown(features),
            value!({ "features": { "supplementalGroupsPolicy": false }, "runtimeHandlers": handlers })
        );
    }
}
