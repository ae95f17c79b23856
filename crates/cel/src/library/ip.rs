//! Parsing and classification of IP addresses and CIDR blocks, with the errors of Go's `net/netip`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mizzen_value::address::Cidr;
use mizzen_value::json::quote;

/// Parses an address without a zone that is not IPv4-mapped IPv6.
pub(super) fn parse(text: &str) -> Result<IpAddr, String> {
    let (address, zone) = parse_address(text).map_err(|error| {
        format!(
            "IP Address {} parse error during conversion from string: {error}",
            quote(text)
        )
    })?;
    if zone.is_some() {
        return Err(format!(
            "IP address {} with zone value is not allowed",
            quote(text)
        ));
    }
    refuse_mapped(text, address)
}

/// Parses a CIDR block; host bits are kept.
pub(super) fn parse_block(text: &str) -> Result<Cidr, String> {
    let block = read_block(text).map_err(|error| {
        let error = format!("netip.ParsePrefix({}): {error}", quote(text));
        format!("network address parse error during conversion from string: {error}")
    })?;
    refuse_mapped(text, block.ip)?;
    Ok(block)
}

fn refuse_mapped(text: &str, address: IpAddr) -> Result<IpAddr, String> {
    match address {
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => Err(format!(
            "IPv4-mapped IPv6 address {} is not allowed",
            quote(text)
        )),
        address => Ok(address),
    }
}

fn read_block(text: &str) -> Result<Cidr, String> {
    let (address, bits) = text.rsplit_once('/').ok_or("no '/'")?;
    let (ip, zone) = parse_address(address)?;
    if zone.is_some() {
        return Err("IPv6 zones cannot be present in a prefix".into());
    }
    let is_number = !bits.is_empty() && bits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || bits.len() > 1 && bits.starts_with('0') || bits.len() > 18 {
        return Err(format!("bad bits after slash: {}", quote(bits)));
    }
    let block = |prefix| Cidr { ip, prefix };
    match bits
        .parse()
        .map(block)
        .ok()
        .filter(|block| block.prefix <= block.width())
    {
        Some(block) => Ok(block),
        None => Err("prefix length out of range".into()),
    }
}

pub(super) fn parse_address(text: &str) -> Result<(IpAddr, Option<&str>), String> {
    let outcome = match text.bytes().find(|byte| b".:%".contains(byte)) {
        Some(b'.') => read_v4(text).map(|address| (IpAddr::V4(address), None)),
        Some(b':') => read_v6(text).map(|(address, zone)| (IpAddr::V6(address), zone)),
        Some(_) => Err("missing IPv6 address".into()),
        None => Err("unable to parse IP".into()),
    };
    outcome.map_err(|error: String| format!("ParseAddr({}): {error}", quote(text)))
}

fn at(error: &str, rest: &str) -> String {
    if rest.is_empty() {
        error.into()
    } else {
        format!("{error} (at {})", quote(rest))
    }
}

fn read_v4(text: &str) -> Result<Ipv4Addr, String> {
    let mut octets = [0u8; 4];
    let (mut value, mut n_digits, mut n_octets) = (0u32, 0, 0);
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if n_digits == 1 && value == 0 {
                    return Err("IPv4 field has octet with leading zero".into());
                }
                value = value * 10 + u32::from(byte - b'0');
                n_digits += 1;
                if value > 255 {
                    return Err("IPv4 field has value >255".into());
                }
            }
            b'.' if n_digits == 0 || index + 1 == text.len() => {
                return Err(at(
                    "IPv4 field must have at least one digit",
                    &text[index..],
                ));
            }
            b'.' if n_octets == 3 => return Err("IPv4 address too long".into()),
            b'.' => {
                octets[n_octets] = value as u8;
                n_octets += 1;
                (value, n_digits) = (0, 0);
            }
            _ => return Err(at("unexpected character", &text[index..])),
        }
    }
    if n_octets < 3 {
        return Err("IPv4 address too short".into());
    }
    octets[3] = value as u8;
    Ok(octets.into())
}

