//! Where objects go: an API server, a data directory that no server uses, or etcd.

use std::path::Path;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt as _};
use kube::Client;
use mizzen_controlplane::Options;
use mizzen_encryption::Encryption;
use mizzen_etcd::client::Client as EtcdClient;
use mizzen_sdk::write::message;
use mizzen_store::Revision;
use mizzen_value::Value;

use super::apply::Applier;
use super::directory::{DirectoryError, EtcdObjects, OfflineServer};
use super::exact::{ExactError, ExactWriter};
use super::order::{Stage, stages};
use super::request::Requests;
use super::selection::{Selected, Selection};
use super::strip::strip;
use super::{Keep, OnConflict, Report};

/// How many objects are written at the same time.
const CONCURRENCY: usize = 16;

/// How the requests of an import introduce themselves.
const AGENT: &str = "mizzen-import";

/// Why objects cannot be imported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TargetError {
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// The new directory cannot be made.
    #[error(transparent)]
    Exact(#[from] ExactError),
    /// Discovery failed.
    #[error("cannot discover the resources of the server: {0}")]
    Discover(String),
    /// An API server gives every object its own identity.
    #[error(
        "--keep {0}: an API server sets it anew; stop the server and name its data directory, or keep other fields"
    )]
    Identity(&'static str),
    /// The etcd has objects.
    #[error(
        "etcd has objects already; add to them with --into-existing (not with --keep revision), or choose another --etcd-prefix"
    )]
    NotEmpty,
    /// Revisions without uids.
    #[error("--keep revision needs --keep uid, too")]
    RevisionAlone,
}

/// How objects are imported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ImportOptions {
    pub(crate) keep: Keep,
    pub(crate) on_conflict: OnConflict,
    pub(crate) is_dry_run: bool,
    /// Whether etcd may have objects already.
    pub(crate) into_existing: bool,
    /// The revision of the source, which the target has, too, if revisions are kept; zero if it is not known.
    pub(crate) revision: Revision,
}

/// Where objects go.
pub(crate) enum Target<'a> {
    /// An API server.
    Server(Client),
    /// A data directory that no server uses.
    Directory {
        directory: &'a Path,
        encryption: Option<Arc<Encryption>>,
        /// How the API server over it allocates.
        options: Box<Options>,
    },
    /// An etcd cluster, which servers may use meanwhile.
    Etcd {
        objects: EtcdObjects,
        client: EtcdClient,
        /// How the API server over it allocates.
        options: Box<Options>,
    },
}

impl Target<'_> {
    /// Imports the selected objects, and reports each.
    pub(crate) async fn import(
        self,
        objects: Vec<Value>,
        selection: &Selection,
        options: ImportOptions,
        report: &mut Report,
    ) -> Result<Imported, TargetError> {
        let keep = options.keep;
        if keep.revision && !keep.uid {
            return Err(TargetError::RevisionAlone);
        }
        let mut imported = Imported::default();
        let objects = imported.select(objects, selection, &keep);
        match self {
            Target::Server(_) if keep.revision => return Err(TargetError::Identity("revision")),
            Target::Server(_) if keep.uid => return Err(TargetError::Identity("uid")),
            Target::Server(client) => {
                apply(Requests::new(client), objects, options, report).await?;
            }
            Target::Directory {
                directory,
                encryption,
                options: server,
            } => {
                if keep.revision {
                    let writer = ExactWriter::into_new(directory, encryption, options).await?;
                    write_exactly(writer, objects, report).await?;
                    return Ok(imported);
                }
                let ranges = server.service_ranges.clone();
                let offline = match options.is_dry_run {
                    true => OfflineServer::open_copy(directory, encryption, *server).await?,
                    false => OfflineServer::open(directory, encryption, *server).await?,
                };
                if keep.uid {
                    let writer = ExactWriter::into_open(offline, keep, options.on_conflict);
                    write_exactly(writer, objects, report).await?;
                    return Ok(imported);
                }
                offline.bootstrap(ranges).await?;
                apply_offline(offline, objects, options, report).await?;
            }
            Target::Etcd {
                objects: etcd,
                client,
                options: server,
            } => {
                let ranges = server.service_ranges.clone();
                let offline = match options.is_dry_run {
                    true => OfflineServer::etcd_copy(etcd, *server).await?,
                    false => OfflineServer::on_etcd(etcd.store, *server).await?,
                };
                let is_empty = offline.is_empty();
                if !is_empty && (keep.revision || !options.into_existing) {
                    return Err(TargetError::NotEmpty);
                }
                if keep.uid {
                    let writer = match keep.revision {
                        true => ExactWriter::into_new_etcd(offline, client, options).await,
                        false => ExactWriter::into_open(offline, keep, options.on_conflict),
                    };
                    write_exactly(writer, objects, report).await?;
                    return Ok(imported);
                }
                if is_empty {
                    offline.bootstrap(ranges).await?;
                }
                apply_offline(offline, objects, options, report).await?;
            }
        }
        Ok(imported)
    }
}

