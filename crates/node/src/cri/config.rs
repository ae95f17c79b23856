//! The configuration of sandboxes and containers, from the specification of a pod.
//!
//! Invariant: pure. Paths are computed, not created.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use mizzen_cri::messages::{
    Capability, ContainerConfig as CriContainerConfig, ContainerMetadata, ImageSpec, Int64Value,
    KeyValue, LinuxContainerConfig, LinuxContainerSecurityContext, LinuxPodSandboxConfig,
    LinuxSandboxSecurityContext, Mount, MountPropagation, NamespaceMode, NamespaceOption,
    PodSandboxConfig, PodSandboxMetadata, PortMapping, ProfileType, Protocol, SeLinuxOption,
    SecurityProfile, SupplementalGroupsPolicy, UserNamespace,
};
use mizzen_value::{Str, Value};

use super::accept::sysctl_name;
use crate::pod::inputs::{Variables, expand};
use crate::runtime::ContainerConfig;

/// The labels by which the kubelet finds sandboxes and containers again (pkg/kubelet/types).
pub(super) const POD_NAME: &str = "io.kubernetes.pod.name";
pub(super) const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
pub(super) const POD_UID: &str = "io.kubernetes.pod.uid";
const CONTAINER_NAME: &str = "io.kubernetes.container.name";
/// The annotation of a container by which its end is read after a restart of the agent, too.
pub(super) const TERMINATION_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// The label with the node: several agents may share a runtime.
pub(super) const NODE: &str = "dev.mizzen.node";

/// Kubernetes: the default path of the termination message (pkg/apis/core/types.go).
const TERMINATION_PATH: &str = "/dev/termination-log";
/// Kubernetes: the most characters of a host name.
const MAX_HOSTNAME: usize = 63;
/// Kubernetes: the most characters of a host name with its domain.
const MAX_FQDN: usize = 64;
/// Kubernetes: the default of `clusterDomain`.
const CLUSTER_DOMAIN: &str = "cluster.local";
/// Kubernetes: the paths that `procMount: Default` hides or protects (pkg/securitycontext).
const MASKED_PATHS: [&str; 11] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
];
const READONLY_PATHS: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The directory of volumes in the directory of a pod.
pub(super) const VOLUMES: &str = "volumes";

/// Where the agent keeps files.
#[derive(Debug, Clone)]
pub(super) struct NodePaths {
    /// The directory of all pods.
    pub root: PathBuf,
    /// The directory of logs.
    pub logs: PathBuf,
}

impl NodePaths {
    /// The directory of all pods.
    pub(super) fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    /// The directory of a pod.
    pub(super) fn pod(&self, uid: &str) -> PathBuf {
        self.pods().join(uid)
    }

    /// The directory of a volume. Kubernetes: `kubernetes.io~TYPE/NAME`.
    pub(super) fn volume(&self, uid: &str, kind: &str, name: &str) -> PathBuf {
        let kind = format!("kubernetes.io~{kind}");
        self.pod(uid).join(VOLUMES).join(kind).join(name)
    }

    /// The directory of a pod's logs.
    pub(super) fn pod_logs(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.logs.join(format!("{namespace}_{name}_{uid}"))
    }

    /// The file of the termination message of a container.
    pub(super) fn termination(&self, uid: &str, container: &str, attempt: u32) -> PathBuf {
        let dir = self.pod(uid).join("containers").join(container);
        dir.join(format!("termination-{attempt}"))
    }

    /// The file that is mounted at `/etc/hosts`.
    pub(super) fn hosts(&self, uid: &str) -> PathBuf {
        self.pod(uid).join("etc-hosts")
    }
}

fn text(value: &Value) -> String {
    value.str().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.list().iter().map(text).collect()
}

/// The log file of a container, below the directory of its pod.
pub(super) fn log_name(container: &str, attempt: u32) -> String {
    format!("{container}/{attempt}.log")
}

