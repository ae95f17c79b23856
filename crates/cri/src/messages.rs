//! The messages of the container runtime interface, version 1, as far as they are used.
//!
//! By hand, because a generated module needs `protoc` to compile. Field numbers are those of cri-api,
//! `pkg/apis/runtime/v1/api.proto`; a field that is missing here is ignored when a message is read, and has its default
//! when it is written.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::{Enumeration, Message};

/// Asks for the version.
#[derive(Clone, PartialEq, Message)]
pub struct VersionRequest {
    /// The version of the kubelet's interface.
    #[prost(string, tag = "1")]
    pub version: String,
}

/// The version of a runtime.
#[derive(Clone, PartialEq, Message)]
pub struct VersionResponse {
    /// The version of the kubelet's interface.
    #[prost(string, tag = "1")]
    pub version: String,
    /// The name of the runtime, such as `containerd`.
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    /// Its version.
    #[prost(string, tag = "3")]
    pub runtime_version: String,
    /// The version of the interface that it implements, such as `v1`.
    #[prost(string, tag = "4")]
    pub runtime_api_version: String,
}

/// The resolver of a sandbox.
#[derive(Clone, PartialEq, Message)]
pub struct DnsConfig {
    /// Name servers.
    #[prost(string, repeated, tag = "1")]
    pub servers: Vec<String>,
    /// Search domains.
    #[prost(string, repeated, tag = "2")]
    pub searches: Vec<String>,
    /// Options of the resolver.
    #[prost(string, repeated, tag = "3")]
    pub options: Vec<String>,
}

/// A port of the host that is forwarded to a sandbox.
#[derive(Clone, PartialEq, Message)]
pub struct PortMapping {
    /// The protocol.
    #[prost(enumeration = "Protocol", tag = "1")]
    pub protocol: i32,
    /// The port in the sandbox.
    #[prost(int32, tag = "2")]
    pub container_port: i32,
    /// The port of the host.
    #[prost(int32, tag = "3")]
    pub host_port: i32,
    /// The address of the host; empty for all.
    #[prost(string, tag = "4")]
    pub host_ip: String,
}

/// A path of the host in a container.
#[derive(Clone, PartialEq, Message)]
pub struct Mount {
    /// The path in the container.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// The path on the host.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// Whether the container may not write.
    #[prost(bool, tag = "3")]
    pub readonly: bool,
    /// Whether files get the SELinux label of the container.
    #[prost(bool, tag = "4")]
    pub selinux_relabel: bool,
    /// How later mounts below it propagate.
    #[prost(enumeration = "MountPropagation", tag = "5")]
    pub propagation: i32,
    /// The users of the container that own what users of the host own.
    #[prost(message, repeated, tag = "6")]
    pub uid_mappings: Vec<IdMapping>,
    /// The same of groups.
    #[prost(message, repeated, tag = "7")]
    pub gid_mappings: Vec<IdMapping>,
    /// Whether mounts below it are read-only, too.
    #[prost(bool, tag = "8")]
    pub recursive_read_only: bool,
    /// The image that is mounted in place of a path of the host, which is empty then.
    #[prost(message, optional, tag = "9")]
    pub image: Option<ImageSpec>,
    /// The directory of the image that is mounted; empty for all.
    #[prost(string, tag = "10")]
    pub image_sub_path: String,
}

/// A range of users or groups of a container, which are others on the host.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct IdMapping {
    /// The first one on the host.
    #[prost(uint32, tag = "1")]
    pub host_id: u32,
    /// The first one in the container.
    #[prost(uint32, tag = "2")]
    pub container_id: u32,
    /// Their number.
    #[prost(uint32, tag = "3")]
    pub length: u32,
}

/// The user namespace of a sandbox: that of the host, or one of its own.
#[derive(Clone, PartialEq, Message)]
pub struct UserNamespace {
    /// `Node` or `Pod`.
    #[prost(enumeration = "NamespaceMode", tag = "1")]
    pub mode: i32,
    /// Its users.
    #[prost(message, repeated, tag = "2")]
    pub uids: Vec<IdMapping>,
    /// Its groups.
    #[prost(message, repeated, tag = "3")]
    pub gids: Vec<IdMapping>,
}

/// The namespaces of a sandbox or a container.
#[derive(Clone, PartialEq, Message)]
pub struct NamespaceOption {
    /// The network namespace.
    #[prost(enumeration = "NamespaceMode", tag = "1")]
    pub network: i32,
    /// The PID namespace.
    #[prost(enumeration = "NamespaceMode", tag = "2")]
    pub pid: i32,
    /// The IPC namespace.
    #[prost(enumeration = "NamespaceMode", tag = "3")]
    pub ipc: i32,
    /// The container whose PID namespace is shared, with mode `Target`.
    #[prost(string, tag = "4")]
    pub target_id: String,
    /// The user namespace.
    #[prost(message, optional, tag = "5")]
    pub userns_options: Option<UserNamespace>,
}

/// A number that may be missing.
#[derive(Clone, PartialEq, Message)]
pub struct Int64Value {
    /// The number.
    #[prost(int64, tag = "1")]
    pub value: i64,
}

/// A number that may be missing.
#[derive(Clone, PartialEq, Message)]
pub struct UInt64Value {
    /// The number.
    #[prost(uint64, tag = "1")]
    pub value: u64,
}

