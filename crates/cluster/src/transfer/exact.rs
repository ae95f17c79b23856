//! Objects with their uids, and maybe their revisions, into a data directory that no server uses or into etcd.
//!
//! They are decoded and converted to the storage version, and stored as they are: nothing is defaulted, validated or
//! allocated. With revisions the directory or etcd must be new, since one counter numbers the writes of a store; it ends at
//! the revision of the source, so that no number is issued twice, also of writes that no object shows. A directory
//! appears under its name once it is complete; etcd is written to at the end (`numbered`).

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mizzen_controlplane::Options;
use mizzen_encryption::Encryption;
use mizzen_etcd::client::Client as EtcdClient;
use mizzen_object::decode::decode;
use mizzen_object::{GroupVersionKind, Status};
use mizzen_registry::{Key, Resource, Revision};
use mizzen_store::{CreatedRecord, Expect};
use mizzen_value::{Value, json};
use tokio::time::{Instant, sleep};

use super::apply::Applied;
use super::directory::{DirectoryError, OfflineServer, blocking, make_keys, store_options};
use super::numbered::{NumberedError, write_numbered};
use super::{ImportOptions, Keep, OnConflict, Outcome, group_of};

/// How long a new definition may take to be served.
const DEFINE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often that is checked.
const DEFINE_INTERVAL: Duration = Duration::from_millis(5);

/// Why a directory with revisions cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExactError {
    /// The directory has files.
    #[error("{} exists; revisions can only be kept in a new data directory", .0.display())]
    Exists(PathBuf),
    /// The directory cannot be written.
    #[error("cannot use {}", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The store or its keys cannot be written.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// etcd cannot be filled.
    #[error(transparent)]
    Etcd(#[from] NumberedError),
}

/// Writes objects as they are.
pub(super) struct ExactWriter {
    offline: OfflineServer,
    keep: Keep,
    on_conflict: OnConflict,
    new: Option<NewStore>,
}

/// A store that is made of records with their revisions.
struct NewStore {
    place: NewPlace,
    records: Vec<CreatedRecord>,
    /// The spaces and keys of the records.
    keys: HashSet<(Arc<str>, Arc<str>)>,
    /// The revision of the source.
    revision: Revision,
    is_dry_run: bool,
}

/// Where a new store is.
enum NewPlace {
    Directory(NewDirectory),
    Etcd(OfflineServer, EtcdClient),
}

/// A directory that does not exist yet, or is empty.
struct NewDirectory {
    path: PathBuf,
    encryption: Option<Arc<Encryption>>,
}

impl ExactWriter {
    /// Writes into a directory that is open.
    pub(super) fn into_open(
        offline: OfflineServer,
        keep: Keep,
        on_conflict: OnConflict,
    ) -> ExactWriter {
        ExactWriter {
            offline,
            keep,
            on_conflict,
            new: None,
        }
    }

    /// Makes a new directory at the end.
    pub(super) async fn into_new(
        directory: &Path,
        encryption: Option<Arc<Encryption>>,
        options: ImportOptions,
    ) -> Result<ExactWriter, ExactError> {
        check_new(directory)?;
        let path = directory.into();
        let place = NewPlace::Directory(NewDirectory { path, encryption });
        Ok(ExactWriter::into_new_store(place, options).await)
    }

    /// Fills an etcd that has no objects at the end.
    pub(super) async fn into_new_etcd(
        offline: OfflineServer,
        client: EtcdClient,
        options: ImportOptions,
    ) -> ExactWriter {
        let place = NewPlace::Etcd(offline, client);
        ExactWriter::into_new_store(place, options).await
    }

    async fn into_new_store(place: NewPlace, options: ImportOptions) -> ExactWriter {
        ExactWriter {
            offline: OfflineServer::in_memory(Options::default()).await,
            keep: options.keep,
            on_conflict: OnConflict::Fail,
            new: Some(NewStore {
                place,
                records: Vec::new(),
                keys: HashSet::new(),
                revision: options.revision.max(Revision::FIRST),
                is_dry_run: options.is_dry_run,
            }),
        }
    }

    /// Stores one object.
    pub(super) async fn write(&mut self, object: Value) -> Applied {
        let outcome = self.store(object).await;
        (outcome, Vec::new())
    }

    async fn store(&mut self, object: Value) -> Outcome {
        let Some(resource) = self.resource(&object).await else {
            let (api_version, kind) = (object["apiVersion"].str(), object["kind"].str());
            let why = format!("Mizzen does not serve {kind} in {api_version}");
            return Outcome::NotServed(why);
        };
        let metadata = &object["metadata"];
        if self.keep.uid && metadata["uid"].str().is_empty() {
            return Outcome::Failed("it has no metadata.uid; export it with --keep uid".into());
        }
        if let Err(error) = decode(&resource.kind().root, json::to_string(&object).as_bytes()) {
            return Outcome::Failed(error.to_string());
        }
        let key = Key::new(metadata["namespace"].str(), metadata["name"].str());
        let stored = match self.new.is_some() {
            true => self.collect(&resource, object).await,
            false => self.commit(&resource, &key, object).await,
        };
        stored.unwrap_or_else(|status| Outcome::Failed(status.message))
    }

