//! Copies of the controller with one bug each. Exploration finds them, and its story names the step.

use std::sync::Arc;
use std::time::Duration;

use finalizer::{Bucket, BucketStatus, FINALIZER, Storage as _};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt as _};
use mizzen_sdk::controller::{
    Action, Context, Controller, Error, ReconcileObject, resource_version_changed, typed,
};
use mizzen_sdk::{owner, write};
use mizzen_testing::{Cluster, Explore};

use super::{Memory, scenario};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bug {
    /// A bucket is created whenever the cache knows of none.
    StaleCache,
    /// The bucket is created before the finalizer is set.
    LateFinalizer,
    /// The identifier is reported before the bucket exists, and what is reported is not created.
    StatusFirst,
    /// A conflict counts as success.
    IgnoredConflict,
    /// A failed reconcile is not requeued.
    LostRequeue,
}

/// How the scenario fails.
const LEAKED: &str = "the scenario failed the buckets of the storage and of the objects";

struct Buggy {
    bug: Bug,
    storage: Memory,
}

impl ReconcileObject<Bucket> for Buggy {
    async fn reconcile(&self, bucket: Arc<Bucket>, context: &Context) -> Result<Action, Error> {
        match self.sync(&bucket, context).await {
            Err(_) if self.bug == Bug::LostRequeue => Ok(Action::done()),
            outcome => outcome.map(|()| Action::done()),
        }
    }
}

impl Buggy {
    async fn sync(&self, bucket: &Bucket, context: &Context) -> Result<(), Error> {
        let buckets: Api<Bucket> = Api::default_namespaced(context.client());
        let name = bucket.name_any();
        let reported = bucket.status.as_ref().map(|status| status.id.clone());
        // The storage gives out identifiers, and the status is where the controller remembers them.
        let id = match (&reported, self.bug) {
            (Some(id), _) => id.clone(),
            (None, Bug::StaleCache) => self.storage.new_id(),
            (None, _) => bucket.uid().unwrap_or_default(),
        };
        if owner::is_terminating(bucket) {
            if owner::has_finalizer(bucket, FINALIZER) {
                self.storage.remove(&id).map_err(Error::other)?;
                let removed = self.write(&buckets, bucket, |bucket| {
                    owner::remove_finalizer(bucket, FINALIZER);
                });
                write::ignore_not_found(removed.await)?;
            }
            return Ok(());
        }
        if self.bug == Bug::LateFinalizer {
            self.storage.create(&id).map_err(Error::other)?;
        }
        if !owner::has_finalizer(bucket, FINALIZER) {
            let added = self.write(&buckets, bucket, |bucket| {
                if !owner::is_terminating(bucket) {
                    owner::add_finalizer(bucket, FINALIZER);
                }
            });
            added.await?;
            // With an ignored conflict there may be none; then it goes on all the same.
            if self.bug != Bug::IgnoredConflict {
                return Ok(());
            }
        }
        if self.bug != Bug::StatusFirst {
            self.storage.create(&id).map_err(Error::other)?;
        }
        if reported.is_none() {
            let status = Some(BucketStatus { id: id.clone() });
            write::update_status(&buckets, &name, |bucket| bucket.status = status.clone()).await?;
            if self.bug == Bug::StatusFirst {
                self.storage.create(&id).map_err(Error::other)?;
            }
        }
        Ok(())
    }

    async fn write(
        &self,
        buckets: &Api<Bucket>,
        bucket: &Bucket,
        change: impl Fn(&mut Bucket),
    ) -> Result<(), kube::Error> {
        let name = bucket.name_any();
        if self.bug != Bug::IgnoredConflict {
            return write::update(buckets, &name, change).await.map(drop);
        }
        let mut bucket = bucket.clone();
        change(&mut bucket);
        match buckets
            .replace(&name, &PostParams::default(), &bucket)
            .await
        {
            Err(error) if write::is_conflict(&error) => Ok(()),
            outcome => outcome.map(drop),
        }
    }
}

/// Few faults are enough, and the story names the steps between which the controller went wrong.
#[track_caller]
fn is_found(bug: Bug, steps: &[&str]) {
    let explored = async |cluster: &Cluster| {
        let run = move |client: Client, storage: Memory| {
            let context = Context::new(client).named("bucket");
            // Resyncs enqueue nothing, as with controller-runtime's ResourceVersionChangedPredicate.
            let buckets = typed::<Bucket>().filter(resource_version_changed());
            Controller::for_kind(&context, buckets).reconcile_objects(Buggy { bug, storage })
        };
        scenario(cluster, run, Duration::from_secs(3)).await;
    };
    let finding = Explore::new(super::bare())
        .seeds(0..100)
        .expect_finding(explored, steps);
    let story = finding.story();
    println!("{bug:?}: {story}");
    assert!((1..=4).contains(&finding.faults.len()), "{story}");
}

#[test]
fn a_bucket_that_is_created_twice_is_found() {
    is_found(
        Bug::StaleCache,
        &[
            LEAKED,
            "bucket FAULT PUT buckets/status (photos) gets 503, not applied",
            "bucket buckets/photos status set",
        ],
    );
}

#[test]
fn a_finalizer_that_is_set_too_late_is_found() {
    is_found(
        Bug::LateFinalizer,
        &[
            LEAKED,
            "bucket FAULT GET buckets (videos) is answered",
            "test buckets/videos deleted",
        ],
    );
}

#[test]
fn an_identifier_that_is_reported_before_the_bucket_exists_is_found() {
    is_found(
        Bug::StatusFirst,
        &[
            LEAKED,
            "bucket FAULT PUT buckets/status (texts) is applied and answered 500",
            "bucket buckets/texts status set",
        ],
    );
}

#[test]
fn a_conflict_that_is_ignored_is_found() {
    is_found(
        Bug::IgnoredConflict,
        &[
            LEAKED,
            "test buckets/photos terminating",
            "bucket FAULT PUT buckets (photos) gets 409 Conflict, not applied",
        ],
    );
}

#[test]
fn a_requeue_that_is_lost_is_found() {
    is_found(
        Bug::LostRequeue,
        &[
            "the scenario failed",
            "test buckets/texts created",
            "bucket FAULT GET buckets (texts) gets 503, not applied",
        ],
    );
}
