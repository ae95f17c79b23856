//! The flags of nodes with real containers.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use mizzen_node::cri::{
    ContainerLogPolicy, CriOptions, CriRuntime, Housekeeping, ImageGcPolicy, ImageVerification,
    VerificationPolicy, check_sysctl_pattern,
};
use mizzen_node::shutdown::ShutdownConfig;
use mizzen_node::{NodeAddress, StaticPodSource};
use mizzen_object::validate::names::is_dns1123_subdomain;
use mizzen_value::quantity::Quantity;

use super::node_pressure::{NodePressure, NodePressureArgs};
use super::node_shutdown::NodeShutdownArgs;
use super::server::duration;

/// A container runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Runtime {
    /// Simulated containers, which need neither privileges nor a container runtime
    Auto,
    /// Simulated containers that run no process
    Simulated,
    /// Real containers of containerd or another runtime with CRI v1: this machine becomes a node
    Cri,
}

/// Where real containers run.
#[derive(Debug, Clone, Args)]
pub(crate) struct NodeRuntimeArgs {
    /// Run containers with this runtime
    #[arg(long, value_name = "RUNTIME", default_value = "auto")]
    node_runtime: Runtime,
    /// Reach the container runtime at this socket, with --node-runtime cri
    #[arg(
        long,
        value_name = "ENDPOINT",
        default_value = "unix:///run/containerd/containerd.sock"
    )]
    cri_endpoint: String,
    /// Name the node with real containers [default: the host name]
    #[arg(long, value_name = "NAME", value_parser = node_name)]
    node_name: Option<String>,
    /// Give the node with real containers this address [default: that of the interface with the default route, or that of the
    /// host name, or 127.0.0.1]
    #[arg(long, value_name = "IP", value_parser = node_ip)]
    node_ip: Option<NodeAddress>,
    /// Keep the volumes of pods with real containers in this directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/mizzen/node")]
    node_root_dir: PathBuf,
    /// Keep the logs of real containers in this directory
    #[arg(long, value_name = "DIR", default_value = "/var/log/pods")]
    pod_logs_dir: PathBuf,
    /// Write a CNI configuration with the node's pod CIDR to this directory, in which the container runtime looks for it,
    /// unless there is one
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    cni_conf_dir: PathBuf,
    /// Take the name servers of pods with real containers from this file [default: /etc/resolv.conf, or
    /// /run/systemd/resolve/resolv.conf where the former has only addresses of the loopback interface]
    #[arg(long, value_name = "FILE")]
    resolv_conf: Option<PathBuf>,
    /// Run the pods of the manifests in this directory, or of this file, on the node with real containers
    #[arg(long, value_name = "PATH")]
    pod_manifest_path: Option<PathBuf>,
    /// Let pods with real containers set these sysctls besides the safe ones; a * at the end stands for any rest
    #[arg(long, value_name = "SYSCTL,…", value_delimiter = ',', value_parser = sysctl)]
    allowed_unsafe_sysctls: Vec<String>,
    /// Close a connection of exec, attach or port-forward to a node after it was idle for this long; 0s for never
    #[arg(long, value_name = "DURATION", default_value = "4h", value_parser = duration)]
    pub(super) streaming_connection_idle_timeout: Duration,
    #[command(flatten)]
    housekeeping: HousekeepingArgs,
    #[command(flatten)]
    pressure: NodePressureArgs,
    #[command(flatten)]
    shutdown: NodeShutdownArgs,
    // Flags of the kubelet that are not supported.
    #[arg(long, value_name = "FILE", hide = true)]
    image_credential_provider_config: Option<PathBuf>,
    #[arg(long, value_name = "DIR", hide = true)]
    image_credential_provider_bin_dir: Option<PathBuf>,
}

