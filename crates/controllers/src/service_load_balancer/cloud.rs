//! The simulated cloud: load balancers and their addresses.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use mizzen_sdk::{Key, Object};
use mizzen_value::address::{Cidr, family};

use crate::services::member::parse_address;

/// A simulated cloud provider. It has only addresses.
pub(super) struct Cloud {
    /// One range for each family.
    ranges: Vec<Cidr>,
    load_balancers: HashMap<Key, LoadBalancer>,
    taken: HashSet<IpAddr>,
}

struct LoadBalancer {
    service: Arc<Object>,
    addresses: Vec<IpAddr>,
}

/// Why a load balancer could not be provisioned.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EnsureError {
    #[error("no range of the simulated cloud is of the family {0}")]
    NoRange(String),
    #[error("every address of {0} is in use")]
    Exhausted(Cidr),
    #[error(
        "the requested address {0} is not in a range of the simulated cloud for the Service's families"
    )]
    NotInRange(String),
    #[error("the requested address {0} is in use")]
    InUse(IpAddr),
}

impl Cloud {
    pub(super) fn new(ranges: Vec<Cidr>) -> Cloud {
        Cloud {
            ranges,
            load_balancers: HashMap::new(),
            taken: HashSet::new(),
        }
    }

    /// Restores a load balancer from the status of its Service. Of several Services with the same
    /// address, the first one keeps it.
    pub(super) fn adopt(&mut self, service: &Arc<Object>) {
        let ingress = service["status"]["loadBalancer"]["ingress"].list().iter();
        let known = ingress.filter_map(|one| parse_address(one["ip"].str()));
        let is_ours = |ip: &IpAddr| self.ranges.iter().any(|range| range.gives(*ip));
        let addresses: Vec<IpAddr> = known
            .filter(is_ours)
            .filter(|ip| !self.taken.contains(ip))
            .collect();
        if !addresses.is_empty() {
            self.keep(service, addresses);
        }
    }

    /// Ensures the load balancer; its addresses in the order of the Service's families. On an error
    /// nothing changes.
    pub(super) fn ensure(&mut self, service: &Arc<Object>) -> Result<Vec<IpAddr>, EnsureError> {
        let own = self.load_balancers.get(&service.key());
        let own = own
            .map(|load_balancer| load_balancer.addresses.clone())
            .unwrap_or_default();
        let families: Vec<&str> = match service["spec"]["ipFamilies"]
            .list()
            .iter()
            .map(|one| one.str())
            .collect::<Vec<_>>()
        {
            families if families.is_empty() => vec!["IPv4"],
            families => families,
        };
        let wanted = self.wanted(service["spec"]["loadBalancerIP"].str(), &families, &own)?;
        let addresses: Vec<IpAddr> = families
            .iter()
            .map(|name| self.choose(name, wanted, &own))
            .collect::<Result<_, _>>()?;
        self.keep(service, addresses.clone());
        Ok(addresses)
    }

    /// The requested address of a Service, if it is valid.
    fn wanted(
        &self,
        text: &str,
        families: &[&str],
        own: &[IpAddr],
    ) -> Result<Option<IpAddr>, EnsureError> {
        if text.is_empty() {
            return Ok(None);
        }
        let is_given = |ip: &IpAddr| {
            families.contains(&family(*ip)) && self.ranges.iter().any(|range| range.gives(*ip))
        };
        let ip = parse_address(text)
            .filter(is_given)
            .ok_or_else(|| EnsureError::NotInRange(text.into()))?;
        match self.taken.contains(&ip) && !own.contains(&ip) {
            true => Err(EnsureError::InUse(ip)),
            false => Ok(Some(ip)),
        }
    }

    /// An address of one family: the requested, the current, or the first free one.
    fn choose(
        &self,
        name: &str,
        wanted: Option<IpAddr>,
        own: &[IpAddr],
    ) -> Result<IpAddr, EnsureError> {
        let candidates = wanted.iter().chain(own);
        if let Some(ip) = candidates.copied().find(|ip| family(*ip) == name) {
            return Ok(ip);
        }
        let range = self.ranges.iter().find(|range| family(range.ip) == name);
        let range = range.ok_or_else(|| EnsureError::NoRange(name.into()))?;
        let mut hosts = range.hosts().map(|offset| range.nth(offset));
        hosts
            .find(|ip| !self.taken.contains(ip))
            .ok_or(EnsureError::Exhausted(*range))
    }

    fn keep(&mut self, service: &Arc<Object>, addresses: Vec<IpAddr>) {
        self.delete(&service.key());
        self.taken.extend(&addresses);
        self.load_balancers.insert(
            service.key(),
            LoadBalancer {
                service: service.clone(),
                addresses,
            },
        );
    }

    /// Deletes a load balancer and frees its addresses; whether it existed.
    pub(super) fn delete(&mut self, key: &Key) -> bool {
        let deleted = self.load_balancers.remove(key);
        for ip in deleted.iter().flat_map(|deleted| &deleted.addresses) {
            self.taken.remove(ip);
        }
        deleted.is_some()
    }

