//! `mizzen check`: whether a data directory is whole.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use mizzen_object::KindData;
use mizzen_object::decode::decode;
use mizzen_store::{Encryptor, OpenError, Options, Record, Store};
use mizzen_value::{Value, json};

use super::cluster_args::ClusterArgs;
use super::server::EncryptionArgs;
use crate::backup_file::{NoObjects, check_has_journal};
use crate::compose::ComposeError;
use crate::log::write_output;

/// Verify every checksum and object of a data directory
#[derive(Args)]
#[command(after_help = "Example:\n  mizzen down && mizzen check\n  \
                        mizzen restore monday.backup --name monday && mizzen check --name monday")]
pub(crate) struct CheckCommand {
    /// Check this data directory
    #[arg(value_name = "DIR", conflicts_with_all = ["name", "data_dir"])]
    directory: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    encryption: EncryptionArgs,
}

/// What is wrong with a data directory.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    /// The journal is damaged or cannot be read.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The objects are in etcd.
    #[error(transparent)]
    NoObjects(#[from] NoObjects),
    /// The encryption cannot be configured.
    #[error(transparent)]
    Encryption(#[from] ComposeError),
    /// No runtime for KMS plug-ins.
    #[error("cannot start")]
    Start(#[from] std::io::Error),
    /// Objects are damaged.
    #[error("{0} of {1} objects are damaged")]
    Damaged(usize, usize),
}

impl CheckCommand {
    /// Checks the directory, and prints what it holds.
    pub(crate) fn run(self) -> Result<(), CheckError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let encryption = runtime.block_on(self.encryption.encryption())?;
        let options = Options {
            encryptor: encryption.map(|encryption| encryption as Arc<dyn Encryptor>),
            ..Options::default()
        };
        let directory = match &self.directory {
            Some(directory) => directory.clone(),
            None => self.cluster.directory().path,
        };
        check_has_journal(&directory)?;
        let store = Store::open_read_only(&directory, options)?;
        let kinds: HashMap<(String, &str), &KindData> = mizzen_schemas::schemas()
            .kinds
            .iter()
            .map(|kind| {
                (
                    (kind.gvk.api_version().to_string(), kind.gvk.kind.as_str()),
                    kind,
                )
            })
            .collect();
        let (mut n_objects, mut n_damaged) = (0, 0);
        for space in store.stats() {
            let snapshot = store.keyspace(&space.name).snapshot();
            for record in snapshot.range("", None) {
                n_objects += 1;
                if let Err(problem) = check_object(record, &kinds) {
                    n_damaged += 1;
                    write_output(format_args!("{} {}: {problem}", space.name, record.key));
                }
            }
        }
        if n_damaged > 0 {
            return Err(CheckError::Damaged(n_damaged, n_objects));
        }
        let stats = store.stats();
        let n_resources = stats.iter().filter(|space| space.records > 0).count();
        write_output(format_args!(
            "{} is whole: {n_objects} objects of {n_resources} resources as of revision {}",
            directory.display(),
            store.revision()
        ));
        Ok(())
    }
}

/// Whether a stored object is what its key says, and a built-in kind what its schema says.
fn check_object(record: &Record, kinds: &HashMap<(String, &str), &KindData>) -> Result<(), String> {
    let object = json::parse(&record.value).map_err(|error| error.to_string())?;
    let (api_version, kind) = (object["apiVersion"].str(), object["kind"].str());
    if api_version.is_empty() || kind.is_empty() {
        return Err("apiVersion or kind is missing".into());
    }
    let metadata = &object["metadata"];
    let key = match (metadata["namespace"].str(), metadata["name"].str()) {
        ("", name) => name.to_owned(),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    if key != *record.key {
        return Err(format!("it is the object of the key {key}"));
    }
    let version = metadata["resourceVersion"].str();
    if version != record.revision.to_string() {
        return Err(format!(
            "its resourceVersion is {version}, but it was written at {}",
            record.revision
        ));
    }
    if matches!(metadata["uid"], Value::Null) {
        return Err("metadata.uid is missing".into());
    }
    match kinds.get(&(api_version.to_owned(), kind)) {
        Some(kind) => decode(&kind.root, &record.value)
            .map(drop)
            .map_err(|error| error.to_string()),
        None => Ok(()),
    }
}
