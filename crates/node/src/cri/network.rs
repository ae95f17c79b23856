//! The network of pods, where the runtime has no CNI configuration: a bridge with the node's range.

use std::fs;
use std::path::Path;

use mizzen_value::{Value, json, value};

use super::CriNode;

/// The file that is written.
pub(super) const FILE: &str = "10-mizzen.conflist";
/// The plug-in that lets pods pass where the policy of iptables is to drop what is forwarded, as
/// Docker makes it.
pub(super) const FIREWALL: &str = "firewall";
/// The name of the network, of which addresses are recorded by `host-local`.
const NAME: &str = "mizzen";

impl CriNode {
    /// Writes a configuration for the node's range, unless there is one. One that an agent has written
    /// for another node or another range is replaced.
    pub(super) fn ensure_network(&self, pod_cidr: &str) {
        if pod_cidr.is_empty() {
            return;
        }
        // Agents that share a directory do not replace it in turn.
        let mut known = self.pod_cidr.lock();
        let is_stale = *known != pod_cidr && is_stale(&self.network, &self.node, pod_cidr);
        if has_configuration(&self.network) && !is_stale {
            *known = pod_cidr.into();
            return;
        }
        if !self.has_firewall {
            tracing::warn!(
                "no CNI plug-in firewall: pods reach nothing outside where the machine drops what it forwards"
            );
        }
        let text = json::to_string(&configuration(&self.node, pod_cidr, self.has_firewall));
        let written = fs::create_dir_all(&self.network).and_then(|()| {
            // The runtime must not read half a file.
            let draft = self.network.join(".mizzen.tmp");
            fs::write(&draft, text)?;
            fs::rename(&draft, self.network.join(FILE))
        });
        match written {
            Ok(()) => {
                *known = pod_cidr.into();
                tracing::info!(pod_cidr, dir = %self.network.display(), is_stale, "CNI configuration written");
            }
            Err(error) => {
                tracing::warn!(%error, dir = %self.network.display(), "cannot write a CNI configuration");
            }
        }
    }
}

/// Whether the configuration of an agent is for another node or another range. What else a user has
/// changed in it stays.
fn is_stale(dir: &Path, node: &str, pod_cidr: &str) -> bool {
    let Ok(text) = fs::read(dir.join(FILE)) else {
        return false;
    };
    let found = json::parse(&text).unwrap_or_default();
    let plugins = found["plugins"].list().iter();
    let ranges = plugins.flat_map(|plugin| plugin["ipam"]["ranges"].list());
    let mut subnets = ranges.flat_map(|range| range.list());
    found["name"].str() != name(node) || !subnets.any(|it| it["subnet"].str() == pod_cidr)
}

/// Whether the configuration is that of the agent.
pub(super) fn is_own(dir: &Path) -> bool {
    dir.join(FILE).is_file()
}

/// The network of a node.
pub(super) fn name(node: &str) -> String {
    format!("{NAME}-{node}")
}

/// The bridge of a node. Several nodes may share a machine.
pub(super) fn bridge(node: &str) -> String {
    format!("mizzen-{:06x}", crate::digest(node) & 0xff_ffff)
}

/// Whether a directory has what a runtime takes for a CNI configuration.
pub(super) fn has_configuration(dir: &Path) -> bool {
    let Ok(entries) = fs::read_dir(dir) else {
        return false;
    };
    let mut names = entries.flatten().map(|entry| entry.path());
    names.any(|path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("conf" | "conflist" | "json"))
    })
}

/// A bridge with addresses of the node's range.
fn configuration(node: &str, pod_cidr: &str, has_firewall: bool) -> Value {
    let bridge = bridge(node);
    let all = if pod_cidr.contains(':') {
        "::/0"
    } else {
        "0.0.0.0/0"
    };
    let mut plugins = vec![
        value!({
            "type": "bridge",
            "bridge": bridge,
            "isGateway": true,
            // The bridge may have the address of an older range.
            "forceAddress": true,
            "ipMasq": true,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "ranges": [[{ "subnet": pod_cidr }]],
                "routes": [{ "dst": all }],
            },
        }),
        value!({ "type": "portmap", "capabilities": { "portMappings": true } }),
    ];
    if has_firewall {
        plugins.push(value!({ "type": FIREWALL }));
    }
    value!({ "cniVersion": "0.4.0", "name": (name(node)), "plugins": plugins })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_of_the_user_is_found() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!has_configuration(&dir.path().join("none")));
        fs::write(dir.path().join(".mizzen.tmp"), "").unwrap();
        assert!(!has_configuration(dir.path()));
        fs::write(dir.path().join("10-own.conflist"), "").unwrap();
        assert!(has_configuration(dir.path()));
    }

    #[test]
    fn a_configuration_of_another_node_or_range_is_stale() {
        let dir = tempfile::tempdir().unwrap();
        let check = |node: &str, range: &str| is_stale(dir.path(), node, range);
        assert!(!check("a", "10.1.2.0/24"));
        let mut made = configuration("a", "10.1.2.0/24", true);
        // A user may have added a range.
        let ipam = made.entry("plugins").list_mut()[0].entry("ipam");
        let subnets = ["10.1.2.0/24", "fd00::/64"].map(|it| value!([{ "subnet": it }]));
        ipam.set("ranges", subnets.to_vec());
        fs::write(dir.path().join(FILE), json::to_string(&made)).unwrap();
        assert!(!check("a", "10.1.2.0/24"));
        assert!(check("a", "10.1.3.0/24"));
        assert!(check("b", "10.1.2.0/24"));
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(check("a", "10.1.2.0/24"));
    }

    #[test]
    fn the_bridge_has_a_name_that_linux_accepts() {
        let made = configuration(&"long-".repeat(20), "10.1.2.0/24", false);
        assert!(made["plugins"][0]["bridge"].str().len() <= 15);
        let range = &made["plugins"][0]["ipam"]["ranges"][0][0]["subnet"];
        assert_eq!(range.str(), "10.1.2.0/24");
    }

    #[test]
    fn the_firewall_is_used_where_it_is_installed() {
        let types = |has_firewall: bool| {
            let made = configuration("a", "10.1.2.0/24", has_firewall);
            let plugins = made["plugins"].list().iter();
            let types: Vec<String> = plugins.map(|it| it["type"].str().to_owned()).collect();
            types.join(" ")
        };
        assert_eq!(types(false), "bridge portmap");
        assert_eq!(types(true), "bridge portmap firewall");
    }
}