/// A seccomp or AppArmor profile.
#[derive(Clone, PartialEq, Message)]
pub struct SecurityProfile {
    /// Where it comes from.
    #[prost(enumeration = "ProfileType", tag = "1")]
    pub profile_type: i32,
    /// Its file or name, with type `Localhost`.
    #[prost(string, tag = "2")]
    pub localhost_ref: String,
}

/// An SELinux label.
#[derive(Clone, PartialEq, Message)]
pub struct SeLinuxOption {
    /// The user.
    #[prost(string, tag = "1")]
    pub user: String,
    /// The role.
    #[prost(string, tag = "2")]
    pub role: String,
    /// The type.
    #[prost(string, tag = "3")]
    pub r#type: String,
    /// The level.
    #[prost(string, tag = "4")]
    pub level: String,
}

/// The security context of a sandbox.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxSandboxSecurityContext {
    /// Its namespaces.
    #[prost(message, optional, tag = "1")]
    pub namespace_options: Option<NamespaceOption>,
    /// Its SELinux label.
    #[prost(message, optional, tag = "2")]
    pub selinux_options: Option<SeLinuxOption>,
    /// The user of its process.
    #[prost(message, optional, tag = "3")]
    pub run_as_user: Option<Int64Value>,
    /// Whether its root is read-only.
    #[prost(bool, tag = "4")]
    pub readonly_rootfs: bool,
    /// Further groups of its process.
    #[prost(int64, repeated, tag = "5")]
    pub supplemental_groups: Vec<i64>,
    /// Whether it may run privileged containers.
    #[prost(bool, tag = "6")]
    pub privileged: bool,
    /// The group of its process.
    #[prost(message, optional, tag = "8")]
    pub run_as_group: Option<Int64Value>,
    /// Its seccomp profile.
    #[prost(message, optional, tag = "9")]
    pub seccomp: Option<SecurityProfile>,
    /// Its AppArmor profile.
    #[prost(message, optional, tag = "10")]
    pub apparmor: Option<SecurityProfile>,
    /// Whether the groups of its user in the image are added.
    #[prost(enumeration = "SupplementalGroupsPolicy", tag = "11")]
    pub supplemental_groups_policy: i32,
}

/// The configuration of a sandbox on Linux.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxPodSandboxConfig {
    /// The cgroup above it; empty for the runtime's default.
    #[prost(string, tag = "1")]
    pub cgroup_parent: String,
    /// Its security context.
    #[prost(message, optional, tag = "2")]
    pub security_context: Option<LinuxSandboxSecurityContext>,
    /// Its sysctls.
    #[prost(btree_map = "string, string", tag = "3")]
    pub sysctls: BTreeMap<String, String>,
    /// The resources of the sandbox itself.
    #[prost(message, optional, tag = "4")]
    pub overhead: Option<LinuxContainerResources>,
    /// The resources of all containers together.
    #[prost(message, optional, tag = "5")]
    pub resources: Option<LinuxContainerResources>,
}

/// The identity of a sandbox.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxMetadata {
    /// The name of the pod.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The UID of the pod.
    #[prost(string, tag = "2")]
    pub uid: String,
    /// The namespace of the pod.
    #[prost(string, tag = "3")]
    pub namespace: String,
    /// How many sandboxes the pod had before.
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
}

/// The configuration of a sandbox.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxConfig {
    /// Its identity.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<PodSandboxMetadata>,
    /// Its host name.
    #[prost(string, tag = "2")]
    pub hostname: String,
    /// The directory of its containers' logs.
    #[prost(string, tag = "3")]
    pub log_directory: String,
    /// Its resolver; the host's if it is missing.
    #[prost(message, optional, tag = "4")]
    pub dns_config: Option<DnsConfig>,
    /// Ports of the host.
    #[prost(message, repeated, tag = "5")]
    pub port_mappings: Vec<PortMapping>,
    /// Labels, by which sandboxes are listed.
    #[prost(btree_map = "string, string", tag = "6")]
    pub labels: BTreeMap<String, String>,
    /// Annotations, which the runtime keeps.
    #[prost(btree_map = "string, string", tag = "7")]
    pub annotations: BTreeMap<String, String>,
    /// The configuration on Linux.
    #[prost(message, optional, tag = "8")]
    pub linux: Option<LinuxPodSandboxConfig>,
}

/// Creates and starts a sandbox.
#[derive(Clone, PartialEq, Message)]
pub struct RunPodSandboxRequest {
    /// Its configuration.
    #[prost(message, optional, tag = "1")]
    pub config: Option<PodSandboxConfig>,
    /// The handler of its RuntimeClass; empty for the default.
    #[prost(string, tag = "2")]
    pub runtime_handler: String,
}

/// A sandbox that was started.
#[derive(Clone, PartialEq, Message)]
pub struct RunPodSandboxResponse {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
}

/// Stops a sandbox and its containers. It is idempotent.
#[derive(Clone, PartialEq, Message)]
pub struct StopPodSandboxRequest {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
}

/// Removes a sandbox and its containers. It is idempotent.
#[derive(Clone, PartialEq, Message)]
pub struct RemovePodSandboxRequest {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
}

/// Asks for the status of a sandbox.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxStatusRequest {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
    /// Whether details are returned.
    #[prost(bool, tag = "2")]
    pub verbose: bool,
}

/// An address of a sandbox.
#[derive(Clone, PartialEq, Message)]
pub struct PodIp {
    /// The address.
    #[prost(string, tag = "1")]
    pub ip: String,
}