    /// Adds a record to the new directory.
    async fn collect(&mut self, resource: &Resource, object: Value) -> Result<Outcome, Status> {
        let revision = object["metadata"]["resourceVersion"].str().parse();
        let Some(revision) = revision.ok().filter(|revision| *revision > 1) else {
            let why = "it has no metadata.resourceVersion above 1; export it with --keep revision";
            return Ok(Outcome::Failed(why.into()));
        };
        let registry = self.offline.server.registry();
        // Objects of a custom kind follow its definition.
        if is_definition(&object) {
            registry
                .import_copy(resource, object.clone(), Expect::Any)
                .await?;
        }
        let (key, draft) = registry.draft_copy(resource, object).await?;
        let new = self.new.as_mut().expect("it is checked by the caller");
        let space = resource.space().name().clone();
        if !new.keys.insert((space.clone(), key.clone())) {
            return Ok(Outcome::Failed("it is in the file twice".into()));
        }
        new.records.push(CreatedRecord {
            space,
            key,
            revision: Revision(revision),
            draft,
        });
        Ok(Outcome::Created)
    }

    /// Commits a record to the open directory.
    async fn commit(
        &self,
        resource: &Resource,
        key: &Key,
        object: Value,
    ) -> Result<Outcome, Status> {
        let registry = self.offline.server.registry();
        let existing = match registry.read(resource, key, "").await {
            Ok(existing) => Some(existing.value()),
            Err(status) if status.code == 404 => None,
            Err(status) => return Err(status),
        };
        if existing
            .as_ref()
            .is_some_and(|existing| is_same(existing, &object))
        {
            return Ok(Outcome::Unchanged);
        }
        let (expect, outcome) = match (&existing, self.on_conflict) {
            (None, _) => (Expect::Absent, Outcome::Created),
            (Some(_), OnConflict::Overwrite) => (Expect::Any, Outcome::Replaced),
            (Some(_), OnConflict::Skip) => return Ok(Outcome::Skipped),
            (Some(_), OnConflict::Fail) => {
                return Ok(Outcome::Failed("it exists, and differs".into()));
            }
        };
        registry.import_copy(resource, object, expect).await?;
        Ok(outcome)
    }

    /// The resource of an object. That of a custom kind appears shortly after its definition.
    async fn resource(&self, object: &Value) -> Option<Resource> {
        let api_version = object["apiVersion"].str();
        let gvk = GroupVersionKind {
            group: group_of(api_version).into(),
            version: api_version.rsplit('/').next().unwrap_or_default().into(),
            kind: object["kind"].str().into(),
        };
        let catalog = &self.offline.server.parts().catalog;
        let deadline = Instant::now() + DEFINE_TIMEOUT;
        loop {
            let found = catalog.of_kind(&gvk);
            let is_defined = || self.is_defined(&gvk);
            if found.is_some() || Instant::now() > deadline || !is_defined() {
                return found;
            }
            sleep(DEFINE_INTERVAL).await;
        }
    }

    /// Whether a definition of the kind is stored, so that it will be served.
    fn is_defined(&self, gvk: &GroupVersionKind) -> bool {
        let catalog = &self.offline.server.parts().catalog;
        let definitions = catalog.get("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        definitions.is_some_and(|definitions| {
            let snapshot = definitions.space().snapshot();
            snapshot.range("", None).any(|record| {
                let definition = json::parse(&record.value).unwrap_or_default();
                let spec = &definition["spec"];
                spec["group"].str() == gvk.group.as_str()
                    && spec["names"]["kind"].str() == gvk.kind.as_str()
            })
        })
    }

    /// Makes everything durable.
    pub(super) async fn finish(self) -> Result<(), ExactError> {
        let new = self.new;
        self.offline.close().await;
        match new.filter(|new| !new.is_dry_run) {
            Some(new) => new.create().await,
            None => Ok(()),
        }
    }
}

impl NewStore {
    async fn create(self) -> Result<(), ExactError> {
        match self.place {
            NewPlace::Directory(directory) => directory.create(self.revision, self.records).await,
            NewPlace::Etcd(offline, client) => {
                let (store, records) = (&offline.store, self.records);
                let written = write_numbered(store, &client, records, self.revision).await;
                offline.close().await;
                Ok(written?)
            }
        }
    }
}

impl NewDirectory {
    async fn create(
        self,
        revision: Revision,
        records: Vec<CreatedRecord>,
    ) -> Result<(), ExactError> {
        let path = self.path;
        let fail = |source| ExactError::Io {
            path: path.clone(),
            source,
        };
        check_new(&path)?;
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        fs::create_dir_all(parent).map_err(fail)?;
        let draft = tempfile::tempdir_in(parent).map_err(fail)?;
        let journal = draft.path().join("data");
        let target = journal.clone();
        let options = store_options(self.encryption);
        blocking(move || mizzen_store::create(&target, &options, revision, records))
            .await
            .map_err(DirectoryError::from)?;
        make_keys(&journal).map_err(DirectoryError::from)?;
        // An empty directory is replaced; one that was filled meanwhile is not.
        fs::rename(&journal, &path)
            .and_then(|()| File::open(parent)?.sync_all())
            .map_err(fail)
    }
}

/// Rejects a directory that has files.
fn check_new(directory: &Path) -> Result<(), ExactError> {
    match fs::read_dir(directory) {
        Ok(mut entries) => match entries.next() {
            Some(_) => Err(ExactError::Exists(directory.into())),
            None => Ok(()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(ExactError::Io {
            path: directory.into(),
            source,
        }),
    }
}

fn is_definition(object: &Value) -> bool {
    object["kind"].str() == "CustomResourceDefinition"
        && group_of(object["apiVersion"].str()) == "apiextensions.k8s.io"
}

/// Whether two objects are equal but for the revision.
fn is_same(one: &Value, other: &Value) -> bool {
    let normal = |object: &Value| {
        let mut object = object.clone();
        object.entry("metadata").remove("resourceVersion");
        json::normalize(&mut object);
        object
    };
    normal(one) == normal(other)
}