fn read_v6(text: &str) -> Result<(Ipv6Addr, Option<&str>), String> {
    let (text, zone) = text
        .split_once('%')
        .map_or((text, None), |(text, zone)| (text, Some(zone)));
    if zone == Some("") {
        return Err("zone must be a non-empty string".into());
    }
    let mut groups = Groups::default();
    let mut rest = text;
    if let Some(after) = text.strip_prefix("::") {
        groups.ellipsis = Some(0);
        rest = after;
    }
    while !rest.is_empty() && groups.found.len() < 8 {
        rest = groups.read(rest)?;
    }
    match rest {
        "" => Ok((groups.expand()?, zone)),
        garbage => Err(at("trailing garbage after address", garbage)),
    }
}

/// The groups of an IPv6 address, and the position of `::` among them.
#[derive(Default)]
struct Groups {
    found: Vec<u16>,
    ellipsis: Option<usize>,
}

impl Groups {
    /// Parses a group and the colon after it; returns the rest.
    fn read<'a>(&mut self, rest: &'a str) -> Result<&'a str, String> {
        let end = rest
            .bytes()
            .position(|byte| !byte.is_ascii_hexdigit())
            .unwrap_or(rest.len());
        if end > 4 {
            return Err(at("each group must have 4 or less digits", rest));
        }
        if end == 0 {
            return Err(at(
                "each colon-separated field must have at least one digit",
                rest,
            ));
        }
        if rest[end..].starts_with('.') {
            return self.read_v4(rest).map(|()| "");
        }
        self.found
            .push(u16::from_str_radix(&rest[..end], 16).unwrap_or_default());
        self.read_colon(&rest[end..])
    }

    fn read_v4(&mut self, rest: &str) -> Result<(), String> {
        if self.ellipsis.is_none() && self.found.len() != 6 {
            return Err(at(
                "embedded IPv4 address must replace the final 2 fields of the address",
                rest,
            ));
        }
        if self.found.len() > 6 {
            return Err(at(
                "too many hex fields to fit an embedded IPv4 at the end of the address",
                rest,
            ));
        }
        let [a, b, c, d] = read_v4(rest)?.octets();
        self.found
            .extend([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]);
        Ok(())
    }

    fn read_colon<'a>(&mut self, rest: &'a str) -> Result<&'a str, String> {
        if rest.is_empty() {
            return Ok(rest);
        }
        let after = rest
            .strip_prefix(':')
            .ok_or_else(|| at("unexpected character, want colon", rest))?;
        if after.is_empty() {
            return Err(at("colon must be followed by more characters", rest));
        }
        let Some(tail) = after.strip_prefix(':') else {
            return Ok(after);
        };
        if self.ellipsis.is_some() {
            return Err(at("multiple :: in address", after));
        }
        self.ellipsis = Some(self.found.len());
        Ok(tail)
    }

    fn expand(mut self) -> Result<Ipv6Addr, String> {
        match (self.ellipsis, self.found.len()) {
            (None, ..8) => return Err("address string too short".into()),
            (Some(_), 8..) => {
                return Err("the :: must expand to at least one field of zeros".into());
            }
            (Some(index), n_found) => drop(self.found.splice(index..index, vec![0; 8 - n_found])),
            (None, 8..) => {}
        }
        let groups: [u16; 8] = self.found.try_into().expect("there are eight groups");
        Ok(groups.into())
    }
}

pub(super) fn is_link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    }
}

pub(super) fn is_link_local_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Whether it is a global unicast address; private ones are.
pub(super) fn is_global_unicast(ip: IpAddr) -> bool {
    let is_odd =
        ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_link_local_unicast(ip);
    !is_odd && ip != IpAddr::V4(Ipv4Addr::BROADCAST)
}
