//! `--simulate-load-balancers`: which addresses do Services of type LoadBalancer get?

use clap::Args;
use mizzen_value::address::Block;

/// Ranges for documentation, which are never routed (RFC 5737, RFC 3849).
const DOCUMENTATION: [&str; 2] = ["192.0.2.0/24", "2001:db8::/64"];

/// The argument of the simulated cloud.
#[derive(Args)]
pub(super) struct LoadBalancerArgs {
    /// Give Services of type LoadBalancer addresses, as a cloud's service controller does; nothing listens at them. One range
    /// per family [default without a value: 192.0.2.0/24,2001:db8::/64; default: off]
    #[arg(long, value_name = "RANGE,…", num_args = 0..=1, require_equals = true, value_delimiter = ',',
        default_missing_values = DOCUMENTATION, value_parser = range)]
    simulate_load_balancers: Option<Vec<Block>>,
}

impl LoadBalancerArgs {
    /// The ranges of the simulated cloud, one of each family; none if there is no such cloud.
    pub(super) fn ranges(&self) -> Vec<Block> {
        let Some(chosen) = &self.simulate_load_balancers else {
            return Vec::new();
        };
        let documentation = DOCUMENTATION
            .iter()
            .filter_map(|text| Block::parse_sloppy(text));
        let mut ranges: Vec<Block> = Vec::new();
        for range in chosen.iter().copied().chain(documentation) {
            if !ranges.iter().any(|known| known.width() == range.width()) {
                ranges.push(range);
            }
        }
        ranges
    }
}

/// A range that has addresses to give.
fn range(text: &str) -> Result<Block, String> {
    match Block::parse_sloppy(text) {
        Some(block) if block.hosts().is_empty() => Err(format!("{text} has no address to give")),
        Some(block) => Ok(Block {
            ip: block.network(),
            ..block
        }),
        None => Err(format!("{text:?} is not a range of addresses")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(chosen: Option<&str>) -> Vec<String> {
        let read = |text: &str| text.split(',').map(|one| range(one).unwrap()).collect();
        let args = LoadBalancerArgs {
            simulate_load_balancers: chosen.map(read),
        };
        args.ranges().iter().map(Block::to_string).collect()
    }

    #[test]
    fn a_family_that_is_not_named_has_the_range_for_documentation() {
        assert!(ranges(None).is_empty());
        assert_eq!(
            ranges(Some("10.7.1.2/16")),
            ["10.7.0.0/16", "2001:db8::/64"]
        );
        assert_eq!(ranges(Some("fd00::/120")), ["fd00::/120", "192.0.2.0/24"]);
        assert!(range("192.0.2.1/32").unwrap_err().contains("no address"));
        assert!(range("nonsense").unwrap_err().contains("is not a range"));
    }
}
