//! Validation of IP addresses and CIDR blocks.
//!
//! Kubernetes: legacy fields once accepted leading zeros and IPv4-mapped IPv6 addresses. Such
//! values are now rejected unless they were stored before, but the message depends on whether the
//! old parser accepts them.

use std::net::IpAddr;

pub use crate::address::{Cidr, parse_sloppy};

/// Validates an address in canonical form.
pub fn is_ip(text: &str) -> Vec<String> {
    let Some(ip) = parse_sloppy(text) else {
        return vec![NO_IP.into()];
    };
    let wrong = strict(text, ip);
    match wrong.is_empty() && text != canonical(ip) {
        true => vec![format!("must be in canonical form (\"{}\")", canonical(ip))],
        false => wrong,
    }
}

/// Validates an address of a legacy field: any unambiguous form.
pub fn is_ip_for_legacy_field(text: &str) -> Vec<String> {
    match parse_sloppy(text) {
        Some(ip) => strict(text, ip),
        None => vec![NO_IP.into()],
    }
}

/// The warning for a legacy field's address that is not in canonical form.
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

/// Validates a CIDR block in canonical form.
pub fn is_cidr(text: &str) -> Vec<String> {
    let Some(block) = Cidr::parse_sloppy(text) else {
        return vec![NO_CIDR.into()];
    };
    let wrong = block.strict(text);
    match wrong.is_empty() && text != block.canonical() {
        true => vec![format!(
            "must be in canonical form (\"{}\")",
            block.canonical()
        )],
        false => wrong,
    }
}

/// Validates a CIDR block of a legacy field.
pub fn is_cidr_for_legacy_field(text: &str) -> Vec<String> {
    match Cidr::parse_sloppy(text) {
        Some(block) => block.strict(text),
        None => vec![NO_CIDR.into()],
    }
}

/// The warnings for a legacy field's CIDR block that is not in canonical form.
pub fn cidr_warnings(path: impl std::fmt::Display, text: &str) -> Vec<String> {
    let Some(block) = Cidr::parse_sloppy(text) else {
        return Vec::new();
    };
    let mut warnings = Vec::new();
    let better = block.canonical();
    if block.network() != block.ip {
        let single = format!("{}/{}", canonical(block.ip), block.width());
        warnings.push(format!(
            "{path}: CIDR value \"{text}\" is ambiguous in this context (should be \"{better}\" or \"{single}\"?)"
        ));
    }
    if block.is_odd(text) {
        warnings.push(format!(
            "{path}: non-standard CIDR value \"{text}\" is invalid: use \"{better}\""
        ));
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

impl Cidr {
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
    fn a_legacy_field_accepts_any_unambiguous_form() {
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
                (
                    "10.0.0.1/24",
                    "must not have bits set beyond the prefix length",
                ),
                (
                    "10.0.0.0/08",
                    "must not have leading 0s in IP or prefix length",
                ),
                ("10.0.0.0/33", NO_CIDR),
                ("10.0.0.0", NO_CIDR),
            ],
        );
    }

    #[test]
    fn a_new_field_accepts_only_the_canonical_form() {
        check(
            is_ip,
            &[
                ("FE80::1", "must be in canonical form (\"fe80::1\")"),
                ("::1", ""),
                ("0.0.0.0", ""),
            ],
        );
        check(
            is_cidr,
            &[
                ("FE80::/10", "must be in canonical form (\"fe80::/10\")"),
                ("0.0.0.0/0", ""),
            ],
        );
    }
}