/// The host name of a pod. Kubernetes: kubelet_pods.go, `GeneratePodHostNameAndDomain`.
pub(super) fn hostname(pod: &Value) -> String {
    let spec = &pod["spec"];
    let names = [
        spec["hostnameOverride"].str(),
        spec["hostname"].str(),
        pod["metadata"]["name"].str(),
    ];
    let name = names.into_iter().find(|name| !name.is_empty());
    let cut: String = name
        .unwrap_or_default()
        .chars()
        .take(MAX_HOSTNAME)
        .collect();
    cut.trim_end_matches(['-', '.']).into()
}

/// The host name with the domain of its subdomain, if it has one.
fn full_hostname(pod: &Value) -> Option<String> {
    let (spec, namespace) = (&pod["spec"], pod["metadata"]["namespace"].str());
    let subdomain = spec["subdomain"].str();
    let has_domain = !subdomain.is_empty() && spec["hostnameOverride"].str().is_empty();
    has_domain.then(|| {
        format!(
            "{}.{subdomain}.{namespace}.svc.{CLUSTER_DOMAIN}",
            hostname(pod)
        )
    })
}

/// The host name in the sandbox. Kubernetes: the kernel has room for 64 characters
/// (kubelet_pods.go, `truncatePodHostnameIfNeeded`; util.SetNodeNameOrFQDN).
pub(super) fn sandbox_hostname(pod: &Value) -> Result<String, String> {
    let full = full_hostname(pod).filter(|_| pod["spec"]["setHostnameAsFQDN"].bool());
    match full {
        Some(full) if full.len() > MAX_FQDN => Err(format!(
            "failed to construct FQDN from pod hostname and cluster domain, FQDN {full} is too long ({MAX_FQDN} \
             characters is the max, {} characters requested)",
            full.len()
        )),
        Some(full) => Ok(full),
        None => Ok(hostname(pod)),
    }
}

/// The labels of a sandbox.
fn labels(pod: &Value, node: &str) -> BTreeMap<String, String> {
    let metadata = &pod["metadata"];
    let own = metadata["labels"].entries();
    let own = own.map(|(key, value)| (key.to_owned(), text(value)));
    let known = [
        (POD_NAME, metadata["name"].str()),
        (POD_NAMESPACE, metadata["namespace"].str()),
        (POD_UID, metadata["uid"].str()),
        (NODE, node),
    ];
    let known = known.map(|(key, value)| (key.to_owned(), value.to_owned()));
    own.chain(known).collect()
}

/// The annotations of a sandbox: those of the pod, by which runtimes are configured.
fn annotations(pod: &Value) -> BTreeMap<String, String> {
    let own = pod["metadata"]["annotations"].entries();
    own.map(|(key, value)| (key.to_owned(), text(value)))
        .collect()
}

/// The configuration of a pod's sandbox.
pub(super) fn sandbox(
    pod: &Value,
    node: &str,
    attempt: u32,
    paths: &NodePaths,
) -> PodSandboxConfig {
    let (metadata, spec) = (&pod["metadata"], &pod["spec"]);
    let context = &spec["securityContext"];
    let [name, namespace, uid] = ["name", "namespace", "uid"].map(|field| text(&metadata[field]));
    let host_network = spec["hostNetwork"].bool();
    let privileged = crate::pod::spec::containers(pod)
        .any(|(_, container)| container["securityContext"]["privileged"].bool());
    PodSandboxConfig {
        hostname: if host_network {
            String::new()
        } else {
            sandbox_hostname(pod).unwrap_or_default()
        },
        log_directory: paths
            .pod_logs(&namespace, &name, &uid)
            .display()
            .to_string(),
        // Only the creation of the sandbox needs it.
        dns_config: None,
        port_mappings: if host_network {
            Vec::new()
        } else {
            port_mappings(spec)
        },
        labels: labels(pod, node),
        annotations: annotations(pod),
        linux: Some(LinuxPodSandboxConfig {
            security_context: Some(LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(spec)),
                selinux_options: selinux(&context["seLinuxOptions"]),
                run_as_user: number(&context["runAsUser"]),
                run_as_group: number(&context["runAsGroup"])
                    .filter(|_| !context["runAsUser"].is_null()),
                supplemental_groups: supplemental_groups(context),
                supplemental_groups_policy: groups_policy(context) as i32,
                privileged,
                // Kubernetes: whatever the profile of the pod is, so that it need not be one with
                // which the container of a sandbox runs (kuberuntime_sandbox.go).
                seccomp: Some(profile(&Value::Null, ProfileType::RuntimeDefault)),
                ..LinuxSandboxSecurityContext::default()
            }),
            sysctls: sysctls(context),
            ..LinuxPodSandboxConfig::default()
        }),
        metadata: Some(PodSandboxMetadata {
            name,
            uid,
            namespace,
            attempt,
        }),
    }
}