/// What a node with real containers does beside running pods, with the flags and defaults of the kubelet.
#[derive(Debug, Clone, Args)]
struct HousekeepingArgs {
    /// Pull one image at a time
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set,
        default_value_t = false,
        default_missing_value = "true"
    )]
    serialize_image_pulls: bool,
    /// Pull at most this many images at once
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    max_parallel_image_pulls: u16,
    /// Verify that a pod has the credentials for an image that is on the node
    #[arg(
        long,
        value_name = "POLICY",
        value_enum,
        default_value_t = ImageCredentialsPolicy::NeverVerifyPreloadedImages
    )]
    image_pull_credentials_verification_policy: ImageCredentialsPolicy,
    /// Let any pod use these images if they are on the node, with the policy NeverVerifyAllowlistedImages: names without
    /// tag and digest; /* at the end stands for any path
    #[arg(long, value_name = "IMAGE,…", value_delimiter = ',')]
    preloaded_images_verification_allowlist: Vec<String>,
    /// Remove unused images when the disk with images is full to this percentage
    #[arg(long, value_name = "PERCENT", default_value_t = 85, value_parser = clap::value_parser!(u8).range(..=100))]
    image_gc_high_threshold: u8,
    /// Remove unused images until the disk is full to this percentage
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u8).range(..=100))]
    image_gc_low_threshold: u8,
    /// Keep unused images for this long, however full the disk is
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    minimum_image_ttl_duration: Duration,
    /// Remove images that were unused for this long, however empty the disk is; 0s for never
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    maximum_image_ttl_duration: Duration,
    /// Rotate the log of a container at this size; a negative one for never
    #[arg(long, value_name = "QUANTITY", default_value = "10Mi", value_parser = log_size, allow_hyphen_values = true)]
    container_log_max_size: LogSize,
    /// Keep at most this many log files of a container
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(2..))]
    container_log_max_files: u16,
}

/// Which images on the node a pod needs credentials for. Kubernetes: a field of KubeletConfiguration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
enum ImageCredentialsPolicy {
    /// For none
    NeverVerify,
    /// For those that the node has pulled
    NeverVerifyPreloadedImages,
    /// For all but those of --preloaded-images-verification-allowlist
    NeverVerifyAllowlistedImages,
    /// For all
    AlwaysVerify,
}

impl From<ImageCredentialsPolicy> for VerificationPolicy {
    fn from(policy: ImageCredentialsPolicy) -> VerificationPolicy {
        match policy {
            ImageCredentialsPolicy::NeverVerify => VerificationPolicy::NeverVerify,
            ImageCredentialsPolicy::NeverVerifyPreloadedImages => {
                VerificationPolicy::NeverVerifyPreloadedImages
            }
            ImageCredentialsPolicy::NeverVerifyAllowlistedImages => {
                VerificationPolicy::NeverVerifyAllowlistedImages
            }
            ImageCredentialsPolicy::AlwaysVerify => VerificationPolicy::AlwaysVerify,
        }
    }
}

/// The size at which logs are rotated, if they are.
#[derive(Debug, Clone, Copy)]
struct LogSize(Option<u64>);

fn log_size(text: &str) -> Result<LogSize, String> {
    let quantity = Quantity::parse(text).map_err(|error| error.to_string())?;
    let bytes = quantity.value();
    Ok(LogSize(u64::try_from(bytes).ok()))
}

impl HousekeepingArgs {
    fn options(&self) -> Result<Housekeeping, RuntimeError> {
        let image_gc = ImageGcPolicy {
            high_threshold_percent: self.image_gc_high_threshold.into(),
            low_threshold_percent: self.image_gc_low_threshold.into(),
            min_age: self.minimum_image_ttl_duration,
            max_age: self.maximum_image_ttl_duration,
        };
        image_gc.check().map_err(RuntimeError::Housekeeping)?;
        let image_verification = ImageVerification::new(
            self.image_pull_credentials_verification_policy.into(),
            self.preloaded_images_verification_allowlist.clone(),
        );
        Ok(Housekeeping {
            max_parallel_image_pulls: match self.serialize_image_pulls {
                true => 1,
                false => self.max_parallel_image_pulls.into(),
            },
            image_verification: image_verification.map_err(RuntimeError::Housekeeping)?,
            image_gc,
            container_log: ContainerLogPolicy {
                max_size: self.container_log_max_size.0,
                max_files: self.container_log_max_files.into(),
                ..ContainerLogPolicy::default()
            },
            ..Housekeeping::default()
        })
    }
}