/// The network of a sandbox.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxNetworkStatus {
    /// Its address; empty on the host network.
    #[prost(string, tag = "1")]
    pub ip: String,
    /// Further addresses, of the other family.
    #[prost(message, repeated, tag = "2")]
    pub additional_ips: Vec<PodIp>,
}

/// The status of a sandbox.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxStatus {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its identity.
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<PodSandboxMetadata>,
    /// Its state.
    #[prost(enumeration = "PodSandboxState", tag = "3")]
    pub state: i32,
    /// When it was created, in nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub created_at: i64,
    /// Its network.
    #[prost(message, optional, tag = "5")]
    pub network: Option<PodSandboxNetworkStatus>,
    /// Its labels.
    #[prost(btree_map = "string, string", tag = "7")]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[prost(btree_map = "string, string", tag = "8")]
    pub annotations: BTreeMap<String, String>,
    /// Its handler.
    #[prost(string, tag = "9")]
    pub runtime_handler: String,
}

/// The status of a sandbox.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxStatusResponse {
    /// The status.
    #[prost(message, optional, tag = "1")]
    pub status: Option<PodSandboxStatus>,
}

/// A state to filter by.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxStateValue {
    /// The state.
    #[prost(enumeration = "PodSandboxState", tag = "1")]
    pub state: i32,
}

/// Which sandboxes are listed.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandboxFilter {
    /// The one with this ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Those in a state.
    #[prost(message, optional, tag = "2")]
    pub state: Option<PodSandboxStateValue>,
    /// Those with all these labels.
    #[prost(btree_map = "string, string", tag = "3")]
    pub label_selector: BTreeMap<String, String>,
}

/// Lists sandboxes.
#[derive(Clone, PartialEq, Message)]
pub struct ListPodSandboxRequest {
    /// Which; all if it is missing.
    #[prost(message, optional, tag = "1")]
    pub filter: Option<PodSandboxFilter>,
}

/// A sandbox in a list.
#[derive(Clone, PartialEq, Message)]
pub struct PodSandbox {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its identity.
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<PodSandboxMetadata>,
    /// Its state.
    #[prost(enumeration = "PodSandboxState", tag = "3")]
    pub state: i32,
    /// When it was created, in nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub created_at: i64,
    /// Its labels.
    #[prost(btree_map = "string, string", tag = "5")]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[prost(btree_map = "string, string", tag = "6")]
    pub annotations: BTreeMap<String, String>,
    /// Its handler.
    #[prost(string, tag = "7")]
    pub runtime_handler: String,
}

/// Sandboxes.
#[derive(Clone, PartialEq, Message)]
pub struct ListPodSandboxResponse {
    /// The sandboxes.
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<PodSandbox>,
}

/// The name of an image.
#[derive(Clone, PartialEq, Message)]
pub struct ImageSpec {
    /// Its name or its ID.
    #[prost(string, tag = "1")]
    pub image: String,
    /// Annotations.
    #[prost(btree_map = "string, string", tag = "2")]
    pub annotations: BTreeMap<String, String>,
    /// The name in the pod.
    #[prost(string, tag = "18")]
    pub user_specified_image: String,
    /// The handler for which it is.
    #[prost(string, tag = "19")]
    pub runtime_handler: String,
}

/// An environment variable.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    /// Its name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// The limits of a cgroup; 0 is the runtime's default.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxContainerResources {
    /// The period of the CPU quota, in microseconds.
    #[prost(int64, tag = "1")]
    pub cpu_period: i64,
    /// The CPU time in a period, in microseconds.
    #[prost(int64, tag = "2")]
    pub cpu_quota: i64,
    /// The weight among other cgroups.
    #[prost(int64, tag = "3")]
    pub cpu_shares: i64,
    /// The most memory.
    #[prost(int64, tag = "4")]
    pub memory_limit_in_bytes: i64,
    /// The adjustment of the OOM score.
    #[prost(int64, tag = "5")]
    pub oom_score_adj: i64,
    /// The CPUs.
    #[prost(string, tag = "6")]
    pub cpuset_cpus: String,
    /// The memory nodes.
    #[prost(string, tag = "7")]
    pub cpuset_mems: String,
    /// Limits of huge pages.
    #[prost(message, repeated, tag = "8")]
    pub hugepage_limits: Vec<HugepageLimit>,
    /// Files of cgroup v2 with their contents.
    #[prost(btree_map = "string, string", tag = "9")]
    pub unified: BTreeMap<String, String>,
    /// The most memory and swap together.
    #[prost(int64, tag = "10")]
    pub memory_swap_limit_in_bytes: i64,
}

/// The limit of huge pages of a size.
#[derive(Clone, PartialEq, Message)]
pub struct HugepageLimit {
    /// The size, such as `2MB`.
    #[prost(string, tag = "1")]
    pub page_size: String,
    /// The most bytes.
    #[prost(uint64, tag = "2")]
    pub limit: u64,
}

/// Changes of a container's capabilities.
#[derive(Clone, PartialEq, Message)]
pub struct Capability {
    /// Added.
    #[prost(string, repeated, tag = "1")]
    pub add_capabilities: Vec<String>,
    /// Dropped.
    #[prost(string, repeated, tag = "2")]
    pub drop_capabilities: Vec<String>,
    /// Added to the ambient ones.
    #[prost(string, repeated, tag = "3")]
    pub add_ambient_capabilities: Vec<String>,
}