    /// Removes the load balancer of a Service that was deleted or replaced by another of the same
    /// name; returns its Service.
    pub(super) fn take_other(&mut self, key: &Key, uid: Option<&str>) -> Option<Arc<Object>> {
        let service = self.load_balancers.get(key)?.service.clone();
        (uid != Some(service.uid())).then(|| {
            self.delete(key);
            service
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mizzen_value::json;

    fn service(name: &str, spec: &str, ingress: &str) -> Arc<Object> {
        let text = format!(
            r#"{{"metadata":{{"namespace":"n","name":"{name}","uid":"{name}"}},"spec":{{{spec}}},"status":{{"loadBalancer":{{"ingress":[{ingress}]}}}}}}"#
        );
        Arc::new(Object(json::parse(text.as_bytes()).unwrap()))
    }

    fn cloud(ranges: &[&str]) -> Cloud {
        Cloud::new(
            ranges
                .iter()
                .map(|range| Cidr::parse_sloppy(range).unwrap())
                .collect(),
        )
    }

    fn ensure(cloud: &mut Cloud, name: &str, spec: &str) -> String {
        match cloud.ensure(&service(name, spec, "")) {
            Ok(addresses) => addresses
                .iter()
                .map(IpAddr::to_string)
                .collect::<Vec<_>>()
                .join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn addresses_are_unique_and_released() {
        let mut cloud = cloud(&["192.0.2.0/30"]);
        assert_eq!(ensure(&mut cloud, "a", ""), "192.0.2.1");
        assert_eq!(ensure(&mut cloud, "b", ""), "192.0.2.2");
        assert_eq!(ensure(&mut cloud, "a", ""), "192.0.2.1");
        assert_eq!(
            ensure(&mut cloud, "c", ""),
            "every address of 192.0.2.0/30 is in use"
        );
        assert!(cloud.delete(&Key::new("n", "a")) && !cloud.delete(&Key::new("n", "a")));
        assert_eq!(ensure(&mut cloud, "c", ""), "192.0.2.1");
    }

    #[test]
    fn a_requested_address_is_given_if_it_is_free() {
        let mut cloud = cloud(&["192.0.2.0/29"]);
        assert_eq!(
            ensure(&mut cloud, "a", r#""loadBalancerIP":"192.0.2.3""#),
            "192.0.2.3"
        );
        let in_use = "the requested address 192.0.2.3 is in use";
        assert_eq!(
            ensure(&mut cloud, "b", r#""loadBalancerIP":"192.0.2.3""#),
            in_use
        );
        assert_eq!(
            ensure(&mut cloud, "a", r#""loadBalancerIP":"192.0.2.5""#),
            "192.0.2.5"
        );
        assert_eq!(
            ensure(&mut cloud, "b", r#""loadBalancerIP":"192.0.2.3""#),
            "192.0.2.3"
        );
        for other in [
            "10.0.0.1",
            "2001:db8::1",
            "192.0.2.0",
            "192.0.2.7",
            "nonsense",
        ] {
            let refused = ensure(&mut cloud, "c", &format!(r#""loadBalancerIP":"{other}""#));
            assert!(
                refused.starts_with(&format!("the requested address {other} is not in a range")),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_service_has_an_address_of_each_of_its_families() {
        let mut cloud = cloud(&["192.0.2.0/24", "2001:db8::/64"]);
        assert_eq!(
            ensure(&mut cloud, "a", r#""ipFamilies":["IPv6","IPv4"]"#),
            "2001:db8::1 192.0.2.1"
        );
        assert_eq!(
            ensure(&mut cloud, "b", r#""ipFamilies":["IPv6"]"#),
            "2001:db8::2"
        );
        let both = r#""ipFamilies":["IPv4","IPv6"],"loadBalancerIP":"2001:db8::a""#;
        assert_eq!(ensure(&mut cloud, "c", both), "192.0.2.2 2001:db8::a");
        assert_eq!(
            ensure(&mut cloud, "c", r#""ipFamilies":["IPv4"]"#),
            "192.0.2.2"
        );
        assert_eq!(
            ensure(
                &mut cloud,
                "d",
                r#""loadBalancerIP":"2001:db8::a","ipFamilies":["IPv6"]"#
            ),
            "2001:db8::a"
        );
    }

    #[test]
    fn addresses_are_restored_from_statuses() {
        let mut cloud = cloud(&["192.0.2.0/24"]);
        cloud.adopt(&service(
            "a",
            "",
            r#"{"ip":"192.0.2.1"},{"ip":"10.0.0.1"},{"hostname":"h"}"#,
        ));
        cloud.adopt(&service("b", "", r#"{"ip":"192.0.2.1"}"#));
        assert_eq!(ensure(&mut cloud, "c", ""), "192.0.2.2");
        assert_eq!(ensure(&mut cloud, "b", ""), "192.0.2.3");
        assert_eq!(ensure(&mut cloud, "a", ""), "192.0.2.1");
        assert!(cloud.take_other(&Key::new("n", "a"), Some("a")).is_none());
        assert!(cloud.take_other(&Key::new("n", "a"), Some("new")).is_some());
        assert_eq!(ensure(&mut cloud, "d", ""), "192.0.2.1");
    }
}