/// Why real containers cannot run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuntimeError {
    #[error(transparent)]
    Unprepared(#[from] mizzen_node::cri::Unprepared),
    #[error(
        "the host name {name:?} is not the name of a node ({why}); choose one with --node-name"
    )]
    Name { name: String, why: String },
    #[error("{0}")]
    Housekeeping(String),
    #[error("eviction thresholds: {0}")]
    Pressure(String),
    #[error("shutdown of the node: {0}")]
    Shutdown(String),
    #[error(
        "--image-credential-provider-config and --image-credential-provider-bin-dir are not supported: put credentials of \
         registries into Secrets, and name these in the imagePullSecrets of pods or service accounts"
    )]
    CredentialProvider,
    #[error(transparent)]
    Connect(#[from] mizzen_node::cri::ConnectError),
}

impl NodeRuntimeArgs {
    /// Whether containers are real.
    pub(crate) fn is_real(&self) -> bool {
        self.node_runtime == Runtime::Cri
    }

    /// The configuration of the node with real containers, if there is one. The machine is checked.
    pub(crate) async fn real_node(&self) -> Result<Option<CriOptions>, RuntimeError> {
        if !self.is_real() {
            return Ok(None);
        }
        let has_provider = [
            &self.image_credential_provider_config,
            &self.image_credential_provider_bin_dir,
        ];
        if has_provider.into_iter().any(Option::is_some) {
            return Err(RuntimeError::CredentialProvider);
        }
        // A wrong flag is said before what the machine lacks.
        self.pressure()?;
        self.shutdown()?;
        let options = CriOptions {
            endpoint: self.cri_endpoint.clone(),
            node: match &self.node_name {
                Some(name) => name.clone(),
                None => host_name()?,
            },
            root: self.node_root_dir.clone(),
            logs: self.pod_logs_dir.clone(),
            network: self.cni_conf_dir.clone(),
            resolver: self.resolv_conf.clone(),
            api_server: None,
            unsafe_sysctls: self.allowed_unsafe_sysctls.clone(),
            system_bus: None,
            housekeeping: self.housekeeping.options()?,
        };
        CriRuntime::check(&options, nix::unistd::geteuid().is_root()).await?;
        Ok(Some(options))
    }
}

impl NodeRuntimeArgs {
    /// What the node keeps for the system, and when it evicts pods.
    pub(crate) fn pressure(&self) -> Result<NodePressure, RuntimeError> {
        self.pressure.options().map_err(RuntimeError::Pressure)
    }

    /// The address of the node; without --node-ip the one at which the agent listens, if other machines may reach it.
    pub(crate) fn node_address(&self, listens: Option<IpAddr>) -> NodeAddress {
        let listens = listens.filter(|address| !address.is_loopback() && !address.is_unspecified());
        let chosen = self.node_ip.or(listens.map(NodeAddress::Fixed));
        chosen.unwrap_or_else(|| {
            let name = nix::unistd::gethostname().unwrap_or_default();
            NodeAddress::of_machine(&name.to_string_lossy())
        })
    }

    /// How the node ends its pods before this machine shuts down.
    pub(crate) fn shutdown(&self) -> Result<ShutdownConfig, RuntimeError> {
        self.shutdown.config().map_err(RuntimeError::Shutdown)
    }

    /// Where static pods come from. They are completed and validated as the API server does it.
    pub(crate) fn static_pods(&self) -> Option<StaticPodSource> {
        let path = self.pod_manifest_path.clone()?;
        Some(StaticPodSource {
            path,
            complete: Arc::new(|pod| mizzen_kinds::complete("", "Pod", &pod)),
        })
    }
}