/// The objects that were left out.
#[derive(Debug, Default)]
pub(crate) struct Imported {
    /// Objects that clusters make themselves.
    pub(crate) n_generated: usize,
    /// Objects that are being deleted.
    pub(crate) n_deleting: usize,
}

impl Imported {
    fn select(&mut self, objects: Vec<Value>, selection: &Selection, keep: &Keep) -> Vec<Value> {
        let mut selected = Vec::with_capacity(objects.len());
        for mut object in objects {
            match selection.check(&object, "", keep) {
                Selected::Yes => {
                    strip(&mut object, keep);
                    selected.push(object);
                }
                Selected::No => {}
                Selected::Generated => self.n_generated += 1,
                Selected::Deleting => self.n_deleting += 1,
            }
        }
        selected
    }
}

/// Writes objects through an API server, stage by stage.
async fn apply(
    requests: Requests,
    objects: Vec<Value>,
    options: ImportOptions,
    report: &mut Report,
) -> Result<(), TargetError> {
    let applier = Applier::new(requests, options.on_conflict, options.is_dry_run, &objects).await;
    let discover = |error| TargetError::Discover(message(&error));
    let applier = applier.map_err(discover)?;
    for stage in stages(objects) {
        let definitions = definitions(&stage);
        let applied = stage.into_iter().map(|object| {
            let applier = &applier;
            async move {
                let applied = applier.apply(object.clone()).await;
                (object, applied)
            }
        });
        let mut applied = stream::iter(applied).buffered(CONCURRENCY);
        while let Some((object, (outcome, notes))) = applied.next().await {
            report.add(&object, outcome, &notes);
        }
        applier.establish(&definitions).await.map_err(discover)?;
    }
    Ok(())
}

/// Writes objects through the API server of a directory or of etcd.
async fn apply_offline(
    offline: OfflineServer,
    objects: Vec<Value>,
    options: ImportOptions,
    report: &mut Report,
) -> Result<(), TargetError> {
    // A copy in memory is written to for real.
    let options = ImportOptions {
        is_dry_run: false,
        ..options
    };
    let applied = apply(offline.requests(AGENT), objects, options, report).await;
    offline.close().await;
    applied
}

/// Stores objects as they are.
async fn write_exactly(
    mut writer: ExactWriter,
    objects: Vec<Value>,
    report: &mut Report,
) -> Result<(), TargetError> {
    for stage in stages(objects) {
        for object in stage {
            let (outcome, notes) = writer.write(object.clone()).await;
            report.add(&object, outcome, &notes);
        }
    }
    Ok(writer.finish().await?)
}

fn definitions(stage: &Stage) -> Vec<Value> {
    let is_definition = |object: &&Value| object["kind"].str() == "CustomResourceDefinition";
    stage.iter().filter(is_definition).cloned().collect()
}