/// The security context of a container.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxContainerSecurityContext {
    /// Its capabilities.
    #[prost(message, optional, tag = "1")]
    pub capabilities: Option<Capability>,
    /// Whether it is privileged.
    #[prost(bool, tag = "2")]
    pub privileged: bool,
    /// Its namespaces.
    #[prost(message, optional, tag = "3")]
    pub namespace_options: Option<NamespaceOption>,
    /// Its SELinux label.
    #[prost(message, optional, tag = "4")]
    pub selinux_options: Option<SeLinuxOption>,
    /// Its user.
    #[prost(message, optional, tag = "5")]
    pub run_as_user: Option<Int64Value>,
    /// Its user by name.
    #[prost(string, tag = "6")]
    pub run_as_username: String,
    /// Whether its root is read-only.
    #[prost(bool, tag = "7")]
    pub readonly_rootfs: bool,
    /// Further groups.
    #[prost(int64, repeated, tag = "8")]
    pub supplemental_groups: Vec<i64>,
    /// Whether it cannot gain privileges.
    #[prost(bool, tag = "11")]
    pub no_new_privs: bool,
    /// Its group.
    #[prost(message, optional, tag = "12")]
    pub run_as_group: Option<Int64Value>,
    /// Paths that are hidden.
    #[prost(string, repeated, tag = "13")]
    pub masked_paths: Vec<String>,
    /// Paths that are read-only.
    #[prost(string, repeated, tag = "14")]
    pub readonly_paths: Vec<String>,
    /// Its seccomp profile.
    #[prost(message, optional, tag = "15")]
    pub seccomp: Option<SecurityProfile>,
    /// Its AppArmor profile.
    #[prost(message, optional, tag = "16")]
    pub apparmor: Option<SecurityProfile>,
    /// Whether the groups of its user in the image are added.
    #[prost(enumeration = "SupplementalGroupsPolicy", tag = "17")]
    pub supplemental_groups_policy: i32,
}

/// The configuration of a container on Linux.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxContainerConfig {
    /// Its limits.
    #[prost(message, optional, tag = "1")]
    pub resources: Option<LinuxContainerResources>,
    /// Its security context.
    #[prost(message, optional, tag = "2")]
    pub security_context: Option<LinuxContainerSecurityContext>,
}

/// The identity of a container in its sandbox.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerMetadata {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// How many instances there were before.
    #[prost(uint32, tag = "2")]
    pub attempt: u32,
}

/// A device of the host in a container.
#[derive(Clone, PartialEq, Message)]
pub struct Device {
    /// Its path in the container.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Its path on the host.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// `r`, `w` and `m`.
    #[prost(string, tag = "3")]
    pub permissions: String,
}

/// The configuration of a container.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerConfig {
    /// Its identity.
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ContainerMetadata>,
    /// Its image.
    #[prost(message, optional, tag = "2")]
    pub image: Option<ImageSpec>,
    /// The command; the image's if it is empty.
    #[prost(string, repeated, tag = "3")]
    pub command: Vec<String>,
    /// The arguments.
    #[prost(string, repeated, tag = "4")]
    pub args: Vec<String>,
    /// The working directory.
    #[prost(string, tag = "5")]
    pub working_dir: String,
    /// The environment, beside the image's.
    #[prost(message, repeated, tag = "6")]
    pub envs: Vec<KeyValue>,
    /// Its mounts.
    #[prost(message, repeated, tag = "7")]
    pub mounts: Vec<Mount>,
    /// Its devices.
    #[prost(message, repeated, tag = "8")]
    pub devices: Vec<Device>,
    /// Labels, by which containers are listed.
    #[prost(btree_map = "string, string", tag = "9")]
    pub labels: BTreeMap<String, String>,
    /// Annotations, which the runtime keeps.
    #[prost(btree_map = "string, string", tag = "10")]
    pub annotations: BTreeMap<String, String>,
    /// The log file, below the log directory of the sandbox.
    #[prost(string, tag = "11")]
    pub log_path: String,
    /// Whether it has a stdin.
    #[prost(bool, tag = "12")]
    pub stdin: bool,
    /// Whether stdin closes with the first client.
    #[prost(bool, tag = "13")]
    pub stdin_once: bool,
    /// Whether it has a terminal.
    #[prost(bool, tag = "14")]
    pub tty: bool,
    /// The configuration on Linux.
    #[prost(message, optional, tag = "15")]
    pub linux: Option<LinuxContainerConfig>,
    /// The signal that stops it; 0 for the image's.
    #[prost(int32, tag = "18")]
    pub stop_signal: i32,
}

/// Creates a container in a sandbox.
#[derive(Clone, PartialEq, Message)]
pub struct CreateContainerRequest {
    /// The ID of the sandbox.
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
    /// Its configuration.
    #[prost(message, optional, tag = "2")]
    pub config: Option<ContainerConfig>,
    /// The configuration of the sandbox.
    #[prost(message, optional, tag = "3")]
    pub sandbox_config: Option<PodSandboxConfig>,
}

/// A container that was created.
#[derive(Clone, PartialEq, Message)]
pub struct CreateContainerResponse {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub container_id: String,
}

/// Starts a container.
#[derive(Clone, PartialEq, Message)]
pub struct StartContainerRequest {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub container_id: String,
}

/// Stops a container. It is idempotent.
#[derive(Clone, PartialEq, Message)]
pub struct StopContainerRequest {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// The seconds until it is killed.
    #[prost(int64, tag = "2")]
    pub timeout: i64,
}

/// Removes a container, killing it. It is idempotent.
#[derive(Clone, PartialEq, Message)]
pub struct RemoveContainerRequest {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub container_id: String,
}

