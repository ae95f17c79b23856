//! What a machine needs to run real containers, and how to get what it lacks.
//!
//! Invariant: all that is missing is said at once, and nothing is changed to find it out.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use mizzen_cri::messages::StatusRequest;
use mizzen_cri::{ConnectError, CriClient};
use mizzen_value::json;

use super::CriOptions;
use super::cgroup::CgroupDriver;
use super::network::{FIREWALL, has_configuration};
use super::slices::Slices;

/// The plug-ins that the network of pods is made of.
const PLUGINS: [&str; 4] = ["bridge", "host-local", "portmap", "loopback"];
/// Where distributions put them, if the runtime does not say.
const PLUGIN_DIRS: [&str; 2] = ["/opt/cni/bin", "/usr/lib/cni"];
/// Where programs of administrators are, beside those of PATH.
const SYSTEM_DIRS: [&str; 2] = ["/usr/sbin", "/sbin"];
/// The controllers of cgroups that limits need.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// A machine that cannot run real containers.
#[derive(Debug, thiserror::Error)]
pub struct Unprepared(Vec<String>);

impl fmt::Display for Unprepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this machine cannot run real containers yet:")?;
        self.0.iter().try_for_each(|lack| write!(f, "\n  - {lack}"))
    }
}

/// What was found on a machine.
#[derive(Debug)]
struct Machine {
    is_root: bool,
    runtime: Result<(), ConnectError>,
    /// Whether the agent makes the network of pods.
    makes_network: bool,
    plugin_dirs: Vec<PathBuf>,
    missing_plugins: Vec<&'static str>,
    has_firewall: bool,
    has_iptables: bool,
    has_iproute: bool,
    has_bridge: bool,
    has_overlay: bool,
    missing_controllers: Vec<&'static str>,
    /// Why systemd cannot be reached, if the runtime has its cgroup driver.
    systemd_error: Option<String>,
}

/// Finds out whether this machine can run the containers of a node.
pub(super) async fn check(options: &CriOptions, is_root: bool) -> Result<(), Unprepared> {
    let missing = Machine::inspect(options, is_root).await.missing();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(Unprepared(missing)),
    }
}

impl Machine {
    async fn inspect(options: &CriOptions, is_root: bool) -> Machine {
        let runtime = CriClient::connect(&options.endpoint).await;
        let plugin_dirs = match &runtime {
            Ok(client) => plugin_dirs_of(client).await,
            Err(_) => PLUGIN_DIRS.map(PathBuf::from).to_vec(),
        };
        let systemd_error = match &runtime {
            Ok(client) => systemd_error(client, options).await,
            Err(_) => None,
        };
        let is_there = |name: &str| plugin_dirs.iter().any(|dir| dir.join(name).is_file());
        Machine {
            is_root,
            // Without root the socket of a runtime that is there cannot be opened.
            runtime: runtime.map(drop),
            makes_network: !has_configuration(&options.network),
            missing_plugins: PLUGINS.into_iter().filter(|name| !is_there(name)).collect(),
            has_firewall: is_there(FIREWALL),
            has_iptables: is_installed("iptables"),
            has_iproute: is_installed("ip"),
            has_bridge: Path::new("/sys/module/bridge").exists() || may_load("bridge"),
            has_overlay: has_file_system("overlay") || may_load("overlay"),
            missing_controllers: missing_controllers(Path::new("/sys/fs/cgroup")),
            systemd_error,
            plugin_dirs,
        }
    }

