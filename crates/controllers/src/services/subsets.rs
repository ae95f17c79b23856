//! The subsets of Endpoints: addresses grouped by their ports, in a canonical order.

use std::collections::BTreeMap;

use mizzen_value::{Value, value};

/// Address and target uid: two pods may share an address.
type AddressKey = (String, String);
/// The fields of a port, in sort order. None stands for "no port at all".
type PortKey = Option<(String, String, i64, Option<String>)>;

/// Addresses and their ports.
#[derive(Debug, Default)]
pub(crate) struct Subsets {
    addresses: BTreeMap<AddressKey, Value>,
    /// The addresses of each port, and whether they are ready.
    ports: BTreeMap<PortKey, BTreeMap<AddressKey, bool>>,
}

impl Subsets {
    pub(crate) fn from_list(subsets: &Value) -> Subsets {
        let mut all = Subsets::default();
        for subset in subsets.list() {
            let ports = match subset["ports"].list() {
                [] => &[Value::Null][..],
                ports => ports,
            };
            for port in ports {
                subset["addresses"]
                    .list()
                    .iter()
                    .for_each(|address| all.add(address, port, true));
                subset["notReadyAddresses"]
                    .list()
                    .iter()
                    .for_each(|address| all.add(address, port, false));
            }
        }
        all
    }

    /// Adds an address with a port; null for an address without ports. An address that is once not
    /// ready stays so.
    pub(crate) fn add(&mut self, address: &Value, port: &Value, ready: bool) {
        let key = (
            address["ip"].str().to_string(),
            address["targetRef"]["uid"].str().to_string(),
        );
        let port = (!port.is_null()).then(|| {
            let [name, protocol] = ["name", "protocol"].map(|field| port[field].str().into());
            let app_protocol = port["appProtocol"].as_str().map(String::from);
            (name, protocol, port["port"].int(), app_protocol)
        });
        let offered = self.ports.entry(port).or_default();
        *offered.entry(key.clone()).or_insert(true) &= ready;
        self.addresses.entry(key).or_insert_with(|| address.clone());
    }

    /// The list of subsets.
    pub(crate) fn to_list(&self) -> Vec<Value> {
        let mut together: BTreeMap<&BTreeMap<AddressKey, bool>, Vec<&PortKey>> = BTreeMap::new();
        for (port, offered) in &self.ports {
            together.entry(offered).or_default().push(port);
        }
        let mut subsets: Vec<_> = together.into_iter().collect();
        subsets.sort_by(|one, other| (&one.1, one.0).cmp(&(&other.1, other.0)));
        subsets
            .into_iter()
            .map(|(offered, ports)| self.subset(offered, &ports))
            .collect()
    }

    fn subset(&self, offered: &BTreeMap<AddressKey, bool>, ports: &[&PortKey]) -> Value {
        let mut subset = Value::object();
        for (name, wanted) in [("addresses", true), ("notReadyAddresses", false)] {
            let chosen = offered.iter().filter(|(_, ready)| **ready == wanted);
            let list: Vec<Value> = chosen.map(|(key, _)| self.addresses[key].clone()).collect();
            if !list.is_empty() {
                subset.set(name, list);
            }
        }
        let port = |port: &&PortKey| {
            let (name, protocol, number, app_protocol) = port.as_ref()?;
            let mut port = value!({"port": (*number), "protocol": (protocol.as_str())});
            if !name.is_empty() {
                port.set("name", name.as_str());
            }
            if let Some(app_protocol) = app_protocol {
                port.set("appProtocol", app_protocol.as_str());
            }
            Some(port)
        };
        let ports: Vec<Value> = ports.iter().filter_map(port).collect();
        if !ports.is_empty() {
            subset.set("ports", ports);
        }
        subset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(subsets: Value, expect: Value) {
        let list = Value::from(Subsets::from_list(&subsets).to_list());
        assert_eq!(list, expect);
        assert_eq!(
            Value::from(Subsets::from_list(&list).to_list()),
            expect,
            "laid out again it stays"
        );
    }

    #[test]
    fn addresses_with_the_same_ports_are_in_one_subset() {
        check(
            value!([
                {"addresses": [{"ip": "2"}], "ports": [{"name": "b", "port": 2, "protocol": "TCP"}]},
                {"addresses": [{"ip": "1"}], "ports": [{"name": "b", "port": 2, "protocol": "TCP"}]},
                {"addresses": [{"ip": "1"}, {"ip": "2"}], "ports": [{"name": "a", "port": 1, "protocol": "TCP"}]}
            ]),
            value!([{
                "addresses": [{"ip": "1"}, {"ip": "2"}],
                "ports": [{"name": "a", "port": 1, "protocol": "TCP"}, {"name": "b", "port": 2, "protocol": "TCP"}]
            }]),
        );
    }

    #[test]
    fn addresses_with_other_ports_are_in_other_subsets() {
        check(
            value!([
                {"addresses": [{"ip": "1"}], "ports": [{"port": 8081, "protocol": "TCP"}]},
                {"addresses": [{"ip": "2"}], "ports": [{"port": 8080, "protocol": "TCP"}]}
            ]),
            value!([
                {"addresses": [{"ip": "2"}], "ports": [{"port": 8080, "protocol": "TCP"}]},
                {"addresses": [{"ip": "1"}], "ports": [{"port": 8081, "protocol": "TCP"}]}
            ]),
        );
    }

    #[test]
    fn an_address_that_is_once_not_ready_stays_so() {
        let port = value!([{"port": 80, "protocol": "TCP"}]);
        check(
            value!([
                {"addresses": [{"ip": "1"}, {"ip": "2"}], "ports": (port.clone())},
                {"notReadyAddresses": [{"ip": "1"}], "ports": (port.clone())}
            ]),
            value!([{"addresses": [{"ip": "2"}], "notReadyAddresses": [{"ip": "1"}], "ports": (port)}]),
        );
    }

    #[test]
    fn addresses_without_ports_are_kept() {
        check(
            value!([{"addresses": [{"ip": "1"}]}]),
            value!([{"addresses": [{"ip": "1"}]}]),
        );
    }

    #[test]
    fn two_pods_may_share_an_address() {
        let shared = value!([{"addresses": [
            {"ip": "1", "targetRef": {"uid": "a"}}, {"ip": "1", "targetRef": {"uid": "b"}}
        ]}]);
        check(shared.clone(), shared);
    }
}