/// A state to filter by.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerStateValue {
    /// The state.
    #[prost(enumeration = "ContainerState", tag = "1")]
    pub state: i32,
}

/// Which containers are listed.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerFilter {
    /// The one with this ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Those in a state.
    #[prost(message, optional, tag = "2")]
    pub state: Option<ContainerStateValue>,
    /// Those of a sandbox.
    #[prost(string, tag = "3")]
    pub pod_sandbox_id: String,
    /// Those with all these labels.
    #[prost(btree_map = "string, string", tag = "4")]
    pub label_selector: BTreeMap<String, String>,
}

/// Lists containers.
#[derive(Clone, PartialEq, Message)]
pub struct ListContainersRequest {
    /// Which; all if it is missing.
    #[prost(message, optional, tag = "1")]
    pub filter: Option<ContainerFilter>,
}

/// A container in a list.
#[derive(Clone, PartialEq, Message)]
pub struct Container {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// The ID of its sandbox.
    #[prost(string, tag = "2")]
    pub pod_sandbox_id: String,
    /// Its identity.
    #[prost(message, optional, tag = "3")]
    pub metadata: Option<ContainerMetadata>,
    /// Its image.
    #[prost(message, optional, tag = "4")]
    pub image: Option<ImageSpec>,
    /// Its image by digest.
    #[prost(string, tag = "5")]
    pub image_ref: String,
    /// Its state.
    #[prost(enumeration = "ContainerState", tag = "6")]
    pub state: i32,
    /// When it was created, in nanoseconds since 1970.
    #[prost(int64, tag = "7")]
    pub created_at: i64,
    /// Its labels.
    #[prost(btree_map = "string, string", tag = "8")]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[prost(btree_map = "string, string", tag = "9")]
    pub annotations: BTreeMap<String, String>,
}

/// Containers.
#[derive(Clone, PartialEq, Message)]
pub struct ListContainersResponse {
    /// The containers.
    #[prost(message, repeated, tag = "1")]
    pub containers: Vec<Container>,
}

/// Asks for the status of a container.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerStatusRequest {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// Whether details are returned.
    #[prost(bool, tag = "2")]
    pub verbose: bool,
}

/// The status of a container.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerStatus {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its identity.
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<ContainerMetadata>,
    /// Its state.
    #[prost(enumeration = "ContainerState", tag = "3")]
    pub state: i32,
    /// When it was created, in nanoseconds since 1970.
    #[prost(int64, tag = "4")]
    pub created_at: i64,
    /// When it started, in nanoseconds since 1970.
    #[prost(int64, tag = "5")]
    pub started_at: i64,
    /// When it exited, in nanoseconds since 1970.
    #[prost(int64, tag = "6")]
    pub finished_at: i64,
    /// Its exit code.
    #[prost(int32, tag = "7")]
    pub exit_code: i32,
    /// Its image.
    #[prost(message, optional, tag = "8")]
    pub image: Option<ImageSpec>,
    /// Its image by digest.
    #[prost(string, tag = "9")]
    pub image_ref: String,
    /// Why it is in its state, in a word.
    #[prost(string, tag = "10")]
    pub reason: String,
    /// Why it is in its state.
    #[prost(string, tag = "11")]
    pub message: String,
    /// Its labels.
    #[prost(btree_map = "string, string", tag = "12")]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[prost(btree_map = "string, string", tag = "13")]
    pub annotations: BTreeMap<String, String>,
    /// Its mounts.
    #[prost(message, repeated, tag = "14")]
    pub mounts: Vec<Mount>,
    /// Its log file.
    #[prost(string, tag = "15")]
    pub log_path: String,
    /// The user of its first process; `None` if the runtime does not say.
    #[prost(message, optional, tag = "18")]
    pub user: Option<ContainerUser>,
}

/// The user of a container.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerUser {
    /// On Linux.
    #[prost(message, optional, tag = "1")]
    pub linux: Option<LinuxContainerUser>,
}

/// The user of a container on Linux.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxContainerUser {
    /// Its user ID.
    #[prost(int64, tag = "1")]
    pub uid: i64,
    /// Its group.
    #[prost(int64, tag = "2")]
    pub gid: i64,
    /// Its other groups.
    #[prost(int64, repeated, tag = "3")]
    pub supplemental_groups: Vec<i64>,
}

/// The status of a container.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerStatusResponse {
    /// The status.
    #[prost(message, optional, tag = "1")]
    pub status: Option<ContainerStatus>,
}

/// Reopens the log file of a container, after it was renamed.
#[derive(Clone, PartialEq, Message)]
pub struct ReopenContainerLogRequest {
    /// The ID of the container.
    #[prost(string, tag = "1")]
    pub container_id: String,
}

/// Runs a command in a container and waits for its end.
#[derive(Clone, PartialEq, Message)]
pub struct ExecSyncRequest {
    /// The ID of the container.
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// The command.
    #[prost(string, repeated, tag = "2")]
    pub cmd: Vec<String>,
    /// The seconds until it is killed; 0 for no limit.
    #[prost(int64, tag = "3")]
    pub timeout: i64,
}

/// The result of a command.
#[derive(Clone, PartialEq, Message)]
pub struct ExecSyncResponse {
    /// What it wrote to stdout.
    #[prost(bytes = "bytes", tag = "1")]
    pub stdout: Bytes,
    /// What it wrote to stderr.
    #[prost(bytes = "bytes", tag = "2")]
    pub stderr: Bytes,
    /// Its exit code.
    #[prost(int32, tag = "3")]
    pub exit_code: i32,
}

