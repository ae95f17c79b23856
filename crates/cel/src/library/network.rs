//! The IP and CIDR libraries.

use std::net::IpAddr;

use super::ip::{
    is_global_unicast, is_link_local_multicast, is_link_local_unicast, parse, parse_block,
};
use super::{cost, opaque, text};
use crate::{
    AstNode, CallEstimate, CostRange, EvalError, Library, Opaque, Outcome, Sizing, TRAVERSAL, Type,
    Value, scale,
};
use mizzen_value::address::Cidr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IpVal(pub IpAddr);

impl Opaque for IpVal {
    fn type_name(&self) -> &str {
        "net.IP"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.downcast() == Some(self)
    }

    fn size(&self) -> Option<u64> {
        Some(if self.0.is_ipv4() { 4 } else { 16 })
    }

    fn text(&self) -> Option<String> {
        Some(self.0.to_string())
    }
}

/// A CIDR block. Blocks with different host bits are not equal.
impl Opaque for Cidr {
    fn type_name(&self) -> &str {
        "net.CIDR"
    }

    fn equals(&self, other: &dyn Opaque) -> bool {
        other.downcast() == Some(self)
    }

    fn size(&self) -> Option<u64> {
        Some(u64::from(self.prefix.div_ceil(8)))
    }

    fn text(&self) -> Option<String> {
        Some(self.to_string())
    }
}

/// The functions of `ip(…)`.
pub(super) fn ip_library() -> Library {
    use Type::{Bool, Int, String};
    let ip = || Type::opaque("net.IP");
    let functions = functions! {
        "ip" {
            global "string_to_ip" (String) -> ip() =>
                |_, it| parse(text(it, 0)?).map(|ip| Value::opaque(IpVal(ip))).map_err(EvalError::new),
                costs cost::traverse, cost::estimate_traverse;
        }
        "isIP" {
            global "is_ip" (String) -> Bool => |_, it| Ok(parse(text(it, 0)?).is_ok().into()),
                costs cost::traverse, cost::estimate_traverse;
        }
        "ip.isCanonical" {
            global "ip_is_canonical" (String) -> Bool => |_, it| {
                    let text = text(it, 0)?;
                    Ok((parse(text).map_err(EvalError::new)?.to_string() == text).into())
                },
                costs cost::traverse_twice, cost::estimate_traverse_twice;
        }
        "family" {
            member "ip_family" (ip()) -> Int =>
                |_, it| Ok(Value::Int(if address(it)?.is_ipv4() { 4 } else { 6 }));
        }
        "isUnspecified" {
            member "ip_is_unspecified" (ip()) -> Bool => |_, it| classify(it, |ip| ip.is_unspecified());
        }
        "isLoopback" { member "ip_is_loopback" (ip()) -> Bool => |_, it| classify(it, |ip| ip.is_loopback()); }
        "isLinkLocalMulticast" {
            member "ip_is_link_local_multicast" (ip()) -> Bool => |_, it| classify(it, is_link_local_multicast);
        }
        "isLinkLocalUnicast" {
            member "ip_is_link_local_unicast" (ip()) -> Bool => |_, it| classify(it, is_link_local_unicast);
        }
        "isGlobalUnicast" {
            member "ip_is_global_unicast" (ip()) -> Bool => |_, it| classify(it, is_global_unicast);
        }
        "string" { global "ip_to_string" (ip()) -> String => |_, it| Ok(address(it)?.to_string().into()); }
    };
    Library::new("kubernetes.net.ip", (1, 30), functions).with_types(vec![ip()])
}

