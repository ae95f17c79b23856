//! The addresses of a pod: one, or one of each family.

use mizzen_value::{Str, Value};

/// Addresses in the order of a status. There is no second one without a first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodAddresses {
    /// The address; empty if there is none.
    pub first: Str,
    second: Str,
}

impl PodAddresses {
    /// Those of a sandbox. Kubernetes: the first one of the family of the node, then the first one of
    /// the other (kubelet_pods.go, `sortPodIPs`).
    pub(super) fn of_sandbox(all: &[Str], host: &str) -> PodAddresses {
        let is_v6 = |address: &str| address.contains(':');
        let first = |v6: bool| all.iter().find(|it| !it.is_empty() && is_v6(it) == v6);
        let wanted = is_v6(host);
        let found = [first(wanted), first(!wanted)];
        PodAddresses::in_order(found.into_iter().flatten().cloned())
    }

    /// Those of a status.
    pub(crate) fn of_status(status: &Value) -> PodAddresses {
        let all = status["podIPs"].list().iter();
        match PodAddresses::in_order(all.map(|it| it["ip"].str().into())) {
            none if none.first.is_empty() => status["podIP"].str().into(),
            all => all,
        }
    }

    /// Addresses in their order.
    fn in_order(all: impl Iterator<Item = Str>) -> PodAddresses {
        let mut all = all.filter(|address| !address.is_empty());
        PodAddresses {
            first: all.next().unwrap_or_default(),
            second: all.next().unwrap_or_default(),
        }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Str> {
        let both = [&self.first, &self.second].into_iter();
        both.filter(|address| !address.is_empty())
    }

    /// All of them, separated by commas.
    pub(super) fn join(&self) -> Str {
        let all: Vec<&str> = self.all().map(Str::as_str).collect();
        all.join(",").into()
    }
}

impl From<Str> for PodAddresses {
    fn from(address: Str) -> PodAddresses {
        PodAddresses {
            first: address,
            second: Str::default(),
        }
    }
}

impl From<&str> for PodAddresses {
    fn from(address: &str) -> PodAddresses {
        Str::from(address).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_family_of_the_node_comes_first() {
        let all = ["10.0.0.2", "10.0.0.3", "fd00::2"].map(Str::from);
        for (host, expected) in [
            ("192.0.2.1", "10.0.0.2,fd00::2"),
            ("2001:db8::1", "fd00::2,10.0.0.2"),
        ] {
            let found = PodAddresses::of_sandbox(&all, host);
            assert_eq!(found.join().as_str(), expected, "{host}");
        }
        let one = PodAddresses::of_sandbox(&all[..1], "2001:db8::1");
        assert_eq!(one.join().as_str(), "10.0.0.2");
        assert_eq!(
            PodAddresses::of_sandbox(&[], "192.0.2.1"),
            PodAddresses::default()
        );
    }
}
