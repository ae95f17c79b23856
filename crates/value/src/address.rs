//! CIDR blocks and IP addresses of both families.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// A CIDR block: an address and the length of its network prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    /// The address as it was written, host bits included.
    pub ip: IpAddr,
    /// The prefix length in bits.
    pub prefix: u32,
}

impl Cidr {
    /// Parses `10.0.0.0/24`. Leading zeros are accepted, as Go's old parser did.
    pub fn parse_sloppy(text: &str) -> Option<Cidr> {
        let (ip, prefix) = text.split_once('/')?;
        let block = Cidr {
            ip: parse_sloppy(ip)?,
            prefix: prefix.parse().ok()?,
        };
        let digits = prefix.bytes().all(|byte| byte.is_ascii_digit());
        (digits && block.prefix <= block.width()).then_some(block)
    }

    /// The number of bits in an address of this family.
    pub fn width(&self) -> u32 {
        if self.ip.is_ipv4() { 32 } else { 128 }
    }

    /// The number of addresses, saturated at `u128::MAX` for `::/0`.
    pub fn size(&self) -> u128 {
        1u128
            .checked_shl(self.width() - self.prefix)
            .unwrap_or(u128::MAX)
    }

    /// The first address of the block.
    pub fn network(&self) -> IpAddr {
        let mask = u128::MAX
            .checked_shl(self.width() - self.prefix)
            .unwrap_or(0);
        self.at(number(self.ip) & mask)
    }

    /// The address at `offset` from the start of the block.
    pub fn nth(&self, offset: u128) -> IpAddr {
        self.at(number(self.network()) + offset)
    }

    /// The offset of `ip` in the block, or `None` if it is of the other family.
    pub fn offset(&self, ip: IpAddr) -> Option<u128> {
        self.contains(ip)
            .then(|| number(ip) - number(self.network()))
    }