    /// What is missing, and how to get it.
    fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if !self.is_root {
            missing.push(
                "--node-runtime cri needs root: it mounts volumes, gives files to the users of pods, and calls the \
                 container runtime, whose socket is root's. A user with a delegated cgroup can do none of these. Run it \
                 with sudo"
                    .to_owned(),
            );
        }
        match &self.runtime {
            Err(ConnectError::Socket { .. }) if !self.is_root => {}
            Err(error) => missing.push(error.to_string()),
            Ok(()) => {}
        }
        if self.makes_network {
            if !self.missing_plugins.is_empty() {
                let dirs: Vec<String> = self
                    .plugin_dirs
                    .iter()
                    .map(|dir| dir.display().to_string())
                    .collect();
                let optional = match self.has_firewall {
                    true => "",
                    false => {
                        " (nor firewall, which pods need where the machine drops what it forwards)"
                    }
                };
                missing.push(format!(
                    "no CNI plug-in {} in {}{optional}: on Debian, apt install containernetworking-plugins; elsewhere unpack \
                     a release of github.com/containernetworking/plugins",
                    self.missing_plugins.join(", "),
                    dirs.join(" or "),
                ));
            }
            if !self.has_iptables {
                missing.push(
                    "no iptables, with which the CNI plug-ins translate addresses: on Debian, apt install iptables"
                        .to_owned(),
                );
            }
            if !self.has_iproute {
                missing.push(
                    "no ip, with which pods get the address of the API server: on Debian, apt install iproute2"
                        .to_owned(),
                );
            }
            if !self.has_bridge {
                missing.push(
                    "the kernel has no bridges (CONFIG_BRIDGE), which connect pods: load or install its module bridge"
                        .to_owned(),
                );
            }
        }
        if !self.has_overlay {
            missing.push(
                "the kernel has no overlayfs (CONFIG_OVERLAY_FS), on which containers have their root: load or install its \
                 module overlay"
                    .to_owned(),
            );
        }
        if !self.missing_controllers.is_empty() {
            missing.push(format!(
                "no cgroup controller {} below /sys/fs/cgroup: mount cgroup2 there, or as root in a container have its \
                 runtime delegate a cgroup with these controllers to it",
                self.missing_controllers.join(", "),
            ));
        }
        if let Some(error) = &self.systemd_error {
            missing.push(format!(
                "the container runtime has the cgroup driver systemd (SystemdCgroup = true), but {error}: run systemd and its \
                 system bus, or set SystemdCgroup = false where the machine has no systemd",
            ));
        }
        missing
    }
}

/// Why the slices of pods cannot be made, if the runtime expects systemd to make them.
async fn systemd_error(client: &CriClient, options: &CriOptions) -> Option<String> {
    match CgroupDriver::of(client).await {
        CgroupDriver::Cgroupfs => None,
        CgroupDriver::Systemd => {
            let slices = Slices::new(options.system_bus.clone());
            slices.check().await.err().map(|error| error.to_string())
        }
    }
}

/// Whether the runtime has a CNI plug-in.
pub(super) async fn has_plugin(client: &CriClient, name: &str) -> bool {
    let dirs = plugin_dirs_of(client).await;
    dirs.iter().any(|dir| dir.join(name).is_file())
}

/// Where the CNI plug-ins are.
async fn plugin_dirs_of(client: &CriClient) -> Vec<PathBuf> {
    match plugin_dirs(client).await {
        unknown if unknown.is_empty() => PLUGIN_DIRS.map(PathBuf::from).to_vec(),
        configured => configured,
    }
}

/// Where the runtime looks for CNI plug-ins, if it says.
async fn plugin_dirs(client: &CriClient) -> Vec<PathBuf> {
    let Ok(status) = client.call(StatusRequest { verbose: true }).await else {
        return Vec::new();
    };
    let config = status.info.get("config").map_or("", String::as_str);
    configured_dirs(config)
}

/// `binDir` in containerd 1, `binDirs` in containerd 2.
fn configured_dirs(config: &str) -> Vec<PathBuf> {
    let config = json::parse(config.as_bytes()).unwrap_or_default();
    let (one, several) = (&config["cni"]["binDir"], &config["cni"]["binDirs"]);
    let dirs = several.list().iter().chain([one]).map(|dir| dir.str());
    dirs.filter(|dir| !dir.is_empty())
        .map(PathBuf::from)
        .collect()
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(SYSTEM_DIRS.map(PathBuf::from));
    dirs.into_iter().any(|dir| dir.join(program).is_file())
}

