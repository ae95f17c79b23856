//! The removal of all that a node has made on its machine: for a cluster whose data is deleted.
//!
//! It goes from what runs to what is written: sandboxes with their containers, and with them their
//! addresses and host ports; snapshots, mounts and directories of pods; logs; cgroups; the network;
//! the configuration of logind; the directory of the node. What another node or another program uses stays. A removal that failed
//! can be repeated.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mizzen_cri::messages::{RemovePodSandboxRequest, StopPodSandboxRequest};
use mizzen_cri::{CallError, ConnectError};
use mizzen_value::{Str, json};
use tokio::task::spawn_blocking;

use super::config::{NodePaths, POD_UID};
use super::network::{self, FILE};
use super::{CriNode, CriOptions, CriRuntime, Housekeeping, log_links, pull_records, volumes};
use crate::shutdown::{self, ShutdownConfig};

/// The directory with a file for each node that keeps its pods in a directory.
const NODES: &str = "nodes";
/// Where the plug-in `host-local` records addresses, by network.
const ADDRESSES: &str = "/var/lib/cni/networks";
/// The chains of iptables that a plug-in makes once for all networks.
struct PluginChains {
    table: &'static str,
    names: &'static [&'static str],
    /// Those whose rules are about single pods, or were added by an administrator, but for jumps to
    /// other chains of the plug-in.
    in_use: &'static [&'static str],
}

/// The chains of the plug-ins `portmap` and `firewall`.
const CHAINS: [PluginChains; 2] = [
    PluginChains {
        table: "nat",
        names: &[
            "CNI-HOSTPORT-DNAT",
            "CNI-HOSTPORT-MASQ",
            "CNI-HOSTPORT-SETMARK",
        ],
        in_use: &["CNI-HOSTPORT-DNAT"],
    },
    PluginChains {
        table: "filter",
        names: &["CNI-FORWARD", "CNI-ADMIN"],
        in_use: &["CNI-FORWARD", "CNI-ADMIN"],
    },
];

/// Where a node with real containers leaves something on its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeTraces {
    /// The socket of the runtime.
    pub endpoint: String,
    /// The name of the node.
    pub node: String,
    /// The directory of pods.
    pub root: PathBuf,
    /// The directory of logs.
    pub logs: PathBuf,
    /// The directory of CNI configurations.
    pub network: PathBuf,
    /// The directory of configuration drop-ins of logind.
    pub logind_conf_dir: PathBuf,
}

/// Why not all was removed.
#[derive(Debug, thiserror::Error)]
pub enum PurgeError {
    /// The runtime is not there.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The runtime does not remove a pod.
    #[error("cannot remove the containers of the node: {0}")]
    Call(#[from] CallError),
    /// A snapshot is left.
    #[error("cannot remove a snapshot: {0}")]
    Snapshot(String),
    /// A directory is left.
    #[error("{}: {source}", path.display())]
    File {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl CriOptions {
    /// Where a node with this configuration leaves something.
    pub fn traces(&self, shutdown: &ShutdownConfig) -> NodeTraces {
        let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.into());
        NodeTraces {
            endpoint: self.endpoint.clone(),
            node: self.node.clone(),
            root: whole(&self.root),
            logs: whole(&self.logs),
            network: whole(&self.network),
            logind_conf_dir: whole(&shutdown.logind_conf_dir),
        }
    }
}

impl NodeTraces {
    /// Removes all that the node has made. No agent may run for it.
    pub async fn remove(&self) -> Result<(), PurgeError> {
        let options = CriOptions {
            endpoint: self.endpoint.clone(),
            node: self.node.clone(),
            root: self.root.clone(),
            logs: self.logs.clone(),
            network: self.network.clone(),
            api_server: None,
            unsafe_sysctls: Vec::new(),
            system_bus: None,
            housekeeping: Housekeeping::default(),
            resolver: None,
        };
        let CriRuntime(node) = CriRuntime::connect(options).await?;
        let uids = node.remove_sandboxes().await?;
        for uid in &uids {
            let removed = node.remove_snapshots(uid).await;
            removed.map_err(PurgeError::Snapshot)?;
        }
        let traces = self.clone();
        let removed = spawn_blocking(move || traces.remove_files(&node, &uids)).await;
        removed.unwrap_or_else(|error| Err(at(&self.root)(io::Error::other(error))))
    }

    /// Removes what is left once no container runs.
    fn remove_files(&self, node: &CriNode, uids: &BTreeSet<Str>) -> Result<(), PurgeError> {
        for uid in uids {
            let dir = node.paths.pod(uid);
            volumes::tear_down(&dir).map_err(at(&dir))?;
            if let Err(error) = node.cgroups.remove_pod(uid) {
                tracing::warn!(%error, %uid, "cannot remove the cgroup of a pod");
            }
        }
        node.cgroups.remove_root();
        self.remove_logs(uids)?;
        self.remove_network()?;
        let drop_in = shutdown::remove_drop_in(&self.logind_conf_dir, &self.node);
        drop_in.map_err(at(&self.logind_conf_dir))?;
        self.remove_root()
    }

    /// Removes the logs of pods, and the directory unless other programs have logs there.
    fn remove_logs(&self, uids: &BTreeSet<Str>) -> Result<(), PurgeError> {
        for entry in fs::read_dir(&self.logs).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let uid = name.rsplit_once('_').map_or("", |(_, uid)| uid);
            if uids.contains(uid) {
                fs::remove_dir_all(entry.path()).map_err(at(&entry.path()))?;
            }
        }
        let _ = fs::remove_dir(&self.logs);
        log_links::remove_dead(&self.logs);
        Ok(())
    }

    /// Removes the network that the node has made, if it has made one.
    fn remove_network(&self) -> Result<(), PurgeError> {
        let file = self.network.join(FILE);
        let text = fs::read(&file).unwrap_or_default();
        let name = network::name(&self.node);
        if json::parse(&text).unwrap_or_default()["name"].str() != name {
            return Ok(());
        }
        let bridge = network::bridge(&self.node);
        // It fails if there was no pod, and so no bridge.
        run("ip", &["link", "delete", &bridge]);
        let addresses = Path::new(ADDRESSES).join(name);
        remove_dir(&addresses).map_err(at(&addresses))?;
        for program in ["iptables", "ip6tables"] {
            remove_chains(program);
        }
        fs::remove_file(&file).map_err(at(&file))
    }

    /// Removes what nodes keep in the directory, unless another one uses it. Other files stay.
    fn remove_root(&self) -> Result<(), PurgeError> {
        let nodes = self.root.join(NODES);
        match fs::remove_file(nodes.join(&self.node)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&nodes)(error)),
            _ => {}
        }
        if fs::read_dir(&nodes).is_ok_and(|mut others| others.next().is_some()) {
            return Ok(());
        }
        let (volumes, pods) = (self.root.join("volumes"), self.root.join("pods"));
        remove_dir(&volumes).map_err(at(&volumes))?;
        pull_records::remove_all(&self.root).map_err(at(&self.root))?;
        for empty in [&pods, &nodes, &self.root] {
            let _ = fs::remove_dir(empty);
        }
        Ok(())
    }
}

