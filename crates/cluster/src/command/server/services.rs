//! The addresses and node ports of Services.

use std::ops::RangeInclusive;

use clap::Args;
use mizzen_value::address::Cidr;

use crate::compose::ComposeError;

/// The minimum size of the first range.
const MIN_SIZE: u128 = 8;
/// The minimum prefix of an IPv6 range.
const MIN_V6_PREFIX: u32 = 64;

/// The arguments of services.
#[derive(Args, Clone)]
pub(crate) struct ServiceArgs {
    /// Allocate cluster IPs from this range, or from two of different IP families; the first is the default
    #[arg(
        long,
        value_name = "RANGES",
        value_delimiter = ',',
        default_value = "10.0.0.0/24"
    )]
    service_cluster_ip_range: Vec<String>,
    /// Allocate node ports from this range, inclusive: FROM-TO or FROM+COUNT
    #[arg(long, value_name = "RANGE", default_value = "30000-32767", value_parser = port_range)]
    service_node_port_range: RangeInclusive<u16>,
    /// Create default/kubernetes with type NodePort and this node port; 0 creates it with type ClusterIP
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    kubernetes_service_node_port: u16,
}

impl ServiceArgs {
    /// The node ports of services.
    pub(crate) fn node_ports(&self) -> RangeInclusive<u16> {
        self.service_node_port_range.clone()
    }

    /// The node port of default/kubernetes, if it has one.
    pub(crate) fn kubernetes_node_port(&self) -> Result<Option<u16>, ComposeError> {
        let (port, range) = (
            self.kubernetes_service_node_port,
            &self.service_node_port_range,
        );
        if port > 0 && !range.contains(&port) {
            let (from, to) = (range.start(), range.end());
            let why =
                format!("kubernetes service node port range {from}-{to} doesn't contain {port}");
            return Err(ComposeError::Configuration {
                file: "--kubernetes-service-node-port".into(),
                why,
            });
        }
        Ok((port > 0).then_some(port))
    }

    /// The ranges, one per IP family.
    pub(crate) fn ranges(&self) -> Result<Vec<Cidr>, ComposeError> {
        parse_ranges(&self.service_cluster_ip_range).map_err(|why| ComposeError::Configuration {
            file: "--service-cluster-ip-range".into(),
            why,
        })
    }
}

/// Parses `FROM-TO`, `FROM+COUNT` or one port. Kubernetes: apimachinery/pkg/util/net/port_range.go.
fn port_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let number = |part: &str| {
        part.trim()
            .parse::<u16>()
            .map_err(|_| format!("{part:?} is not a port"))
    };
    let (from, to) = match (text.split_once('-'), text.split_once('+')) {
        (Some((from, to)), _) => (number(from)?, number(to)?),
        (None, Some((from, more))) => {
            let from = number(from)?;
            (
                from,
                from.checked_add(number(more)?)
                    .ok_or("the range exceeds 65535")?,
            )
        }
        (None, None) => (number(text)?, number(text)?),
    };
    match from {
        0 => Err("the range must not begin with 0".into()),
        _ if to < from => Err("end port cannot be less than start port".into()),
        _ => Ok(from..=to),
    }
}

/// Parses and validates the ranges.
fn parse_ranges(texts: &[String]) -> Result<Vec<Cidr>, String> {
    let read = |text: &String| {
        let block = Cidr::parse_sloppy(text)
            .ok_or_else(|| format!("{text:?} is not a range of addresses"))?;
        Ok(Cidr {
            ip: block.network(),
            ..block
        })
    };
    let ranges: Vec<Cidr> = texts.iter().map(read).collect::<Result<_, String>>()?;
    match ranges[..] {
        [first] | [first, _] if first.size() < MIN_SIZE => {
            return Err(format!("{first} must have at least {MIN_SIZE} addresses"));
        }
        [first, second] if first.width() == second.width() => {
            return Err(format!(
                "{first} and {second} must be of different families"
            ));
        }
        [_] | [_, _] => {}
        _ => return Err("there must be one range or two".into()),
    }
    match ranges
        .iter()
        .find(|range| range.ip.is_ipv6() && range.prefix < MIN_V6_PREFIX)
    {
        Some(large) => Err(format!(
            "{large} is too large: the prefix must have at least {MIN_V6_PREFIX} bits"
        )),
        None => Ok(ranges),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(texts: &str, expected: &str) {
        let texts: Vec<String> = texts.split(',').map(String::from).collect();
        let shown = |ranges: Vec<Cidr>| {
            ranges
                .iter()
                .map(Cidr::to_string)
                .collect::<Vec<_>>()
                .join(",")
        };
        assert_eq!(parse_ranges(&texts).map_or_else(|why| why, shown), expected);
    }

    #[test]
    fn node_ports_are_a_range() {
        assert_eq!(port_range("20000-22767"), Ok(20_000..=22_767));
        assert_eq!(port_range("20000+10"), Ok(20_000..=20_010));
        assert_eq!(port_range("20000"), Ok(20_000..=20_000));
        for text in ["", "a-b", "0-10", "20-10", "65000+1000", "1-70000"] {
            assert!(port_range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn there_is_one_range_or_one_of_each_family() {
        check("10.96.0.7/12", "10.96.0.0/12");
        check("fd00::/108,10.0.0.0/16", "fd00::/108,10.0.0.0/16");
        check("nonsense", "\"nonsense\" is not a range of addresses");
        check(
            "10.0.0.0/24,10.1.0.0/24",
            "10.0.0.0/24 and 10.1.0.0/24 must be of different families",
        );
        check(
            "10.0.0.0/24,fd00::/64,fd01::/64",
            "there must be one range or two",
        );
        check("10.0.0.0/30", "10.0.0.0/30 must have at least 8 addresses");
        check(
            "10.0.0.0/24,fd00::/63",
            "fd00::/63 is too large: the prefix must have at least 64 bits",
        );
    }
}