fn port_mappings(spec: &Value) -> Vec<PortMapping> {
    let containers = spec["initContainers"]
        .list()
        .iter()
        .chain(spec["containers"].list());
    let ports = containers.flat_map(|container| container["ports"].list());
    let mapped = ports.filter(|port| port["hostPort"].int() > 0);
    mapped
        .map(|port| PortMapping {
            protocol: match port["protocol"].str() {
                "UDP" => Protocol::Udp,
                "SCTP" => Protocol::Sctp,
                _ => Protocol::Tcp,
            } as i32,
            container_port: i32::try_from(port["containerPort"].int()).unwrap_or_default(),
            host_port: i32::try_from(port["hostPort"].int()).unwrap_or_default(),
            host_ip: text(&port["hostIP"]),
        })
        .collect()
}

fn namespaces(spec: &Value) -> NamespaceOption {
    let of = |field: &str, otherwise: NamespaceMode| match spec[field].bool() {
        true => NamespaceMode::Node as i32,
        false => otherwise as i32,
    };
    let pid = match spec["shareProcessNamespace"].bool() {
        true => NamespaceMode::Pod,
        false => NamespaceMode::Container,
    };
    NamespaceOption {
        network: of("hostNetwork", NamespaceMode::Pod),
        pid: of("hostPID", pid),
        ipc: of("hostIPC", NamespaceMode::Pod),
        target_id: String::new(),
        // A pod with users of its own gets them later (`user_namespaces`).
        userns_options: Some(UserNamespace {
            mode: NamespaceMode::Node as i32,
            ..UserNamespace::default()
        }),
    }
}

fn sysctls(context: &Value) -> BTreeMap<String, String> {
    let sysctls = context["sysctls"].list().iter();
    sysctls
        .map(|sysctl| (sysctl_name(sysctl["name"].str()), text(&sysctl["value"])))
        .collect()
}

fn supplemental_groups(context: &Value) -> Vec<i64> {
    let groups = context["supplementalGroups"].list().iter();
    let groups = groups.filter_map(Value::as_int);
    groups.chain(context["fsGroup"].as_int()).collect()
}

fn groups_policy(context: &Value) -> SupplementalGroupsPolicy {
    match context["supplementalGroupsPolicy"].str() {
        "Strict" => SupplementalGroupsPolicy::Strict,
        _ => SupplementalGroupsPolicy::Merge,
    }
}

fn number(value: &Value) -> Option<Int64Value> {
    value.as_int().map(|value| Int64Value { value })
}

fn selinux(options: &Value) -> Option<SeLinuxOption> {
    (!options.is_null()).then(|| SeLinuxOption {
        user: text(&options["user"]),
        role: text(&options["role"]),
        r#type: text(&options["type"]),
        level: text(&options["level"]),
    })
}

fn profile(profile: &Value, otherwise: ProfileType) -> SecurityProfile {
    let profile_type = match profile["type"].str() {
        "RuntimeDefault" => ProfileType::RuntimeDefault,
        "Localhost" => ProfileType::Localhost,
        "Unconfined" => ProfileType::Unconfined,
        _ => otherwise,
    };
    SecurityProfile {
        profile_type: profile_type as i32,
        localhost_ref: text(&profile["localhostProfile"]),
    }
}

/// A profile of a file is below `seccomp` in the directory of the node.
fn seccomp(wanted: &Value, otherwise: ProfileType, paths: &NodePaths) -> SecurityProfile {
    let mut made = profile(wanted, otherwise);
    if !made.localhost_ref.is_empty() {
        let file = paths.root.join("seccomp").join(&made.localhost_ref);
        made.localhost_ref = file.display().to_string();
    }
    made
}

