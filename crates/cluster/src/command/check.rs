//! `mizzen check`: whether a data directory is whole.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use mizzen_object::decode::decode;
use mizzen_object::structural::Structural;
use mizzen_object::{Kind, KindData, Violations, custom};
use mizzen_store::{Encryptor, OpenError, Options, Record, Store};
use mizzen_value::{Value, json};

use super::cluster_args::ClusterArgs;
use super::server::EncryptionArgs;
use crate::backup_file::{NoObjects, check_has_journal};
use crate::compose::ComposeError;
use crate::definitions::{DEFINITIONS, by_keyspace};
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
    /// Objects are damaged, or do not fit their schemas.
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
        let built_in = built_in_kinds();
        let definitions = by_keyspace(&store.keyspace(DEFINITIONS).snapshot());
        let (mut n_objects, mut n_damaged) = (0, 0);
        for space in store.stats() {
            let snapshot = store.keyspace(&space.name).snapshot();
            let definition = definitions
                .get(&*space.name)
                .filter(|_| !snapshot.is_empty());
            let schemas = Schemas {
                built_in: &built_in,
                custom: definition.map_or_else(Vec::new, CustomVersion::all),
            };
            for record in snapshot.range("", None) {
                n_objects += 1;
                if let Err(problem) = check_object(record, &schemas) {
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

/// The built-in kinds, by apiVersion and kind.
type BuiltIn = HashMap<(String, &'static str), &'static KindData>;

/// What the objects of a space can be.
struct Schemas<'a> {
    built_in: &'a BuiltIn,
    custom: Vec<CustomVersion>,
}

/// A version of a CustomResourceDefinition.
struct CustomVersion {
    kind: Kind,
    schema: Structural,
}

fn built_in_kinds() -> BuiltIn {
    let kinds = mizzen_schemas::schemas().kinds.iter();
    let named = kinds.map(|kind| {
        let api_version = kind.gvk.api_version().to_string();
        ((api_version, kind.gvk.kind.as_str()), kind)
    });
    named.collect()
}

impl CustomVersion {
    fn all(definition: &Value) -> Vec<CustomVersion> {
        let spec = &definition["spec"];
        let preserve_unknown = spec["preserveUnknownFields"].bool();
        let kinds = custom::kinds(definition, &mizzen_schemas::object_meta());
        let schemas = spec["versions"].list().iter().map(|version| {
            Structural::compile(&version["schema"]["openAPIV3Schema"], preserve_unknown)
        });
        let versions = kinds.into_iter().zip(schemas);
        versions
            .map(|(kind, schema)| CustomVersion { kind, schema })
            .collect()
    }

    /// Whether an object is what the schema says, after it is pruned and defaulted, as it is when it is read. CEL rules
    /// are for writes.
    fn check(&self, text: &[u8]) -> Result<(), String> {
        let decoded = decode(&self.kind.root, text).map_err(|error| error.to_string())?;
        let mut object = decoded.value;
        self.schema.prune(&mut object);
        self.schema.default(&mut object);
        let mut violations = Violations::default();
        self.schema.validate(&object, None, &mut violations);
        self.schema.validate_embedded(&object, &mut violations);
        self.schema.validate_lists(&object, None, &mut violations);
        match violations.aggregate() {
            None => Ok(()),
            Some(why) => Err(format!(
                "it does not fit its CustomResourceDefinition, which may have changed since: {why}"
            )),
        }
    }
}

/// Whether a stored object is what its key and the schema of its kind say.
fn check_object(record: &Record, schemas: &Schemas<'_>) -> Result<(), String> {
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
    if let Some(kind) = schemas.built_in.get(&(api_version.to_owned(), kind)) {
        let decoded = decode(&kind.root, &record.value);
        return decoded.map(drop).map_err(|error| error.to_string());
    }
    let is_own = |version: &&CustomVersion| {
        let gvk = &version.kind.gvk;
        gvk.api_version() == api_version && gvk.kind == kind
    };
    match schemas.custom.iter().find(is_own) {
        Some(version) => version.check(&record.value),
        None => Err(format!(
            "{kind} in {api_version} is neither built in nor in a CustomResourceDefinition"
        )),
    }
}