fn sysctl(text: &str) -> Result<String, String> {
    check_sysctl_pattern(text).map(|()| text.into())
}

fn node_ip(text: &str) -> Result<NodeAddress, String> {
    let address = text.parse::<IpAddr>().map_err(|error| error.to_string())?;
    NodeAddress::fixed(address)
}

/// The host name, in lower case as the kubelet has it.
fn host_name() -> Result<String, RuntimeError> {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let name = name.to_string_lossy().trim().to_lowercase();
    node_name(&name).map_err(|why| RuntimeError::Name { name, why })
}

fn node_name(text: &str) -> Result<String, String> {
    match is_dns1123_subdomain(text) {
        wrong if wrong.is_empty() => Ok(text.into()),
        wrong => Err(wrong.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Node {
        #[command(flatten)]
        runtime: NodeRuntimeArgs,
    }

    fn housekeeping(flags: &str) -> Result<Housekeeping, String> {
        let words = ["node"].into_iter().chain(flags.split_whitespace());
        let node = Node::try_parse_from(words).map_err(|error| error.to_string())?;
        let options = node.runtime.housekeeping.options();
        options.map_err(|error| error.to_string())
    }

    #[test]
    fn limits_have_the_flags_and_defaults_of_the_kubelet() {
        let usual = housekeeping("").unwrap();
        assert_eq!(usual.image_gc, ImageGcPolicy::default());
        assert_eq!(usual.container_log, ContainerLogPolicy::default());
        assert_eq!(usual.max_parallel_image_pulls, 5);
        assert_eq!(usual.image_verification, ImageVerification::default());
        let listed = housekeeping(
            "--image-pull-credentials-verification-policy NeverVerifyAllowlistedImages \
             --preloaded-images-verification-allowlist a.example/base,b.example/*",
        );
        let allowlist = vec!["a.example/base".to_owned(), "b.example/*".to_owned()];
        let policy = VerificationPolicy::NeverVerifyAllowlistedImages;
        let expected = ImageVerification::new(policy, allowlist).unwrap();
        assert_eq!(listed.unwrap().image_verification, expected);
        let serial = housekeeping("--serialize-image-pulls --max-parallel-image-pulls 3").unwrap();
        assert_eq!(serial.max_parallel_image_pulls, 1);
        let log = |size: &str| {
            let options = housekeeping(&format!("--container-log-max-size {size}")).unwrap();
            options.container_log.max_size
        };
        assert_eq!([log("1Ki"), log("-1")], [Some(1024), None]);
    }

    #[test]
    fn limits_that_cannot_be_are_refused() {
        for (flags, why) in [
            (
                "--image-gc-high-threshold 80",
                "must be below the high one, 80 %",
            ),
            ("--image-gc-high-threshold 101", "101 is not in 0..=100"),
            ("--max-parallel-image-pulls 0", "0 is not in 1.."),
            ("--container-log-max-files 1", "1 is not in 2.."),
            (
                "--image-pull-credentials-verification-policy Sometimes",
                "invalid value 'Sometimes'",
            ),
            (
                "--preloaded-images-verification-allowlist a.example/base",
                "needs the policy NeverVerifyAllowlistedImages",
            ),
            ("--container-log-max-size much", "invalid value 'much'"),
        ] {
            let error = housekeeping(flags).unwrap_err();
            assert!(error.contains(why), "{flags}: {error}");
        }
    }

    #[tokio::test]
    async fn a_credential_provider_is_refused() {
        let words = [
            "node",
            "--node-runtime",
            "cri",
            "--image-credential-provider-config",
            "file",
        ];
        let node = Node::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
        let refused = node.runtime.real_node().await.unwrap_err().to_string();
        assert!(refused.contains("imagePullSecrets"), "{refused}");
    }
}