/// The configuration of a container of a pod, with its mounts beside the volumes' own.
pub(super) fn container(
    config: &ContainerConfig,
    node: &str,
    volume_mounts: Vec<Mount>,
    paths: &NodePaths,
) -> CriContainerConfig {
    let (pod, spec) = (config.pod, config.container);
    let name = spec["name"].str();
    let empty = Variables::new();
    let variables = config.inputs.variables.as_ref().unwrap_or(&empty);
    let expanded = |list: &Value| -> Vec<String> {
        let words = list.list().iter();
        words
            .map(|word| expand(word.str(), &|name| variables.get(name).cloned()))
            .collect()
    };
    let mut mounts = volume_mounts;
    mounts.extend(own_mounts(config, &mounts, paths));
    let mut labels = labels(pod, node);
    labels.insert(CONTAINER_NAME.into(), name.into());
    CriContainerConfig {
        metadata: Some(ContainerMetadata {
            name: name.into(),
            attempt: config.n_restarts,
        }),
        image: Some(ImageSpec {
            image: text(&spec["image"]),
            user_specified_image: text(&spec["image"]),
            ..ImageSpec::default()
        }),
        command: expanded(&spec["command"]),
        args: expanded(&spec["args"]),
        working_dir: text(&spec["workingDir"]),
        envs: variables
            .iter()
            .map(|(key, value)| KeyValue {
                key: key.as_str().into(),
                value: value.as_str().to_owned().into(),
            })
            .collect(),
        mounts,
        labels,
        annotations: [(
            TERMINATION_POLICY.to_owned(),
            text(&spec["terminationMessagePolicy"]),
        )]
        .into(),
        log_path: log_name(name, config.n_restarts),
        stdin: spec["stdin"].bool(),
        stdin_once: spec["stdinOnce"].bool(),
        tty: spec["tty"].bool(),
        linux: Some(LinuxContainerConfig {
            security_context: Some(security_context(pod, spec, paths)),
            ..LinuxContainerConfig::default()
        }),
        ..CriContainerConfig::default()
    }
}

/// `/etc/hosts` and the file of the termination message.
fn own_mounts(config: &ContainerConfig, others: &[Mount], paths: &NodePaths) -> Vec<Mount> {
    let (spec, uid) = (config.container, config.pod["metadata"]["uid"].str());
    let mut mounts = Vec::new();
    if !others
        .iter()
        .any(|mount| mount.container_path == "/etc/hosts")
    {
        mounts.push(mount(&paths.hosts(uid), "/etc/hosts"));
    }
    let path = match spec["terminationMessagePath"].str() {
        "" => TERMINATION_PATH,
        path => path,
    };
    let file = paths.termination(uid, spec["name"].str(), config.n_restarts);
    mounts.push(mount(&file, path));
    mounts
}

fn mount(host: &Path, container: &str) -> Mount {
    Mount {
        container_path: container.into(),
        host_path: host.display().to_string(),
        ..Mount::default()
    }
}

/// The mount of a path of the host as a container asks for it.
pub(super) fn volume_mount(host: &Path, wanted: &Value, is_read_only: bool) -> Mount {
    let readonly = wanted["readOnly"].bool() || is_read_only;
    Mount {
        readonly,
        propagation: match wanted["mountPropagation"].str() {
            "HostToContainer" => MountPropagation::HostToContainer,
            "Bidirectional" => MountPropagation::Bidirectional,
            _ => MountPropagation::Private,
        } as i32,
        ..mount(host, wanted["mountPath"].str())
    }
}

