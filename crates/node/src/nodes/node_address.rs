//! The address of a node with real containers.
//!
//! Kubernetes: pkg/kubelet/nodestatus/setters.go, `NodeAddress`. The address of the default route is
//! preferred to that of the host name, which needs no name server then.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};

/// Addresses of networks for documentation, to which only a default route leads.
const ELSEWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// Where the address of a node comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeAddress {
    /// The user has chosen it.
    Fixed(IpAddr),
    /// It is that of the machine, which may change.
    OfMachine {
        /// The address of the host name, for a machine without a default route.
        by_name: Option<IpAddr>,
    },
}

impl NodeAddress {
    /// The address of this machine, whose host name is looked up if it has no default route.
    pub fn of_machine(host_name: &str) -> NodeAddress {
        let by_name = match default_route() {
            Some(_) => None,
            None => look_up(host_name),
        };
        NodeAddress::OfMachine { by_name }
    }

    /// An address that this machine must have.
    pub fn fixed(address: IpAddr) -> Result<NodeAddress, String> {
        match address {
            _ if address.is_unspecified() => {
                Err("a node cannot have the address of all interfaces".into())
            }
            _ if address.is_multicast() => Err("a node cannot have a multicast address".into()),
            _ if is_link_local(address) => Err("a node cannot have a link-local address".into()),
            _ if !is_own(address) => Err(format!(
                "no network interface of this machine has {address}"
            )),
            _ => Ok(NodeAddress::Fixed(address)),
        }
    }

    /// The address now: that of the interface with the default route, that of the host name, or
    /// that of the loopback interface.
    pub fn current(&self) -> IpAddr {
        match *self {
            NodeAddress::Fixed(address) => address,
            NodeAddress::OfMachine { by_name } => default_route()
                .or(by_name.filter(|address| is_own(*address)))
                .unwrap_or(Ipv4Addr::LOCALHOST.into()),
        }
    }

    /// Where the agent listens, to be reached at the address: on all interfaces, as a kubelet does,
    /// unless the address stays on this machine.
    pub fn listen(&self) -> IpAddr {
        match *self {
            NodeAddress::Fixed(address) if address.is_loopback() => address,
            NodeAddress::Fixed(IpAddr::V6(_)) => Ipv6Addr::UNSPECIFIED.into(),
            _ if self.current().is_ipv6() => Ipv6Addr::UNSPECIFIED.into(),
            _ => Ipv4Addr::UNSPECIFIED.into(),
        }
    }
}

/// The address with which this machine leaves by its default route. Nothing is sent.
fn default_route() -> Option<IpAddr> {
    let addresses = ELSEWHERE.iter().filter_map(|far| source(*far));
    addresses.into_iter().find(|address| is_usable(*address))
}

/// The address with which the kernel dials another.
fn source(far: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = match far {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((far, 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

fn look_up(host_name: &str) -> Option<IpAddr> {
    let found = (host_name, 0).to_socket_addrs().ok()?;
    let mut found = found.map(|address: SocketAddr| address.ip());
    found.find(|address| is_usable(*address) && is_own(*address))
}

/// Whether another machine may reach it.
fn is_usable(address: IpAddr) -> bool {
    !address.is_loopback() && !address.is_unspecified() && !is_link_local(address)
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Whether an interface of this machine has an address.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chosen_address_must_be_one_of_the_machine() {
        let check = |address: &str| {
            let made = NodeAddress::fixed(address.parse().unwrap());
            made.err().unwrap_or_default()
        };
        assert_eq!(check("127.0.0.1"), "");
        assert_eq!(
            check("0.0.0.0"),
            "a node cannot have the address of all interfaces"
        );
        assert_eq!(check("224.0.0.1"), "a node cannot have a multicast address");
        assert_eq!(check("fe80::1"), "a node cannot have a link-local address");
        assert_eq!(
            check("203.0.113.7"),
            "no network interface of this machine has 203.0.113.7"
        );
    }

    #[test]
    fn the_agent_listens_where_its_node_is_reached() {
        let loopback = NodeAddress::Fixed(Ipv4Addr::LOCALHOST.into());
        assert_eq!(loopback.listen(), loopback.current());
        let chosen = NodeAddress::Fixed(Ipv4Addr::new(10, 0, 0, 1).into());
        assert_eq!(chosen.listen(), IpAddr::from(Ipv4Addr::UNSPECIFIED));
        let six = NodeAddress::Fixed("fd00::1".parse().unwrap());
        assert_eq!(six.listen(), IpAddr::from(Ipv6Addr::UNSPECIFIED));
    }

    #[test]
    fn the_address_of_the_machine_is_one_that_it_has() {
        let address = NodeAddress::of_machine("no.such.name.invalid").current();
        assert!(is_own(address), "{address}");
        assert!(!is_link_local(address) && !address.is_unspecified());
        // A host name with a loopback address does not help.
        assert_eq!(look_up("localhost"), None);
    }

    #[test]
    fn the_address_of_the_host_name_counts_only_while_the_machine_has_it() {
        let lost = NodeAddress::OfMachine {
            by_name: Some("203.0.113.7".parse().unwrap()),
        };
        let expected = default_route().unwrap_or(Ipv4Addr::LOCALHOST.into());
        assert_eq!(lost.current(), expected);
    }
}
