//! `cluster.json`: the last run of a cluster. It also marks a directory as one of Mizzen, for `mizzen down --purge`.

use std::path::{Path, PathBuf};

use mizzen_bootstrap::pki::{PkiError, write_private};
use mizzen_node::cri::NodeTraces;
use mizzen_node::shutdown::ShutdownConfig;
use mizzen_value::{Value, json, value};

const KIND: &str = "MizzenCluster";

/// The last run of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RunRecord {
    /// The process; it may have ended.
    pub(crate) pid: i32,
    /// The port, which a named cluster keeps; 0 if it was never ready.
    pub(crate) port: u16,
    /// The URL of the API server.
    pub(crate) server: String,
    /// The time at which it was ready.
    pub(crate) since: String,
    /// The version of Mizzen.
    pub(crate) version: String,
    /// The number of simulated nodes.
    pub(crate) n_nodes: u32,
    /// The administrator's kubeconfig.
    pub(crate) kubeconfig: PathBuf,
    /// The log; none in the foreground.
    pub(crate) log: Option<PathBuf>,
    /// Where nodes with real containers of this or an earlier run left something on this machine.
    pub(crate) real_nodes: Vec<NodeTraces>,
}

impl RunRecord {
    /// The record in a file; none if the file is missing or is not a record.
    pub(super) fn read(path: &Path) -> Option<RunRecord> {
        let value = json::parse(&std::fs::read(path).ok()?).ok()?;
        if value["kind"].str() != KIND {
            return None;
        }
        let path = |key: &str| value[key].as_str().map(PathBuf::from);
        Some(RunRecord {
            pid: i32::try_from(value["pid"].int()).unwrap_or_default(),
            port: u16::try_from(value["port"].int()).unwrap_or_default(),
            server: value["server"].str().into(),
            since: value["since"].str().into(),
            version: value["version"].str().into(),
            n_nodes: u32::try_from(value["nodes"].int()).unwrap_or_default(),
            kubeconfig: path("kubeconfig").unwrap_or_default(),
            log: path("log"),
            real_nodes: value["realNodes"].list().iter().map(read_traces).collect(),
        })
    }

    /// Replaces the file.
    pub(super) fn write(&self, path: &Path) -> Result<(), PkiError> {
        let text = |path: &Path| path.display().to_string();
        let mut value = value!({
            "kind": KIND,
            "pid": (self.pid),
            "port": (self.port),
            "server": (&self.server),
            "since": (&self.since),
            "version": (&self.version),
            "nodes": (self.n_nodes),
            "kubeconfig": (text(&self.kubeconfig)),
        });
        if let Some(log) = &self.log {
            value.set("log", Value::from(text(log)));
        }
        if !self.real_nodes.is_empty() {
            let traces: Vec<Value> = self.real_nodes.iter().map(write_traces).collect();
            value.set("realNodes", traces);
        }
        write_private(path, &(json::to_string(&value) + "\n"))
    }
}

fn read_traces(value: &Value) -> NodeTraces {
    NodeTraces {
        endpoint: value["endpoint"].str().into(),
        node: value["node"].str().into(),
        root: value["root"].str().into(),
        logs: value["logs"].str().into(),
        network: value["network"].str().into(),
        logind_conf_dir: match value["logindConfDir"].str() {
            "" => ShutdownConfig::default().logind_conf_dir,
            dir => dir.into(),
        },
    }
}

fn write_traces(traces: &NodeTraces) -> Value {
    let text = |path: &Path| path.display().to_string();
    value!({
        "endpoint": (&traces.endpoint),
        "node": (&traces.node),
        "root": (text(&traces.root)),
        "logs": (text(&traces.logs)),
        "network": (text(&traces.network)),
        "logindConfDir": (text(&traces.logind_conf_dir)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_other_files_are_not_records() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("cluster.json");
        assert_eq!(RunRecord::read(&file), None);
        std::fs::write(&file, r#"{"kind":"Other","pid":1}"#).unwrap();
        assert_eq!(RunRecord::read(&file), None);
        let record = RunRecord {
            pid: 7,
            port: 6443,
            server: "https://127.0.0.1:6443".into(),
            since: "2026-01-01T00:00:00Z".into(),
            version: "0.1.0".into(),
            n_nodes: 3,
            kubeconfig: "/a/admin.kubeconfig".into(),
            log: Some("/a/mizzen.log".into()),
            real_nodes: vec![NodeTraces {
                endpoint: "unix:///a.sock".into(),
                node: "n".into(),
                root: "/a/node".into(),
                logs: "/a/logs".into(),
                network: "/a/cni".into(),
                logind_conf_dir: "/a/logind".into(),
            }],
        };
        record.write(&file).unwrap();
        assert_eq!(RunRecord::read(&file), Some(record));
    }
}