/// Kubernetes: pkg/kubelet/kuberuntime/security_context.go.
fn security_context(pod: &Value, spec: &Value, node: &NodePaths) -> LinuxContainerSecurityContext {
    let (own, common) = (&spec["securityContext"], &pod["spec"]["securityContext"]);
    let either = |field: &str| match own[field].is_null() {
        true => &common[field],
        false => &own[field],
    };
    let privileged = own["privileged"].bool();
    let is_unmasked = own["procMount"].str() == "Unmasked" || privileged;
    let paths = |paths: &[&str]| match is_unmasked {
        true => Vec::new(),
        false => paths.iter().map(|path| (*path).to_owned()).collect(),
    };
    LinuxContainerSecurityContext {
        capabilities: Some(Capability {
            add_capabilities: texts(&own["capabilities"]["add"]),
            drop_capabilities: texts(&own["capabilities"]["drop"]),
            add_ambient_capabilities: Vec::new(),
        }),
        privileged,
        namespace_options: Some(namespaces(&pod["spec"])),
        selinux_options: selinux(either("seLinuxOptions")),
        run_as_user: number(either("runAsUser")),
        run_as_group: number(either("runAsGroup")),
        readonly_rootfs: own["readOnlyRootFilesystem"].bool(),
        supplemental_groups: supplemental_groups(common),
        supplemental_groups_policy: groups_policy(common) as i32,
        no_new_privs: own["allowPrivilegeEscalation"].as_bool() == Some(false),
        masked_paths: paths(&MASKED_PATHS),
        readonly_paths: paths(&READONLY_PATHS),
        seccomp: Some(seccomp(
            either("seccompProfile"),
            ProfileType::Unconfined,
            node,
        )),
        apparmor: (!either("appArmorProfile").is_null())
            .then(|| profile(either("appArmorProfile"), ProfileType::RuntimeDefault)),
        ..LinuxContainerSecurityContext::default()
    }
}

/// The content of `/etc/hosts`; `machine` is that of the machine, for pods on its network.
/// Kubernetes: pkg/kubelet/kubelet_pods.go, `ensureHostsFile`.
pub(super) fn hosts(pod: &Value, addresses: &[Str], machine: &str) -> String {
    let mut text = match pod["spec"]["hostNetwork"].bool() {
        true => format!("# Kubernetes-managed hosts file (host network).\n{machine}"),
        false => own_hosts(pod, addresses),
    };
    let aliases = pod["spec"]["hostAliases"].list();
    if !aliases.is_empty() {
        text += "\n# Entries added by HostAliases.\n";
    }
    for alias in aliases {
        let names = texts(&alias["hostnames"]).join("\t");
        text += &format!("{}\t{names}\n", alias["ip"].str());
    }
    text
}

/// The entries of a pod with addresses of its own.
fn own_hosts(pod: &Value, addresses: &[Str]) -> String {
    let mut text = String::from(
        "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n\
         fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
    );
    for address in addresses {
        let names = full_hostname(pod).into_iter().chain([hostname(pod)]);
        let names: Vec<String> = names.collect();
        text += &format!("{address}\t{}\n", names.join("\t"));
    }
    text
}

#[cfg(test)]
mod tests {
    use mizzen_value::value;

    use super::*;
    use crate::pod::inputs::{Inputs, NodeContext};
    use crate::runtime::ContainerRole;

    fn paths() -> NodePaths {
        NodePaths {
            root: "/node".into(),
            logs: "/logs".into(),
        }
    }

    #[test]
    fn a_host_name_is_overridden_cut_or_has_its_domain() {
        let pod = |spec: Value| {
            let metadata = value!({ "name": ("n".repeat(62) + "-more"), "namespace": "shop" });
            value!({ "metadata": metadata, "spec": spec })
        };
        #[track_caller]
        fn check(pod: &Value, name: &str, in_sandbox: &str) {
            assert_eq!(hostname(pod), name);
            assert_eq!(sandbox_hostname(pod).unwrap_or_else(|why| why), in_sandbox);
        }
        let cut = "n".repeat(62);
        check(&pod(value!({})), &cut, &cut);
        let own = value!({ "hostname": "a", "subdomain": "b", "setHostnameAsFQDN": true });
        check(&pod(own.clone()), "a", "a.b.shop.svc.cluster.local");
        assert!(
            hosts(&pod(own.clone()), &["10.0.0.1".into()], "")
                .ends_with("10.0.0.1\ta.b.shop.svc.cluster.local\ta\n")
        );
        let mut overridden = own.clone();
        overridden.set("hostnameOverride", "own.test");
        check(&pod(overridden), "own.test", "own.test");
        let mut long = own;
        long.set("subdomain", "b".repeat(63));
        let why = sandbox_hostname(&pod(long)).unwrap_err();
        assert!(
            why.ends_with("is too long (64 characters is the max, 88 characters requested)"),
            "{why}"
        );
    }