impl CriNode {
    /// Removes the sandboxes of this node. Returns the UIDs of all pods that it had.
    async fn remove_sandboxes(&self) -> Result<BTreeSet<Str>, CallError> {
        let mut uids: BTreeSet<Str> = volumes::pods_with_directories(&self.paths, &self.node)
            .into_iter()
            .collect();
        for sandbox in self.list_sandboxes().await? {
            uids.extend(sandbox.labels.get(POD_UID).map(|uid| uid.as_str().into()));
            let pod_sandbox_id = sandbox.id;
            let stop = StopPodSandboxRequest {
                pod_sandbox_id: pod_sandbox_id.clone(),
            };
            ignore_missing(self.client.call(stop).await)?;
            let remove = RemovePodSandboxRequest { pod_sandbox_id };
            ignore_missing(self.client.call(remove).await)?;
        }
        Ok(uids)
    }
}

/// Writes down that a node uses a directory.
pub(super) fn mark_root(paths: &NodePaths, node: &str) -> io::Result<()> {
    let nodes = paths.root.join(NODES);
    fs::create_dir_all(&nodes)?;
    fs::write(nodes.join(node), "")
}

fn ignore_missing<T>(called: Result<T, CallError>) -> Result<(), CallError> {
    match called {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

fn remove_dir(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> PurgeError {
    let path = path.to_owned();
    |source| PurgeError::File { path, source }
}

/// Runs a program and returns what it prints, if it succeeds.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    let output = command.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then_some(text)
}

/// Removes the chains of plug-ins, unless a pod of another network uses them.
fn remove_chains(program: &str) {
    for chains in &CHAINS {
        let table = ["--table", chains.table];
        let Some(rules) = run(program, &[&table[..], &["--list-rules"]].concat()) else {
            return;
        };
        for arguments in chains.removals(&rules) {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            run(program, &[&table[..], &arguments].concat());
        }
    }
}

impl PluginChains {
    /// The commands that remove them, by the rules that there are.
    fn removals(&self, rules: &str) -> Vec<Vec<String>> {
        let mut commands: Vec<Vec<String>> = Vec::new();
        for rule in rules.lines().map(words) {
            let [add, chain, .., jump, target] = rule.as_slice() else {
                continue;
            };
            let leads_there = jump == "-j" && self.names.contains(&target.as_str());
            match (add.as_str(), leads_there) {
                ("-A", false) if self.in_use.contains(&chain.as_str()) => return Vec::new(),
                ("-A", true) if !self.names.contains(&chain.as_str()) => {
                    let mut delete = rule.clone();
                    delete[0] = "-D".into();
                    commands.push(delete);
                }
                _ => {}
            }
        }
        for step in ["-F", "-X"] {
            let there = self.names.iter().filter(|chain| {
                let made = format!("-N {chain}");
                rules.lines().any(|rule| rule == made)
            });
            commands.extend(there.map(|chain| vec![step.to_owned(), (*chain).to_owned()]));
        }
        commands
    }
}

/// The words of a rule, of which some are quoted.
fn words(rule: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (idx, part) in rule.split('"').enumerate() {
        match idx % 2 {
            0 => words.extend(part.split_whitespace().map(String::from)),
            _ => words.push(part.into()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "-P PREROUTING ACCEPT\n-N CNI-HOSTPORT-DNAT\n-N CNI-HOSTPORT-MASQ\n-N OTHER\n\
        -A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT\n\
        -A POSTROUTING -m comment --comment \"CNI portfwd requiring masquerade\" -j CNI-HOSTPORT-MASQ\n\
        -A POSTROUTING -j OTHER\n\
        -A CNI-HOSTPORT-MASQ -m mark --mark 0x2000/0x2000 -j MASQUERADE\n";

    /// The commands that remove the chains of a table.
    fn removals(table: &str, rules: &str) -> Vec<String> {
        let chains = CHAINS.iter().find(|chains| chains.table == table).unwrap();
        let commands = chains.removals(rules).into_iter();
        commands.map(|words| words.join("|")).collect()
    }

    #[test]
    fn chains_of_host_ports_go_when_no_pod_has_one() {
        let shown = |rules: &str| removals("nat", rules);
        assert_eq!(
            shown(RULES),
            [
                "-D|PREROUTING|-m|addrtype|--dst-type|LOCAL|-j|CNI-HOSTPORT-DNAT",
                "-D|POSTROUTING|-m|comment|--comment|CNI portfwd requiring masquerade|-j|CNI-HOSTPORT-MASQ",
                "-F|CNI-HOSTPORT-DNAT",
                "-F|CNI-HOSTPORT-MASQ",
                "-X|CNI-HOSTPORT-DNAT",
                "-X|CNI-HOSTPORT-MASQ",
            ]
        );
        let used = format!("{RULES}-A CNI-HOSTPORT-DNAT -p tcp -j CNI-DN-1\n");
        assert_eq!(shown(&used), [""; 0]);
        assert_eq!(shown("-P PREROUTING ACCEPT\n"), [""; 0]);
    }

    #[test]
    fn chains_of_the_firewall_go_when_no_pod_has_a_rule() {
        let rules = "-P FORWARD DROP\n-N CNI-ADMIN\n-N CNI-FORWARD\n\
            -A FORWARD -m comment --comment \"CNI firewall plugin rules\" -j CNI-FORWARD\n\
            -A CNI-FORWARD -m comment --comment \"CNI firewall plugin admin overrides\" -j CNI-ADMIN\n";
        assert_eq!(
            removals("filter", rules),
            [
                "-D|FORWARD|-m|comment|--comment|CNI firewall plugin rules|-j|CNI-FORWARD",
                "-F|CNI-FORWARD",
                "-F|CNI-ADMIN",
                "-X|CNI-FORWARD",
                "-X|CNI-ADMIN",
            ]
        );
        for used in [
            "-A CNI-FORWARD -s 10.1.0.2/32 -j ACCEPT",
            "-A CNI-ADMIN -d 10.1.0.2/32 -j DROP",
        ] {
            assert_eq!(removals("filter", &format!("{rules}{used}\n")), [""; 0]);
        }
    }

    #[test]
    fn a_directory_stays_that_another_node_uses() {
        let dir = tempfile::tempdir().unwrap();
        let traces = |node: &str| NodeTraces {
            endpoint: String::new(),
            node: node.into(),
            root: dir.path().join("node"),
            logs: dir.path().join("logs"),
            network: dir.path().join("cni"),
            logind_conf_dir: dir.path().join("logind"),
        };
        let paths = NodePaths {
            root: dir.path().join("node"),
            logs: dir.path().join("logs"),
        };
        for node in ["a", "b"] {
            mark_root(&paths, node).unwrap();
        }
        let volume = paths.root.join("volumes/pvc-1");
        fs::create_dir_all(&volume).unwrap();
        fs::create_dir_all(paths.root.join("image_manager/pulled")).unwrap();
        traces("a").remove_root().unwrap();
        assert!(volume.exists());
        // A second removal finds nothing to do.
        traces("a").remove_root().unwrap();
        traces("b").remove_root().unwrap();
        assert!(!paths.root.exists());
    }

    #[test]
    fn other_files_and_networks_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for made in [
            "node/seccomp",
            "logs/default_web_u1/c",
            "logs/default_db_u2/c",
            "cni",
        ] {
            fs::create_dir_all(path(made)).unwrap();
        }
        let file = path("cni").join(FILE);
        fs::write(&file, r#"{"name":"mizzen-other"}"#).unwrap();
        let traces = NodeTraces {
            endpoint: String::new(),
            node: "a".into(),
            root: path("node"),
            logs: path("logs"),
            network: path("cni"),
            logind_conf_dir: path("logind"),
        };
        traces.remove_logs(&[Str::from("u1")].into()).unwrap();
        traces.remove_network().unwrap();
        traces.remove_root().unwrap();
        assert!(!path("logs/default_web_u1").exists());
        assert!(path("logs/default_db_u2/c").exists());
        assert!(path("node/seccomp").exists() && file.exists());
    }
}