fn has_file_system(name: &str) -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known
        .lines()
        .any(|line| line.split_whitespace().last() == Some(name))
}

/// Whether the kernel may have a module. In a container its modules are often not to be seen; then
/// it may.
fn may_load(module: &str) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let dir = Path::new("/lib/modules").join(release.trim());
    let lists = ["modules.dep", "modules.builtin"].map(|name| fs::read_to_string(dir.join(name)));
    let mut readable = lists.iter().flatten().peekable();
    readable.peek().is_none() || readable.any(|list| list.contains(&format!("/{module}.ko")))
}

/// Kubernetes: version 2 has a file with its controllers, version 1 a directory for each.
fn missing_controllers(root: &Path) -> Vec<&'static str> {
    let unified = fs::read_to_string(root.join("cgroup.controllers"));
    let is_there = |name: &&str| match &unified {
        Ok(controllers) => controllers.split_whitespace().any(|known| known == *name),
        Err(_) => root.join(name).is_dir(),
    };
    CONTROLLERS
        .into_iter()
        .filter(|name| !is_there(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            is_root: true,
            runtime: Ok(()),
            makes_network: true,
            plugin_dirs: vec!["/opt/cni/bin".into()],
            missing_plugins: Vec::new(),
            has_firewall: true,
            has_iptables: true,
            has_iproute: true,
            has_bridge: true,
            has_overlay: true,
            missing_controllers: Vec::new(),
            systemd_error: None,
        }
    }

    fn bare() -> Machine {
        let endpoint = "unix:///none.sock".into();
        Machine {
            is_root: false,
            runtime: Err(ConnectError::Missing { endpoint }),
            missing_plugins: vec!["bridge", "portmap"],
            has_firewall: false,
            has_iptables: false,
            has_iproute: false,
            has_bridge: false,
            has_overlay: false,
            missing_controllers: vec!["memory"],
            systemd_error: Some("systemd cannot be reached".into()),
            ..machine()
        }
    }

    #[test]
    fn all_that_is_missing_is_said_at_once() {
        assert_eq!(machine().missing(), [""; 0]);
        let text = Unprepared(bare().missing()).to_string();
        let lacks: Vec<&str> = text.lines().skip(1).collect();
        for (lack, expected) in lacks.iter().zip([
            "needs root",
            "apt install containerd",
            "no CNI plug-in bridge, portmap in /opt/cni/bin (nor firewall, ",
            "apt install iptables",
            "apt install iproute2",
            "CONFIG_BRIDGE",
            "CONFIG_OVERLAY_FS",
            "no cgroup controller memory",
            "(SystemdCgroup = true), but systemd cannot be reached: run systemd",
        ]) {
            assert!(lack.contains(expected), "{lack}: {expected}");
        }
        assert_eq!(lacks.len(), 9);
        assert!(lacks[0].contains("A user with a delegated cgroup can do none of these"));
        assert!(lacks[7].contains("as root in a container have its runtime delegate a cgroup"));
    }

    #[test]
    fn a_network_of_the_user_needs_nothing_of_ours() {
        let machine = Machine {
            makes_network: false,
            ..bare()
        };
        assert_eq!(machine.missing().len(), 5);
    }

    #[test]
    fn the_runtime_says_where_its_plug_ins_are() {
        let check = |config: &str, expected: &[&str]| {
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(configured_dirs(config), expected, "{config}");
        };
        check(r#"{"cni":{"binDir":"/a"}}"#, &["/a"]);
        check(r#"{"cni":{"binDirs":["/a","/b"]}}"#, &["/a", "/b"]);
        check("", &[]);
    }

    #[test]
    fn controllers_of_both_versions_of_cgroups_are_found() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(missing_controllers(dir.path()), CONTROLLERS);
        for name in ["cpu", "pids"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        assert_eq!(missing_controllers(dir.path()), ["memory"]);
        fs::write(dir.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        assert_eq!(missing_controllers(dir.path()), [""; 0]);
    }
}
