//! The cgroup driver of the runtime, which the agent must share.

use mizzen_cri::messages::{CgroupDriver as CriCgroupDriver, RuntimeConfigRequest, StatusRequest};
use mizzen_cri::{Code, CriClient};
use mizzen_value::{Value, json};

use super::cgroup::CgroupDriver;

impl CgroupDriver {
    /// The driver of a runtime. Older ones do not say it as CRI has it, such as containerd before 2.0;
    /// theirs is in their configuration, if they show it, or else the default, cgroupfs.
    pub(super) async fn of(client: &CriClient) -> CgroupDriver {
        match client.call(RuntimeConfigRequest {}).await {
            Ok(config) => match config.linux.map(|linux| linux.cgroup_driver()) {
                Some(CriCgroupDriver::Systemd) => CgroupDriver::Systemd,
                Some(CriCgroupDriver::Cgroupfs) | None => CgroupDriver::Cgroupfs,
            },
            Err(error) => {
                if error.code != Code::Unimplemented {
                    tracing::warn!(%error, "the runtime does not say its cgroup driver, reading its configuration");
                }
                let status = client.call(StatusRequest { verbose: true }).await;
                let info = status.map(|status| status.info).unwrap_or_default();
                configured(info.get("config").map_or("", String::as_str))
            }
        }
    }
}

/// The driver in the configuration of containerd: that of the default handler, or of the first one
/// that has it. Kubernetes: containerd 2.0 answers in the same order.
fn configured(config: &str) -> CgroupDriver {
    let config = json::parse(config.as_bytes()).unwrap_or_default();
    let containerd = &config["containerd"];
    let default = containerd["defaultRuntimeName"].str();
    let mut handlers: Vec<(&str, &Value)> = containerd["runtimes"].entries().collect();
    handlers.sort_by_key(|(name, _)| (*name != default, *name));
    let mut options = handlers
        .iter()
        .map(|(_, handler)| &handler["options"]["SystemdCgroup"]);
    let uses_systemd = options
        .find_map(Value::as_bool)
        .unwrap_or_else(|| config["systemdCgroup"].bool());
    match uses_systemd {
        true => CgroupDriver::Systemd,
        false => CgroupDriver::Cgroupfs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_driver_is_that_of_the_default_handler() {
        let (files, systemd) = (CgroupDriver::Cgroupfs, CgroupDriver::Systemd);
        for (config, expected) in [
            ("", files),
            ("{}", files),
            (r#"{"systemdCgroup":true}"#, systemd),
            (
                r#"{"containerd":{"defaultRuntimeName":"runc","runtimes":{"a":{"options":{"SystemdCgroup":false}},"runc":{"options":{"SystemdCgroup":true}}}}}"#,
                systemd,
            ),
            (
                r#"{"containerd":{"defaultRuntimeName":"runc","runtimes":{"a":{"options":{"SystemdCgroup":true}},"runc":{"options":{"SystemdCgroup":false}}}}}"#,
                files,
            ),
            (
                r#"{"containerd":{"defaultRuntimeName":"gvisor","runtimes":{"gvisor":{"options":null},"runc":{"options":{"SystemdCgroup":true}}}}}"#,
                systemd,
            ),
        ] {
            assert_eq!(configured(config), expected, "{config}");
        }
    }
}