/// Prepares a command in a container.
#[derive(Clone, PartialEq, Message)]
pub struct ExecRequest {
    /// The ID of the container.
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// The command.
    #[prost(string, repeated, tag = "2")]
    pub cmd: Vec<String>,
    /// Whether it has a terminal.
    #[prost(bool, tag = "3")]
    pub tty: bool,
    /// Whether stdin is streamed.
    #[prost(bool, tag = "4")]
    pub stdin: bool,
    /// Whether stdout is streamed.
    #[prost(bool, tag = "5")]
    pub stdout: bool,
    /// Whether stderr is streamed; never with a terminal.
    #[prost(bool, tag = "6")]
    pub stderr: bool,
}

/// Prepares a connection to the process of a container.
#[derive(Clone, PartialEq, Message)]
pub struct AttachRequest {
    /// The ID of the container.
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// Whether stdin is streamed.
    #[prost(bool, tag = "2")]
    pub stdin: bool,
    /// Whether the process has a terminal.
    #[prost(bool, tag = "3")]
    pub tty: bool,
    /// Whether stdout is streamed.
    #[prost(bool, tag = "4")]
    pub stdout: bool,
    /// Whether stderr is streamed; never with a terminal.
    #[prost(bool, tag = "5")]
    pub stderr: bool,
}

/// Prepares connections to ports of a sandbox.
#[derive(Clone, PartialEq, Message)]
pub struct PortForwardRequest {
    /// The ID of the sandbox.
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
    /// The ports.
    #[prost(int32, repeated, tag = "2")]
    pub port: Vec<i32>,
}

/// Where a stream is served: the response to `Exec`, `Attach` and `PortForward`.
#[derive(Clone, PartialEq, Message)]
pub struct StreamingResponse {
    /// The URL; it is valid once and for a short time.
    #[prost(string, tag = "1")]
    pub url: String,
}

/// Which images are listed.
#[derive(Clone, PartialEq, Message)]
pub struct ImageFilter {
    /// The one with this name.
    #[prost(message, optional, tag = "1")]
    pub image: Option<ImageSpec>,
}

/// Lists images.
#[derive(Clone, PartialEq, Message)]
pub struct ListImagesRequest {
    /// Which; all if it is missing.
    #[prost(message, optional, tag = "1")]
    pub filter: Option<ImageFilter>,
}

/// An image on the machine.
#[derive(Clone, PartialEq, Message)]
pub struct Image {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its names.
    #[prost(string, repeated, tag = "2")]
    pub repo_tags: Vec<String>,
    /// Its names by digest.
    #[prost(string, repeated, tag = "3")]
    pub repo_digests: Vec<String>,
    /// Its size in bytes.
    #[prost(uint64, tag = "4")]
    pub size: u64,
    /// The user of its containers, by number.
    #[prost(message, optional, tag = "5")]
    pub uid: Option<Int64Value>,
    /// The user of its containers, by name.
    #[prost(string, tag = "6")]
    pub username: String,
    /// Whether it may not be collected.
    #[prost(bool, tag = "8")]
    pub pinned: bool,
}

/// Images.
#[derive(Clone, PartialEq, Message)]
pub struct ListImagesResponse {
    /// The images.
    #[prost(message, repeated, tag = "1")]
    pub images: Vec<Image>,
}

/// Asks for an image.
#[derive(Clone, PartialEq, Message)]
pub struct ImageStatusRequest {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub image: Option<ImageSpec>,
    /// Whether details are returned.
    #[prost(bool, tag = "2")]
    pub verbose: bool,
}

/// An image, if it is on the machine.
#[derive(Clone, PartialEq, Message)]
pub struct ImageStatusResponse {
    /// The image.
    #[prost(message, optional, tag = "1")]
    pub image: Option<Image>,
    /// Details, as JSON of the runtime.
    #[prost(btree_map = "string, string", tag = "2")]
    pub info: BTreeMap<String, String>,
}

/// The credentials of a registry.
#[derive(Clone, PartialEq, Message)]
pub struct AuthConfig {
    /// The user.
    #[prost(string, tag = "1")]
    pub username: String,
    /// The password.
    #[prost(string, tag = "2")]
    pub password: String,
    /// User and password in base64.
    #[prost(string, tag = "3")]
    pub auth: String,
    /// The registry.
    #[prost(string, tag = "4")]
    pub server_address: String,
    /// A token for which the registry gives another.
    #[prost(string, tag = "5")]
    pub identity_token: String,
    /// A bearer token.
    #[prost(string, tag = "6")]
    pub registry_token: String,
}

/// Pulls an image.
#[derive(Clone, PartialEq, Message)]
pub struct PullImageRequest {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub image: Option<ImageSpec>,
    /// The credentials, if there are any.
    #[prost(message, optional, tag = "2")]
    pub auth: Option<AuthConfig>,
    /// The sandbox for which it is.
    #[prost(message, optional, tag = "3")]
    pub sandbox_config: Option<PodSandboxConfig>,
}

/// An image that was pulled.
#[derive(Clone, PartialEq, Message)]
pub struct PullImageResponse {
    /// Its ID or its name by digest.
    #[prost(string, tag = "1")]
    pub image_ref: String,
}

/// Removes an image. It is idempotent.
#[derive(Clone, PartialEq, Message)]
pub struct RemoveImageRequest {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub image: Option<ImageSpec>,
}

