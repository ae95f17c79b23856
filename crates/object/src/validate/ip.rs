//! Is it an address, or a block of them?
//!
//! Kubernetes: old fields once took addresses with leading zeros and IPv4 in IPv6 clothes. Such values are refused
//! now unless they were stored before, but the reason given depends on whether the old parser took them.

use std::net::{IpAddr, Ipv6Addr};

/// An address in the one way to write it.
pub fn is_ip(text: &str) -> Vec<String> {
    let Some(ip) = parse_sloppy(text) else { return vec![NO_IP.into()] };
    let wrong = strict(text, ip);
    match wrong.is_empty() && text != canonical(ip) {
        true => vec![format!("must be in canonical form (\"{}\")", canonical(ip))],
        false => wrong,
    }
}

/// An address in a field that is older than the strict rules: any way to write it that is not ambiguous.
pub fn is_ip_for_legacy_field(text: &str) -> Vec<String> {
    match parse_sloppy(text) {
        Some(ip) => strict(text, ip),
        None => vec![NO_IP.into()],
    }
}

/// What to tell someone who writes an old field's address in an odd way.
pub fn ip_warning(path: impl std::fmt::Display, text: &str) -> Option<String> {
    let ip = parse_sloppy(text)?;
    if !strict(text, ip).is_empty() {
        return Some(format!(
            "{path}: non-standard IP address \"{text}\" is invalid: use \"{}\"",
            canonical(ip)
        ));
    }
    (ip.is_ipv6() && canonical(ip) != text).then(|| {
        format!(
            "{path}: IPv6 address \"{text}\" should be in RFC 5952 canonical format (\"{}\")",
            canonical(ip)
        )
    })
}

/// A block of addresses in the one way to write it.
pub fn is_cidr(text: &str) -> Vec<String> {
    let Some(block) = Block::parse_sloppy(text) else { return vec![NO_CIDR.into()] };
    let wrong = block.strict(text);
    match wrong.is_empty() && text != block.canonical() {
        true => vec![format!("must be in canonical form (\"{}\")", block.canonical())],
        false => wrong,
    }
}

/// A block of addresses in a field that is older than the strict rules.
pub fn is_cidr_for_legacy_field(text: &str) -> Vec<String> {
    match Block::parse_sloppy(text) {
        Some(block) => block.strict(text),
        None => vec![NO_CIDR.into()],
    }
}

/// What to tell someone who writes an old field's block in an odd way.
pub fn cidr_warnings(path: impl std::fmt::Display, text: &str) -> Vec<String> {
    let Some(block) = Block::parse_sloppy(text) else { return Vec::new() };
    let mut warnings = Vec::new();
    let better = block.canonical();
    if block.network() != block.ip {
        let single = format!("{}/{}", canonical(block.ip), block.width());
        warnings.push(format!(
            "{path}: CIDR value \"{text}\" is ambiguous in this context (should be \"{better}\" or \"{single}\"?)"
        ));
    }
    if block.is_odd(text) {
        warnings.push(format!("{path}: non-standard CIDR value \"{text}\" is invalid: use \"{better}\""));
    }
    if warnings.is_empty() && block.ip.is_ipv6() && better != text {
        warnings.push(format!(
            "{path}: IPv6 CIDR value \"{text}\" should be in RFC 5952 canonical format (\"{better}\")"
        ));
    }
    warnings
}

const NO_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const NO_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// Reads an address as Go once did: numbers may have leading zeros.
pub fn parse_sloppy(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| without_zeros(text).parse().ok())
}

/// The text with every number that is longer than it may be stripped of its leading zeros.
fn without_zeros(text: &str) -> String {
    let is_number_end = |char: char| matches!(char, ':' | '.');
    let strip = |part: &str| {
        let end = if part.ends_with(is_number_end) { part.len() - 1 } else { part.len() };
        let digits = part[..end].trim_start_matches('0');
        let zero = if end > 0 && digits.is_empty() { "0" } else { "" };
        format!("{zero}{digits}{}", &part[end..])
    };
    text.split_inclusive(is_number_end).map(strip).collect()
}

fn strict(text: &str, ip: IpAddr) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.parse::<IpAddr>().is_err() {
        wrong.push("must not have leading 0s".into());
    } else if mapped(ip).is_some() {
        wrong.push("must not be an IPv4-mapped IPv6 address".into());
    }
    wrong
}