    /// Whether `ip` is in the block.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.ip.is_ipv4() && Cidr { ip, ..*self }.network() == self.network()
    }

    /// Whether every address of `other` is in the block.
    pub fn contains_block(&self, other: &Cidr) -> bool {
        self.contains(other.ip) && self.prefix <= other.prefix
    }

    /// The `index`th sub-block of length `prefix`.
    pub fn part(&self, prefix: u32, index: u128) -> Cidr {
        let size = Cidr { prefix, ..*self }.size();
        Cidr {
            ip: self.nth(index * size),
            prefix,
        }
    }

    /// The offsets that can be assigned: without the network address and, for IPv4, the broadcast
    /// address.
    pub fn hosts(&self) -> Range<u128> {
        let end = if self.ip.is_ipv4() {
            self.size() - 1
        } else {
            self.size()
        };
        1..end.max(1)
    }

    /// Whether `ip` is in the block and can be assigned.
    pub fn gives(&self, ip: IpAddr) -> bool {
        self.offset(ip)
            .is_some_and(|offset| self.hosts().contains(&offset))
    }

    fn at(&self, number: u128) -> IpAddr {
        match self.ip {
            IpAddr::V4(_) => Ipv4Addr::from(number as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from(number).into(),
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

/// Parses an address with Go's old rules: numbers may have leading zeros.
pub fn parse_sloppy(text: &str) -> Option<IpAddr> {
    text.parse()
        .ok()
        .or_else(|| without_zeros(text).parse().ok())
}

/// The IP family, as API objects name it.
pub fn family(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// The text without the leading zeros of numbers that are longer than allowed.
fn without_zeros(text: &str) -> String {
    let is_number_end = |char: char| matches!(char, ':' | '.');
    let strip = |part: &str| {
        let end = if part.ends_with(is_number_end) {
            part.len() - 1
        } else {
            part.len()
        };
        let digits = part[..end].trim_start_matches('0');
        let zero = if end > 0 && digits.is_empty() {
            "0"
        } else {
            ""
        };
        format!("{zero}{digits}{}", &part[end..])
    };
    text.split_inclusive(is_number_end).map(strip).collect()
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

/// Whether the text is `host:port`, `[host]:port` or `:port`. Kubernetes: what Go's
/// `net.SplitHostPort` accepts; neither part is validated.
pub fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else {
        return false;
    };
    let host = match host.strip_prefix('[') {
        Some(host) => match host.split_once(']') {
            Some((host, "")) => host,
            _ => return false,
        },
        None if host.contains(':') => return false,
        None => host,
    };
    !host.contains(['[', ']']) && !port.contains(['[', ']'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_are_split_as_go_does() {
        let yes = [
            "a:1",
            "a:",
            ":1",
            ":",
            "[a]:1",
            "[::1]:80",
            "[]:1",
            "10.0.0.1:x",
        ];
        let no = [
            "", "a", "[a]", "[a:1", "a]:1", "[a]b:1", "[a]1:1", "::1", "a:b:1", "[::1]", "[a[b]:1",
            "[[a]]:1", "[a]]:1", "a[:1", "a:[1", "a:1]", "[a]:[1", "[a]:1]", "[a]::1",
        ];
        for text in yes {
            assert!(is_host_and_port(text), "{text}");
        }
        for text in no {
            assert!(!is_host_and_port(text), "{text}");
        }
    }

    fn block(text: &str) -> Cidr {
        Cidr::parse_sloppy(text).unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_block_contains_its_addresses() {
        let block = block("10.1.2.3/24");
        assert!(block.contains(ip("10.1.2.200")));
        assert!(!block.contains(ip("10.1.3.0")));
        assert!(!block.contains(ip("::1")));
        assert_eq!(
            (block.size(), block.network(), block.nth(200)),
            (256, ip("10.1.2.0"), ip("10.1.2.200"))
        );
        assert_eq!(
            (
                block.offset(ip("10.1.2.200")),
                block.offset(ip("10.1.1.200"))
            ),
            (Some(200), None)
        );
    }

    #[test]
    fn a_block_contains_smaller_ones() {
        let check = |outer: &str, inner: &str| block(outer).contains_block(&block(inner));
        assert!(
            check("10.0.0.0/8", "10.1.0.0/16")
                && check("10.0.0.0/8", "10.0.0.0/8")
                && check("::/0", "fd00::/8")
        );
        assert!(!check("10.1.0.0/16", "10.0.0.0/8") && !check("10.0.0.0/8", "11.0.0.0/16"));
        assert!(!check("::/0", "10.0.0.0/8"));
        assert_eq!(
            block("fd00::/48").part(64, 1).to_string(),
            "fd00:0:0:1::/64"
        );
    }

    #[track_caller]
    fn check(block_text: &str, n_hosts: u128, given: &[&str], kept: &[&str]) {
        let block = block(block_text);
        assert_eq!(block.hosts().end - block.hosts().start, n_hosts, "{block}");
        assert!(given.iter().all(|text| block.gives(ip(text))), "{block}");
        assert!(!kept.iter().any(|text| block.gives(ip(text))), "{block}");
    }

    #[test]
    fn network_and_broadcast_addresses_are_not_assigned() {
        check(
            "10.1.0.0/24",
            254,
            &["10.1.0.1", "10.1.0.254"],
            &["10.1.0.0", "10.1.0.255", "10.2.0.1", "fd00::1"],
        );
        check(
            "fd00::/120",
            255,
            &["fd00::1", "fd00::ff"],
            &["fd00::", "fd00::100"],
        );
        check("10.1.0.8/32", 0, &[], &["10.1.0.8"]);
        check("10.1.0.8/31", 0, &[], &["10.1.0.8", "10.1.0.9"]);
        check("fd00::8/128", 0, &[], &["fd00::8"]);
        check("::/0", u128::MAX - 1, &["::1"], &["::"]);
    }

    #[test]
    fn an_invalid_cidr_block_is_not_parsed() {
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "x/8",
            "fd00::/129",
        ] {
            assert_eq!(Cidr::parse_sloppy(text), None, "{text}");
        }
        assert_eq!(block("010.0.0.0/08").to_string(), "10.0.0.0/8");
    }
}
