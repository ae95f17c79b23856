//! The flags of kube-controller-manager's node-ipam-controller.

use clap::Args;
use mizzen_controllers::{self as controllers, NodeMasks, check_range};
use mizzen_value::address::Cidr;

use super::lead::LeadError;

/// The arguments of pod CIDRs of nodes.
#[derive(Args)]
pub(super) struct NodeIpamArgs {
    /// Allocate a pod CIDR for each node [default: true with --cluster-cidr]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    allocate_node_cidrs: Option<bool>,
    /// Allocate pod CIDRs of nodes from these ranges, at most one per IP family
    #[arg(long, value_name = "RANGE,…", value_delimiter = ',')]
    cluster_cidr: Vec<String>,
    /// Exclude these service CIDRs from the pod CIDRs of nodes
    #[arg(long, value_name = "RANGE,…", value_delimiter = ',', value_parser = |text: &str| Cidr::parse_sloppy(text).ok_or_else(|| format!("{text:?} is not an IP range")))]
    service_cluster_ip_range: Vec<Cidr>,
    /// Allocate pod CIDRs with a prefix of this many bits; only for one range [default: 24 for IPv4, 64 for IPv6]
    #[arg(long, value_name = "BITS", conflicts_with_all = ["node_cidr_mask_size_ipv4", "node_cidr_mask_size_ipv6"])]
    node_cidr_mask_size: Option<u32>,
    /// Allocate IPv4 pod CIDRs with a prefix of this many bits [default: 24]
    #[arg(long, value_name = "BITS")]
    node_cidr_mask_size_ipv4: Option<u32>,
    /// Allocate IPv6 pod CIDRs with a prefix of this many bits [default: 64]
    #[arg(long, value_name = "BITS")]
    node_cidr_mask_size_ipv6: Option<u32>,
}

impl NodeIpamArgs {
    /// The ranges as they were given.
    pub(super) fn cluster_cidr(&self) -> String {
        self.cluster_cidr.join(",")
    }

    /// Sets the options of the controller.
    pub(super) fn apply_to(&self, options: &mut controllers::Options) -> Result<(), LeadError> {
        let invalid = |flag: &str, why: String| LeadError::Configuration {
            file: flag.into(),
            why,
        };
        let ranges: Vec<&String> = self
            .cluster_cidr
            .iter()
            .filter(|range| !range.is_empty())
            .collect();
        if ranges.is_empty() && self.allocate_node_cidrs == Some(true) {
            let why = "there is no range of addresses; name it with --cluster-cidr".into();
            return Err(invalid("--allocate-node-cidrs", why));
        }
        if ranges.len() > 1 && self.node_cidr_mask_size.is_some() {
            let why = "there are two ranges; use --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6";
            return Err(invalid("--node-cidr-mask-size", why.into()));
        }
        if self.allocate_node_cidrs == Some(false) {
            return Ok(());
        }
        let default = NodeMasks::default();
        options.node_masks = NodeMasks {
            v4: self
                .node_cidr_mask_size
                .or(self.node_cidr_mask_size_ipv4)
                .unwrap_or(default.v4),
            v6: self
                .node_cidr_mask_size
                .or(self.node_cidr_mask_size_ipv6)
                .unwrap_or(default.v6),
        };
        for range in &ranges {
            check_range(range, options.node_masks)
                .map_err(|error| invalid("--cluster-cidr", error.to_string()))?;
        }
        options.pod_ranges = ranges.into_iter().cloned().collect();
        options
            .service_ranges
            .clone_from(&self.service_cluster_ip_range);
        Ok(())
    }
}