    #[test]
    fn the_hosts_of_a_pod_on_the_host_network_are_those_of_the_machine() {
        let aliases = value!([{ "ip": "10.9.9.9", "hostnames": ["a.test", "b.test"] }]);
        let pod = value!({ "spec": { "hostNetwork": true, "hostAliases": aliases } });
        assert_eq!(
            hosts(&pod, &["10.0.0.1".into()], "127.0.1.1\tlaptop\n"),
            "# Kubernetes-managed hosts file (host network).\n127.0.1.1\tlaptop\n\n\
             # Entries added by HostAliases.\n10.9.9.9\ta.test\tb.test\n"
        );
    }

    #[test]
    fn a_sandbox_has_the_annotations_of_its_pod() {
        let pod = value!({ "metadata": { "annotations": { "io.test/a": "b" } }, "spec": {} });
        let made = sandbox(&pod, "node", 0, &paths());
        assert_eq!(made.annotations, annotations(&pod));
        assert_eq!(made.annotations["io.test/a"], "b");
    }

    #[test]
    fn a_sandbox_has_the_default_seccomp_profile_whatever_its_pod_has() {
        for pod in [
            value!({ "spec": { "securityContext": { "seccompProfile": { "type": "Unconfined" } } } }),
            value!({ "spec": { "securityContext": { "seccompProfile": { "type": "Localhost", "localhostProfile": "a" } } } }),
            value!({ "spec": {} }),
        ] {
            let made = sandbox(&pod, "node", 0, &paths()).linux.unwrap();
            let seccomp = made.security_context.unwrap().seccomp.unwrap();
            assert_eq!(seccomp.profile_type(), ProfileType::RuntimeDefault);
            assert_eq!(seccomp.localhost_ref, "");
        }
    }

    #[test]
    fn a_default_proc_mount_is_masked() {
        let made = |context: Value| {
            let spec = value!({ "securityContext": context });
            security_context(&value!({ "spec": {} }), &spec, &paths())
        };
        let usual = made(value!({ "procMount": "Default" }));
        assert!(usual.masked_paths.contains(&"/proc/kcore".to_owned()));
        assert!(usual.readonly_paths.contains(&"/proc/sys".to_owned()));
        assert!(made(value!({ "privileged": true })).masked_paths.is_empty());
    }

    #[test]
    fn a_command_has_its_variables_and_its_arguments() {
        let pod = value!({ "metadata": { "name": "web", "uid": "u" }, "spec": {} });
        let spec =
            value!({ "name": "c", "command": ["echo", "$(A)"], "args": ["$(A)-$(B)", "$$(A)"] });
        let variables = [(Str::from("A"), Str::from("x"))];
        let inputs = Inputs {
            variables: Some(variables.into()),
            ..Inputs::default()
        };
        let config = ContainerConfig {
            pod: &pod,
            container: &spec,
            role: ContainerRole::Regular,
            n_restarts: 0,
            since: None,
            inputs: &inputs,
            node: NodeContext::NONE,
        };
        let made = container(&config, "node", Vec::new(), &paths());
        assert_eq!(made.command, ["echo", "x"]);
        assert_eq!(made.args, ["x-$(B)", "$(A)"]);
    }

    #[test]
    fn a_seccomp_profile_is_a_file_of_the_node() {
        let profile = value!({ "type": "Localhost", "localhostProfile": "a/b.json" });
        let made = seccomp(&profile, ProfileType::Unconfined, &paths());
        assert_eq!(made.localhost_ref, "/node/seccomp/a/b.json");
        let usual = seccomp(&Value::Null, ProfileType::Unconfined, &paths());
        assert_eq!(usual.profile_type(), ProfileType::Unconfined);
    }
}
