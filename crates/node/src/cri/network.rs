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
    /// Writes a configuration for the node's range, unless there is one.
    pub(super) fn ensure_network(&self, pod_cidr: &str) {
        if pod_cidr.is_empty() || has_configuration(&self.network) {
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
                tracing::info!(pod_cidr, dir = %self.network.display(), "CNI configuration written")
            }
            Err(error) => {
                tracing::warn!(%error, dir = %self.network.display(), "cannot write a CNI configuration");
            }
        }
    }
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