/// The network of pods.
#[derive(Clone, PartialEq, Message)]
pub struct NetworkConfig {
    /// The range of their addresses.
    #[prost(string, tag = "1")]
    pub pod_cidr: String,
}

/// The configuration of a runtime.
#[derive(Clone, PartialEq, Message)]
pub struct RuntimeConfig {
    /// The network of pods.
    #[prost(message, optional, tag = "1")]
    pub network_config: Option<NetworkConfig>,
}

/// Changes the configuration of a runtime.
#[derive(Clone, PartialEq, Message)]
pub struct UpdateRuntimeConfigRequest {
    /// The configuration.
    #[prost(message, optional, tag = "1")]
    pub runtime_config: Option<RuntimeConfig>,
}

/// A condition of a runtime.
#[derive(Clone, PartialEq, Message)]
pub struct RuntimeCondition {
    /// `RuntimeReady` or `NetworkReady`.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// Whether it holds.
    #[prost(bool, tag = "2")]
    pub status: bool,
    /// Why it does not, in a word.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// Why it does not.
    #[prost(string, tag = "4")]
    pub message: String,
}

/// The status of a runtime.
#[derive(Clone, PartialEq, Message)]
pub struct RuntimeStatus {
    /// Its conditions.
    #[prost(message, repeated, tag = "1")]
    pub conditions: Vec<RuntimeCondition>,
}

/// Asks for the status of a runtime.
#[derive(Clone, PartialEq, Message)]
pub struct StatusRequest {
    /// Whether details are returned.
    #[prost(bool, tag = "1")]
    pub verbose: bool,
}

/// What a runtime handler can do.
#[derive(Clone, PartialEq, Message)]
pub struct RuntimeHandlerFeatures {
    /// Mounts that are read-only with all mounts below them.
    #[prost(bool, tag = "1")]
    pub recursive_read_only_mounts: bool,
    /// User namespaces with mounts whose owners are mapped.
    #[prost(bool, tag = "2")]
    pub user_namespaces: bool,
}

/// What a runtime can do, whatever the handler.
#[derive(Clone, PartialEq, Message)]
pub struct RuntimeFeatures {
    /// `supplementalGroupsPolicy`, and the user in the status of a container.
    #[prost(bool, tag = "1")]
    pub supplemental_groups_policy: bool,
}

/// A handler of a runtime, such as `runc`.
#[derive(Clone, PartialEq, Message)]
pub struct RuntimeHandler {
    /// Its name; empty for the default one.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What it can do.
    #[prost(message, optional, tag = "2")]
    pub features: Option<RuntimeHandlerFeatures>,
}

/// The status of a runtime.
#[derive(Clone, PartialEq, Message)]
pub struct StatusResponse {
    /// The status.
    #[prost(message, optional, tag = "1")]
    pub status: Option<RuntimeStatus>,
    /// Details.
    #[prost(btree_map = "string, string", tag = "2")]
    pub info: BTreeMap<String, String>,
    /// Its handlers; empty if it does not say.
    #[prost(message, repeated, tag = "3")]
    pub runtime_handlers: Vec<RuntimeHandler>,
    /// What it can do; `None` if it does not say.
    #[prost(message, optional, tag = "4")]
    pub features: Option<RuntimeFeatures>,
}

/// A file system.
#[derive(Clone, PartialEq, Message)]
pub struct FilesystemIdentifier {
    /// Where it is mounted.
    #[prost(string, tag = "1")]
    pub mountpoint: String,
}

/// The usage of a file system.
#[derive(Clone, PartialEq, Message)]
pub struct FilesystemUsage {
    /// When it was measured, in nanoseconds since 1970.
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    /// The file system.
    #[prost(message, optional, tag = "2")]
    pub fs_id: Option<FilesystemIdentifier>,
    /// The bytes in use.
    #[prost(message, optional, tag = "3")]
    pub used_bytes: Option<UInt64Value>,
    /// The inodes in use.
    #[prost(message, optional, tag = "4")]
    pub inodes_used: Option<UInt64Value>,
}

/// Asks for the usage of the file systems of images.
#[derive(Clone, PartialEq, Message)]
pub struct ImageFsInfoRequest {}

/// The usage of the file systems of images.
#[derive(Clone, PartialEq, Message)]
pub struct ImageFsInfoResponse {
    /// Those of images.
    #[prost(message, repeated, tag = "1")]
    pub image_filesystems: Vec<FilesystemUsage>,
    /// Those of containers.
    #[prost(message, repeated, tag = "2")]
    pub container_filesystems: Vec<FilesystemUsage>,
}

/// Which containers are measured.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerStatsFilter {
    /// The one with this ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Those of a sandbox.
    #[prost(string, tag = "2")]
    pub pod_sandbox_id: String,
    /// Those with all these labels.
    #[prost(btree_map = "string, string", tag = "3")]
    pub label_selector: BTreeMap<String, String>,
}

/// Asks for the usage of containers.
#[derive(Clone, PartialEq, Message)]
pub struct ListContainerStatsRequest {
    /// Which; all if it is missing.
    #[prost(message, optional, tag = "1")]
    pub filter: Option<ContainerStatsFilter>,
}

/// The usage of containers.
#[derive(Clone, PartialEq, Message)]
pub struct ListContainerStatsResponse {
    /// A row for each.
    #[prost(message, repeated, tag = "1")]
    pub stats: Vec<ContainerStats>,
}

