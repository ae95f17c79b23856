//! `--simulate-load-balancers`: the addresses of Services of type LoadBalancer.

use clap::Args;
use mizzen_value::address::Cidr;

/// Documentation ranges, which are never routed (RFC 5737, RFC 3849).
const DOCUMENTATION: [&str; 2] = ["192.0.2.0/24", "2001:db8::/64"];

/// The argument of the simulated cloud.
#[derive(Args)]
pub(super) struct LoadBalancerArgs {
    /// Allocate addresses for Services of type LoadBalancer, as the service controller of a cloud does; nothing listens at
    /// them. One range per IP family [default: off; without a value: 192.0.2.0/24,2001:db8::/64]
    #[arg(long, value_name = "RANGE,…", num_args = 0..=1, require_equals = true, value_delimiter = ',',
        default_missing_values = DOCUMENTATION, value_parser = parse_range)]
    simulate_load_balancers: Option<Vec<Cidr>>,
}

impl LoadBalancerArgs {
    /// The ranges, one per IP family; none if load balancers are not simulated.
    pub(super) fn ranges(&self) -> Vec<Cidr> {
        let Some(given) = &self.simulate_load_balancers else {
            return Vec::new();
        };
        let documentation = DOCUMENTATION
            .iter()
            .filter_map(|text| Cidr::parse_sloppy(text));
        let mut ranges: Vec<Cidr> = Vec::new();
        for range in given.iter().copied().chain(documentation) {
            if !ranges.iter().any(|known| known.width() == range.width()) {
                ranges.push(range);
            }
        }
        ranges
    }
}

/// Parses a range with at least one host address.
fn parse_range(text: &str) -> Result<Cidr, String> {
    match Cidr::parse_sloppy(text) {
        Some(block) if block.hosts().is_empty() => Err(format!("{text} has no host address")),
        Some(block) => Ok(Cidr {
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
        let read = |text: &str| {
            text.split(',')
                .map(|one| parse_range(one).unwrap())
                .collect()
        };
        let args = LoadBalancerArgs {
            simulate_load_balancers: chosen.map(read),
        };
        args.ranges().iter().map(Cidr::to_string).collect()
    }

    #[test]
    fn an_ip_family_without_a_range_has_the_documentation_range() {
        assert!(ranges(None).is_empty());
        assert_eq!(
            ranges(Some("10.7.1.2/16")),
            ["10.7.0.0/16", "2001:db8::/64"]
        );
        assert_eq!(ranges(Some("fd00::/120")), ["fd00::/120", "192.0.2.0/24"]);
        assert!(
            parse_range("192.0.2.1/32")
                .unwrap_err()
                .contains("no host address")
        );
        assert!(
            parse_range("nonsense")
                .unwrap_err()
                .contains("is not a range")
        );
    }
}
