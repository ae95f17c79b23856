//! May the authorities of a chain sign for the names of its certificates? Name constraints, as Go checks them
//! (crypto/x509/constraints.go).
//!
//! Addresses and DNS names are compared. A URI or an email address that an authority constrains in any way is rejected.

use std::net::IpAddr;

use mizzen_value::json;
use x509_parser::prelude::{GeneralName, GeneralSubtree, X509Certificate};

/// Checks every certificate of a chain, leaf first, against the constraints of those above it.
pub(super) fn check(chain: &[X509Certificate]) -> Result<(), String> {
    for (index, certificate) in chain.iter().enumerate() {
        let Some(names) = certificate.subject_alternative_name().ok().flatten() else {
            continue;
        };
        for parent in &chain[index + 1..] {
            let constraints = parent
                .name_constraints()
                .map_err(|error| format!("name constraints cannot be read: {error}"))?;
            let Some(constraints) = constraints else {
                continue;
            };
            let permitted = constraints.value.permitted_subtrees.as_deref();
            let excluded = constraints.value.excluded_subtrees.as_deref();
            let is_address = |name: &&GeneralName| matches!(name, GeneralName::IPAddress(_));
            // Addresses come first.
            let (addresses, others): (Vec<_>, Vec<_>) =
                names.value.general_names.iter().partition(is_address);
            for name in addresses.into_iter().chain(others) {
                check_one(
                    name,
                    permitted.unwrap_or_default(),
                    excluded.unwrap_or_default(),
                )?;
            }
        }
    }
    Ok(())
}

fn check_one(
    name: &GeneralName,
    permitted: &[GeneralSubtree],
    excluded: &[GeneralSubtree],
) -> Result<(), String> {
    let (what, shown) = match name {
        GeneralName::IPAddress(bytes) => (
            "IP address",
            address(bytes)
                .map(|address| address.to_string())
                .unwrap_or_default(),
        ),
        GeneralName::DNSName(name) => ("DNS name", (*name).to_owned()),
        GeneralName::URI(uri) => ("URI", (*uri).to_owned()),
        GeneralName::RFC822Name(address) => ("email address", (*address).to_owned()),
        _ => return Ok(()),
    };
    let shown = json::quote(&shown);
    let is_of_kind = |subtree: &&GeneralSubtree| {
        std::mem::discriminant(&subtree.base) == std::mem::discriminant(name)
    };
    let mut permitted = permitted.iter().filter(is_of_kind).peekable();
    if permitted.peek().is_some() && !permitted.any(|subtree| covers(&subtree.base, name)) {
        return Err(format!("{what} {shown} is not permitted by any constraint"));
    }
    let mut excluded = excluded.iter().filter(is_of_kind);
    match excluded.find(|subtree| excludes(&subtree.base, name)) {
        Some(subtree) => Err(format!(
            "{what} {shown} is excluded by constraint {}",
            json::quote(&shown_constraint(&subtree.base))
        )),
        None => Ok(()),
    }
}

/// Whether a name lies within a constraint.
fn covers(base: &GeneralName, name: &GeneralName) -> bool {
    match (base, name) {
        (GeneralName::DNSName(base), GeneralName::DNSName(name)) => {
            let (base, name) = (base.to_ascii_lowercase(), name.to_ascii_lowercase());
            match base.strip_prefix('.') {
                Some(_) => name.ends_with(&base),
                None => base.is_empty() || name == base || name.ends_with(&format!(".{base}")),
            }
        }
        (GeneralName::IPAddress(network), GeneralName::IPAddress(address)) => {
            network.len() == 2 * address.len()
                && network[..address.len()]
                    .iter()
                    .zip(&network[address.len()..])
                    .zip(*address)
                    .all(|((network, mask), byte)| network & mask == byte & mask)
        }
        _ => false,
    }
}

/// Whether a constraint excludes a name, or something that a wildcard stands for.
fn excludes(base: &GeneralName, name: &GeneralName) -> bool {
    let is_below_wildcard = match (base, name) {
        (GeneralName::DNSName(base), GeneralName::DNSName(name)) => {
            let parent = base.split_once('.').map(|(_, parent)| parent);
            let rest = name.strip_prefix("*.");
            rest.is_some_and(|rest| parent.is_some_and(|parent| rest.eq_ignore_ascii_case(parent)))
        }
        (GeneralName::IPAddress(_), _) => false,
        // What is not compared is excluded.
        _ => true,
    };
    is_below_wildcard || covers(base, name)
}

fn shown_constraint(base: &GeneralName) -> String {
    match base {
        GeneralName::DNSName(text) | GeneralName::URI(text) | GeneralName::RFC822Name(text) => {
            (*text).to_owned()
        }
        GeneralName::IPAddress(bytes) => {
            let (network, mask) = bytes.split_at(bytes.len() / 2);
            let n_bits: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
            let network = address(network).map(|address| address.to_string());
            format!("{}/{n_bits}", network.unwrap_or_default())
        }
        _ => String::new(),
    }
}

/// The address that four or sixteen bytes are.
pub(super) fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}
