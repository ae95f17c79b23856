//! Checks of fields that several kinds have: ports, addresses, names.

use std::net::IpAddr;

use mizzen_object::validate::{field, ip, names};
use mizzen_object::{Path, Violations};
use mizzen_value::Value;

/// The protocols of a port.
pub const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// A port by its number or by its name.
pub fn port_number_or_name(port: &Value, path: &Path, violations: &mut Violations) {
    match port.as_str() {
        Some(name) => field::all(names::is_port_name(name), name, path, violations),
        None => field::all(
            names::is_port_number(port.int()),
            port.int(),
            path,
            violations,
        ),
    }
}

/// The protocol of a port.
pub fn protocol(protocol: &str, path: &Path, violations: &mut Violations) {
    if protocol.is_empty() {
        violations.required(path, "");
    } else {
        field::one_of(protocol, PROTOCOLS, path, violations);
    }
}

/// A name that must be a DNS label.
pub fn dns_label(name: &str, path: &Path, violations: &mut Violations) {
    field::all(names::is_dns1123_label(name), name, path, violations);
}

/// A name that must be a DNS subdomain.
pub fn dns_subdomain(name: &str, path: &Path, violations: &mut Violations) {
    field::all(names::is_dns1123_subdomain(name), name, path, violations);
}

/// A name with an optional prefix.
pub fn qualified_name(name: &str, path: &Path, violations: &mut Violations) {
    field::all(names::is_qualified_name(name), name, path, violations);
}

/// An address of an old field. Those that are `known`, because they are stored already, pass. Answers whether
/// it is fine.
pub fn legacy_ip(ip: &str, known: &Value, path: &Path, violations: &mut Violations) -> bool {
    if known.items().any(|known| known.str() == ip) {
        return true;
    }
    let wrong = ip::is_ip_for_legacy_field(ip);
    let fine = wrong.is_empty();
    field::all(wrong, ip, path, violations);
    fine
}

/// An address that traffic can be sent to.
pub fn endpoint_ip(text: &str, path: &Path, violations: &mut Violations) {
    let Some(ip) = ip::parse_sloppy(text) else {
        return violations.invalid(path, text, "must be a valid IP address");
    };
    if ip.is_unspecified() {
        violations.invalid(path, text, &format!("may not be unspecified ({text})"));
    }
    if ip.is_loopback() {
        violations.invalid(
            path,
            text,
            "may not be in the loopback range (127.0.0.0/8, ::1/128)",
        );
    }
    if is_link_local(ip) {
        violations.invalid(
            path,
            text,
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        );
    }

    let is_link_local_multicast = match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    };
    if is_link_local_multicast {
        violations.invalid(
            path,
            text,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        );
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    }
}