fn mapped(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V6(ip) => ip.to_ipv4_mapped().map(IpAddr::V4),
        IpAddr::V4(_) => None,
    }
}

fn canonical(ip: IpAddr) -> String {
    mapped(ip).unwrap_or(ip).to_string()
}

/// An address and how many of its bits name the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The address as it was written.
    pub ip: IpAddr,
    /// The length of the network's part, in bits.
    pub prefix: u32,
}

impl Block {
    /// Reads `10.0.0.0/24`, with leading zeros where Go once took them.
    pub fn parse_sloppy(text: &str) -> Option<Block> {
        let (ip, prefix) = text.split_once('/')?;
        let block = Block { ip: parse_sloppy(ip)?, prefix: prefix.parse().ok()? };
        let digits = prefix.bytes().all(|byte| byte.is_ascii_digit());
        (digits && block.prefix <= block.width()).then_some(block)
    }

    /// The first address of the block.
    pub fn network(&self) -> IpAddr {
        let mask = u128::MAX.checked_shl(self.width() - self.prefix).unwrap_or(0);
        match self.ip {
            IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) & mask as u32).into()),
            IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from(u128::from(ip) & mask)),
        }
    }

    /// Whether `ip` is in the block.
    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.ip.is_ipv4() && Block { ip, ..*self }.network() == self.network()
    }

    fn width(&self) -> u32 {
        if self.ip.is_ipv4() { 32 } else { 128 }
    }

    fn canonical(&self) -> String {
        format!("{}/{}", canonical(self.network()), self.prefix)
    }

    fn has_leading_zeros(&self, text: &str) -> bool {
        let (ip, prefix) = text.split_once('/').unwrap_or((text, ""));
        ip.parse::<IpAddr>().is_err() || prefix.len() > 1 && prefix.starts_with('0')
    }

    fn is_odd(&self, text: &str) -> bool {
        self.has_leading_zeros(text) || mapped(self.ip).is_some()
    }

    fn strict(&self, text: &str) -> Vec<String> {
        let message = if self.has_leading_zeros(text) {
            "must not have leading 0s in IP or prefix length"
        } else if mapped(self.ip).is_some() {
            "must not have an IPv4-mapped IPv6 address"
        } else if self.network() != self.ip {
            "must not have bits set beyond the prefix length"
        } else {
            return Vec::new();
        };
        vec![message.into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(is: fn(&str) -> Vec<String>, cases: &[(&str, &str)]) {
        for (text, expected) in cases {
            assert_eq!(is(text).join("; "), *expected, "{text:?}");
        }
    }

    #[test]
    fn an_old_field_takes_any_spelling_but_ambiguous_ones() {
        check(
            is_ip_for_legacy_field,
            &[
                ("10.0.0.1", ""),
                ("FE80::0abc", ""),
                ("010.0.0.1", "must not have leading 0s"),
                ("::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
                ("1.2.3", NO_IP),
                ("", NO_IP),
            ],
        );
        check(
            is_cidr_for_legacy_field,
            &[
                ("10.0.0.0/24", ""),
                ("2001:DB8::/64", ""),
                ("10.0.0.1/24", "must not have bits set beyond the prefix length"),
                ("10.0.0.0/08", "must not have leading 0s in IP or prefix length"),
                ("10.0.0.0/33", NO_CIDR),
                ("10.0.0.0", NO_CIDR),
            ],
        );
    }

    #[test]
    fn a_new_field_takes_only_the_canonical_spelling() {
        check(is_ip, &[("FE80::1", "must be in canonical form (\"fe80::1\")"), ("::1", ""), ("0.0.0.0", "")]);
        check(is_cidr, &[("FE80::/10", "must be in canonical form (\"fe80::/10\")"), ("0.0.0.0/0", "")]);
    }

    #[test]
    fn a_block_contains_its_addresses() {
        let block = Block::parse_sloppy("10.1.2.3/24").unwrap();
        assert!(block.contains("10.1.2.200".parse().unwrap()));
        assert!(!block.contains("10.1.3.0".parse().unwrap()));
        assert!(!block.contains("::1".parse().unwrap()));
    }
}
