//! What is named in the sources and is no field of a built-in kind?

use super::chains::Chain;

/// A file or folder below `crates`, the chains that are no paths there (`*` for all), and what they are of.
type Exception = (&'static str, &'static [&'static str], &'static str);

const EXCEPTIONS: &[Exception] = &[
    (
        "controlplane/src/admission/configuration.rs",
        &["*"],
        "the file of --admission-control-config-file",
    ),
    (
        "controlplane/src/admission/event_rate_limit.rs",
        &["burst", "cacheSize", "qps"],
        "the configuration of EventRateLimit",
    ),
    (
        "controlplane/src/admission/image_policy.rs",
        &[
            "defaultAllow",
            "imagePolicy",
            "kubeConfigFile",
            "retryBackoff",
        ],
        "the configuration of ImagePolicyWebhook",
    ),
    (
        "controlplane/src/admission/pod_node_selector.rs",
        &["podNodeSelectorPluginConfig"],
        "the configuration of PodNodeSelector",
    ),
    (
        "controlplane/src/service/ports.rs",
        &["range"],
        "a RangeAllocation, which is no resource",
    ),
    ("node/src/cri/machine.rs", &["*"], "the amounts of a node"),
    (
        "node/src/cri/cgroup_driver.rs",
        &["*"],
        "what containerd says of its configuration",
    ),
    (
        "node/src/cri/housekeeping.rs",
        &["sandboxImage"],
        "what containerd says of its configuration",
    ),
    (
        "node/src/cri/keyring.rs",
        &["auth", "auths", "email", "password"],
        "the credentials of Docker",
    ),
    (
        "node/src/cri/preflight.rs",
        &["cni.binDir", "cni.binDirs"],
        "what containerd says of its configuration",
    ),
    (
        "node/src/cri/pull_records.rs",
        &["*"],
        "ImagePullIntent and ImagePulledRecord, which a kubelet keeps in files",
    ),
    (
        "node/src/cri/resources.rs",
        &["cpu", "memory"],
        "the amounts of a container",
    ),
    (
        "node/src/configuration.rs",
        &["*"],
        "a KubeletConfiguration",
    ),
    ("node/src/cri/mod.rs", &["memory"], "the amounts of a node"),
    (
        "node/src/cri/mod.rs",
        &[
            "allowedUnsafeSysctls",
            "cgroupDriver",
            "cgroupsPerQOS",
            "containerLogMaxFiles",
            "containerLogMaxSize",
            "containerLogMonitorInterval",
            "containerRuntimeEndpoint",
            "cpuCFSQuota",
            "imageGCHighThresholdPercent",
            "imageGCLowThresholdPercent",
            "imageMaximumGCAge",
            "imageMinimumGCAge",
            "imagePullCredentialsVerificationPolicy",
            "maxParallelImagePulls",
            "podLogsDir",
            "preloadedImagesVerificationAllowlist",
            "resolvConf",
            "serializeImagePulls",
        ],
        "a KubeletConfiguration",
    ),
    (
        "node/src/cri/user_namespaces.rs",
        &["*"],
        "the user namespace of a pod, which a kubelet keeps in a file",
    ),
    (
        "node/src/nodes/capacity.rs",
        &["memory"],
        "the amounts of a node",
    ),
    (
        "node/src/eviction/decide.rs",
        &["ephemeral-storage"],
        "the amounts of a pod",
    ),
    (
        "node/src/server/measured.rs",
        &["*"],
        "the summary of a kubelet",
    ),
    ("node/src/cri/network.rs", &["*"], "a configuration of CNI"),
    (
        "apiserver/src/admission/policy/patch.rs",
        &["op"],
        "an operation of a JSON patch",
    ),
    (
        "apiserver/src/admission/policy/validate.rs",
        &["binding", "expressionIndex", "policy"],
        "an audit annotation",
    ),
    (
        "apiserver/src/admission/webhook/annotations.rs",
        &["configuration", "mutated"],
        "an audit annotation",
    ),
    (
        "controllers/src/autoscaler/pod_metrics.rs",
        &["timestamp", "usage.*", "window", "windowSeconds"],
        "PodMetrics and MetricValue, which other servers serve",
    ),
    (
        "controllers/src/policy_status/published.rs",
        &["components.schemas", "x-kubernetes-group-version-kind"],
        "a page of OpenAPI",
    ),
    (
        "controllers/src/root_ca/mod.rs",
        &["ca.crt"],
        "a key of a ConfigMap",
    ),
    (
        "controllers/src/service_account_tokens/plan.rs",
        &["ca.crt", "iss", "sub"],
        "a key of a Secret, and claims of a token",
    ),
    (
        "controllers/src/storage_version_migration",
        &["spec.resource", "status.resourceVersion"],
        "StorageVersionMigration, which is not served by default",
    ),
    (
        "node/src/server/node.rs",
        &["kubeletconfig"],
        "the page of /configz",
    ),
    (
        "node/src/server/node.rs",
        &[
            "node",
            "node.nodeName",
            "node.startTime",
            "podRef",
            "podRef.name",
            "podRef.namespace",
            "podRef.uid",
        ],
        "the kubelet's summary of statistics",
    ),
    ("node/src/server/serve.rs", &["x-forwarded-uri"], "a header"),
    (
        "core-kinds/src/node.rs",
        &["ConfigMap", "podSignature.podController", "preferAvoidPods"],
        "Go's form of a value in a message, and an annotation",
    ),
    (
        "core-kinds/src/persistent_volume/mod.rs",
        &["Required"],
        "Go's form of a value in a message",
    ),
    (
        "core-kinds/src/resource_quota.rs",
        &["MatchExpressions"],
        "Go's form of a value in a message",
    ),
    (
        "core-kinds/src/secret.rs",
        &["password", "ssh-privatekey"],
        "keys of Secrets",
    ),
    (
        "core-kinds/src/service/validate.rs",
        &["AppProtocol", "Name", "NodePort", "Protocol", "TargetPort"],
        "Go's form of a value in a message",
    ),
    (
        "apiextensions/src/definition/schema/list.rs",
        &["Items"],
        "Go's form of a value in a message",
    ),
    (
        "kinds/src/groups/autoscaling/to_v1.rs",
        &["*"],
        "Go's internal form, which an annotation holds",
    ),
    (
        "kinds/src/groups/node.rs",
        &["cpu", "memory"],
        "keys of amounts",
    ),
    (
        "kinds/src/groups/resource/claim.rs",
        &["Spec"],
        "Go's form of a value in a message",
    ),
    (
        "kinds/src/groups/storage/class.rs",
        &[""],
        "a key of parameters",
    ),
    ("node/src/runtime/http.rs", &["body"], "the script of a pod"),
    (
        "scheduler/src/configuration",
        &["*"],
        "KubeSchedulerConfiguration",
    ),
    (
        "scheduler/src/extender",
        &["*"],
        "the protocol and configuration of extenders",
    ),
];

/// Receivers that are no values.
const RECEIVERS: [(&str, &str); 3] = [
    ("catalog", "resources by group"),
    ("headers", "headers of a stream"),
    ("variables", "the environment of a shell"),
];

/// The exceptions, and which of them were needed.
#[derive(Default)]
pub(crate) struct Exceptions {
    used: Vec<(&'static str, &'static str)>,
}

impl Exceptions {
    /// Whether a chain in a file is excepted.
    pub(crate) fn cover(&mut self, file: &str, chain: &Chain) -> bool {
        let receiver = RECEIVERS.iter().find(|(name, _)| *name == chain.receiver);
        let text = chain.to_string();
        let applies =
            |(place, name): &(&str, &str)| file.starts_with(place) && ["*", &text].contains(name);
        let found = match receiver {
            Some((name, _)) => Some(("", *name)),
            None => names().find(applies),
        };
        self.used.extend(found);
        found.is_some()
    }

    /// Those that no chain needed.
    pub(crate) fn unused(&self) -> Vec<String> {
        let receivers = RECEIVERS.iter().map(|(name, _)| ("", *name));
        names()
            .chain(receivers)
            .filter(|name| !self.used.contains(name))
            .map(|(place, name)| format!("{place} {name}"))
            .collect()
    }
}

fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    EXCEPTIONS
        .iter()
        .flat_map(|(place, names, _)| names.iter().map(|name| (*place, *name)))
}