/// The identity of a measured container.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerAttributes {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub id: String,
    /// Its identity.
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<ContainerMetadata>,
    /// Its labels.
    #[prost(btree_map = "string, string", tag = "3")]
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    #[prost(btree_map = "string, string", tag = "4")]
    pub annotations: BTreeMap<String, String>,
}

/// The usage of a container.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerStats {
    /// Its identity.
    #[prost(message, optional, tag = "1")]
    pub attributes: Option<ContainerAttributes>,
    /// CPU.
    #[prost(message, optional, tag = "2")]
    pub cpu: Option<CpuUsage>,
    /// Memory.
    #[prost(message, optional, tag = "3")]
    pub memory: Option<MemoryUsage>,
    /// The layer that it writes.
    #[prost(message, optional, tag = "4")]
    pub writable_layer: Option<FilesystemUsage>,
}

/// The CPU usage of a container.
#[derive(Clone, PartialEq, Message)]
pub struct CpuUsage {
    /// When it was measured, in nanoseconds since 1970.
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    /// The CPU time since its start, in nanoseconds.
    #[prost(message, optional, tag = "2")]
    pub usage_core_nano_seconds: Option<UInt64Value>,
    /// The current usage, in billionths of a core.
    #[prost(message, optional, tag = "3")]
    pub usage_nano_cores: Option<UInt64Value>,
}

/// The memory usage of a container.
#[derive(Clone, PartialEq, Message)]
pub struct MemoryUsage {
    /// When it was measured, in nanoseconds since 1970.
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    /// The working set.
    #[prost(message, optional, tag = "2")]
    pub working_set_bytes: Option<UInt64Value>,
    /// All of it.
    #[prost(message, optional, tag = "4")]
    pub usage_bytes: Option<UInt64Value>,
    /// Anonymous memory.
    #[prost(message, optional, tag = "5")]
    pub rss_bytes: Option<UInt64Value>,
}

/// Watches containers.
#[derive(Clone, PartialEq, Message)]
pub struct GetEventsRequest {}

/// A change of a container.
#[derive(Clone, PartialEq, Message)]
pub struct ContainerEventResponse {
    /// The ID of the container, or of its sandbox.
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// What happened.
    #[prost(enumeration = "ContainerEventType", tag = "2")]
    pub container_event_type: i32,
    /// When, in nanoseconds since 1970.
    #[prost(int64, tag = "3")]
    pub created_at: i64,
    /// Its sandbox.
    #[prost(message, optional, tag = "4")]
    pub pod_sandbox_status: Option<PodSandboxStatus>,
    /// All containers of the sandbox.
    #[prost(message, repeated, tag = "5")]
    pub containers_statuses: Vec<ContainerStatus>,
}

/// The configuration of the runtime.
#[derive(Clone, PartialEq, Message)]
pub struct RuntimeConfigRequest {}

/// The configuration of the runtime.
#[derive(Clone, PartialEq, Message)]
pub struct RuntimeConfigResponse {
    /// On Linux.
    #[prost(message, optional, tag = "1")]
    pub linux: Option<LinuxRuntimeConfiguration>,
}

/// The configuration of the runtime on Linux.
#[derive(Clone, PartialEq, Message)]
pub struct LinuxRuntimeConfiguration {
    /// What makes cgroups.
    #[prost(enumeration = "CgroupDriver", tag = "1")]
    pub cgroup_driver: i32,
}

/// Changes the limits of a container that runs.
#[derive(Clone, PartialEq, Message)]
pub struct UpdateContainerResourcesRequest {
    /// Its ID.
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// The limits; zero is no change.
    #[prost(message, optional, tag = "2")]
    pub linux: Option<LinuxContainerResources>,
}

/// A response that says nothing but that the call succeeded.
#[derive(Clone, PartialEq, Message)]
pub struct Empty {}

/// The protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum Protocol {
    /// TCP.
    Tcp = 0,
    /// UDP.
    Udp = 1,
    /// SCTP.
    Sctp = 2,
}

/// How mounts propagate between host and container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum MountPropagation {
    /// Not at all.
    Private = 0,
    /// From the host.
    HostToContainer = 1,
    /// In both directions.
    Bidirectional = 2,
}

/// Who shares a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum NamespaceMode {
    /// The containers of the pod.
    Pod = 0,
    /// Nothing.
    Container = 1,
    /// The host.
    Node = 2,
    /// Another container.
    Target = 3,
}

/// Which groups the processes of a container have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum SupplementalGroupsPolicy {
    /// Those of the request, and those that the image has for the user.
    Merge = 0,
    /// Those of the request.
    Strict = 1,
}

/// Where a security profile comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum ProfileType {
    /// From the runtime.
    RuntimeDefault = 0,
    /// There is none.
    Unconfined = 1,
    /// From the machine.
    Localhost = 2,
}

/// The state of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum PodSandboxState {
    /// Containers can run in it.
    Ready = 0,
    /// It has stopped.
    NotReady = 1,
}

/// The state of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum ContainerState {
    /// It was never started.
    Created = 0,
    /// It runs.
    Running = 1,
    /// It has exited.
    Exited = 2,
    /// The runtime does not know.
    Unknown = 3,
}

/// What makes cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum CgroupDriver {
    /// systemd, as slices and scopes.
    Systemd = 0,
    /// The runtime, as directories.
    Cgroupfs = 1,
}

/// What happened to a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum ContainerEventType {
    /// It was created.
    Created = 0,
    /// It was started.
    Started = 1,
    /// It has exited.
    Stopped = 2,
    /// It was removed.
    Deleted = 3,
}
