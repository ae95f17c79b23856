//! Checks of access to the host, with upstream's messages.

use std::collections::BTreeSet;

use mizzen_value::Value;

use super::checks::{CheckedPod, Finding};
use super::words::{bad, containers, finding, plural, quoted};

const SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
];
const SYSCTLS_27: &[&str] = &["net.ipv4.ip_local_reserved_ports"];
const SYSCTLS_29: &[&str] = &[
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
];
const SYSCTLS_32: &[&str] = &["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"];
const VOLUMES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
const OTHER_VOLUMES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

pub(super) fn host_namespaces(pod: &CheckedPod) -> Option<Finding> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| pod.spec[*field].bool());
    let shared: Vec<String> = shared.map(|field| format!("{field}=true")).collect();
    if shared.is_empty() {
        None
    } else {
        finding("host namespaces", shared.join(", "))
    }
}

pub(super) fn host_path(pod: &CheckedPod) -> Option<Finding> {
    let volumes = pod.spec["volumes"]
        .list()
        .iter()
        .filter(|volume| !volume["hostPath"].is_null());
    let names: Vec<&str> = volumes.map(|volume| volume["name"].str()).collect();
    let volumes = plural(names.len(), "volume", "volumes");
    if names.is_empty() {
        None
    } else {
        finding("hostPath volumes", format!("{volumes} {}", quoted(names)))
    }
}

fn host_ports_of(container: &Value) -> impl Iterator<Item = String> {
    let ports = container["ports"]
        .list()
        .iter()
        .map(|port| port["hostPort"].int());
    ports.filter(|port| *port != 0).map(|port| port.to_string())
}

pub(super) fn host_ports(pod: &CheckedPod) -> Option<Finding> {
    let names = bad(pod, |container| host_ports_of(container).next().is_some());
    let ports: BTreeSet<String> = pod.containers().flat_map(host_ports_of).collect();
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        plural(names.len(), "uses", "use"),
        plural(ports.len(), "hostPort", "hostPorts"),
        ports.into_iter().collect::<Vec<_>>().join(", ")
    );
    if names.is_empty() {
        None
    } else {
        finding("hostPort", detail)
    }
}

fn probed_hosts(container: &Value) -> impl Iterator<Item = &str> {
    let lifecycle = &container["lifecycle"];
    let handlers = [
        &container["livenessProbe"],
        &container["readinessProbe"],
        &container["startupProbe"],
        &lifecycle["postStart"],
        &lifecycle["preStop"],
    ];
    let hosts = handlers
        .into_iter()
        .flat_map(|handler| [&handler["httpGet"]["host"], &handler["tcpSocket"]["host"]]);
    hosts.map(Value::str).filter(|host| !host.is_empty())
}

pub(super) fn host_probes(pod: &CheckedPod) -> Option<Finding> {
    let names: BTreeSet<&str> = bad(pod, |container| probed_hosts(container).next().is_some())
        .into_iter()
        .collect();
    let names: Vec<&str> = names.into_iter().collect();
    let hosts: BTreeSet<&str> = pod.containers().flat_map(probed_hosts).collect();
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        plural(names.len(), "uses", "use"),
        plural(
            hosts.len(),
            "probe or lifecycle host",
            "probe or lifecycle hosts"
        ),
        quoted(hosts)
    );
    if names.is_empty() {
        None
    } else {
        finding("probe or lifecycle host", detail)
    }
}

pub(super) fn sysctls(pod: &CheckedPod) -> Option<Finding> {
    sysctls_except(pod, &[SYSCTLS])
}

pub(super) fn sysctls_27(pod: &CheckedPod) -> Option<Finding> {
    sysctls_except(pod, &[SYSCTLS, SYSCTLS_27])
}

pub(super) fn sysctls_29(pod: &CheckedPod) -> Option<Finding> {
    sysctls_except(pod, &[SYSCTLS, SYSCTLS_27, SYSCTLS_29])
}

pub(super) fn sysctls_32(pod: &CheckedPod) -> Option<Finding> {
    sysctls_except(pod, &[SYSCTLS, SYSCTLS_27, SYSCTLS_29, SYSCTLS_32])
}

fn sysctls_except(pod: &CheckedPod, allowed: &[&[&str]]) -> Option<Finding> {
    let set = pod.spec["securityContext"]["sysctls"]
        .list()
        .iter()
        .map(|sysctl| sysctl["name"].str());
    let forbidden: Vec<&str> = set
        .filter(|name| !allowed.iter().any(|list| list.contains(name)))
        .collect();
    if forbidden.is_empty() {
        None
    } else {
        finding("forbidden sysctls", forbidden.join(", "))
    }
}

pub(super) fn volumes(pod: &CheckedPod) -> Option<Finding> {
    let has = |volume: &Value, kinds: &[&'static str]| {
        kinds.iter().find(|kind| !volume[**kind].is_null()).copied()
    };
    let bad = || {
        pod.spec["volumes"]
            .list()
            .iter()
            .filter(|volume| has(volume, VOLUMES).is_none())
    };
    let names: Vec<&str> = bad().map(|volume| volume["name"].str()).collect();
    let kinds: BTreeSet<&str> = bad()
        .map(|volume| has(volume, OTHER_VOLUMES).unwrap_or("unknown"))
        .collect();
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {} {}",
        plural(names.len(), "volume", "volumes"),
        quoted(names.iter().copied()),
        plural(names.len(), "uses", "use"),
        plural(
            kinds.len(),
            "restricted volume type",
            "restricted volume types"
        ),
        quoted(kinds)
    );
    finding("restricted volume types", detail)
}