/// The functions of `cidr(…)`.
pub(super) fn cidr_library() -> Library {
    use Type::{Bool, Int, String};
    let (cidr, ip) = (|| Type::opaque("net.CIDR"), || Type::opaque("net.IP"));
    let functions = functions! {
        "cidr" {
            global "string_to_cidr" (String) -> cidr() => |_, it| read_block(text(it, 0)?).map(Value::opaque),
                costs cost::traverse, cost::estimate_traverse;
        }
        "isCIDR" {
            global "is_cidr" (String) -> Bool => |_, it| Ok(parse_block(text(it, 0)?).is_ok().into()),
                costs cost::traverse, cost::estimate_traverse;
        }
        "containsIP" {
            member "cidr_contains_ip_string" (cidr(), String) -> Bool =>
                // Kubernetes: a string that is not an address has no error of its own (library/cidr.go).
                |_, it| {
                    let ip = parse(text(it, 1)?).map_err(|_| EvalError::no_such_overload())?;
                    Ok(block(it, 0)?.contains(ip).into())
                },
                costs |it, result| cost_ip(it, result) + scale(it[1].size(), TRAVERSAL),
                |sizing, target, it| with_text(estimate_ip(sizing, target, it)?, sizing, it);
            member "cidr_contains_ip_ip" (cidr(), ip()) -> Bool =>
                |_, it| Ok(block(it, 0)?.contains(opaque::<IpVal>(it, 1)?.0).into()), costs cost_ip, estimate_ip;
        }
        "containsCIDR" {
            member "cidr_contains_cidr_string" (cidr(), String) -> Bool =>
                |_, it| Ok(block(it, 0)?.contains_block(&read_block(text(it, 1)?)?).into()),
                costs |it, result| cost_cidr(it, result) + scale(it[1].size(), TRAVERSAL),
                |sizing, target, it| with_text(estimate_cidr(sizing, target, it)?, sizing, it);
            member "cidr_contains_cidr" (cidr(), cidr()) -> Bool =>
                |_, it| Ok(block(it, 0)?.contains_block(block(it, 1)?).into()),
                costs cost_cidr, estimate_cidr;
        }
        "ip" { member "cidr_ip" (cidr()) -> ip() => |_, it| Ok(Value::opaque(IpVal(block(it, 0)?.ip))); }
        "prefixLength" {
            member "cidr_prefix_length" (cidr()) -> Int =>
                |_, it| Ok(Value::Int(block(it, 0)?.prefix.into()));
        }
        "masked" { member "cidr_masked" (cidr()) -> cidr() => |_, it| {
                let block = block(it, 0)?;
                Ok(Value::opaque(Cidr { ip: block.network(), ..*block }))
            };
        }
        "string" {
            global "cidr_to_string" (cidr()) -> String =>
                |_, it| Ok(block(it, 0)?.to_string().into());
        }
    };
    Library::new("kubernetes.net.cidr", (1, 30), functions).with_types(vec![cidr()])
}

fn classify<'a>(arguments: &[Value<'a>], kind: fn(IpAddr) -> bool) -> Outcome<'a> {
    Ok(kind(address(arguments)?).into())
}

fn address(arguments: &[Value]) -> Result<IpAddr, EvalError> {
    opaque::<IpVal>(arguments, 0).map(|address| address.0)
}

fn block<'v>(arguments: &'v [Value], index: usize) -> Result<&'v Cidr, EvalError> {
    opaque(arguments, index)
}

/// Kubernetes: the message starts twice (library/cidr.go).
fn read_block(text: &str) -> Result<Cidr, EvalError> {
    parse_block(text).map_err(|error| {
        EvalError::new(format!(
            "network address parse error during conversion from string: {error}"
        ))
    })
}

fn cost_ip(arguments: &[Value], _: &Value) -> u64 {
    scale(2 * arguments[0].size(), TRAVERSAL)
}

fn cost_cidr(arguments: &[Value], result: &Value) -> u64 {
    cost_ip(arguments, result) + scale(arguments[0].size(), TRAVERSAL) + 1
}

/// The number of bytes of an address.
const OCTETS: CostRange = CostRange { min: 4, max: 16 };

fn estimate_ip(_: &Sizing, _: Option<&AstNode>, _: &[AstNode]) -> Option<CallEstimate> {
    Some(CallEstimate::cost(OCTETS.add(OCTETS).scale(TRAVERSAL)))
}

fn estimate_cidr(_: &Sizing, _: Option<&AstNode>, _: &[AstNode]) -> Option<CallEstimate> {
    Some(CallEstimate::cost(
        OCTETS
            .add(OCTETS)
            .scale(TRAVERSAL)
            .add(OCTETS.scale(TRAVERSAL))
            .add(CostRange::ONE),
    ))
}

/// Adds the cost of parsing the text.
fn with_text(
    estimate: CallEstimate,
    sizing: &Sizing,
    arguments: &[AstNode],
) -> Option<CallEstimate> {
    let text = sizing.size(arguments.first()?).scale(TRAVERSAL);
    Some(CallEstimate::cost(estimate.cost.add(text)))
}
