//! A bucket outside the cluster, removed before its object is deleted.
//!
//! A [`Bucket`] stands for something that the API server knows nothing about. The controller creates it, and a finalizer
//! keeps the object until the controller has removed it: first the finalizer, then the bucket; first the bucket's
//! removal, then the finalizer's. Every step can be repeated, so a crash between two of them loses nothing.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use kube::api::Api;
use kube::{CustomResource, ResourceExt as _};
use mizzen_sdk::controller::{Action, Context, Controller, Error, ReconcileObject, typed};
use mizzen_sdk::{owner, write};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The finalizer of this controller.
pub const FINALIZER: &str = "example.com/bucket";

/// Where the bucket is.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Bucket",
    namespaced,
    status = "BucketStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Region","type":"string","jsonPath":".spec.region"}"#,
    printcolumn = r#"{"name":"Id","type":"string","jsonPath":".status.id"}"#
)]
pub struct BucketSpec {
    /// The region.
    pub region: String,
}

/// What the storage says of the bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BucketStatus {
    /// Its identifier in the storage.
    pub id: String,
}

/// The storage of buckets outside the cluster. Both operations are idempotent.
pub trait Storage: Send + Sync + 'static {
    /// Creates a bucket, unless it exists.
    fn create(&self, id: &str) -> Result<(), io::Error>;
    /// Removes a bucket, if it exists.
    fn remove(&self, id: &str) -> Result<(), io::Error>;
}

/// Buckets that are directories.
pub struct Directory(PathBuf);

impl Directory {
    /// Keeps buckets in `path`.
    pub fn new(path: PathBuf) -> Directory {
        Directory(path)
    }
}

impl Storage for Directory {
    fn create(&self, id: &str) -> Result<(), io::Error> {
        std::fs::create_dir_all(self.0.join(id))
    }

    fn remove(&self, id: &str) -> Result<(), io::Error> {
        match std::fs::remove_dir_all(self.0.join(id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

/// The controller.
pub fn controller(context: &Context, storage: impl Storage) -> Controller {
    Controller::for_kind(context, typed::<Bucket>())
        .record_failures("BucketFailed")
        .reconcile_objects(Buckets(storage))
}

struct Buckets<S>(S);

impl<S: Storage> ReconcileObject<Bucket> for Buckets<S> {
    async fn reconcile(&self, bucket: Arc<Bucket>, context: &Context) -> Result<Action, Error> {
        let namespace = bucket.namespace().unwrap_or_default();
        let buckets: Api<Bucket> = Api::namespaced(context.client(), &namespace);
        // A UID names one object for ever; a name may come back.
        let (name, id) = (bucket.name_any(), bucket.uid().unwrap_or_default());
        if owner::is_terminating(&*bucket) {
            if owner::has_finalizer(&*bucket, FINALIZER) {
                self.0.remove(&id).map_err(Error::other)?;
                let removed = write::update(&buckets, &name, |bucket| {
                    owner::remove_finalizer(bucket, FINALIZER);
                });
                write::ignore_not_found(removed.await)?;
            }
            return Ok(Action::done());
        }
        if !owner::has_finalizer(&*bucket, FINALIZER) {
            write::update(&buckets, &name, |bucket| {
                // It may have been deleted in the meantime; then nothing must be added.
                if !owner::is_terminating(bucket) {
                    owner::add_finalizer(bucket, FINALIZER);
                }
            })
            .await?;
            // The event of this write enqueues it again.
            return Ok(Action::done());
        }
        self.0.create(&id).map_err(Error::other)?;
        let status = Some(BucketStatus { id });
        if bucket.status != status {
            write::update_status(&buckets, &name, |bucket| bucket.status = status.clone()).await?;
        }
        Ok(Action::done())
    }
}
