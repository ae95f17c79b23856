//! `ip(…)` and `cidr(…)`, and what can be asked of them.

use std::net::IpAddr;

use super::ip::{
    is_global_unicast, is_link_local_multicast, is_link_local_unicast, parse, parse_block,
};
use super::{cost, opaque, text};
use crate::{
    CallEstimate, EvalError, Library, Node, Opaque, Outcome, Range, Site, Sizing, TRAVERSAL, Type,
    Value, scale,
};
use mizzen_value::address::Block;

/// An address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address(pub IpAddr);

impl Opaque for Address {
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

/// A block of addresses: equal only if the bits beyond the prefix are, too.
impl Opaque for Block {
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

/// `ip(…)`.
pub(super) fn ip_library() -> Library {
    use Type::{Bool, Int, String};
    let ip = || Type::opaque("net.IP");
    let functions = functions! {
        "ip" {
            global "string_to_ip" (String) -> ip() => from_text,
                costs cost::traverse, cost::estimate_traverse;
        }
        "isIP" {
            global "is_ip" (String) -> Bool => |_, it| Ok(parse(text(it, 0)?).is_ok().into()),
                costs cost::traverse, cost::estimate_traverse;
        }
        "ip.isCanonical" {
            global "ip_is_canonical" (String) -> Bool => is_canonical,
                costs cost::traverse_twice, cost::estimate_traverse_twice;
        }
        "family" {
            member "ip_family" (ip()) -> Int =>
                |_, it| Ok(Value::Int(if address(it)?.is_ipv4() { 4 } else { 6 }));
        }
        "isUnspecified" {
            member "ip_is_unspecified" (ip()) -> Bool => |_, it| is(it, |ip| ip.is_unspecified());
        }
        "isLoopback" { member "ip_is_loopback" (ip()) -> Bool => |_, it| is(it, |ip| ip.is_loopback()); }
        "isLinkLocalMulticast" {
            member "ip_is_link_local_multicast" (ip()) -> Bool => |_, it| is(it, is_link_local_multicast);
        }
        "isLinkLocalUnicast" {
            member "ip_is_link_local_unicast" (ip()) -> Bool => |_, it| is(it, is_link_local_unicast);
        }
        "isGlobalUnicast" {
            member "ip_is_global_unicast" (ip()) -> Bool => |_, it| is(it, is_global_unicast);
        }
        "string" { global "ip_to_string" (ip()) -> String => |_, it| Ok(address(it)?.to_string().into()); }
    };
    Library::new("kubernetes.net.ip", (1, 30), functions).with_types(vec![ip()])
}

/// `cidr(…)`.
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
            member "cidr_contains_ip_string" (cidr(), String) -> Bool => contains_ip_text,
                costs cost_ip_text, estimate_ip_text;
            member "cidr_contains_ip_ip" (cidr(), ip()) -> Bool => contains_ip, costs cost_ip, estimate_ip;
        }
        "containsCIDR" {
            member "cidr_contains_cidr_string" (cidr(), String) -> Bool => contains_cidr_text,
                costs cost_cidr_text, estimate_cidr_text;
            member "cidr_contains_cidr" (cidr(), cidr()) -> Bool => contains_cidr,
                costs cost_cidr, estimate_cidr;
        }
        "ip" { member "cidr_ip" (cidr()) -> ip() => |_, it| Ok(Value::opaque(Address(block(it, 0)?.ip))); }
        "prefixLength" {
            member "cidr_prefix_length" (cidr()) -> Int =>
                |_, it| Ok(Value::Int(block(it, 0)?.prefix.into()));
        }
        "masked" { member "cidr_masked" (cidr()) -> cidr() => masked; }
        "string" {
            global "cidr_to_string" (cidr()) -> String =>
                |_, it| Ok(block(it, 0)?.to_string().into());
        }
    };
    Library::new("kubernetes.net.cidr", (1, 30), functions).with_types(vec![cidr()])
}

fn from_text<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    parse(text(arguments, 0)?)
        .map(|ip| Value::opaque(Address(ip)))
        .map_err(EvalError::new)
}

fn is_canonical<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let text = text(arguments, 0)?;
    Ok((parse(text).map_err(EvalError::new)?.to_string() == text).into())
}

fn is<'a>(arguments: &[Value<'a>], kind: fn(IpAddr) -> bool) -> Outcome<'a> {
    Ok(kind(address(arguments)?).into())
}

fn masked<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let block = block(arguments, 0)?;
    Ok(Value::opaque(Block {
        ip: block.network(),
        ..*block
    }))
}

fn address(arguments: &[Value]) -> Result<IpAddr, EvalError> {
    opaque::<Address>(arguments, 0).map(|address| address.0)
}

fn block<'v>(arguments: &'v [Value], index: usize) -> Result<&'v Block, EvalError> {
    opaque(arguments, index)
}

/// Kubernetes: the beginning of the message is told twice (library/cidr.go).
fn read_block(text: &str) -> Result<Block, EvalError> {
    parse_block(text).map_err(|error| {
        EvalError::new(format!(
            "network address parse error during conversion from string: {error}"
        ))
    })
}

fn contains_ip<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let ip = opaque::<Address>(arguments, 1)?.0;
    Ok(block(arguments, 0)?.contains(ip).into())
}

/// Kubernetes: a text that is no address is not complained about as such (library/cidr.go).
fn contains_ip_text<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let ip = parse(text(arguments, 1)?).map_err(|_| EvalError::no_such_overload())?;
    Ok(block(arguments, 0)?.contains(ip).into())
}

fn contains_cidr<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    Ok(block(arguments, 0)?
        .contains_block(block(arguments, 1)?)
        .into())
}

fn contains_cidr_text<'a>(_: &Site, arguments: &[Value<'a>]) -> Outcome<'a> {
    let inner = read_block(text(arguments, 1)?)?;
    Ok(block(arguments, 0)?.contains_block(&inner).into())
}

fn cost_ip(arguments: &[Value], _: &Value) -> u64 {
    scale(2 * arguments[0].size(), TRAVERSAL)
}

fn cost_ip_text(arguments: &[Value], result: &Value) -> u64 {
    cost_ip(arguments, result) + scale(arguments[1].size(), TRAVERSAL)
}

fn cost_cidr(arguments: &[Value], result: &Value) -> u64 {
    cost_ip(arguments, result) + scale(arguments[0].size(), TRAVERSAL) + 1
}

fn cost_cidr_text(arguments: &[Value], result: &Value) -> u64 {
    cost_cidr(arguments, result) + scale(arguments[1].size(), TRAVERSAL)
}

/// How many octets an address has.
const OCTETS: Range = Range { min: 4, max: 16 };

fn estimate_ip(_: &Sizing, _: Option<&Node>, _: &[Node]) -> Option<CallEstimate> {
    Some(CallEstimate::cost(OCTETS.add(OCTETS).scale(TRAVERSAL)))
}

fn estimate_cidr(_: &Sizing, _: Option<&Node>, _: &[Node]) -> Option<CallEstimate> {
    Some(CallEstimate::cost(
        OCTETS
            .add(OCTETS)
            .scale(TRAVERSAL)
            .add(OCTETS.scale(TRAVERSAL))
            .add(Range::ONE),
    ))
}

fn estimate_ip_text(
    sizing: &Sizing,
    target: Option<&Node>,
    arguments: &[Node],
) -> Option<CallEstimate> {
    with_text(estimate_ip(sizing, target, arguments)?, sizing, arguments)
}

fn estimate_cidr_text(
    sizing: &Sizing,
    target: Option<&Node>,
    arguments: &[Node],
) -> Option<CallEstimate> {
    with_text(estimate_cidr(sizing, target, arguments)?, sizing, arguments)
}

/// The text must be read first.
fn with_text(estimate: CallEstimate, sizing: &Sizing, arguments: &[Node]) -> Option<CallEstimate> {
    let text = sizing.of(arguments.first()?).scale(TRAVERSAL);
    Some(CallEstimate::cost(estimate.cost.add(text)))
}
